"""Running mean and variance of many columns for many members at once, in float64 NumPy.

Batches are merged exactly (Chan et al., 1979): the result does not depend on how samples were cut into batches, up to
rounding.
"""

from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float64

VARIANCE_EPSILON = 1e-8
"""Added to a variance before its root is taken."""
FIRST_COUNT = 1e-4
"""Statistics start from a standard normal that counts as this many samples."""


@jax.tree_util.register_dataclass  # an Equinox module's methods would take longer than the arithmetic
@dataclass(frozen=True)
class Moments:
    """Mean, sum of squared deviations and number of samples of every column."""

    mean: Float64[np.ndarray, "*member column"]
    squares: Float64[np.ndarray, "*member column"]
    count: Float64[np.ndarray, "*member column"]

    @property
    def scale(self) -> Float64[np.ndarray, "*member column"]:
        """Standard deviation, never 0."""
        return np.sqrt(self.squares / self.count + VARIANCE_EPSILON)

    def merge(self, batch: Float64[np.ndarray, "member rows column"], columns: slice = slice(None)) -> None:
        """Add new samples of some columns, in place."""
        rows = batch.shape[1]
        centre = np.add.reduce(batch, axis=1) / rows
        deviation = batch - centre[:, None]
        count = self.count[:, columns]
        total = count + rows
        shift = centre - self.mean[:, columns]
        share = shift * (rows / total)
        self.squares[:, columns] += np.add.reduce(deviation * deviation, axis=1) + shift * share * count
        self.mean[:, columns] += share
        self.count[:, columns] = total


def standard(num_members: int, num_columns: int) -> Moments:
    """Statistics of a standard normal, with so few samples that the first real ones replace it."""
    shape = (num_members, num_columns)
    return Moments(np.zeros(shape), np.full(shape, FIRST_COUNT), np.full(shape, FIRST_COUNT))
