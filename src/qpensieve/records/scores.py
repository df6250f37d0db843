"""The scores of an evaluation: one table with the function, the name and the places of each score.

A new score is a function in `metrics` and a field of `RunSummary` here. Log, summary, export and comparison read this
table.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Float, Float64, Int64
from numpy.typing import ArrayLike

from qpensieve.metrics.fronts import hypervolume, is_non_dominated
from qpensieve.metrics.utility import best_single, expected_utility, preference_correlation, utility
from qpensieve.records.calibration import Calibration

LAST = 99
"""Default column of a score in the table of a run."""


@dataclass(frozen=True, eq=False)
class Evaluated:
    """The input of a score: one evaluation."""

    episodes: Float64[np.ndarray, "seed p e d"]
    lam: Float64[np.ndarray, "p d"]
    reference: Float[np.ndarray, " d"] | None
    asked: Int64[np.ndarray, "seed p"] | None = None
    """Number of the row to ask for under each preference; None without a calibration that fits the table."""

    @cached_property
    def returns(self) -> Float64[np.ndarray, "seed p d"]:
        """One return vector per seed and preference: the mean over episodes."""
        return self.episodes.mean(axis=2)

    def per_seed(self, function: Callable[[Float64[np.ndarray, "p d"]], ArrayLike]) -> np.ndarray:
        """Return the values that `function` returns for the return vectors of each seed."""
        return np.stack([function(returns) for returns in self.returns])


@dataclass(frozen=True)
class Score:
    """One score: how it is computed and shown.

    Attributes:
        label: Heading in the table of a run. A score of each objective has `{i}` in it, the number of the objective.
        compute: Evaluation -> value of every seed, [seed] or [seed, d]; None if the evaluation lacks what is needed,
            such as a reference point.
        column: Position in the table of a run; the log follows the order of the fields.
        is_averaged: Whether the table shows its mean over seeds.
        compared: Heading in a comparison of methods. None: it is not compared.
    """

    label: str
    compute: Callable[[Evaluated], np.ndarray | None]
    column: int = LAST
    is_averaged: bool = True
    compared: str | None = None


def score(label: str, compute: Callable[[Evaluated], np.ndarray | None], **how: Any) -> Mapping[str, Score]:
    """Return the metadata of a field of `RunSummary`; the arguments are those of `Score`."""
    return {"score": Score(label, compute, **how)}


def _calibrated(one: Evaluated) -> np.ndarray | None:
    if one.asked is None:
        return None
    return np.asarray(utility(np.take_along_axis(one.returns, one.asked[:, :, None], axis=1), one.lam))


def _hypervolume(one: Evaluated) -> np.ndarray | None:
    corner = one.reference
    return None if corner is None else one.per_seed(lambda returns: hypervolume(returns, corner))


@dataclass(frozen=True, eq=False)
class RunSummary:
    """Scores of one evaluation, per seed.

    Attributes:
        ut: Utility of the policy asked for the preference itself.
        calibrated: Utility of the policy asked for the preference that its calibration gives. Held out: a calibration
            plays other episodes. None: there is no calibration, or its rows are not in the table.
        best_row: Utility if each preference is answered by the best row of this evaluation. In-sample: the same
            episodes choose and measure, so it is too high. Also called expected utility (EUM).
        hv: Hypervolume. None: there is no reference point.
        front_size: Number of distinct non-dominated return vectors.
        best_single: UT if the best single row is used under every preference, measured on other episodes than those
            that chose the row; a policy whose `ut` is not above it ignores the preference.
        correlation: Rank correlation, per objective i, of lam_i with return i.
    """

    ut: Float64[np.ndarray, " seed"] = field(
        metadata=score("UT", lambda one: np.asarray(utility(one.returns, one.lam)), column=1, compared="UT")
    )
    calibrated: Float64[np.ndarray, " seed"] | None = field(metadata=score("UT calibrated", _calibrated, column=2))
    best_row: Float64[np.ndarray, " seed"] = field(
        metadata=score(
            "UT best row", lambda one: one.per_seed(partial(expected_utility, preferences=one.lam)), column=3
        )
    )
    hv: Float64[np.ndarray, " seed"] | None = field(metadata=score("HV", _hypervolume, column=4, compared="HV"))
    front_size: Int64[np.ndarray, " seed"] = field(
        metadata=score(
            "front size",
            lambda one: one.per_seed(lambda returns: np.int64(is_non_dominated(returns).sum())),
            column=6,
            is_averaged=False,
        )
    )
    best_single: Float64[np.ndarray, " seed"] = field(
        metadata=score(
            "best single row UT", lambda one: np.array([best_single(own, one.lam) for own in one.episodes]), column=5
        )
    )
    correlation: Float64[np.ndarray, "seed d"] = field(
        metadata=score(
            "corr lam{i}, obj {i}",
            lambda one: one.per_seed(partial(preference_correlation, preferences=one.lam)),
            column=7,
        )
    )


def _read_table() -> Mapping[str, Score]:
    without = [one.name for one in fields(RunSummary) if "score" not in one.metadata]
    if without:
        raise TypeError(f"RunSummary.{without[0]} has no score: write field(metadata=score(label, function))")
    return MappingProxyType({one.name: one.metadata["score"] for one in fields(RunSummary)})


SCORES = _read_table()
"""Name of the field -> score, in the order of the log."""


def summarize(
    returns: Float[np.ndarray, "seed p e d"],
    preferences: Float[np.ndarray, "p d"],
    reference: Float[np.ndarray, " d"] | None = None,
    calibration: Calibration | None = None,
) -> RunSummary:
    """Score one evaluation per seed; `calibration` belongs to the evaluated policies.

    Raises:
        ValueError: There is no seed, preference or episode, or a return is not finite.
    """
    if 0 in returns.shape:
        raise ValueError(f"returns [seed, p, e, d] has shape {returns.shape}: there is nothing to summarize")
    table = np.asarray(preferences, np.float64)
    asked = None if calibration is None else calibration.rows_of(table)
    one = Evaluated(np.asarray(returns, np.float64), table, reference, asked)
    values: dict[str, Any] = {name: score.compute(one) for name, score in SCORES.items()}
    return RunSummary(**values)


def scores(summary: RunSummary) -> dict[str, np.ndarray]:
    """Return name of the field -> values per seed, in the order of the log; scores that are None are left out."""
    named = {name: getattr(summary, name) for name in SCORES}
    return {name: value for name, value in named.items() if value is not None}


def columns(summary: RunSummary) -> dict[str, tuple[Score, np.ndarray]]:
    """Return heading -> score and values [seed], in the order of the table, with a heading for each objective."""
    shown: dict[str, tuple[Score, np.ndarray]] = {}
    for name, values in sorted(scores(summary).items(), key=lambda item: SCORES[item[0]].column):
        known = SCORES[name]
        if values.ndim == 1:
            shown[known.label] = known, values
        else:
            shown |= {known.label.format(i=i + 1): (known, values[:, i]) for i in range(values.shape[1])}
    return shown
