"""The graph, its neighbourhoods against plain loops, fitted models with known answers, and the choice of tasks."""

from typing import Any

import numpy as np
import pytest

from qpensieve.metrics import hypervolume, sparsity
from qpensieve.population import prediction
from qpensieve.population.prediction import Graph
from qpensieve.preferences import das_dennis

KNOWN = np.array([100.0, 6.0, 0.4, 20.0])
EIGHT = np.linspace(0.0, 1.0, 8)


def _vector(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float64)


def _graph(edges: Any, d: int = 2) -> Graph:
    """One tree per edge: (parent's objectives, preference, change)."""
    graph = prediction.empty_graph(d)
    for parent, lam, delta in edges:
        graph, root = prediction.add_nodes(graph, np.ones((1, d)), _vector(*parent)[None], np.array([-1]))
        graph, _ = prediction.add_nodes(graph, _vector(*lam)[None], (_vector(*parent) + _vector(*delta))[None], root)
    return graph


def _fan(num: int) -> np.ndarray:
    """Different preferences of two objectives."""
    return np.stack([np.linspace(0.1, 0.9, num), 1.0 - np.linspace(0.1, 0.9, num)], axis=1)


# The graph


def test_nodes_keep_where_they_came_from_and_what_changed():
    graph, first = prediction.add_nodes(
        prediction.empty_graph(2), np.array([[0.5, 0.5], [0.6, 0.8]]), np.array([[10.0, -4.0], [1, 1]]), np.full(2, -1)
    )
    lam, objs = np.array([[0.0, 0.2], [3.0, 4.0]]), np.array([[12.0, -1.0], [11.0, -4.0]])
    graph, second = prediction.add_nodes(graph, lam, objs, np.array([1, 0]))
    assert (first.tolist(), second.tolist()) == ([0, 1], [2, 3])
    np.testing.assert_allclose(graph.lam, [[0.5**0.5] * 2, [0.6, 0.8], [0, 1], [0.6, 0.8]], rtol=1e-15)
    np.testing.assert_array_equal(graph.objs, [[10, -4], [1, 1], [12, -1], [11, -4]])
    np.testing.assert_array_equal(graph.delta, [[0, 0], [0, 0], [11, -2], [1, 0]])
    assert graph.parent.tolist() == [-1, -1, 1, 0]


# The model


def test_the_model_is_the_paper_s_quotient_of_exponentials():
    x = np.linspace(-1.0, 2.0, 31)
    power = np.exp(6.0 * (x - 0.4))
    np.testing.assert_allclose(prediction.model(KNOWN, x), 100.0 * (power - 1) / (power + 1) + 20.0, rtol=1e-12)
    np.testing.assert_array_equal(prediction.model(KNOWN, _vector(0.4)), [20.0])
    np.testing.assert_array_equal(prediction.model(_vector(500, 20, -5, 500), _vector(1e4)), [1000.0])


def test_a_known_curve_is_recovered_from_eight_preferences():
    theta, num_bounds = prediction.fit_model(EIGHT, prediction.model(KNOWN, EIGHT), np.ones(8))
    assert theta == pytest.approx(KNOWN, rel=1e-9)
    assert num_bounds == 0


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_changes_of_3000_saturate_at_1000_and_say_so(sign: float):
    theta, num_bounds = prediction.fit_model(EIGHT, sign * np.linspace(2700.0, 3300.0, 8), np.ones(8))
    np.testing.assert_allclose(prediction.model(theta, EIGHT), sign * 1000.0, atol=1e-3)
    assert theta[[0, 3]] == pytest.approx([500.0, sign * 500.0])
    assert num_bounds >= 2


def test_the_curve_is_no_higher_than_the_range_of_the_changes():
    """A straight line would have a high and flat curve."""
    line, num_bounds = prediction.fit_model(EIGHT, 40.0 * EIGHT, np.ones(8))
    assert (line[0], num_bounds) == pytest.approx((40.0, 1))
    steep, num_bounds = prediction.fit_model(EIGHT, np.where(EIGHT > 0.5, 30.0, -30.0), np.ones(8))
    assert (steep[1], num_bounds) == pytest.approx((20.0, 1), abs=0.01)


@pytest.mark.parametrize("importance", [[1.0, 1.0, 1.0, 1.0], [1.0, 0.3, 0.3, 0.8]])
def test_a_single_preference_gets_the_robust_mean_of_its_changes(importance: list[float]):
    """By trying every value: residuals times importance, squared below 20 and linear far beyond."""
    delta, importances = _vector(0, 5, 10, 150), _vector(*importance)
    theta, _ = prediction.fit_model(np.full(4, 0.5), delta, importances)
    values = np.linspace(0.0, 150.0, 150_001)
    residuals = (values[:, None] - delta) * importances
    loss = 2.0 * (np.sqrt(1.0 + (residuals / 20.0) ** 2) - 1.0)
    best = values[np.argmin(loss.sum(axis=1))]
    assert 5.0 < best < 60.0
    assert prediction.model(theta, _vector(0.5))[0] == pytest.approx(best, abs=0.01)


# Neighbourhoods


def _neighbours_by_loops(graph: Graph, objs: np.ndarray, reference: np.ndarray) -> tuple[list[int], list[float]]:
    threshold, sigma = 0.1, 0.03
    while True:
        found, importance, lams = [], [], []
        for child, parent in enumerate(graph.parent.tolist()):
            if parent < 0:
                continue
            start, here = graph.objs[parent] - reference, objs - reference
            parts = [abs(s - h) / abs(h) for s, h in zip(start, here, strict=True)]
            if max(parts) < threshold:
                found.append(child)
                importance.append(np.exp(-sum(part**2 for part in parts) / sigma**2 / 2))
                if not any(np.linalg.norm(graph.lam[child] - lam) < 1e-4 for lam in lams):
                    lams.append(graph.lam[child])
        is_last = len(found) == np.sum(graph.parent >= 0) or (len(objs) > 2 and threshold >= 1)
        if len(lams) > 3 or is_last:
            return found, importance
        threshold, sigma = 2 * threshold, 2 * sigma


@pytest.mark.parametrize("d", [2, 3, 4])
def test_neighbours_are_those_of_the_loops(d: int):
    rng = np.random.default_rng(d)
    sizes = set()
    for _ in range(20):
        reference, graph = rng.normal(size=d) * 5.0, prediction.empty_graph(d)
        grid = das_dennis(d, 4)
        for node in range(30):
            objs = reference + rng.lognormal(0.0, 0.5, size=d)
            parent = -1 if node < 5 else int(rng.integers(node))
            lam = grid[rng.integers(len(grid))]
            graph, _ = prediction.add_nodes(graph, lam[None], objs[None], np.array([parent]))
        objs = reference + rng.lognormal(0.0, 0.5, size=d)
        edges, importance = prediction.neighbours(graph, objs, reference)
        expected, expected_importance = _neighbours_by_loops(graph, objs, reference)
        assert edges.tolist() == expected
        np.testing.assert_allclose(importance, expected_importance, rtol=1e-9)
        sizes.add(len(expected))
    assert len(sizes) > 5


def test_an_objective_exactly_at_the_reference_has_no_neighbours_and_the_search_ends():
    graph = _graph([((100.0, -50.0), lam, (1, 1)) for lam in _fan(6)])
    edges, importance = prediction.neighbours(graph, _vector(100, -50), _vector(0, -50))
    assert (edges.shape, importance.shape) == ((0,), (0,))
    got = prediction.predict(graph, _vector(100, -50), _fan(3), _vector(0, -50))
    np.testing.assert_array_equal(got.delta, np.zeros((3, 2)), strict=True)
    assert (got.num_bounds, got.num_edges) == (0, 0)


# Predictions


CURVES = (KNOWN, _vector(60, 9, 0.5, -30), _vector(150, 4, 0.3, 5))


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("scale", [1.0, 0.01, 5.0])
def test_every_objective_has_its_own_curve_over_its_own_part_of_the_preference(d: int, scale: float):
    """Parts of the preference that sums to 1, whatever the length of those given and stored."""
    reference, objs, lams = np.full(d, -1000.0), np.arange(d) * 10.0 - 5.0, das_dennis(d, 8)
    curve = lambda lam: np.stack([prediction.model(CURVES[j], lam[:, j]) for j in range(d)], axis=1)
    graph = _graph(zip([objs] * len(lams), lams, curve(lams), strict=True), d)
    asked = das_dennis(d, 5)
    got = prediction.predict(graph, objs, scale * asked, reference)
    np.testing.assert_allclose(got.delta, curve(asked), rtol=1e-5, atol=1e-3)
    assert (got.num_bounds, got.num_edges) == (0, len(lams))


NONE = np.empty((0, 2))


def _candidates(lam: list[float], tried: np.ndarray = NONE, num: int = 7) -> np.ndarray:
    return prediction.candidate_lams(np.array(lam, np.float64), tried, num, 0.25, np.random.default_rng(0))


def _angles(lams: np.ndarray) -> list[float]:
    return np.rad2deg(np.arctan2(lams[:, 1], lams[:, 0])).tolist()


# Candidates


@pytest.mark.parametrize(
    ("lam", "degrees"),
    [
        ([0.5, 0.5], [0, 15, 30, 45, 60, 75, 90]),
        ([1.0, 0.0], [0, 15, 30, 45]),
        ([0.0, 1.0], [45, 60, 75, 90]),
        ([0.25, 0.75], [26.565, 41.565, 56.565, 71.565, 86.565]),
        ([3.0, 1.0], [3.435, 18.435, 33.435, 48.435, 63.435]),
    ],
)
def test_two_objectives_have_a_fan_of_45_degrees_to_either_side_within_the_quadrant(lam, degrees):
    got = _candidates(lam)
    assert _angles(got) == pytest.approx(degrees, abs=1e-3)
    np.testing.assert_allclose(got.sum(axis=1), 1.0, rtol=1e-15)
    assert (got >= 0).all()


@pytest.mark.parametrize("lam", [[1.0, 1.0 + 1e-12], [1.0 + 1e-12, 1.0]])
def test_an_end_of_the_fan_that_rounding_put_beyond_an_axis_is_on_it(lam: list[float]):
    got = _candidates(lam)
    assert len(got) == 7
    assert (got >= 0).all()


def test_preferences_already_tried_are_left_out_whatever_their_length():
    """Nearer than 1e-3 as unit vectors is the same; 1.5e-3 is another one."""
    same, other = np.deg2rad(30.0) + 0.9e-3, np.deg2rad(60.0) + 1.5e-3
    tried = np.array([[5.0, 0.0], [0.2 * np.cos(same), 0.2 * np.sin(same)], [3 * np.cos(other), 3 * np.sin(other)]])
    assert _angles(_candidates([0.5, 0.5], tried)) == pytest.approx([15, 45, 60, 75, 90])


def _around(lam: np.ndarray, tried: np.ndarray, seed: int, spacing: float = 0.25) -> np.ndarray:
    return prediction.candidate_lams(lam, tried, 7, spacing, np.random.default_rng(seed))


@pytest.mark.parametrize(("d", "spacing"), [(3, 0.25), (4, 0.25), (5, 1.0 / 3.0)])
def test_more_objectives_have_the_last_preference_and_six_of_the_finer_grid_around_it(d: int, spacing: float):
    units = round(2 / spacing)
    for seed in range(10):
        lam = np.random.default_rng(seed).dirichlet(np.ones(d))
        got = _around(5.0 * lam, np.empty((0, d)), seed, spacing)
        assert got.shape == (7, d)
        np.testing.assert_allclose(got[0], lam, rtol=1e-12)
        np.testing.assert_allclose(got[1:] * units, np.round(got[1:] * units), atol=1e-9)
        assert (np.round(got[1:] * units) % 2 == 1).any()
        np.testing.assert_allclose(got.sum(axis=1), 1.0, rtol=1e-12)
        cosines = got @ lam / np.linalg.norm(got, axis=1) / np.linalg.norm(lam)
        assert (cosines > np.cos(np.pi / 4)).all()
        assert len(np.unique(got.round(9), axis=0)) == 7


def test_all_grid_preferences_at_less_than_45_degrees_and_only_they_come_up():
    lam, grid = np.array([0.25, 0.25, 0.5]), das_dennis(3, 8)
    cosines = grid @ lam / np.linalg.norm(grid, axis=1) / np.linalg.norm(lam)
    wanted = {tuple(row) for row in grid[cosines > np.sqrt(0.5)].round(9)}
    draws = [_around(lam, np.empty((0, 3)), seed) for seed in range(60)]
    assert {tuple(row) for draw in draws for row in draw.round(9)} == wanted
    assert all(len(np.unique(draw.round(9), axis=0)) == 7 for draw in draws)
    assert len(wanted) < len(grid)


def test_others_take_the_place_of_what_was_tried():
    lam = np.array([0.25, 0.25, 0.5])
    first = _around(lam, np.empty((0, 3)), 0)
    second = _around(lam, 7.0 * first, 0)
    assert len(second) == 7
    assert not {tuple(row) for row in first.round(9)} & {tuple(row) for row in second.round(9)}
    assert _around(lam, np.concatenate([das_dennis(3, 8), lam[None]]), 0).shape == (0, 3)


# The greedy choice


def _choose_by_loops(
    front: np.ndarray, predicted: np.ndarray, num_tasks: int, reference: np.ndarray, weight: float
) -> list[int]:
    """The whole front scored anew for every candidate of every round."""
    virtual = [point for point in front if (point > reference).all()]
    chosen: list[int] = []
    for _ in range(min(num_tasks, len(predicted))):
        scores = {}
        for i, point in enumerate(predicted):
            if i not in chosen:
                points = [*virtual, point] if (point > reference).all() else virtual
                volume = hypervolume(points, reference) if points else 0.0
                scores[i] = volume - weight * (sparsity(points) if points else 0.0)
        chosen.append(max(scores, key=lambda i: (scores[i], -i)))
        if (predicted[chosen[-1]] > reference).all():
            virtual.append(predicted[chosen[-1]])
    return chosen


@pytest.mark.parametrize("weight", [0.0, 1.0, -1.0])
@pytest.mark.parametrize(("d", "num_front"), [(2, 12), (2, 0), (2, 1), (3, 20), (5, 8)])
def test_the_choice_is_that_of_the_loops(d: int, num_front: int, weight: float):
    """With some predictions below the reference, dominated or equal, and dominated points in the archive's rows."""
    rng = np.random.default_rng(100 * d + num_front)
    for _ in range(3):
        f = rng.dirichlet(np.ones(d), num_front + 33) * rng.uniform(3.5, 6.0, (num_front + 33, 1)) - 0.1
        reference = rng.normal(size=d) * 10.0
        front, predicted = reference + f[:num_front], reference + f[num_front:]
        predicted[[3, 11]] = predicted[[20, 5]]
        predicted[7:9] = front[:2] if num_front > 1 else predicted[7:9]
        got = prediction.select(front, predicted, 6, reference, weight)
        assert got.tolist() == _choose_by_loops(front, predicted, 6, reference, weight)
        assert got.dtype == np.int64


FRONT = np.array([[1.0, 10.0], [2.0, 9.0], [9.0, 2.0], [10.0, 1.0]])
INTO_THE_GAP, OUTWARD = [5.5, 5.5], [20.0, 1.9]


def test_a_weight_on_sparsity_sends_tasks_into_the_gap_and_its_opposite_away_from_it():
    """Gains 12.25 and 19.9, sparsities 13.25 and 73.67: without a weight, outward; the sign is trap 7."""
    predicted = np.array([OUTWARD, INTO_THE_GAP])
    chosen = [prediction.select(FRONT, predicted, 1, np.zeros(2), weight).tolist() for weight in (0.0, 1.0, -1.0)]
    assert chosen == [[0], [1], [0]]
    chosen = [prediction.select(FRONT, predicted, 1, np.zeros(2), weight).tolist() for weight in (0.1, 0.13)]
    assert chosen == [[0], [1]]  # the scores meet at 7.65 / 60.42 = 0.1266


def test_with_fewer_candidates_than_tasks_all_are_chosen_once():
    predicted = np.array([OUTWARD, INTO_THE_GAP])
    assert sorted(prediction.select(FRONT, predicted, 5, np.zeros(2), 1.0).tolist()) == [0, 1]
    assert prediction.select(FRONT, NONE, 5, np.zeros(2), 1.0).shape == (0,)
