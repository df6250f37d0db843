"""PGMORL's optimisation graph, and the model that predicts from it how training under a preference changes a policy.

Source: Xu et al., Prediction-Guided MORL (ICML 2020), and its authors' code. A node is an evaluated policy, an edge is
the training that led from a policy to the next. To predict for a policy, edges that started near it are fitted, one
model per objective: the change of objective j against the j-th component of the (sum-normalised) preference.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

MIN_DISTINCT = 4
"""A neighbourhood needs edges with at least this many different preferences."""

MAX_THRESHOLD = 1e12
"""A search with two objectives ends here: above 1e4 (a large return) / 1e-7 (the least height in a buffer)."""

DISTINCT_DECIMALS = 5
"""Preferences are the same if, as unit vectors, they agree to this many decimals."""

ROBUST_SCALE = 20.0
"""Residuals beyond this count linearly, not squared."""

BOUND_TOLERANCE = 1e-3
"""A parameter is at a bound if it is this near to it, as a share of the distance between both bounds."""


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


@dataclass(frozen=True)
class ModelFit:
    """Parameters of A tanh(a (x - b) / 2) + c, and how many of the four ended at a bound."""

    A: float
    a: float
    b: float
    c: float
    num_bounds: int


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predicted change of the objectives for k preferences.

    Attributes:
        delta: The change, one row per preference.
        num_bounds: Parameters at a bound, over the models of all objectives. The models are made for returns of order
            1e3 and changes of a few hundred; beyond that they saturate.
        num_edges: Number of edges that the models were fitted to; if 0, no change is predicted.
    """

    delta: Float64[np.ndarray, "k d"]
    num_bounds: int
    num_edges: int


def empty_graph(num_objectives: int) -> Graph:
    none = np.empty((0, num_objectives))
    return Graph(none, none, none, np.empty(0, np.int64))


def add_node(graph: Graph, lam: Float64[np.ndarray, " d"], objs: Float64[np.ndarray, " d"], parent: int) -> Graph:
    """The graph with one more node, the last; `parent` is a node or -1, and `lam` may have any length.

    Raises:
        ValueError: If there is no such parent.
    """
    if not -1 <= parent < len(graph.parent):
        raise ValueError(f"parent must be -1 or one of {len(graph.parent)} nodes, got {parent}")
    delta = objs - graph.objs[parent] if parent >= 0 else np.zeros_like(objs)
    new = (lam / np.linalg.norm(lam), objs, delta, np.array(parent, np.int64))
    old = (graph.lam, graph.objs, graph.delta, graph.parent)
    return Graph(*(np.concatenate([rows, row[None]]) for rows, row in zip(old, new, strict=True)))


def model(fit: ModelFit, x: Float64[np.ndarray, " k"]) -> Float64[np.ndarray, " k"]:
    """Predicted change for preference components x: A (e^{a(x-b)} - 1) / (e^{a(x-b)} + 1) + c, computed stably."""
    return _curve(np.array([fit.A, fit.a, fit.b, fit.c]), x)


def _curve(theta: Float64[np.ndarray, " 4"], x: Float64[np.ndarray, " k"]) -> Float64[np.ndarray, " k"]:
    height, a, b, c = theta
    return height * np.tanh(0.5 * a * (x - b)) + c


def _slopes(theta: Float64[np.ndarray, " 4"], x: Float64[np.ndarray, " k"]) -> Float64[np.ndarray, "k 4"]:
    """Derivatives of the curve by its four parameters."""
    height, a, b, _ = theta
    level = np.tanh(0.5 * a * (x - b))
    rise = 0.5 * height * (1.0 - level**2)
    return np.stack([level, rise * (x - b), -rise * a, np.ones_like(x)], axis=1)


def fit_model(
    x: Float64[np.ndarray, " e"], delta: Float64[np.ndarray, " e"], importance: Float64[np.ndarray, " e"]
) -> ModelFit:
    """The bounded model that fits the changes `delta` at `x` best, by a soft L1 loss of residuals times importance.

    A is at most the range of the changes (between 1 and 500); |c| is at most 500. So predictions stay within +-1000,
    and within +-501 if all changes are equal.
    """
    lower = np.array([0.0, 0.1, -5.0, -500.0])
    upper = np.array([np.clip(np.ptp(delta), 1.0, 500.0), 20.0, 5.0, 500.0])
    from scipy.optimize import least_squares  # a fifth of all that importing qpensieve takes, for this method alone

    found = least_squares(
        lambda theta: (_curve(theta, x) - delta) * importance,
        np.ones(4),
        jac=lambda theta: _slopes(theta, x) * importance[:, None],  # pyright: ignore[reportArgumentType]
        bounds=(lower, upper),
        loss="soft_l1",
        f_scale=ROBUST_SCALE,
        # Far edges have little importance; with the default, their small first gradient would count as an optimum.
        gtol=1e-15,
    )
    share = (found.x - lower) / (upper - lower)
    num_bounds = np.count_nonzero(np.minimum(share, 1.0 - share) < BOUND_TOLERANCE)
    return ModelFit(*found.x.tolist(), num_bounds=int(num_bounds))


def neighbours(
    graph: Graph,
    objs: Float64[np.ndarray, " d"],
    reference: Float64[np.ndarray, " d"],
    threshold: float = 0.1,
    sigma: float = 0.03,
) -> tuple[Int64[np.ndarray, " e"], Float64[np.ndarray, " e"]]:
    """Edges that started near `objs`, as their child nodes, and the importance of each.

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
    while not is_near.all() and threshold < limit and _num_distinct(graph.lam[edges[is_near]]) < MIN_DISTINCT:
        threshold, sigma = 2.0 * threshold, 2.0 * sigma
        is_near = (gap < threshold * height).all(axis=1)
    distance = np.linalg.norm(gap[is_near] / height, axis=1)
    return edges[is_near], np.exp(-0.5 * (distance / sigma) ** 2)


def _num_distinct(lam: Float64[np.ndarray, "e d"]) -> int:
    return len(np.unique(np.round(lam, DISTINCT_DECIMALS), axis=0))


def predict(
    graph: Graph,
    objs: Float64[np.ndarray, " d"],
    lams: Float64[np.ndarray, "k d"],
    reference: Float64[np.ndarray, " d"],
) -> Prediction:
    """How training under each of `lams` would change the (raw) `objs` of a policy; zeros without neighbours."""
    edges, importance = neighbours(graph, objs, reference)
    if len(edges) == 0:
        return Prediction(np.zeros_like(lams), num_bounds=0, num_edges=0)
    known = graph.lam[edges] / graph.lam[edges].sum(axis=1, keepdims=True)
    asked = lams / lams.sum(axis=1, keepdims=True)
    fits = [fit_model(known[:, j], graph.delta[edges, j], importance) for j in range(len(objs))]
    delta = np.stack([model(fit, asked[:, j]) for j, fit in enumerate(fits)], axis=1)
    return Prediction(delta, num_bounds=sum(fit.num_bounds for fit in fits), num_edges=len(edges))
