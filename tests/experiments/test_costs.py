"""The cost model against what was measured on the H200, and what must hold whatever the numbers are."""

from dataclasses import replace

import pytest

from qpensieve.config import RunConfig
from qpensieve.experiments import costs
from qpensieve.experiments.paper import ARTEFACTS
from qpensieve.experiments.plan import Wanted


def rate(domain: str, num_steps: int = 1_000_000) -> float:
    """Seed-steps per second of Q-Pensieve with five seeds, alone, short evaluations every 50 000 steps included."""
    config = replace(Wanted(domain).config(), eval_period=50_000, full_eval_episodes=1, full_eval_stride=100)
    longer = replace(config, steps=2 * num_steps)
    seconds = costs.run_seconds(longer) - costs.run_seconds(replace(config, steps=num_steps))
    return config.seeds * num_steps / seconds


def test_one_domain_alone_is_as_fast_as_measured():
    assert rate("Hopper2d") == pytest.approx(10_600, rel=0.1)


def test_four_domains_at_once_are_as_fast_as_measured():
    alone = [rate(domain) for domain in ("Hopper2d", "HalfCheetah2d", "Walker2d", "Ant2d")]
    slower = costs.H200.at_once / costs.H200.gain
    assert sum(alone) / slower == pytest.approx(24_000, rel=0.15)  # measured with the slower kernels of 0.2.0


def every_run() -> list[RunConfig]:
    wanted = dict.fromkeys(one for artefact in ARTEFACTS.values() for one in artefact.cells.values())
    return [one.config() for one in wanted]


def test_more_cards_are_never_slower_and_never_faster_than_the_longest_run():
    cost = costs.cost_of(every_run())
    times = [costs.wall_seconds(cost, num) for num in (1, 2, 8, 64, 1000)]
    assert times == sorted(times, reverse=True)
    assert times[-1] == cost.longest


def test_longer_runs_and_more_seeds_cost_more():
    for config in every_run():
        seconds = costs.run_seconds(config)
        assert costs.run_seconds(replace(config, steps=2 * config.steps)) > seconds
        assert costs.run_seconds(replace(config, seeds=4 * config.seeds)) > seconds


def test_a_single_run_takes_its_own_time_on_however_many_cards():
    config = Wanted("Hopper2d").config()
    cost = costs.cost_of([config])
    assert {costs.wall_seconds(cost, num) for num in (1, 8, 64)} == {costs.run_seconds(config)}


def test_nothing_costs_nothing():
    assert costs.wall_seconds(costs.cost_of([]), 1) == 0


@pytest.mark.parametrize(("names", "is_measured"), [([], False), (["Tesla T4"], False), (["NVIDIA H200"], True)])
def test_only_machines_like_the_measured_one_are_known(
    monkeypatch: pytest.MonkeyPatch, names: list[str], is_measured: bool
):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr("qpensieve.machine.gpu_names", lambda: names)
    assert (costs.this_machine() is costs.H200) == is_measured
