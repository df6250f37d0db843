"""Pareto dominance, hypervolume and sparsity of sets of return vectors; every objective is maximised."""

import moocore
import numpy as np
from jaxtyping import Bool, Float64

from qpensieve.metrics.references import check_reference
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
    return front_sparsity(non_dominated(points))


def front_sparsity(front: Float64[np.ndarray, "m d"]) -> float:
    """Return the `sparsity` of a front: different points, none of which dominates another. This is not checked."""
    if len(front) < 2:
        return 0.0
    gaps = np.diff(np.sort(front, axis=0), axis=0)
    return float((gaps**2).sum() / (len(front) - 1))


def hypervolume(points: ArrayLike, reference: ArrayLike) -> float:
    """Return the volume of the space below some point and above the reference, exact up to rounding.

    Only points above the reference in every objective count; if there are none, the volume is 0.

    Raises:
        ValueError: There are no points, a number is not finite, or the reference has the wrong length.
    """
    array = check_points(points)
    if len(array) == 0:
        raise ValueError("points is empty; the hypervolume needs at least one point")
    return _volume(array, check_reference(reference, array.shape[1]))


def hypervolume_gain(points: ArrayLike, candidate: ArrayLike, reference: ArrayLike) -> float:
    """Return the growth of the hypervolume of `points` (may be empty) when `candidate` is added.

    With candidate c, points q and reference r this is prod(c - r) - HV({min(q, c)}): the candidate's own box minus the
    part of it that the points already cover. So only one hypervolume is computed, of the points clipped to that box.

    Raises:
        ValueError: A number is not finite, or the candidate or the reference has the wrong length.
    """
    array, newcomer = _check_pair(points, candidate)
    corner = check_reference(reference, len(newcomer))
    if not (newcomer > corner).all():
        return 0.0
    covered = _volume(np.minimum(array, newcomer), corner)
    # Rounding may put a covered candidate slightly below 0.
    return max(0.0, float(np.prod(newcomer - corner)) - covered)


def _check_pair(
    points: ArrayLike, candidate: ArrayLike
) -> tuple[Float64[np.ndarray, "n d"], Float64[np.ndarray, " d"]]:
    newcomer = np.asarray(candidate, dtype=np.float64)
    if newcomer.ndim != 1:
        raise ValueError(f"candidate must be one point [num_objectives], got shape {newcomer.shape}")
    newcomer = check_points(newcomer[None], "candidate")[0]
    if np.asarray(points).size == 0:
        return np.empty((0, len(newcomer))), newcomer
    array = check_points(points)
    if array.shape[1] != len(newcomer):
        raise ValueError(f"candidate must have {array.shape[1]} objectives like the points, got {len(newcomer)}")
    return array, newcomer


def _volume(points: Float64[np.ndarray, "n d"], reference: Float64[np.ndarray, " d"]) -> float:
    inside = points[(points > reference).all(axis=1)]
    if len(inside) == 0:
        return 0.0
    return float(moocore.hypervolume(non_dominated(inside), ref=reference, maximise=True))
