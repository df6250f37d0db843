"""Tests of Pareto dominance and sparsity."""

import numpy as np
import pytest

from qpensieve.metrics import is_non_dominated, non_dominated, sparsity
from tests.oracles import pareto as oracle


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([[1, 5], [2, 1], [3, 4], [3, 3]], [True, False, True, False]),
        ([[0, 0], [1, 2], [2, 1], [1, 2], [2, 1]], [False, True, True, False, False]),  # the first of equal points
        ([[1], [3], [2], [3]], [False, True, False, False]),
    ],
)
def test_non_dominated_points_by_hand(points, expected):
    assert is_non_dominated(points).tolist() == expected
    np.testing.assert_array_equal(non_dominated(points), np.array(points)[expected])


@pytest.mark.parametrize("num_objectives", [1, 2, 3, 4, 5, 6])
def test_mask_equals_the_double_loop_with_ties_and_duplicates(num_objectives):
    rng = np.random.default_rng(num_objectives)
    for num_points in rng.integers(1, 25, size=60):
        # Few levels make ties and duplicates common; the scale would show a comparison with a tolerance.
        points = rng.integers(-2, 3, size=(num_points, num_objectives)) * 1e-12
        mask = is_non_dominated(points)
        assert mask.tolist() == oracle.is_non_dominated(points.tolist())
        np.testing.assert_array_equal(non_dominated(points), points[mask])


def test_large_sets_equal_the_double_loop():
    rng = np.random.default_rng(0)
    for num_objectives in (4, 5):
        points = rng.integers(0, 8, size=(300, num_objectives)).astype(float)
        assert is_non_dominated(points).tolist() == oracle.is_non_dominated(points.tolist())


def test_no_points_have_an_empty_front():
    assert non_dominated(np.empty((0, 3))).shape == (0, 3)


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([[3, 1], [0, 5], [2, 4]], 7.5),  # 0, 2, 3 -> 4 + 1; 1, 4, 5 -> 9 + 1; together 15 over 3 - 1
        ([[3, 1], [1, 1], [0, 5], [2, 4], [3, 1], [-9, -9]], 7.5),  # the same front
        ([[3, 1]], 0),
        ([[3, 1], [2, 0], [3, 1]], 0),
        (np.empty((0, 2)), 0),
    ],
)
def test_sparsity_by_hand(points, expected):
    assert sparsity(points) == expected


@pytest.mark.parametrize("function", [is_non_dominated, non_dominated, sparsity])
@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([1.0, 2.0], r"points must be an array \[num_points, num_objectives\], got shape \(2,\)"),
        ([], "points is empty, so the number of objectives is unknown"),
        (np.empty((3, 0)), r"points must be an array \[num_points, num_objectives\], got shape \(3, 0\)"),
        ([[1, 2], [3, float("nan")]], r"points must be finite, row 1 is \[3.0, nan\]"),
        ([[float("-inf"), 2], [3, 4]], r"points must be finite, row 0 is \[-inf, 2.0\]"),
    ],
)
def test_wrong_points_are_refused_with_what_is_wrong(function, points, message):
    with pytest.raises(ValueError, match=message):
        function(points)
