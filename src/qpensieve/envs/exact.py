"""Domains whose Pareto front is known: the front, and the most that any policy can score."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float64

from qpensieve import metrics


@dataclass(frozen=True)
class Ceilings:
    """The most any policy can score.

    Attributes:
        utility: Best mean of lam . return when the policy obeys each preference.
        best_single: The same if every episode ends in the same way, whatever the preference.
        hypervolume: Hypervolume of the exact front.
    """

    utility: float
    best_single: float
    hypervolume: float


@dataclass(frozen=True)
class ExactFront:
    """The exact front of a domain.

    Attributes:
        search: Finds the points of the front, by increasing first objective.
    """

    search: Callable[[], Float64[np.ndarray, "f d"]]

    @cached_property
    def points(self) -> Float64[np.ndarray, "f d"]:
        """Points of the front, by increasing first objective."""
        points = self.search()
        points.flags.writeable = False  # every caller gets this one array
        return points

    def ceilings(self, preferences: Float64[np.ndarray, "p d"], reference: Float64[np.ndarray, " d"]) -> Ceilings:
        """The scores of the exact front; an evaluation above them is a bug."""
        return Ceilings(
            utility=metrics.expected_utility(self.points, preferences),
            best_single=metrics.best_single(self.points, preferences),
            hypervolume=metrics.hypervolume(self.points, reference),
        )
