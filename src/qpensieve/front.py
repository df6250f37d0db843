"""The returns of a policy under many preferences, and the choice of a preference by bounds on returns."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64

from qpensieve import metrics
from qpensieve.console import Row, format_number, format_spread, format_table
from qpensieve.errors import UserError

Axis = str | int
"""An objective: its name, or its index from 0."""
Bound = tuple[str, float | int]
"""A bound of an objective's return, such as (">=", -50.0)."""


def number_of(objective: Axis, objectives: Sequence[str]) -> int:
    """Return the index of an objective; ValueError if no objective has this name or index."""
    numbers = dict(enumerate(objectives))
    if objective not in (*numbers, *objectives) or isinstance(objective, bool):
        named = ", ".join(f"{name} ({i})" for i, name in numbers.items())
        raise UserError(f"objective must be one of {named}, got {objective!r}")
    return list(objectives).index(objective) if isinstance(objective, str) else int(objective)


@dataclass(frozen=True, eq=False)
class Front:
    """Mean returns of one seed's policy under each of many preferences.

    Attributes:
        objectives: Names, in reward order.
        preferences: One row per preference.
        mean: Mean return of each row. For pgmorl and pfa it is over the episodes of all rows that share a policy.
        spread: Standard deviation over the row's episodes; NaN for a single episode.
        is_best: Whether no other row dominates the row. Of equal rows only the first is best.
    """

    objectives: tuple[str, ...]
    preferences: Float64[np.ndarray, "p d"]
    mean: Float64[np.ndarray, "p d"]
    spread: Float64[np.ndarray, "p d"]
    is_best: Bool[np.ndarray, " p"]

    def rows(self, only_best: bool = True) -> list[Row]:
        """Return a dict for each preference, or each best one: preference, and mean and spread of every objective."""
        chosen = np.flatnonzero(self.is_best) if only_best else np.arange(len(self.mean))
        return [self._row(i) for i in chosen.tolist()]

    def _row(self, i: int) -> Row:
        row = {"preference": ", ".join(f"{x:.2f}" for x in self.preferences[i])}
        for name, mean, spread in zip(self.objectives, self.mean[i], self.spread[i], strict=True):
            row[name] = format_spread(float(mean), None if math.isnan(spread) else float(spread))
        return row

    def __str__(self) -> str:
        return format_table(self.rows())

    def choose(self, maximize: Axis, where: Mapping[Axis, Bound] | None = None) -> "Choice":
        """Choose the preference under which one objective is largest while others keep their bounds.

        If no preference keeps all bounds, the nearest one is chosen, with a warning. Distances to a bound are in units
        of the objective's range over all rows.

        Args:
            maximize: Name or index of an objective.
            where: Objective -> bound, such as {"control": (">=", -50)}. None: no bounds.

        Raises:
            ValueError: An objective is unknown, or a bound is not written as above.
        """
        column = number_of(maximize, self.objectives)
        missed = np.zeros(len(self.mean))
        for name, bound in (where or {}).items():
            missed += self._missed(number_of(name, self.objectives), *_checked_bound(name, bound))
        first = np.lexsort((-self.mean[:, column], missed))[0]
        is_equal = (missed == missed[first]) & (self.mean[:, column] == self.mean[first, column])
        equal = np.flatnonzero(is_equal)  # take a row that no other of these dominates
        best = equal[np.argmax(metrics.is_non_dominated(self.mean[equal]))]
        choice = Choice(self.objectives, self.preferences[best], self.mean[best], bool(missed[best] == 0.0))
        if not choice.is_feasible:
            warnings.warn(f"no preference keeps all bounds; the nearest is {choice}", stacklevel=2)
        return choice

    def _missed(self, column: int, comparison: str, bound: float | int) -> Float64[np.ndarray, " p"]:
        """Return how far each row is from a bound, in units of the objective's range; 0 if the row keeps it."""
        values = self.mean[:, column]
        gap = bound - values if comparison == ">=" else values - bound
        return np.maximum(gap, 0.0) / (float(np.ptp(values)) or 1.0)  # any unit fits if all rows are equal


@dataclass(frozen=True, eq=False)
class Choice:
    """A preference, its mean return, and whether that return keeps all bounds."""

    objectives: tuple[str, ...]
    preference: Float64[np.ndarray, " d"]
    mean: Float64[np.ndarray, " d"]
    is_feasible: bool

    @property
    def returns(self) -> dict[str, float]:
        """Objective -> mean return."""
        return dict(zip(self.objectives, self.mean.tolist(), strict=True))

    def __str__(self) -> str:
        lam = ", ".join(f"{x:.2f}" for x in self.preference)
        reached = ", ".join(f"{name} {format_number(value)}" for name, value in self.returns.items())
        return f"preference ({lam}): {reached}"


def _checked_bound(name: Axis, bound: object) -> tuple[str, float]:
    """Return the comparison and the number of a bound; ValueError says how to write one."""
    match bound:
        case (">=" | "<=" as comparison, int() | float() | np.integer() | np.floating() as value):
            if not math.isnan(value):
                return comparison, float(value)
    raise UserError(f'the bound of {name} must be written (">=", number) or ("<=", number), got {bound!r}')


def measure(
    objectives: tuple[str, ...],
    preferences: Float64[np.ndarray, "p d"],
    returns: Float64[np.ndarray, "p e d"],
    shared: Float64[np.ndarray, "p e d"] | None = None,
) -> Front:
    """Return the front of one seed's returns.

    Args:
        objectives: Names, in reward order.
        preferences: One row per preference.
        returns: Returns of single episodes, which give the spread.
        shared: Returns that give the means, where rows of one policy share their episodes. None: `returns`.
    """
    mean = (returns if shared is None else shared).mean(axis=1)
    spread = returns.std(axis=1) if returns.shape[1] > 1 else np.full_like(mean, np.nan)
    return Front(objectives, preferences, mean, spread, metrics.is_non_dominated(mean))
