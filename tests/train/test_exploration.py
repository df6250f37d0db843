"""Runs with noise that is correlated in time: exact in every way that runs are, refused where it means nothing."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qpensieve.config import check, default_config, override
from qpensieve.envs import LaneOptions, make_lanes
from qpensieve.envs.deep_sea import VALUES
from qpensieve.learning.streams import LaneNoise
from tests.train.kill_run import TINY
from tests.train.test_collection_workers import behaviour_of
from tests.train.test_trainer import Trainer, advance_to, assert_same_state, tiny

RUN = ("steps", "random_steps", "block", "eval_period", "log_period", "parameters_period", "hidden", "batch_size")
CORRELATED: dict[str, Any] = {"random_noise": "ar1"}


@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_restored_run_goes_on_in_the_middle_of_a_sequence(num_threads: int):
    original, other = Trainer(tiny(**CORRELATED)), Trainer(tiny(**CORRELATED, num_threads=num_threads))
    advance_to(original, 60)
    other.restore(original.arrays(), *original.replay_rows())  # among the random actions
    advance_to(original, 240)
    advance_to(other, 240)
    assert_same_state(other, original)
    fresh = Trainer(tiny(**CORRELATED))
    fresh.restore(original.arrays(), *original.replay_rows())  # while it learns
    advance_to(original, 300)
    advance_to(fresh, 300)
    assert_same_state(fresh, original)
    plain = Trainer(tiny())
    advance_to(plain, 300)
    assert (plain.replay_rows()[0] != original.replay_rows()[0]).any()
    other.close()


@pytest.mark.parametrize(
    ("algo", "changes", "complaint"),
    [
        ("envelope", {"random_noise": "ar1"}, "random_noise must be white for envelope, got ar1"),
        ("pgmorl", {"random_noise": "ar1"}, "random_noise must be left out, got ar1: pgmorl has no replay"),
    ],
)
def test_noise_that_means_nothing_is_refused(algo: str, changes: dict[str, Any], complaint: str):
    with pytest.raises(ValueError, match="these settings cannot run") as refusal:
        check(override(default_config("DST2d", algo), changes))
    assert complaint in str(refusal.value)


@pytest.mark.parametrize("noise_for", ["both", "helper"])
def test_the_helper_of_hybrid_sac_may_explore_alone(noise_for: str):
    """The SAC then has the random phase of the SAC that it is compared with, the helper always its own."""
    settings = {"seeds": 1, "preferences": ("0.9,0.1",), "random_noise": "ar1"} | {name: TINY[name] for name in RUN}
    rows = {}
    for algo, changes in (("hybrid-sac", {"noise_for": noise_for}), ("sac", {}), ("sac", {"random_noise": "white"})):
        trainer = Trainer(override(default_config("DST2d", algo), settings | changes))
        rows[algo, changes.get("random_noise", "ar1")] = trainer.advance()
    own, helper = rows["hybrid-sac", "ar1"]
    np.testing.assert_array_equal(own, rows["sac", "white" if noise_for == "helper" else "ar1"][0])
    np.testing.assert_array_equal(helper, rows["sac", "ar1"][0])


@pytest.mark.parametrize("algo", ["qpensieve", "mosac", "sac", "hybrid-sac", "cnder"])
def test_every_method_with_continuous_actions_takes_it(algo: str):
    config = override(default_config("DST2d", algo), CORRELATED)
    check(config)
    assert config.random_correlation == 0.8
    assert override(config, {"random_noise": "white"}).random_correlation is None


def test_envelope_with_all_that_holds_values_down_trains_acts_and_resumes():
    together = {"twin": True, "tau": 0.1, "acts_with": "target", "scale_obs": True, "learning_rate_end": 1e-4}
    small = {"bins": 3, "width_factors": (2, 2), "num_preferences": 3, "anneal_steps": 600}
    run = {name: TINY[name] for name in RUN if name != "hidden"} | {"seeds": 2, "replay_capacity": 600}
    config = override(default_config("DST2d", "envelope"), run | small | together)
    trainer, other = Trainer(config), Trainer(config)
    advance_to(trainer, 160)
    other.restore(trainer.arrays(), *trainer.replay_rows())
    advance_to(trainer, 200)
    advance_to(other, 200)
    assert_same_state(other, trainer)


def share_that_finds(
    treasure: float, correlation: float | None, num_seeds: int, steps: int = 10_000
) -> tuple[float, float]:
    """Share of random phases on DST2d that see a treasure, and how often they do in the mean; nothing is learned."""
    lanes = make_lanes("DST2d", num_seeds, list(range(num_seeds)), LaneOptions(num_threads=1))
    noise = LaneNoise(replace(behaviour_of("DST2d"), random_correlation=correlation), list(range(num_seeds)), 50)
    found = np.zeros(num_seeds, np.int64)
    lanes.reset()
    for number in range(steps // 50):
        actions = noise.draw(number, is_random=True)
        for k in range(50):
            found += lanes.step(actions[:, k]).reward[:, 0] == treasure
    return float(np.mean(found > 0)), float(np.mean(found))


@pytest.mark.slow
@pytest.mark.parametrize(("correlation", "least", "most"), [(None, 0, 0.05), (0.8, 0.97, 1)])
def test_random_phases_with_correlated_noise_see_the_farthest_treasure(correlation: Any, least: float, most: float):
    share, times = share_that_finds(max(VALUES), correlation, num_seeds=100)
    print(f"{correlation}: {100 * share:.0f} % of the phases see it, {times:.2f} times in the mean")
    assert least <= share <= most
