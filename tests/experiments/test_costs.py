"""The cost model against what was measured on the H200, and what must hold whatever the numbers are."""

from dataclasses import replace

import pytest

from qpensieve.experiments import costs
from qpensieve.experiments.paper import ARTEFACTS
from qpensieve.experiments.plan import Wanted

RUNS = [wanted.config() for artefact in ARTEFACTS.values() for wanted in artefact.cells.values()]


def rate(domain: str, num_steps: int = 1_000_000) -> float:
    """Seed-steps per second of Q-Pensieve with five seeds, alone, short evaluations every 50 000 steps included."""
    config = replace(Wanted(domain).config(), eval_period=50_000, full_eval_episodes=1, full_eval_stride=100)
    longer = replace(config, steps=2 * num_steps)
    seconds = costs.run_seconds(longer) - costs.run_seconds(replace(config, steps=num_steps))
    return config.seeds * num_steps / seconds


def test_more_cards_are_never_slower_and_never_faster_than_the_longest_run():
    times = [costs.wall_seconds(RUNS, num) for num in (1, 2, 8, 64, 1000)]
    assert times == sorted(times, reverse=True)
    assert times[-1] == max(map(costs.run_seconds, RUNS))
    assert {costs.wall_seconds(RUNS[:1], num) for num in (1, 8, 64)} == {costs.run_seconds(RUNS[0])}
    assert costs.wall_seconds([], 1) == 0


@pytest.mark.parametrize(("names", "is_measured"), [([], False), (["Tesla T4"], False), (["NVIDIA H200"], True)])
def test_only_machines_like_the_measured_one_are_known(
    monkeypatch: pytest.MonkeyPatch, names: list[str], is_measured: bool
):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr("qpensieve.machine.gpu_names", lambda: names)
    assert costs.is_measured_here() == is_measured
