"""Milliseconds per update, compared with the least time that the matrix products need on this machine.

A timing is a row of blocks, each handed over as training does it when the device is what everyone waits for: rows come
from the host, the next block is handed over before the policy and the log of the one before are fetched. So everything
that a block costs the device is inside (writing rows, drawing batches, the updates, the policy for the host), and the
host's own work only where the device would have to wait for it. Blocks waited for one by one (`--blocks 1`) show what
that hides. Collecting, logging and checkpoints are not inside.

The least time (the floor) is the counted floating-point work divided by the best rate of square products, measured in
the same run: of size 256 to 2048, on a GPU up to 8192. The rate is measured before and after, never between timings: a
GPU that has just multiplied large matrices is slower for a while (an update of five seeds 290 microseconds instead of
226 on an H200).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import plain
from benchmarks.timing import Row, interleave, seconds
from qpensieve.algos import qpensieve
from qpensieve.config import default_config
from qpensieve.envs import get_domain
from qpensieve.learning.interface import Algorithm
from qpensieve.machine import available_cores, make_devices, num_parts
from qpensieve.methods import make_algorithm
from qpensieve.replay.layout import RowLayout, layout_of
from qpensieve.train.learner import Block, Learner, make_learner, spread
from qpensieve.types import EnvSpec

MATRIX_SIZES = (256, 512, 1024, 2048)
GPU_MATRIX_SIZES = (2048, 8192)
GPU_BLOCKS = 20
"""Blocks of one timing on a GPU."""
REPLAY_ROWS = 20_000
MOSAC_AS_PENSIEVE = qpensieve.QPensieveConfig(num_preferences=1, num_snapshots=0)


@dataclass(frozen=True)
class Settings:
    """Settings of the benchmark.

    Attributes:
        domain: Domain that sets the shapes; no environment is stepped.
        seeds: Numbers of seeds trained at once.
        block: Updates per call.
        blocks: Calls per timing. None: 20 on a GPU, where a call may cost the host as much as the device; else 1.
        repeats: Interleaved repeats; the median is shown.
        plain: Also time the plain form of Q-Pensieve.
        presets: Settings to time: the paper's, or those with guards against bursts.
    """

    domain: str = "Hopper2d"
    seeds: tuple[int, ...] = (1, 5)
    block: int = 10
    blocks: int | None = None
    repeats: int = 5
    plain: bool = True
    presets: tuple[Literal["paper", "robust"], ...] = ("paper",)


def run(settings: Settings, progress: Callable[[str], None]) -> list[Row]:
    """Return one row per method and number of seeds, with ratios to the plain form and to the floor."""
    spec = get_domain(settings.domain).spec
    rows = []
    make_devices(num_parts(max(settings.seeds), available_cores()))  # on the CPU as in training
    for num_seeds in settings.seeds:
        names = timed(settings)
        progress(f"update: compiling for {num_seeds} seed(s)")
        before = matrix_rate()
        timers = [make_timer(_algorithm(name, spec), spec, num_seeds, settings) for name in names]
        for timer in timers:
            timer()
        progress(f"update: measuring {num_seeds} seed(s)")
        times = interleave(timers, settings.repeats)
        best = max(before, matrix_rate())
        rows += _rows(dict(zip(names, times, strict=True)), spec, num_seeds, best)
    return rows


def timed(settings: Settings) -> list[str]:
    """Return the names of the timed programs: methods under each preset, and the plain form of Q-Pensieve."""
    presets = ("" if preset == "paper" else f" {preset}" for preset in settings.presets)
    names = [method + preset for preset in presets for method in ("mosac", "qpensieve")]
    return [*names, *(["qpensieve plain"] if settings.plain else [])]


def _rows(times: dict[str, list[float]], spec: EnvSpec, num_seeds: int, rate: float) -> list[Row]:
    rows = []
    for name, values in times.items():
        flop, each = num_seeds * count_flop(_counted(name, spec), spec), median(values)
        floor = flop / rate
        against = None if name.startswith("mosac") else times.get("qpensieve plain")
        speedup = median(p / v for p, v in zip(against, values, strict=True)) if against else None
        rows.append(
            {
                "method": name,
                "seeds": num_seeds,
                "ms/update": 1e3 * each,
                "seed-updates/s": num_seeds / each,
                "GFLOP": flop / 1e9,
                "GFLOP/s of products": rate / 1e9,
                "floor ms": 1e3 * floor,
                "times floor": each / floor if "plain" not in name else None,
                "times faster than plain": speedup,
            }
        )
    return rows


def count_flop(cfg: qpensieve.QPensieveConfig, spec: EnvSpec) -> float:
    """Return the floating-point operations of the matrix products of an update of one seed, in the fast form."""
    sac, d = cfg.sac, spec.num_objectives
    b, h = sac.batch_size, sac.hidden
    actor = 2 * b * ((spec.obs_size + d) * h + h * h + h * 2 * spec.action_size)
    critic = 2 * b * ((spec.obs_size + spec.action_size + d) * h + h * h + h * d)
    target, critics, policy = actor + 2 * critic, 2 * 3 * critic, 3 * actor
    return float(target + critics + policy) + count_scoring(cfg, spec)


def count_scoring(cfg: qpensieve.QPensieveConfig, spec: EnvSpec) -> float:
    """Return the operations of `count_flop` that score candidates and climb the winners."""
    b, h = cfg.sac.batch_size, cfg.sac.hidden
    nets = 2 * (min(cfg.num_snapshots, cfg.snapshots_per_update or cfg.num_snapshots) + 1)
    score = nets * 2 * b * ((spec.obs_size + spec.action_size) * h + cfg.num_preferences * (h * h + h))
    winner = 2 * b * (nets * h * h + h * spec.action_size)
    return float(score + winner)


def matrix_rate() -> float:
    """Return the best rate of square products in float32: floating-point operations a second."""
    return max(map(_rate, GPU_MATRIX_SIZES if jax.default_backend() == "gpu" else MATRIX_SIZES))


def _rate(size: int) -> float:
    """Return the rate of products of one size. On a GPU one call makes several, so that the launch hardly counts."""
    num = 16 if jax.default_backend() == "gpu" else 1
    x = jnp.asarray(np.random.default_rng(0).standard_normal((size, size)) / size**0.5, jnp.float32)
    work = lambda: _products(x, num).block_until_ready()
    work()
    return num * 2 * size**3 / min(seconds(work) for _ in range(5))


@partial(jax.jit, static_argnums=1)
def _products(x: Any, num: int) -> Any:
    return jax.lax.fori_loop(0, num, lambda _, y: x @ y, x)


def _counted(name: str, spec: EnvSpec) -> qpensieve.QPensieveConfig:
    """Return settings of Q-Pensieve with as many products as what a name of `timed` stands for."""
    method, _, preset = name.removesuffix(" plain").partition(" ")
    return MOSAC_AS_PENSIEVE if method == "mosac" else default_config(spec.id, method, preset or "paper").agent


def _algorithm(name: str, spec: EnvSpec) -> Algorithm[Any]:
    """Return the algorithm of a name of `timed`."""
    if name.endswith("plain"):
        return plain.make(qpensieve.QPensieveConfig(), spec)
    method, _, preset = name.partition(" ")
    return make_algorithm(method, default_config(spec.id, method, preset or "paper").agent, spec)


def make_timer(algorithm: Algorithm[Any], spec: EnvSpec, num_seeds: int, settings: Settings) -> Callable[[], float]:
    """Return a function that runs blocks of updates as training does and returns the seconds of an update."""
    layout = layout_of(spec, algorithm.behaviour)
    learner = spread(make_learner(algorithm, layout, REPLAY_ROWS), num_seeds)
    state = learner.place(_with_snapshots(_filled(learner, layout, num_seeds)))
    rows = np.random.default_rng(1).standard_normal((num_seeds, settings.block, layout.width)).astype(np.float32)
    num = settings.blocks or (GPU_BLOCKS if jax.default_backend() == "gpu" else 1)

    def work() -> None:
        nonlocal state
        pending = None
        for _ in range(num):
            state, *made = learner.learn(state, Block(jnp.asarray(rows)))
            jax.device_get(pending)
            pending = made
        jax.device_get(pending)

    return lambda: seconds(work) / (num * settings.block)


def _filled(learner: Learner, layout: RowLayout, num_seeds: int) -> Any:
    """Return a state whose replay is full of noise."""
    state = learner.init(jnp.arange(num_seeds))
    noise = np.random.default_rng(2).standard_normal((num_seeds, REPLAY_ROWS, layout.width))
    return learner.write(state, Block(jnp.asarray(noise, jnp.float32)))


def _with_snapshots(state: Any) -> Any:
    """Return the state with a full Q replay buffer, whose critics differ so that each wins somewhere."""
    if not hasattr(state.agent, "snapshots"):
        return state
    generator, agent = np.random.default_rng(3), state.agent

    def vary(slots: Any, leaf: Any) -> Any:
        noise = generator.normal(scale=0.02, size=slots.shape)
        return jnp.asarray(np.asarray(leaf)[:, None] + noise, jnp.float32)

    critics = jax.tree.map(vary, agent.snapshots.critics, agent.sac.critic)
    filled = jnp.ones_like(agent.snapshots.filled)
    ring = lambda state: (state.agent.snapshots.critics, state.agent.snapshots.filled)
    return eqx.tree_at(ring, state, (critics, filled))
