"""The scores of an evaluation, and how each is shown.

A new score is a function in `metrics`, a field of `RunSummary` and a line of `summarize`. Log, summary, export and
comparison read the fields.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
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


@dataclass(frozen=True)
class Score:
    """How a score is shown.

    Attributes:
        label: Heading in the table of a run. A score of each objective has `{i}` in it, the number of the objective.
        column: Position in the table of a run; the log follows the order of the fields.
        is_averaged: Whether the table shows its mean over seeds.
        compared: Heading in a comparison of methods. None: it is not compared.
    """

    label: str
    column: int = LAST
    is_averaged: bool = True
    compared: str | None = None


def score(label: str, **how: Any) -> Mapping[str, Score]:
    """Return the metadata of a field of `RunSummary`; the arguments are those of `Score`."""
    return {"score": Score(label, **how)}


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

    ut: Float64[np.ndarray, " seed"] = field(metadata=score("UT", column=1, compared="UT"))
    calibrated: Float64[np.ndarray, " seed"] | None = field(metadata=score("UT calibrated", column=2))
    best_row: Float64[np.ndarray, " seed"] = field(metadata=score("UT best row", column=3))
    hv: Float64[np.ndarray, " seed"] | None = field(metadata=score("HV", column=4, compared="HV"))
    front_size: Int64[np.ndarray, " seed"] = field(metadata=score("front size", column=6, is_averaged=False))
    best_single: Float64[np.ndarray, " seed"] = field(metadata=score("best single row UT", column=5))
    correlation: Float64[np.ndarray, "seed d"] = field(metadata=score("corr lam{i}, obj {i}", column=7))


SCORES = MappingProxyType({one.name: one.metadata["score"] for one in fields(RunSummary)})
"""Name of the field -> how it is shown, in the order of the log."""


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
    episodes, lam = np.asarray(returns, np.float64), np.asarray(preferences, np.float64)
    means = episodes.mean(axis=2)
    asked = None if calibration is None else calibration.rows_of(lam)
    answers = None if asked is None else np.take_along_axis(means, asked[:, :, None], axis=1)
    per_seed: Callable[[Callable[[Any], ArrayLike]], np.ndarray] = lambda f: np.stack([f(rows) for rows in means])
    return RunSummary(
        ut=np.asarray(utility(means, lam)),
        calibrated=None if answers is None else np.asarray(utility(answers, lam)),
        best_row=per_seed(lambda rows: expected_utility(rows, lam)),
        hv=None if reference is None else per_seed(lambda rows: hypervolume(rows, reference)),
        front_size=per_seed(lambda rows: np.int64(is_non_dominated(rows).sum())),
        best_single=np.array([best_single(of_seed, lam) for of_seed in episodes]),
        correlation=per_seed(lambda rows: preference_correlation(rows, lam)),
    )


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
