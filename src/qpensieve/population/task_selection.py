"""PGMORL's choice of tasks: candidate preferences per policy, and a greedy choice among their predicted outcomes.

Source: Xu et al., Prediction-Guided MORL (ICML 2020), and its authors' code. Sparsity times a positive factor is
subtracted, as in that code; the Q-Pensieve paper prints the factor with the other sign.
"""

import numpy as np
from jaxtyping import Bool, Float64, Int64

from qpensieve.metrics import hypervolume_gain, non_dominated, sparsity
from qpensieve.preferences import das_dennis

MAX_ANGLE = np.pi / 4
"""Largest angle between a candidate and the last preference."""

SAME_LAM = 1e-3
"""Unit vectors nearer than this are the same preference."""

ROUNDING = 1e-9
"""More than the rounding error of an angle."""


def candidate_lams(
    lam: Float64[np.ndarray, " d"],
    tried: Float64[np.ndarray, "t d"],
    num_lams: int,
    spacing: float,
    generator: np.random.Generator,
) -> Float64[np.ndarray, "k d"]:
    """Up to `num_lams` preferences, each summing to 1, for a policy that was last trained under `lam`.

    Two objectives: `num_lams` (2 or more) directions at equal angles from -45 to 45 degrees around `lam`, without those
    outside the quadrant. More: `lam`, then preferences at less than 45 degrees from the grid with half the spacing, in
    random order. Preferences in `tried`, which this policy was already trained under, are left out; with more than two
    objectives others replace them. `lam` and `tried` need not sum to 1.
    """
    centre = _unit(lam[None])[0]
    around = _fan(centre, num_lams) if len(lam) == 2 else _grid_around(centre, spacing, generator)
    fresh = around[~_is_same(around, _unit(tried)).any(axis=1)][:num_lams]
    return fresh / fresh.sum(axis=1, keepdims=True)


def _unit(lams: Float64[np.ndarray, "t d"]) -> Float64[np.ndarray, "t d"]:
    return lams / np.linalg.norm(lams, axis=1, keepdims=True)


def _is_same(lams: Float64[np.ndarray, "k d"], others: Float64[np.ndarray, "t d"]) -> Bool[np.ndarray, "k t"]:
    return np.linalg.norm(lams[:, None] - others[None], axis=2) < SAME_LAM


def _fan(centre: Float64[np.ndarray, " 2"], num_lams: int) -> Float64[np.ndarray, "k 2"]:
    angles = np.arctan2(centre[1], centre[0]) + np.linspace(-MAX_ANGLE, MAX_ANGLE, num_lams)
    angles = angles[(angles > -ROUNDING) & (angles < np.pi / 2 + ROUNDING)].clip(0.0, np.pi / 2)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _grid_around(
    centre: Float64[np.ndarray, " d"], spacing: float, generator: np.random.Generator
) -> Float64[np.ndarray, "k d"]:
    """The centre, then the grid's unit vectors around it in random order."""
    grid = _unit(das_dennis(len(centre), round(2.0 / spacing)))
    is_near = grid @ centre > np.cos(MAX_ANGLE) + ROUNDING
    others = grid[is_near & ~_is_same(grid, centre[None])[:, 0]]
    return np.concatenate([centre[None], generator.permutation(others)])


def select(
    front_objs: Float64[np.ndarray, "p d"],
    predicted: Float64[np.ndarray, "c d"],
    num_tasks: int,
    reference: Float64[np.ndarray, " d"],
    sparsity_weight: float,
) -> Int64[np.ndarray, " n"]:
    """Candidates chosen one after the other; each is the best addition to the archive and the earlier choices.

    The best one maximises hypervolume - `sparsity_weight` * sparsity of the front that includes its prediction; at a
    tie, the first one. Objectives are raw. A prediction that is dominated, or not above the reference in all
    objectives, does not change the front. Every candidate is chosen at most once; if there are fewer than tasks, all.
    """
    f, front = predicted - reference, front_objs - reference
    front = non_dominated(front[(front > 0.0).all(axis=1)])
    is_adding, is_left = ~_is_covered(f, front), np.ones(len(f), bool)
    gain, is_stale = np.zeros(len(f)), is_adding.copy()
    chosen = []
    for _ in range(min(num_tasks, len(f))):
        gain[is_stale] = [hypervolume_gain(front, point, np.zeros(len(point))) for point in f[is_stale]]
        score = np.full(len(f), -sparsity_weight * sparsity(front))
        score[is_adding] = gain[is_adding] - sparsity_weight * _sparsity_with(front, f[is_adding])
        winner = int(np.argmax(np.where(is_left, score, -np.inf)))
        chosen.append(winner)
        is_left[winner] = False
        is_stale[:] = False
        if is_adding[winner]:
            is_adding &= ~(f <= f[winner]).all(axis=1)
            # A gain changes only where the winner covers some of what the candidate would add.
            is_stale = is_adding & ~_is_covered(np.minimum(f, f[winner]), front)
            front = _join(front, f[winner])
    return np.array(chosen, np.int64)


def _is_covered(points: Float64[np.ndarray, "c d"], front: Float64[np.ndarray, "m d"]) -> Bool[np.ndarray, " c"]:
    """Whether a point adds no volume: a point of the front is as good in every objective, or some objective is <= 0."""
    is_below = np.any(np.all(front[None] >= points[:, None], axis=2), axis=1)
    return is_below | np.any(points <= 0.0, axis=1)


def _join(front: Float64[np.ndarray, "m d"], point: Float64[np.ndarray, " d"]) -> Float64[np.ndarray, "n d"]:
    """The front with a new point that it does not cover, without the points that the new one dominates."""
    return np.concatenate([front[~(front <= point).all(axis=1)], point[None]])


def _sparsity_with(front: Float64[np.ndarray, "m d"], points: Float64[np.ndarray, "c d"]) -> Float64[np.ndarray, " c"]:
    """Sparsity of the front with each point added on its own; the front covers none of them."""
    if len(front) == 0:
        return np.zeros(len(points))
    ranked = np.sort(front, axis=0)
    total = np.full(len(points), np.square(np.diff(ranked, axis=0)).sum())
    for column, value in zip(ranked.T, points.T, strict=True):
        place = np.searchsorted(column, value)
        before = value - column[np.maximum(place - 1, 0)]
        after = column[np.minimum(place, len(column) - 1)] - value
        # Between two neighbours, a point splits their gap. Beyond an end, both differences are the new gap, one < 0.
        is_inner = (place > 0) & (place < len(column))
        total += np.where(is_inner, -2.0 * before * after, before**2)
    result = total / len(front)
    # The sum above holds where nothing leaves the front.
    replaces = np.any(np.all(front[None] <= points[:, None], axis=2), axis=1)
    result[replaces] = [sparsity(_join(front, point)) for point in points[replaces]]
    return result
