"""Worker processes collect the same numbers as one process, and no failure of a worker leaves anything behind."""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qpensieve.algos import hybrid_sac, mosac
from qpensieve.config import RunConfig, default_config, override
from qpensieve.envs import DOMAINS, LaneOptions, get_domain, make_lanes
from qpensieve.errors import EnvError
from qpensieve.learning.acting import num_parameters
from qpensieve.methods import METHODS, make_algorithm
from qpensieve.train.collect import Collected, Collector
from qpensieve.train.trainer import Trainer, num_workers
from qpensieve.train.workers import CollectionWorkers, can_work
from qpensieve.types import Behaviour
from tests.train.kill_run import TINY, advance_to, assert_same_arrays

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
def workers_of(domain: str, num_workers: int = 2) -> Iterator[CollectionWorkers]:
    workers = CollectionWorkers(domain, SEEDS, BLOCK, behaviour_of(domain), num_workers)
    workers.start()
    try:
        yield workers
    finally:
        workers.close()


def assert_same_block(one: Collected, other: Collected) -> None:
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize("domain", ["DST2d", "Hopper3d", "LunarLander4d"])
def test_workers_collect_what_one_process_does_also_after_a_restore(domain: str):
    flat, collector = some_parameters(domain), alone(domain)
    with workers_of(domain) as workers:
        assert_same_arrays(collector.state(), workers.state())
        blocks, saved = [], {}
        for number in range(4):
            policy = None if number == 0 else flat + np.float32(0.01 * number)
            blocks.append(workers.collect(policy, number))
            assert_same_block(
                collector.collect(None if policy is None else collector.policy(policy), number), blocks[-1]
            )
            assert_same_arrays(collector.state(), workers.state())
            if number == 1:
                saved = workers.state()
        with workers_of(domain, num_workers=3) if domain == "DST2d" else nullcontext(workers) as other:
            other.restore(saved)
            for number in (2, 3):
                assert_same_block(blocks[number], other.collect(flat + np.float32(0.01 * number), number))
    ends = np.concatenate([block.done for block in blocks], axis=1)
    terminated = np.concatenate([block.rows[:, :, -1] for block in blocks], axis=1)
    assert ends.sum() >= 3
    if domain == "DST2d":
        assert (ends & (terminated == 0)).any()  # a time limit
    assert terminated.any()


def test_a_worker_that_is_killed_is_named_and_the_next_block_starts_new_ones():
    flat, collector = some_parameters("DST2d"), alone("DST2d")
    with workers_of("DST2d") as workers:
        workers.collect(None, 0)
        before, processes = workers.state(), [one.process for one in workers.processes]
        processes[1].kill()
        processes[1].wait()
        with pytest.raises(EnvError, match=r"^DST2d: the process that steps lanes 1 to 2 was killed by SIGKILL"):
            workers.collect(flat, 1)
        assert all(process.poll() is not None for process in processes)
        assert_same_arrays(before, workers.state())
        collector.collect(None, 0)
        assert_same_block(collector.collect(collector.policy(flat), 1), workers.collect(flat, 1))


def test_a_block_that_was_begun_is_the_one_that_is_asked_for():
    flat, collector = some_parameters("DST2d"), alone("DST2d")
    other = flat + np.float32(0.5)
    with workers_of("DST2d") as workers:
        for number, begun, asked in ((0, None, None), (1, flat, flat), (2, other, flat), (3, flat, None)):
            workers.begin(begun, number)
            before = workers.state()  # that of the block before, while the workers collect
            assert_same_arrays(collector.state(), before)
            policy = None if asked is None else collector.policy(asked)
            assert_same_block(collector.collect(policy, number), workers.collect(asked, number))
        workers.begin(flat, 4)
        saved = collector.state()
        collector.collect(None, 4)
        workers.restore(saved)
        assert_same_arrays(saved, workers.state())
        workers.collect(None, 4)
        assert_same_arrays(collector.state(), workers.state())
        workers.processes[0].process.kill()
        workers.processes[0].process.wait()
        workers.begin(flat, 5)
        with pytest.raises(EnvError, match="lanes 0 to 0 was killed by SIGKILL"):
            workers.collect(flat, 5)
        assert_same_block(collector.collect(collector.policy(flat), 5), workers.collect(flat, 5))


def test_an_error_in_a_worker_has_its_type_and_lane_and_changes_nothing():
    flat, collector = some_parameters("Hopper2d"), alone("Hopper2d")
    collector.collect(None, 0)
    with workers_of("Hopper2d") as workers:
        workers.collect(None, 0)
        before, broken = workers.state(), flat.copy()
        broken[2] = np.nan
        with pytest.raises(FloatingPointError, match=r"^Hopper2d: action\[0\] is nan in lane 2 at step"):
            workers.collect(broken, 1)
        assert_same_arrays(before, workers.state())
        assert_same_block(collector.collect(collector.policy(flat), 1), workers.collect(flat, 1))


ORPHANS = """
import os, sys, time
from tests.train.test_collection_workers import workers_of
with workers_of("DST2d") as workers:
    workers.collect(None, 0)
    print(*(one.process.pid for one in workers.processes), flush=True)
    time.sleep(60)
"""


def test_workers_end_when_their_parent_is_killed_and_ignore_ctrl_c():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, env=environment)
    assert parent.stdout is not None
    with parent:
        workers = [int(word) for word in parent.stdout.readline().split()]
        assert len(workers) == 2
        for worker in workers:
            os.kill(worker, signal.SIGINT)
            os.kill(worker, signal.SIGTERM)
        time.sleep(0.2)
        assert all(is_running(worker) for worker in workers)
        parent.kill()
    deadline = time.monotonic() + 20
    while any(is_running(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(process: int) -> bool:
    """Whether a process is there, and not only its entry, which nobody has read yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_workers_are_not_for():
    behaviour = behaviour_of("DST2d")
    assert can_work("qpensieve/DST2d-v0", behaviour)
    assert not can_work("mo-hopper-v5", behaviour)
    assert not can_work(lambda: None, behaviour)  # pyright: ignore[reportArgumentType]
    held = replace(behaviour, acting=replace(behaviour.acting, decode=lambda stored: stored))
    assert not can_work("DST2d", held)


@pytest.mark.parametrize("method", [name for name, row in METHODS.items() if not row.is_population])
def test_every_method_can_be_collected_by_workers(method: str):
    spec = get_domain("DeepSeaTreasure" if method == "envelope" else "DST2d").spec
    behaviour = make_algorithm(method, METHODS[method].config(), spec).behaviour
    assert pickle.loads(pickle.dumps(behaviour)).num_lanes == behaviour.num_lanes


def test_agents_with_several_lanes_stay_whole():
    """Hybrid SAC: two preferences, each with its own agent in two lanes."""
    spec = DOMAINS["DST2d"].spec
    algorithm = make_algorithm("hybrid-sac", hybrid_sac.HybridConfig(), spec)
    num_agents = 3
    seeds = [seed for seed in range(num_agents) for _ in range(2)]
    width = num_parameters((2, 256, 256, 4)) + num_parameters((4, 256, 256, 4))
    flat = np.random.default_rng(0).standard_normal((num_agents, width)).astype(np.float32) * np.float32(0.1)
    collector = Collector(make_lanes("DST2d", 6, seeds), seeds, 20, algorithm.behaviour)
    collector.start()
    workers = CollectionWorkers("DST2d", seeds, 20, algorithm.behaviour, num_workers=2)
    workers.start()
    for number in range(2):
        block = workers.collect(flat, number)
        assert_same_block(collector.collect(collector.policy(flat), number), block)
        assert block.rows.shape[2] == 9
    workers.close()


class TestTraining:
    @staticmethod
    def tiny(num_threads: int) -> RunConfig:
        return override(default_config("DST2d"), {**TINY, "num_threads": num_threads})

    def test_training_with_and_without_workers_is_the_same(self):
        one, two = Trainer(self.tiny(1)), Trainer(self.tiny(2))
        assert (type(one.collector), type(two.collector)) == (Collector, CollectionWorkers)
        for trainer in (one, two):
            advance_to(trainer, 200)
        assert_same_arrays(one.arrays(), two.arrays())
        np.testing.assert_array_equal(one.replay_rows()[0], two.replay_rows()[0])
        saved, rows = one.arrays(), one.replay_rows()
        advance_to(one, 260)
        two.restore(saved, *rows)
        advance_to(two, 260)
        assert_same_arrays(one.arrays(), two.arrays())
        two.close()


@pytest.mark.parametrize(
    ("num_threads", "num_agents", "is_accelerated", "expected"),
    [
        (None, 5, False, 1),  # the cores are busy learning
        (None, 5, True, 5),
        (None, 95, True, 15),  # one core is for this process
        (1, 5, True, 1),
        (3, 5, False, 3),
        (8, 5, True, 5),
        (8, 1, True, 1),
    ],
)
def test_as_many_workers_as_cores_to_spare(
    num_threads: int | None, num_agents: int, is_accelerated: bool, expected: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("qpensieve.train.trainer.available_cores", lambda: 16)
    assert num_workers(num_threads, num_agents, is_accelerated) == expected
