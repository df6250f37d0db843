"""What collecting a block costs the host, in microseconds of one step of all lanes, all in the same run.

From left to right: the physics alone on one thread, lanes on one thread, a block with acting in one process, and the
same block by worker processes (`train/workers.py`). Lanes are one per seed, as in training.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.lanes import GYM_BODIES, bare_physics
from benchmarks.timing import Row, interleave, seconds
from qpensieve.envs import LaneOptions, Lanes, get_domain, make_lanes
from qpensieve.learning.interface import Algorithm
from qpensieve.machine import available_cores
from qpensieve.methods import get_method, make_algorithm
from qpensieve.train.collect import Collector
from qpensieve.train.workers import CollectionWorkers
from qpensieve.types import Behaviour, Parameters

ALGO = "mosac"
SCALE = 0.05
"""Standard deviation of the policies' parameters."""


@dataclass(frozen=True)
class Settings:
    """Settings of the benchmark.

    Attributes:
        seeds: Agents, each with one lane.
        workers: Worker processes. None: one per seed, but no more than cores.
        block: Steps of a block.
        repeats: Interleaved repeats; the median is shown.
        domains: Which domains.
    """

    seeds: int = 5
    workers: int | None = None
    block: int = 50
    repeats: int = 21
    domains: tuple[str, ...] = tuple(GYM_BODIES)


def run(settings: Settings, progress: Callable[[str], None]) -> list[Row]:
    """Return one row per domain."""
    rows = []
    for domain in settings.domains:
        progress(f"blocks: {domain}")
        rows.append(_measure(domain, settings))
    return rows


def _measure(domain: str, settings: Settings) -> Row:
    known, seeds = get_domain(domain), list(range(settings.seeds))
    algorithm = make_algorithm(ALGO, get_method(ALGO).config(), known.spec)
    workers = min(settings.workers or available_cores(), settings.seeds)
    one, many = _collectors(domain, seeds, settings.block, algorithm.behaviour, workers)
    flat = _some_parameters(algorithm, settings.seeds)
    lanes = _one_thread(domain, seeds)
    lanes.reset()
    size = (settings.block, len(seeds), known.action_size)
    actions = np.random.default_rng(0).uniform(-1, 1, size).astype(np.float32)
    parts = [bare_physics(domain, lanes, actions), lambda: seconds(lambda: [lanes.step(a) for a in actions])]
    parts += [_timer(collector, flat) for collector in (one, many)]
    for part in parts:  # warm up: caches, first resets, processes that are still starting
        part()
    times = np.array(interleave(parts, settings.repeats)) / settings.block * 1e6
    for owner in (one, many, lanes):
        owner.close()
    physics, stepping, block, shared = (median(values) for values in times.tolist())
    return {
        "domain": domain,
        "physics us": physics or None,
        "lanes us": stepping,
        "around physics": 1 - physics / stepping if physics else None,
        "block us": block,
        "workers us": shared,
        "workers": workers,
        "ratio": median((times[2] / times[3]).tolist()),
        "seed-steps/s": 1e6 * settings.seeds / min(block, shared),
    }


def _one_thread(domain: str, seeds: list[int]) -> Lanes:
    return make_lanes(domain, len(seeds), seeds, LaneOptions(num_threads=1))


def _collectors(
    domain: str, seeds: list[int], block: int, behaviour: Behaviour, workers: int
) -> tuple[Collector, CollectionWorkers]:
    """Return collectors of this process and of worker processes."""
    one = Collector(_one_thread(domain, seeds), seeds, block, behaviour)
    many = CollectionWorkers(domain, seeds, block, behaviour, workers)
    for collector in (one, many):
        collector.start()
    return one, many


def _timer(collector: Any, flat: Parameters) -> Callable[[], float]:
    """Return a timer of a block and of the work of the training loop around it."""
    return lambda: seconds(lambda: collector.collect(collector.policy(flat), 0))


def _some_parameters(algorithm: Algorithm[Any], num_agents: int) -> Parameters:
    lam = jnp.full(2, 0.5)  # of any length: this algorithm has no preference of its own
    actor = jax.eval_shape(lambda key: algorithm.actor(algorithm.init(key, lam)), jax.random.key(0))
    width = sum(leaf.size for leaf in jax.tree.leaves(actor))
    return (SCALE * np.random.default_rng(0).standard_normal((num_agents, width))).astype(np.float32)
