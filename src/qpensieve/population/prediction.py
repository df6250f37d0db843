"""PGMORL's prediction: a graph of what training did, a model of it for every objective, and the choice of tasks.

Source: Xu et al., Prediction-Guided MORL (ICML 2020), and its authors' code. A node is an evaluated policy, an edge is
the training that led from a policy to the next. To predict for a policy, edges that started near it are fitted, one
model per objective: the change of objective j against the j-th component of the (sum-normalised) preference. Tasks are
chosen greedily among predicted outcomes. Sparsity times a positive factor is subtracted, as in that code; the
Q-Pensieve paper prints the factor with the other sign.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from qpensieve.metrics import hypervolume_gain, non_dominated
from qpensieve.metrics.fronts import front_sparsity
from qpensieve.preferences import das_dennis

MIN_DISTINCT = 4
"""A neighbourhood needs edges with at least this many different preferences."""

MAX_THRESHOLD = 1e12
"""Largest threshold of a search for neighbours with two objectives. It is above every ratio of a return (at most 1e4)
to a height in a buffer (at least 1e-7)."""

DISTINCT_DECIMALS = 5
"""Preferences are the same if, as unit vectors, they agree to this many decimals."""

ROBUST_SCALE = 20.0
"""Residuals beyond this count linearly, not squared."""

BOUND_TOLERANCE = 1e-3
"""A parameter is at a bound if it is this near to it, as a share of the distance between both bounds."""

MAX_ANGLE = np.pi / 4
"""Largest angle between a candidate and the last preference."""

SAME_LAM = 1e-3
"""Unit vectors nearer than this are the same preference."""

ROUNDING = 1e-9
"""Upper bound on the rounding error of an angle."""


Theta = Float64[np.ndarray, " 4"]
"""Parameters A, a, b and c of a model."""


@dataclass(frozen=True, eq=False)
class Graph:
    """A forest of evaluated policies.

    Attributes:
        lam: Preference that led to the node, of Euclidean length 1.
        objs: Return vector reached, raw.
        delta: Its change from the parent's; zeros for a root.
        parent: Node it was trained from; -1 for a root.
    """

    lam: Float64[np.ndarray, "g d"]
    objs: Float64[np.ndarray, "g d"]
    delta: Float64[np.ndarray, "g d"]
    parent: Int64[np.ndarray, " g"]


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predicted change of the objectives for k preferences.

    Attributes:
        delta: The change, one row per preference.
        num_bounds: Number of parameters at a bound, over the models of all objectives. The models are made for returns
            of order 1e3 and changes of a few hundred; beyond that they saturate.
        num_edges: Number of edges that the models were fitted to; if 0, no change is predicted.
    """

    delta: Float64[np.ndarray, "k d"]
    num_bounds: int
    num_edges: int


def empty_graph(num_objectives: int) -> Graph:
    none = np.empty((0, num_objectives))
    return Graph(none, none, none, np.empty(0, np.int64))


def add_nodes(
    graph: Graph,
    lam: Float64[np.ndarray, "n d"],
    objs: Float64[np.ndarray, "n d"],
    parents: Int64[np.ndarray, " n"],
) -> tuple[Graph, Int64[np.ndarray, " n"]]:
    """Return the graph with a new node for every row, and the numbers of these; parents are earlier nodes or -1."""
    first = len(graph.parent)
    delta = np.zeros_like(objs)
    delta[parents >= 0] = objs[parents >= 0] - graph.objs[parents[parents >= 0]]
    new = (lam / np.linalg.norm(lam, axis=1, keepdims=True), objs, delta, parents)
    old = (graph.lam, graph.objs, graph.delta, graph.parent)
    return Graph(*(np.concatenate(both) for both in zip(old, new, strict=True))), np.arange(first, first + len(objs))


def model(theta: Theta, x: Float64[np.ndarray, " k"]) -> Float64[np.ndarray, " k"]:
    """Predict the change for preference components x: A (e^{a(x-b)} - 1) / (e^{a(x-b)} + 1) + c, computed stably."""
    height, a, b, c = theta
    return height * np.tanh(0.5 * a * (x - b)) + c


def _slopes(theta: Theta, x: Float64[np.ndarray, " k"]) -> Float64[np.ndarray, "k 4"]:
    """Return the derivatives of the model by its four parameters."""
    height, a, b, _ = theta
    level = np.tanh(0.5 * a * (x - b))
    rise = 0.5 * height * (1.0 - level**2)
    return np.stack([level, rise * (x - b), -rise * a, np.ones_like(x)], axis=1)


def fit_model(
    x: Float64[np.ndarray, " e"], delta: Float64[np.ndarray, " e"], importance: Float64[np.ndarray, " e"]
) -> tuple[Theta, int]:
    """Fit the bounded model to the changes `delta` at `x`, by a soft L1 loss of residuals times importance.

    Returns its parameters, and the number of them that are at a bound.

    A is at most the range of the changes (between 1 and 500); |c| is at most 500. So predictions stay within +-1000,
    and within +-501 if all changes are equal.
    """
    lower = np.array([0.0, 0.1, -5.0, -500.0])
    upper = np.array([np.clip(np.ptp(delta), 1.0, 500.0), 20.0, 5.0, 500.0])
    from scipy.optimize import least_squares  # a fifth of all that importing qpensieve takes, for this method alone

    found = least_squares(
        lambda theta: (model(theta, x) - delta) * importance,
        np.ones(4),
        jac=lambda theta: _slopes(theta, x) * importance[:, None],  # pyright: ignore[reportArgumentType]
        bounds=(lower, upper),
        loss="soft_l1",
        f_scale=ROBUST_SCALE,
        # Far edges have little importance; with the default, their small first gradient would count as an optimum.
        gtol=1e-15,
    )
    share = (found.x - lower) / (upper - lower)
    return found.x, int(np.count_nonzero(np.minimum(share, 1.0 - share) < BOUND_TOLERANCE))


def neighbours(
    graph: Graph,
    objs: Float64[np.ndarray, " d"],
    reference: Float64[np.ndarray, " d"],
    threshold: float = 0.1,
    sigma: float = 0.03,
) -> tuple[Int64[np.ndarray, " e"], Float64[np.ndarray, " e"]]:
    """Return the edges that started near `objs`, as their child nodes, and the importance of each.

    Objectives are raw; distances are relative to the height of `objs` over the reference. An edge is near if its parent
    is nearer than `threshold` in every objective; its importance is exp(-(distance / sigma)^2 / 2). Both limits are
    doubled until there are four different preferences. The search also ends when all edges are in or the threshold
    reaches 1 (two objectives: `MAX_THRESHOLD`). Then there may be fewer edges, or none, for example if an objective is
    exactly at the reference.
    """
    edges = np.flatnonzero(graph.parent >= 0)
    height = np.abs(objs - reference)
    gap = np.abs(graph.objs[graph.parent[edges]] - objs)
    limit = 1.0 if len(objs) > 2 else MAX_THRESHOLD
    is_near = (gap < threshold * height).all(axis=1)
    rounded = np.round(graph.lam[edges], DISTINCT_DECIMALS)
    while not is_near.all() and threshold < limit and len(np.unique(rounded[is_near], axis=0)) < MIN_DISTINCT:
        threshold, sigma = 2.0 * threshold, 2.0 * sigma
        is_near = (gap < threshold * height).all(axis=1)
    distance = np.linalg.norm(gap[is_near] / height, axis=1)
    return edges[is_near], np.exp(-0.5 * (distance / sigma) ** 2)


def predict(
    graph: Graph,
    objs: Float64[np.ndarray, " d"],
    lams: Float64[np.ndarray, "k d"],
    reference: Float64[np.ndarray, " d"],
) -> Prediction:
    """Predict how training under each of `lams` would change the (raw) `objs` of a policy; 0 without neighbours."""
    edges, importance = neighbours(graph, objs, reference)
    if len(edges) == 0:
        return Prediction(np.zeros_like(lams), num_bounds=0, num_edges=0)
    known = graph.lam[edges] / graph.lam[edges].sum(axis=1, keepdims=True)
    asked = lams / lams.sum(axis=1, keepdims=True)
    fits = [fit_model(known[:, j], graph.delta[edges, j], importance) for j in range(len(objs))]
    delta = np.stack([model(theta, asked[:, j]) for j, (theta, _) in enumerate(fits)], axis=1)
    return Prediction(delta, num_bounds=sum(num for _, num in fits), num_edges=len(edges))


# The choice of tasks


def candidate_lams(
    lam: Float64[np.ndarray, " d"],
    tried: Float64[np.ndarray, "t d"],
    num_lams: int,
    spacing: float,
    generator: np.random.Generator,
) -> Float64[np.ndarray, "k d"]:
    """Return up to `num_lams` preferences, each summing to 1, for a policy that was last trained under `lam`.

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
    """Return the centre, then the grid's unit vectors around it in random order."""
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
    """Choose candidates one after the other; each is the best addition to the archive and the earlier choices.

    The best candidate maximises hypervolume - `sparsity_weight` * sparsity of the front with its prediction; at a tie
    it is the first one. Objectives are raw. A prediction that is dominated, or not above the reference in all
    objectives, does not change the front. Every candidate is chosen at most once; if there are fewer than tasks, all.
    """
    f, front = predicted - reference, front_objs - reference
    front = non_dominated(front[(front > 0.0).all(axis=1)])
    is_adding, is_left = ~_is_covered(f, front), np.ones(len(f), bool)
    gain, is_stale = np.zeros(len(f)), is_adding.copy()
    chosen = []
    for _ in range(min(num_tasks, len(f))):
        gain[is_stale] = [hypervolume_gain(front, point, np.zeros(len(point))) for point in f[is_stale]]
        score = np.full(len(f), -sparsity_weight * front_sparsity(front))
        gaps = np.array([front_sparsity(_join(front, point)) for point in f[is_adding]])
        score[is_adding] = gain[is_adding] - sparsity_weight * gaps
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
    """Return whether each point adds no volume: a point of the front is as good everywhere, or an objective is <= 0."""
    is_below = np.any(np.all(front[None] >= points[:, None], axis=2), axis=1)
    return is_below | np.any(points <= 0.0, axis=1)


def _join(front: Float64[np.ndarray, "m d"], point: Float64[np.ndarray, " d"]) -> Float64[np.ndarray, "n d"]:
    """Return the front with a new point that it does not cover, without the points that the new point dominates."""
    return np.concatenate([front[~(front <= point).all(axis=1)], point[None]])
