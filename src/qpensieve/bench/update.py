"""Milliseconds per update, compared with the least time that the matrix products need on this machine.

The least time (the floor) is the counted floating-point work divided by the best float32 rate of square products of
size 256 to 2048, measured in the same run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from qpensieve.algos import mosac, qpensieve
from qpensieve.bench import plain
from qpensieve.bench.timing import interleave, seconds
from qpensieve.console import Row
from qpensieve.envs import get_domain
from qpensieve.replay.layout import RowLayout, layout_of
from qpensieve.train.learner import Block, Learner, make_learner
from qpensieve.types import Algorithm, EnvSpec

MATRIX_SIZES = (256, 512, 1024, 2048)
REPLAY_ROWS = 20_000
MOSAC_AS_PENSIEVE = qpensieve.QPensieveConfig(num_preferences=1, num_snapshots=0)


@dataclass(frozen=True)
class Settings:
    """Settings of the benchmark.

    Attributes:
        domain: Domain that sets the shapes; no environment is stepped.
        seeds: Numbers of seeds trained at once.
        block: Updates per call.
        repeats: Interleaved repeats; the median is shown.
        plain: Also time the plain form of Q-Pensieve.
    """

    domain: str = "Hopper2d"
    seeds: tuple[int, ...] = (1, 5)
    block: int = 10
    repeats: int = 5
    plain: bool = True


def run(settings: Settings, progress: Callable[[str], None]) -> list[Row]:
    """One row per method and number of seeds, with ratios to the plain form and to the floor."""
    spec = get_domain(settings.domain).spec
    rows = []
    for num_seeds in settings.seeds:
        names = ["mosac", "qpensieve", *(["qpensieve plain"] if settings.plain else [])]
        progress(f"update: compiling for {num_seeds} seed(s)")
        timers = [_timer(_algorithm(name, spec), spec, num_seeds, settings.block) for name in names]
        rates: list[float] = []
        parts = [*timers, lambda rates=rates: rates.append(matrix_rate()) or 0.0]
        for part in parts:
            part()
        progress(f"update: measuring {num_seeds} seed(s)")
        times = interleave(parts, settings.repeats)
        rows += _rows(dict(zip(names, times[:-1], strict=True)), spec, num_seeds, max(rates))
    return rows


def _rows(times: dict[str, list[float]], spec: EnvSpec, num_seeds: int, rate: float) -> list[Row]:
    rows = []
    for name, values in times.items():
        counted = MOSAC_AS_PENSIEVE if name == "mosac" else qpensieve.QPensieveConfig()
        flop, each = num_seeds * count_flop(counted, spec), median(values)
        against = None if name == "mosac" else times.get("qpensieve plain")
        speedup = median(p / v for p, v in zip(against, values, strict=True)) if against else None
        rows.append(
            {
                "method": name,
                "seeds": num_seeds,
                "ms/update": 1e3 * each,
                "seed-updates/s": num_seeds / each,
                "GFLOP": flop / 1e9,
                "GFLOP/s of products": rate / 1e9,
                "floor ms": 1e3 * flop / rate,
                "times floor": each / (flop / rate) if "plain" not in name else None,
                "times faster than plain": speedup,
            }
        )
    return rows


def count_flop(cfg: qpensieve.QPensieveConfig, spec: EnvSpec) -> float:
    """Floating-point work of the matrix products of one update of one seed, fast form."""
    sac, d = cfg.sac, spec.num_objectives
    b, h = sac.batch_size, sac.hidden
    actor = 2 * b * ((spec.obs_size + d) * h + h * h + h * 2 * spec.action_size)
    critic = 2 * b * ((spec.obs_size + spec.action_size + d) * h + h * h + h * d)
    nets = 2 * (cfg.num_snapshots + 1)
    score = nets * 2 * b * ((spec.obs_size + spec.action_size) * h + cfg.num_preferences * (h * h + h))
    winner = 2 * b * (nets * h * h + h * spec.action_size)
    target, critics, policy = actor + 2 * critic, 2 * 3 * critic, 3 * actor
    return float(target + critics + policy + score + winner)


def matrix_rate() -> float:
    """Best float32 rate of square products, floating-point operations a second."""
    best = 0.0
    for size in MATRIX_SIZES:
        x = jnp.asarray(np.random.default_rng(0).standard_normal((size, size)), jnp.float32)
        work = lambda x=x: _product(x).block_until_ready()
        work()
        best = max(best, 2 * size**3 / min(seconds(work) for _ in range(5)))
    return best


_product = jax.jit(lambda x: x @ x)


def _algorithm(name: str, spec: EnvSpec) -> Algorithm[Any]:
    if name == "mosac":
        return mosac.make(mosac.SacConfig(), spec)
    make = plain.make if name.endswith("plain") else qpensieve.make
    return make(qpensieve.QPensieveConfig(), spec)


def _timer(algorithm: Algorithm[Any], spec: EnvSpec, num_seeds: int, block: int) -> Callable[[], float]:
    """A function that runs one block of updates and returns the seconds of one update (of all seeds)."""
    layout = layout_of(spec, algorithm.acting)
    learner = make_learner(algorithm, layout, REPLAY_ROWS)
    state = _filled(learner, layout, num_seeds)
    rows = np.random.default_rng(1).standard_normal((num_seeds, block, layout.width))

    def time_block() -> float:
        nonlocal state
        start_state = state

        def work() -> None:
            nonlocal state
            state, flat, _ = learner.learn(start_state, Block(jnp.asarray(rows, jnp.float32)))
            flat.block_until_ready()

        return seconds(work) / block

    return time_block


def _filled(learner: Learner, layout: RowLayout, num_seeds: int) -> Any:
    """A state whose replay is full of noise."""
    state = learner.init(jnp.arange(num_seeds))
    noise = np.random.default_rng(2).standard_normal((num_seeds, REPLAY_ROWS, layout.width))
    return learner.write(state, Block(jnp.asarray(noise, jnp.float32)))
