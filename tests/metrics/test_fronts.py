"""Pareto dominance, hypervolume and sparsity against numbers by hand and exact oracles."""

import numpy as np
import pytest

from qpensieve.metrics import hypervolume, hypervolume_gain, is_non_dominated, non_dominated, sparsity
from tests.oracles import hypervolume as oracle
from tests.oracles import pareto

NAN = float("nan")
DIMENSIONS = [1, 2, 3, 4, 5]
DST_FRONT = [[0.7, -2], [8.2, -3], [11.5, -4], [15.1, -5], [16.1, -6], [20.3, -8], [22.4, -10], [23.7, -11]]


def random_set(rng, num_objectives, num_points=7):
    """Points on a sphere's edge or a coarse grid (ties, duplicates), some outside the reference, and a reference."""
    reference = rng.normal(size=num_objectives)
    if rng.random() < 0.5:
        return reference + rng.integers(-1, 4, size=(num_points, num_objectives)), reference
    directions = np.abs(rng.normal(size=(num_points, num_objectives)))
    return reference - 0.1 + directions / np.linalg.norm(directions, axis=1, keepdims=True), reference


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([[1, 5], [2, 1], [3, 4], [3, 3]], [True, False, True, False]),
        ([[0, 0], [1, 2], [2, 1], [1, 2], [2, 1]], [False, True, True, False, False]),  # the first of equal points
        ([[1], [3], [2], [3]], [False, True, False, False]),
        (np.empty((0, 3)), []),
    ],
)
def test_non_dominated_points_by_hand(points, expected):
    assert is_non_dominated(points).tolist() == expected
    np.testing.assert_array_equal(non_dominated(points), np.array(points)[np.array(expected, bool)])


@pytest.mark.parametrize("num_objectives", [1, 2, 3, 4, 5, 6])
def test_mask_equals_the_double_loop_with_ties_and_duplicates(num_objectives):
    rng = np.random.default_rng(num_objectives)
    for num_points in (*rng.integers(1, 25, size=40), 200):
        # Few levels make ties and duplicates common; the scale would show a comparison with a tolerance.
        points = rng.integers(-2, 3, size=(num_points, num_objectives)) * 1e-12
        assert is_non_dominated(points).tolist() == pareto.is_non_dominated(points.tolist())


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([[3, 1], [0, 5], [2, 4]], 7.5),  # 0, 2, 3 -> 4 + 1; 1, 4, 5 -> 9 + 1; together 15 over 3 - 1
        ([[3, 1], [1, 1], [0, 5], [2, 4], [3, 1], [-9, -9]], 7.5),  # the same front
        ([[3, 1], [2, 0], [3, 1]], 0),
        (np.empty((0, 2)), 0),
    ],
)
def test_sparsity_by_hand(points, expected):
    assert sparsity(points) == expected


@pytest.mark.parametrize("function", [oracle.hypervolume, hypervolume])
@pytest.mark.parametrize(
    ("points", "reference", "volume"),
    [
        ([[3, -5], [5, -20]], [0, -50], 195),
        ([[2, 1, 1], [1, 2, 1], [1, 1, 2]], [0, 0, 0], 4),
        ([[3], [5], [-1]], [1], 4),
        ([[5, 0], [1, 1]], [0, 0], 1),
        ([[-1, -1], [-2, 3]], [0, 0], 0),
        (DST_FRONT, [0, -50], 1055.0),
        (DST_FRONT, [-10, -50], 1535.0),
    ],
)
def test_known_volumes(function, points, reference, volume):
    assert function(points, reference) == pytest.approx(volume, rel=1e-12)


@pytest.mark.parametrize("num_objectives", DIMENSIONS)
def test_volume_equals_the_oracle_and_depends_on_the_front_alone(num_objectives):
    """Dominated, duplicate and outside points change nothing, nor do the orders of points and objectives."""
    rng = np.random.default_rng(num_objectives)
    for _ in range(20):
        points, reference = random_set(rng, num_objectives)
        dominated = points - rng.integers(0, 2, size=points.shape)
        outside = points + 10
        outside[:, rng.integers(num_objectives)] = reference.min() - 1
        volume = pytest.approx(oracle.hypervolume(points, reference), rel=1e-12)
        for extra in (points[:0], dominated, points[::2], outside):
            assert hypervolume(np.concatenate([extra, points]), reference) == volume
        axes = rng.permutation(num_objectives)
        assert hypervolume(rng.permutation(points)[:, axes], reference[axes]) == volume
        growth = hypervolume(points, reference) - hypervolume(points[1:], reference)
        assert hypervolume_gain(points[1:], points[0], reference) == pytest.approx(growth, rel=1e-9, abs=1e-12)
        # Digits that do not cancel exactly: in five objectives a fifth of these differences round to below 0.
        points, reference = rng.random((6, num_objectives)) + 0.1, rng.random(num_objectives) * 0.1
        assert 0 <= hypervolume_gain(points, points[0] * 0.9 + reference * 0.1, reference) < 1e-12


@pytest.mark.parametrize(("num_objectives", "num_points"), [(2, 60), (3, 40), (4, 20), (5, 18)])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e13])
def test_fronts_of_many_points_equal_the_oracle_at_any_scale(num_objectives, num_points, scale):
    # In five objectives moocore changes its algorithm above 15 points.
    points = np.abs(np.random.default_rng(0).normal(size=(num_points, num_objectives)))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    expected = (
        oracle.hypervolume(points, [0.0] * num_objectives) if scale == 1.0 else hypervolume(points, 0 * points[0])
    )
    assert hypervolume(points * scale, 0 * points[0]) == pytest.approx(expected * scale**num_objectives, rel=1e-12)


@pytest.mark.parametrize(
    ("points", "candidate", "reference", "gain"),
    [
        ([], [3, -5], [0, -50], 135),
        (np.empty((0, 2)), [3, -5], [0, -50], 135),
        ([[1, 1]], [5, 0], [0, 0], 0),
        ([[1, 1]], [-2, -3], [0, 0], 0),  # both entries below the reference: their product would be positive
    ],
)
def test_known_gains(points, candidate, reference, gain):
    assert hypervolume_gain(points, candidate, reference) == gain


@pytest.mark.parametrize("function", [sparsity, is_non_dominated, lambda points: hypervolume(points, [0, 0])])
@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([1.0, 2.0], r"points must .*, got shape \(2,\)"),
        ([], "points is empty"),
        (np.empty((3, 0)), r"points must .*, got shape \(3, 0\)"),
        ([[1, 2], [3, NAN]], r"points must be finite, row 1 is \[3.0, nan\]"),
    ],
)
def test_wrong_points_are_refused(function, points, message):
    with pytest.raises(ValueError, match=message):
        function(points)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (hypervolume, (np.empty((0, 2)), [0, 0]), "points is empty"),
        (hypervolume, ([[1, 2]], [0, 0, 0]), r"reference must have shape \(2,\).*; got \(3,\)"),
        (hypervolume, ([[1, 2]], [0, NAN]), "reference must be finite, entry 1 is nan"),
        (hypervolume_gain, ([[1, 2]], [[1, 2]], [0, 0]), r"candidate must be one point .*, got shape \(1, 2\)"),
        (hypervolume_gain, ([[1, 2]], [1, 2, 3], [0, 0, 0]), "candidate must have 2 objectives .*, got 3"),
        (hypervolume_gain, ([[1, 2]], [1, 2], [0, 0, 0]), r"reference must have shape \(2,\)"),
    ],
)
def test_wrong_arguments_are_refused(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)
