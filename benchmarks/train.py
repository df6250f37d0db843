"""Seed-steps per second of training from end to end, and how much of the time is collection."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.timing import Row
from qpensieve.config import RunConfig, default_config
from qpensieve.errors import UserError
from qpensieve.methods import get_method
from qpensieve.train.trainer import Trainer


@dataclass(frozen=True)
class Settings:
    """Settings of the benchmark.

    Attributes:
        domain: Domain to train on.
        algo: Algorithm.
        seeds: Seeds side by side.
        steps: Timed environment steps of each seed; the warm-up comes before them and compiles everything.
        warm_up: Environment steps of each seed in the warm-up.
        replay_capacity: Transitions kept per seed. None: the default of the algorithm.
        num_threads: Cores that collect (see the setting of a run). None: the default of a run.
    """

    domain: str = "Hopper2d"
    algo: str = "qpensieve"
    seeds: int = 5
    steps: int = 500
    warm_up: int = 200
    replay_capacity: int | None = None
    num_threads: int | None = None


def run(settings: Settings, progress: Callable[[str], None]) -> list[Row]:
    """Return one row: the rate of training, and the shares of time for collecting and for placing rows.

    Where worker processes collect, it is the time that the host waited for them. Placing takes almost no time if the
    replay is a ring; with priorities it is the bookkeeping of slots and episodes.
    """
    if get_method(settings.algo).is_population:
        raise UserError(f"train times methods with a replay; 'python -m benchmarks collect' times {settings.algo}")
    config = _config(settings)
    progress(f"train: {settings.domain}, {settings.seeds} seed(s), compiling")
    trainer = Trainer(config)
    while trainer.step < config.block + settings.warm_up:
        trainer.advance()
    trainer.drain()
    collected = _time_calls(trainer.collector, "collect")
    placed = _time_calls(trainer, "place")
    progress("train: measuring")
    start = time.perf_counter()
    while trainer.step < config.steps:
        trainer.advance()
    trainer.drain()
    total = time.perf_counter() - start
    trainer.close()
    return [
        {
            "domain": settings.domain,
            "algo": settings.algo,
            "seeds": settings.seeds,
            "seed-steps/s": settings.seeds * settings.steps / total,
            "seconds": total,
            "workers": getattr(trainer.collector, "num_workers", 0),
            "collecting": collected["seconds"] / total,
            "placing": placed["seconds"] / total,
        }
    ]


def _config(settings: Settings) -> RunConfig:
    config = default_config(settings.domain, settings.algo)
    return replace(
        config,
        seeds=settings.seeds,
        steps=config.block + settings.warm_up + settings.steps,
        random_steps=config.block,
        replay_capacity=settings.replay_capacity or config.replay_capacity,
        num_threads=settings.num_threads,
    )


def _time_calls(owner: Any, name: str) -> dict[str, float]:
    """Add up the time spent in a method from now on."""
    spent, plain = {"seconds": 0.0}, getattr(owner, name)

    def timed(*arguments: Any) -> Any:
        start = time.perf_counter()
        try:
            return plain(*arguments)
        finally:
            spent["seconds"] += time.perf_counter() - start

    setattr(owner, name, timed)
    return spent
