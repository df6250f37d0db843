"""Metrics of scalarised returns over a table of test preferences: UT, ED and their companions."""

import numpy as np
from jaxtyping import Float64

from qpensieve.metrics.fronts import check_points
from qpensieve.preferences import ArrayLike, check_preference

PerRun = float | Float64[np.ndarray, "..."]
"""A float for returns [p, d]; an array over the leading axes for returns [..., p, d]."""


def utility(returns: ArrayLike, preferences: ArrayLike) -> PerRun:
    """Return UT: the mean of lam . return over test preferences; row i of `returns` was reached under preference i."""
    return _per_run(_scalarized(*_check_returns(returns, preferences)))


def episodic_dominance(returns: ArrayLike, other: ArrayLike, preferences: ArrayLike) -> PerRun:
    """Return ED: the share of test preferences under which lam . returns is strictly greater than lam . other."""
    ours, lam = _check_returns(returns, preferences)
    theirs, _ = _check_returns(other, preferences, name="other")
    if ours.shape != theirs.shape:
        raise ValueError(f"returns and other must have the same shape, got {ours.shape} and {theirs.shape}")
    return _per_run(_scalarized(ours, lam) > _scalarized(theirs, lam))


def expected_utility(points: ArrayLike, preferences: ArrayLike) -> float:
    """Return the mean over preferences of the best lam . point: UT when each preference picks its best point."""
    array = check_points(points)
    if len(array) == 0:
        raise ValueError("points is empty; the expected utility needs at least one point")
    lam = _check_table(preferences, array.shape[1])
    return float((lam @ array.T).max(axis=1).mean())


def best_single(returns: ArrayLike, preferences: ArrayLike) -> float:
    """Return UT of the best single row of `returns` when it is used under all preferences; any number of rows.

    Rows [n, d] are taken as exact. Rows of episodes [n, e, d] are noisy, and the largest noisy row is too large. So one
    half of the episodes chooses the row and the other half measures it, in both orders; a single episode does both. A
    policy whose UT is not above this gains nothing from its preference input.
    """
    array = np.asarray(returns, dtype=np.float64)
    halves = _halves(array if array.shape[1] > 1 else array.repeat(2, axis=1)) if array.ndim == 3 else [(array, array)]
    choosing = check_points(halves[0][0], "returns")
    if len(choosing) == 0:
        raise ValueError("returns is empty; the best single row needs at least one row")
    lam = _check_table(preferences, choosing.shape[1]).mean(axis=0)
    return float(np.mean([measured[(chosen @ lam).argmax()] @ lam for chosen, measured in halves]))


def _halves(returns: Float64[np.ndarray, "n e d"]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return means of every second episode and of the other episodes, to choose and to measure, in both orders."""
    even, odd = returns[:, ::2].mean(axis=1), returns[:, 1::2].mean(axis=1)
    return [(even, odd), (odd, even)]


def preference_correlation(returns: ArrayLike, preferences: ArrayLike) -> Float64[np.ndarray, " d"]:
    """Return Spearman's correlation, per objective i, of lam_i with return i; 0 if either is constant."""
    array, lam = _check_returns(returns, preferences)
    if array.ndim != 2:
        raise ValueError(f"returns must be one run [num_preferences, num_objectives], got shape {array.shape}")
    return np.array([_spearman(lam[:, i], array[:, i]) for i in range(array.shape[1])])


def _check_returns(
    returns: ArrayLike, preferences: ArrayLike, name: str = "returns"
) -> tuple[Float64[np.ndarray, "*batch p d"], Float64[np.ndarray, "p d"]]:
    array = np.asarray(returns, dtype=np.float64)
    if array.ndim < 2:
        raise ValueError(f"{name} must be an array [..., num_preferences, num_objectives], got shape {array.shape}")
    lam = _check_table(preferences, array.shape[-1])
    if array.shape[-2] != len(lam):
        raise ValueError(f"{name} must have one row per preference ({len(lam)}), got {array.shape[-2]}")
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        index = tuple(wrong[0].tolist())
        raise ValueError(f"{name} must be finite, the entry at {index} is {array[index]}")
    return array, lam


def _check_table(preferences: ArrayLike, num_objectives: int) -> Float64[np.ndarray, "p d"]:
    table = np.asarray(preferences, dtype=np.float64)
    if table.ndim != 2 or len(table) == 0:
        raise ValueError(f"preferences must be a table [num_preferences, num_objectives], got shape {table.shape}")
    return check_preference(table, num_objectives)


def _scalarized(
    returns: Float64[np.ndarray, "*batch p d"], lam: Float64[np.ndarray, "p d"]
) -> Float64[np.ndarray, "*batch p"]:
    return (returns * lam).sum(axis=-1)


def _per_run(per_preference: np.ndarray) -> PerRun:
    mean = per_preference.mean(axis=-1)
    return float(mean) if per_preference.ndim == 1 else mean


def _spearman(x: Float64[np.ndarray, " p"], y: Float64[np.ndarray, " p"]) -> float:
    x_rank, y_rank = _ranks(x), _ranks(y)
    x_rank, y_rank = x_rank - x_rank.mean(), y_rank - y_rank.mean()
    scale = float(np.sqrt((x_rank**2).sum() * (y_rank**2).sum()))
    return float(x_rank @ y_rank) / scale if scale > 0 else 0.0


def _ranks(values: Float64[np.ndarray, " p"]) -> Float64[np.ndarray, " p"]:
    """Return ranks from 1; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]
