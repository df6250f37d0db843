"""The methods of callbacks, and the objects that they receive."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float, Float64

from qpensieve.errors import ShownError
from qpensieve.records.scores import RunSummary, scores

End = Literal["done", "stopped", "failed"]
"""End of a training: all steps were done; a callback or Ctrl-C stopped it; it raised an error."""
Answer = bool | None
"""Answer of a hook: False stops the training, None and True continue it."""
SHORT_NAMES = {"ut": "UT", "hv": "HV"}
"""Scores whose names are written in capitals."""


class CallbackError(ShownError, RuntimeError):
    """A callback raised an error, which is the cause; the message names the callback, its method and the step."""


@dataclass(frozen=True, eq=False)
class Metrics(Mapping[str, float]):
    """Name -> mean over seeds, such as `train/critic_loss`, `eval/UT`; a mapping that cannot be changed.

    Attributes:
        per_seed: Name -> one value for each seed.
    """

    per_seed: Mapping[str, Float64[np.ndarray, " seed"]]

    def __getitem__(self, name: str) -> float:
        return float(self.per_seed[name].mean())

    def __iter__(self) -> Iterator[str]:
        return iter(self.per_seed)

    def __len__(self) -> int:
        return len(self.per_seed)

    def __repr__(self) -> str:
        return f"Metrics({dict(self)})"


@dataclass(frozen=True, eq=False)
class Training:
    """A training, for a callback at its start.

    Attributes:
        domain: The environment.
        algo: Name of the method.
        objectives: Names of the objectives, in reward order.
        seeds: The number of every seed; metrics per seed are in this order.
        step: First step: 0, or the number of steps learned before.
        goal: The step at which the training ends, unless it is stopped.
        settings: All settings, in values that JSON can hold.
        folder: The run folder. None: an agent.
        history: Step and metrics of all rows and evaluations before a run was resumed, for loggers that lack them.
    """

    domain: str
    algo: str
    objectives: tuple[str, ...]
    seeds: tuple[int, ...]
    step: int
    goal: int
    settings: Mapping[str, object]
    folder: Path | None = None
    history: tuple[tuple[int, Metrics], ...] = ()


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One evaluation.

    Attributes:
        objectives: Names of the objectives, in reward order.
        preferences: The preferences that were played.
        returns: Undiscounted returns.
        summary: Scores of every seed.
        is_full: Whether this is the full protocol of a run (by default all test preferences, 10 episodes). False: the
            short one.
    """

    objectives: tuple[str, ...]
    preferences: Float64[np.ndarray, "p d"]
    returns: Float64[np.ndarray, "seed p e d"]
    summary: RunSummary
    is_full: bool = False

    @cached_property
    def metrics(self) -> Metrics:
        """`eval/UT`, `eval/HV`, `eval/front_size`, ...; `eval_full/...` of the full protocol."""
        return evaluation_metrics(scores(self.summary), self.objectives, self.is_full)


class Callback:
    """The methods of a callback; each does nothing here, so that you write only the methods you need."""

    def on_start(self, training: Training) -> Answer:
        """Training begins; called again by every `learn`."""

    def on_step(self, step: int) -> Answer:
        """A block (pgmorl and pfa: an iteration) is done: every seed has made `step` environment steps."""

    def on_metrics(self, step: int, metrics: Metrics) -> Answer:
        """A row of the training log is ready, every `log_period` steps: means since the last row.

        Values whose names end in _max are the largest instead.
        """

    def on_evaluation(self, step: int, evaluation: Evaluation) -> Answer:
        """The policies were evaluated: every `eval_period` steps and at the end."""

    def on_end(self, step: int, end: End) -> None:
        """Training ends, in any of the ways of `End`. Called whenever `on_start` was called."""


def training_metrics(means: Mapping[str, Float[np.ndarray, " rows"]], num_seeds: int) -> Metrics:
    """Return a row of the log in the form that callbacks get.

    Args:
        means: Name -> a value for each seed, or for each agent or member of each seed, seed by seed.
        num_seeds: Number of seeds.
    """
    over_agents = lambda name: np.max if name.endswith("_max") else np.mean
    rows = lambda value: np.asarray(value, np.float64).reshape(num_seeds, -1)
    shown = {name: over_agents(name)(rows(value), axis=1) for name, value in means.items()}
    return Metrics({f"train/{name}": value for name, value in shown.items()})


def evaluation_metrics(scored: Mapping[str, np.ndarray], objectives: tuple[str, ...], is_full: bool) -> Metrics:
    """Return the scores of an evaluation in the form that callbacks get.

    Args:
        scored: Name -> values [seed], or [seed, d] for a score of each objective.
        objectives: Names of the objectives.
        is_full: Whether the evaluation was the full protocol.
    """
    group, named = "eval_full" if is_full else "eval", {}
    for name, values in scored.items():
        shown = f"{group}/{SHORT_NAMES.get(name, name)}"
        if values.ndim == 1:
            named[shown] = values.astype(np.float64)
        else:
            named |= {f"{shown}/{one}": values[:, i].astype(np.float64) for i, one in enumerate(objectives)}
    return Metrics(named)


def scalars(metrics: Metrics, seeds: tuple[int, ...]) -> dict[str, float]:
    """Return name -> number for a logger: the means, and of several seeds each value as `seed_0/train/...`."""
    named = dict(metrics)
    if len(seeds) > 1:
        for i, seed in enumerate(seeds):
            named |= {f"seed_{seed}/{name}": float(values[i]) for name, values in metrics.per_seed.items()}
    return named
