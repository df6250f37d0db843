"""A crew collects the same numbers as one process, and no failure of its workers leaves anything behind."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from qpensieve.algos import mosac
from qpensieve.envs import DOMAINS, LaneOptions, make_lanes
from qpensieve.host_types import Behaviour
from qpensieve.learning.acting import num_parameters
from qpensieve.train.collect import Collected, Collector
from qpensieve.train.crew import Crew

SEEDS, BLOCK, HIDDEN = [3, 4, 9], 60, 16
FIELDS = ("rows", "lam", "episodes", "done")


def behaviour_of(domain: str) -> Behaviour:
    return mosac.make(mosac.SacConfig(hidden=HIDDEN), DOMAINS[domain].spec).behaviour


def some_parameters(domain: str, scale: float = 0.5) -> np.ndarray:
    spec = DOMAINS[domain].spec
    width = num_parameters((spec.obs_size + spec.num_objectives, HIDDEN, HIDDEN, 2 * spec.action_size))
    return np.random.default_rng(5).standard_normal((len(SEEDS), width)).astype(np.float32) * np.float32(scale)


def alone(domain: str) -> Collector:
    lanes = make_lanes(domain, len(SEEDS), SEEDS, LaneOptions(num_threads=1))
    collector = Collector(lanes, SEEDS, BLOCK, behaviour_of(domain))
    collector.start()
    return collector


@contextmanager
def crew_of(domain: str, num_workers: int = 2) -> Iterator[Crew]:
    crew = Crew(domain, SEEDS, BLOCK, behaviour_of(domain), num_workers)
    crew.start()
    try:
        yield crew
    finally:
        crew.close()


def assert_same_block(one: Collected, other: Collected) -> None:
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def assert_same_state(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)
        assert value.dtype == other[name].dtype


@pytest.mark.parametrize("domain", ["DST2d", "Hopper3d", "LunarLander4d"])
def test_a_crew_collects_what_one_process_does_also_after_a_restore(domain: str):
    flat, collector = some_parameters(domain), alone(domain)
    with crew_of(domain) as crew:
        assert_same_state(collector.state(), crew.state())
        blocks, saved = [], {}
        for number in range(4):
            policy = None if number == 0 else flat + np.float32(0.01 * number)
            blocks.append(crew.collect(policy, number))
            assert_same_block(
                collector.collect(None if policy is None else collector.policy(policy), number), blocks[-1]
            )
            assert_same_state(collector.state(), crew.state())
            if number == 1:
                saved = crew.state()
    ends = np.concatenate([block.done for block in blocks], axis=1)
    terminated = np.concatenate([block.rows[:, :, -1] for block in blocks], axis=1)
    assert ends.sum() >= 3
    if domain == "DST2d":
        assert (ends & (terminated == 0)).any()  # a time limit
    assert terminated.any()
    with crew_of(domain, num_workers=3) as other:
        other.restore(saved)
        for number in (2, 3):
            assert_same_block(blocks[number], other.collect(flat + np.float32(0.01 * number), number))
