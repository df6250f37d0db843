"""Pareto dominance and sparsity of sets of return vectors; every objective is maximised."""

import moocore
import numpy as np
from jaxtyping import Bool, Float64

from qpensieve.preferences import ArrayLike


def check_points(points: ArrayLike, name: str = "points") -> Float64[np.ndarray, "n d"]:
    """Return the points as float64 [n, d]; n may be 0.

    Raises:
        ValueError: If the array is [], not two-dimensional or without objectives, or a row holds NaN or infinity.
    """
    array = np.asarray(points, dtype=np.float64)
    if array.shape == (0,):
        raise ValueError(
            f"{name} is empty, so the number of objectives is unknown; use an array of shape (0, num_objectives)"
        )
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"{name} must be an array [num_points, num_objectives], got shape {array.shape}")
    wrong = np.flatnonzero(~np.isfinite(array).all(axis=1))
    if len(wrong):
        raise ValueError(f"{name} must be finite, row {wrong[0]} is {array[wrong[0]].tolist()}")
    return array


def is_non_dominated(points: ArrayLike) -> Bool[np.ndarray, " n"]:
    """Return a mask of the points that no other point dominates; of equal points only the first is kept."""
    return moocore.is_nondominated(check_points(points), maximise=True, keep_weakly=False)


def non_dominated(points: ArrayLike) -> Float64[np.ndarray, "m d"]:
    """Return the non-dominated points, each once, in the order of the input."""
    array = check_points(points)
    return array[is_non_dominated(array)]


def sparsity(points: ArrayLike) -> float:
    """Return the sum over objectives of squared gaps between neighbours on the front, over m - 1; 0 if m < 2.

    The front is the m non-dominated points, and the neighbours are those in the sorted values of one objective
    (Xu et al., 2020, PGMORL). Lower is denser.
    """
    front = non_dominated(points)
    if len(front) < 2:
        return 0.0
    gaps = np.diff(np.sort(front, axis=0), axis=0)
    return float((gaps**2).sum() / (len(front) - 1))
