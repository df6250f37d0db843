"""Learning of the baselines on Deep Sea Treasure.

Short runs on the CPU, where a run is the same every time; and, in the tests named `committed_...`, what docs/results.md
says of runs too long for a CPU, read from the files under results/h200: those tests train nothing.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qpensieve import preferences
from qpensieve.config import default_config, from_dict, override, with_schedule
from qpensieve.envs.deep_sea import find_treasures
from qpensieve.records.search import SearchRecord
from qpensieve.train.population import PopulationTrainer
from qpensieve.train.trainer import Trainer

pytestmark = pytest.mark.slow

RESULTS = Path(__file__).parents[2] / "results" / "h200"


def last_full_evaluation(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The exported run and its newest full evaluation."""
    content = json.loads((RESULTS / f"{name}.json").read_text())
    return content, content["full_protocol"][-1]


def treasures_per_seed(name: str) -> list[int]:
    """How many treasures each seed reached at the run's end; every episode of a preference is the same trip."""
    returns = np.array(last_full_evaluation(name)[1]["mean_returns"])
    return [len(found) for found in find_treasures(returns[:, :, None])]


def test_cnder_reaches_three_treasures_across_preferences():
    """Measured when written: four and three treasures, UT 5.4 and 2.4 on the 19 preferences."""
    settings = {"seeds": 2, "steps": 30_000, "random_steps": 5_000}
    trainer = Trainer(override(default_config("DST2d", "cnder", "quick"), settings))
    while trainer.step < 30_000:
        trainer.advance()
    found = find_treasures(trainer.evaluate(preferences.sac_preferences(), 1))
    assert min(map(len, found)) >= 3


def test_sac_improves_towards_the_best_return_of_its_preference():
    """At (0.9, 0.1) the best is 20.23, by way of 23.7; 16.1 in seven steps is worth 13.8, idling -5."""
    settings = {"seeds": 2, "steps": 20_000, "preferences": ("0.9,0.1",)}
    trainer = Trainer(override(default_config("DST2d", "sac", "quick"), settings))
    lam = np.array([[0.9, 0.1]])
    before = trainer.evaluate(lam, 1) @ lam[0]
    while trainer.step < 20_000:
        trainer.advance()
    after = trainer.evaluate(lam, 1) @ lam[0]
    assert (before < 0).all()
    assert (after > 10).any()
    assert (after <= 20.23 + 1e-6).all()


@pytest.mark.timeout(900)
def test_envelope_finds_nine_treasures_of_the_grid_on_its_way():
    """The operator of the paper, some seed at some evaluation of a run of 45 000 steps.

    It does not hold them, and which seed has them when depends on how the processor rounds: when written one seed had
    ten at 15 000 and ended with eight (results/cpu/DeepSeaTreasure-envelope.json), on another processor two of four
    had nine at 30 000 and six or seven at 15 000.
    """
    settings = {
        "seeds": 4,
        "steps": 45_000,
        "anneal_steps": 45_000,
        "random_steps": 1_000,
        "replay_capacity": 100_000,
        "learning_rate": 3e-4,
        "batch_size": 128,
        "num_preferences": 16,
        "width_factors": (16, 32, 16),
        "epsilon_start": 1.0,
        "epsilon_end": 0.2,
    }
    plain = {"discount": 0.99, "twin": False, "tau": None, "acts_with": "newest", "scale_obs": False}
    settings |= plain | {"learning_rate_end": None}
    trainer = Trainer(override(default_config("DeepSeaTreasure", "envelope"), settings))
    most = 0
    while trainer.step < trainer.goal and most < 9:
        trainer.advance()
        if trainer.step % 5_000 == 0:
            most = max(map(len, find_treasures(trainer.evaluate(preferences.test_table(2), 1))))
    assert most >= 9


@pytest.mark.parametrize(
    ("name", "settings", "ut"),
    [
        ("DeepSeaTreasure-envelope", {"envelope": True}, (-np.inf, 6.59745)),
        ("DST2d-envelope", {"envelope": True, "discount": 0.99}, (-np.inf, -20)),  # the authors' discount: idles
        ("DST2d-envelope-held", {"envelope": True}, (3, 7.758)),
        ("DST2d-cnder", {"layer_norm": True}, (-np.inf, 7.758)),
    ],
)
def test_committed_baselines_have_these_settings_and_scores(name: str, settings: Any, ut: tuple[float, float]):
    content, row = last_full_evaluation(name)
    assert settings.items() <= content["config"]["agent"].items()
    assert ut[0] < min(row["ut"])
    assert max(row["ut"]) <= ut[1]


@pytest.mark.parametrize(("name", "least"), [("DeepSeaTreasure-envelope-own", 9), ("DST2d-cnder", 3)])
def test_committed_baselines_find_treasures_in_every_seed(name: str, least: int):
    """With the maximum over preferences Envelope overestimates values, and boats idle (docs/results.md)."""
    assert min(treasures_per_seed(name)) >= least
    assert min(treasures_per_seed("DeepSeaTreasure-envelope")) < 9


def test_the_committed_envelope_run_with_the_defaults_beats_the_utility_of_the_paper_on_dst2d():
    """Eleven bins and the operator of the paper; 200 000 steps, ten seeds."""
    content, row = last_full_evaluation("DST2d-envelope-held")
    made_with = asdict(from_dict(content["config"]).agent)
    assert made_with | {"anneal_steps": None} == asdict(default_config("DST2d", "envelope").agent)
    assert (row["step"], len(row["ut"])) == (200_000, 10)
    assert np.mean(row["ut"]) > 4.6


@pytest.mark.parametrize(
    ("name", "steps", "mean", "least", "changes"),
    [
        ("DST2d-robust-500k", 500_000, 7.45, 7.35, {}),
        ("DST2d-robust-seeds5-500k", 500_000, 7.45, 7.35, {}),
        ("HalfCheetah2d-robust-1.5M", 1_500_000, 5700, 4850, {}),
        ("HalfCheetah2d-robust-seeds5-1.5M", 1_500_000, 5700, 4999, {}),
        ("HalfCheetah2d-mosac-robust-1.5M", 1_500_000, 5550, 4800, {}),
        ("HalfCheetah2d-robust-rate-1e-3-1.5M", 1_500_000, 5700, 5000, {"learning_rate": 1e-3}),
        ("Hopper2d-robust-300k", 300_000, 380, 290, {}),
        ("Hopper2d-robust-discount-0.995-300k", 300_000, 770, 690, {"discount": 0.995}),
        ("Hopper2d-robust-discount-0.995-seeds5-300k", 300_000, 620, 410, {"discount": 0.995}),
        ("Walker2d-robust-300k", 300_000, 290, 180, {}),
    ],
)
def test_committed_runs_of_robust_are_those_of_the_preset(name, steps, mean, least, changes):
    """If the preset changes, repeat these runs, or let the pages say which settings they had."""
    content, row = last_full_evaluation(name)
    made_with = from_dict(content["config"])
    if made_with.algo == "qpensieve":  # docs/robust.md says so
        changes = changes | {"num_preferences": 5, "snapshots_per_update": None, "memory_updates": 0}
    preset = with_schedule(
        override(default_config(made_with.domain, made_with.algo, "robust"), {"steps": steps} | changes)
    )
    assert made_with.agent == preset.agent
    for setting in ("random_steps", "random_noise", "updates_per_step"):
        assert getattr(made_with, setting) == getattr(preset, setting)
    assert row["step"] == steps
    assert np.mean(row["ut"]) > mean
    assert min(row["ut"]) > least


def test_pgmorl_grows_its_archive_over_generations():
    """Stages of 8 and 4 iterations, small rollouts; measured when written: HV 651 to 735, and 34 to 920."""
    record = searched("pgmorl", warmup_iterations=8, generation_iterations=4, steps=25_600)
    assert record.generation_ends() == [8, 12, 16, 20, 24, 28, 32, 36, 40]
    for seed in range(2):
        volumes = [record.hypervolume_of(seed, end) for end in record.generation_ends()]
        assert volumes == sorted(volumes)
        assert volumes[-1] > volumes[0]
        assert volumes[-1] <= 1055.0 + 1e-6


def test_pfa_makes_the_archive_denser_than_the_warm_up_did():
    """And every task ends at the preference its right neighbour began with. When written: 4 to 7, 1 to 5 policies."""
    record = searched("pfa", warmup_iterations=8, generation_iterations=4, steps=25_600)
    ends = record.generation_ends()
    sizes = [[len(record.archive_of(seed, end)) for seed in range(2)] for end in (ends[0], ends[-1])]
    assert sum(sizes[1]) > sum(sizes[0])
    np.testing.assert_allclose(record.lam[-1, 0, :-1], record.lam[0, 0, 1:])
    assert max(record.hypervolume_of(seed) for seed in range(2)) <= 1055.0 + 1e-6


def searched(algo: str, **settings: Any) -> SearchRecord:
    trainer = PopulationTrainer(override(default_config("DST2d", algo, "quick"), {"seeds": 2} | settings))
    while trainer.step < trainer.goal:
        trainer.advance()
    return trainer.search_record()
