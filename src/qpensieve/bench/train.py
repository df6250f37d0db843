"""Seed-steps per second of training from end to end, and how much of the time is collection."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from qpensieve.bench.report import Row
from qpensieve.config import AlgoName, default_config
from qpensieve.train.trainer import Trainer


@dataclass(frozen=True)
class Settings:
    """Settings of the benchmark.

    Attributes:
        domain: Domain to train on.
        algo: Algorithm.
        seeds: Seeds side by side.
        steps: Environment steps of each seed that are timed, after the first blocks have compiled everything.
    """

    domain: str = "Hopper2d"
    algo: AlgoName = "qpensieve"
    seeds: int = 5
    steps: int = 500


def run(settings: Settings, progress: Callable[[str], None]) -> list[Row]:
    """One row: end-to-end rate; host seconds spent collecting; seconds the loop waited for the device."""
    config = default_config(settings.domain, settings.algo)
    warm_up = 4 * config.block
    config = replace(
        config, seeds=settings.seeds, steps=config.block + warm_up + settings.steps, random_steps=config.block
    )
    progress(f"train: {settings.domain}, {settings.seeds} seed(s), compiling")
    trainer = Trainer(config)
    while trainer.step < config.block + warm_up:
        trainer.advance()
    trainer.drain()
    collected = _time_calls(trainer)
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
            "collecting": collected["seconds"] / total,
        }
    ]


def _time_calls(trainer: Trainer) -> dict[str, float]:
    """Add up the time spent in the collector from now on."""
    spent, collect = {"seconds": 0.0}, trainer.collector.collect

    def timed(*arguments: object):
        start = time.perf_counter()
        try:
            return collect(*arguments)  # pyright: ignore[reportArgumentType]
        finally:
            spent["seconds"] += time.perf_counter() - start

    trainer.collector.collect = timed  # pyright: ignore[reportAttributeAccessIssue]
    return spent
