"""Updates per second of every method, compared with MO-SAC in the same run; no environment is stepped."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks.timing import Row, interleave, seconds
from qpensieve.config import RunConfig, default_config, override
from qpensieve.envs import get_domain
from qpensieve.errors import UserError
from qpensieve.learning.interface import Algorithm, Hints, PrioritizedLearning
from qpensieve.methods import METHODS, make_algorithm
from qpensieve.replay.layout import RowLayout, layout_of
from qpensieve.train.learner import Block, make_learner

REFERENCE: str = "mosac"
CAPACITY = 100_000


@dataclass(frozen=True)
class Settings:
    """Settings of the benchmark.

    Attributes:
        domain: Domain that sets the shapes.
        algos: Methods to compare with MO-SAC.
        seeds: Numbers of agents trained at once; sac and hybrid-sac have one preference each.
        block: Updates per call.
        repeats: Interleaved repeats; the median is shown.
    """

    domain: str = "DST2d"
    algos: tuple[str, ...] = ("qpensieve", "sac", "hybrid-sac", "cnder", "envelope")
    seeds: tuple[int, ...] = (1, 5)
    block: int = 10
    repeats: int = 3


def run(settings: Settings, progress: Callable[[str], None]) -> list[Row]:
    """Return one row per method and number of agents. Ratios are of this run."""
    known = [name for name, method in METHODS.items() if not method.is_population]
    unknown = sorted(set(settings.algos) - set(known))
    if unknown:
        populations = "; 'python -m benchmarks collect' times populations" if unknown[0] in METHODS else ""
        raise UserError(f"methods cannot time {unknown[0]!r}: use {', '.join(known)}{populations}")
    names: list[str] = [REFERENCE, *(algo for algo in settings.algos if algo != REFERENCE)]
    rows = []
    for num in settings.seeds:
        timers = []
        for name in names:
            progress(f"methods: compiling {name} for {num} agent(s)")
            timers.append(_timer(_config(settings.domain, name), num, settings.block))
            timers[-1]()
        progress(f"methods: measuring {num} agent(s)")
        times = interleave(timers, settings.repeats)
        for name, values in zip(names, times, strict=True):
            ratio = median(value / reference for value, reference in zip(values, times[0], strict=True))
            each = median(values)
            progress(f"methods: {name}, {num} agent(s): {num / each:,.0f} agent-updates/s")
            rows.append(
                {
                    "method": name,
                    "agents": num,
                    "ms/update": 1e3 * each,
                    "agent-updates/s": num / each,
                    "times MO-SAC's": ratio,
                }
            )
    return rows


def _config(domain: str, algo: str) -> RunConfig:
    """Return the paper's settings. Hybrid SAC is timed after its switch, when it takes longer."""
    config = default_config(domain, algo)
    d = get_domain(domain).spec.num_objectives
    if algo in ("sac", "hybrid-sac"):
        config = override(config, {"preferences": (",".join([str(1 / d)] * d),)})
    if algo in ("qpensieve", "hybrid-sac"):
        config = override(config, {"push_after": 0, "push_period": 1})
    return override(config, {"switch_after": 0}) if algo == "hybrid-sac" else config


def _timer(config: RunConfig, num_agents: int, block: int) -> Callable[[], float]:
    """Return a function that runs a block of updates and returns the seconds of an update of all agents."""
    spec = get_domain(config.domain).spec
    algorithm = make_algorithm(config.algo, config.agent, spec)
    layout = layout_of(spec, algorithm.behaviour)
    learner = make_learner(algorithm, layout, CAPACITY)
    state = learner.init(jnp.arange(num_agents))
    state = learner.write(state, _block(algorithm, layout, num_agents, CAPACITY // 10))
    new = _block(algorithm, layout, num_agents, block)

    def time_block() -> float:
        nonlocal state
        before = state

        def work() -> None:
            nonlocal state
            state, flat, _ = learner.learn(before, new)
            flat.block_until_ready()

        return seconds(work) / block

    return time_block


def _block(algorithm: Algorithm[Any], layout: RowLayout, num_agents: int, num: int) -> Block:
    """Return a block of noise in place of transitions. Discrete actions are all 0."""
    generator, lanes = np.random.default_rng(num), num_agents * algorithm.num_lanes
    rows = generator.standard_normal((lanes, num, layout.width)).astype(np.float32)
    if algorithm.acting.is_discrete:
        rows[..., layout.action] = 0.0
    learning = algorithm.learning
    if not isinstance(learning, PrioritizedLearning):
        return Block(jnp.asarray(rows))
    lam = generator.dirichlet(np.ones(layout.num_objectives), (num_agents, num)).astype(np.float32)
    past = np.repeat(lam[:, :, None], learning.num_past, axis=2)
    slots = np.tile(np.arange(num, dtype=np.int32), (num_agents, 1))
    return Block(jnp.asarray(rows), jnp.asarray(slots), Hints(jnp.asarray(lam), jnp.asarray(past)))
