"""Tests of the hypervolume against hand-computed numbers and an exact oracle."""

import numpy as np
import pytest

from qpensieve.metrics import hypervolume, hypervolume_gain
from tests.oracles import hypervolume as oracle

FUNCTIONS = [oracle.hypervolume, hypervolume]
DIMENSIONS = [1, 2, 3, 4, 5]
DST_FRONT = [[0.7, -2], [8.2, -3], [11.5, -4], [15.1, -5], [16.1, -6], [20.3, -8], [22.4, -10], [23.7, -11]]
DST_COVERAGE = [[0.7, -2], [8.2, -3], [15.1, -5], [20.3, -8], [23.7, -11]]


def random_set(rng, num_objectives, num_points=7):
    """Points on a sphere's edge or a coarse grid (ties, duplicates), some outside the reference, and a reference."""
    reference = rng.normal(size=num_objectives)
    if rng.random() < 0.5:
        return reference + rng.integers(-1, 4, size=(num_points, num_objectives)), reference
    directions = np.abs(rng.normal(size=(num_points, num_objectives)))
    return reference - 0.1 + directions / np.linalg.norm(directions, axis=1, keepdims=True), reference


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("points", "reference", "volume"),
    [
        ([[3, -5], [5, -20]], [0, -50], 195),
        ([[1, 5], [2, 1], [3, 4]], [0, 0], 13),
        ([[2, 3, 4]], [0, 0, 0], 24),
        ([[2, 1, 1], [1, 2, 1], [1, 1, 2]], [0, 0, 0], 4),
        ([[3], [5], [-1]], [1], 4),
        ([[5, 0]], [0, 0], 0),
        ([[5, 0], [1, 1]], [0, 0], 1),
        ([[-1, -1], [-2, 3]], [0, 0], 0),
        (DST_FRONT, [0, -50], 1055.0),
        (DST_FRONT, [-10, -50], 1535.0),
        (DST_COVERAGE, [0, -50], 1047.6),
    ],
)
def test_known_volumes(function, points, reference, volume):
    assert function(points, reference) == pytest.approx(volume, rel=1e-12)


@pytest.mark.parametrize("num_objectives", DIMENSIONS)
def test_volume_equals_the_oracle(num_objectives):
    rng = np.random.default_rng(num_objectives)
    for _ in range(20):
        points, reference = random_set(rng, num_objectives)
        assert hypervolume(points, reference) == pytest.approx(oracle.hypervolume(points, reference), rel=1e-12)


def test_fronts_of_many_points_equal_the_oracle():
    rng = np.random.default_rng(0)
    # In five objectives moocore changes its algorithm above 15 points.
    for num_objectives, num_points in ((2, 60), (3, 40), (4, 20), (5, 18)):
        points = np.abs(rng.normal(size=(num_points, num_objectives)))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        expected = oracle.hypervolume(points, [0.0] * num_objectives)
        assert hypervolume(points, np.zeros(num_objectives)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-6, 1e13])
def test_volume_is_exact_at_very_small_and_very_large_scales(scale):
    points, reference = np.array([[1.0, 5.0, 2.0], [2.0, 1.0, 1.0], [3.0, 4.0, 1.0]]), np.array([0.0, -1.0, 0.5])
    expected = oracle.hypervolume(points, reference)
    assert hypervolume(points * scale, reference * scale) == pytest.approx(expected * scale**3, rel=1e-12)


@pytest.mark.parametrize("num_objectives", DIMENSIONS)
def test_volume_depends_on_the_front_alone(num_objectives):
    """Dominated, duplicate and outside points change nothing, nor do the orders of points and objectives."""
    rng = np.random.default_rng(num_objectives)
    for _ in range(20):
        points, reference = random_set(rng, num_objectives)
        dominated = points - rng.integers(0, 2, size=points.shape)
        outside = points + 10
        outside[:, rng.integers(num_objectives)] = reference.min() - 1
        volume = pytest.approx(hypervolume(points, reference), rel=1e-12)
        for extra in (dominated, points[::2], outside):
            assert hypervolume(np.concatenate([extra, points]), reference) == volume
        assert hypervolume(rng.permutation(points), reference) == volume
        axes = rng.permutation(num_objectives)
        assert hypervolume(points[:, axes], reference[axes]) == volume


def test_the_input_is_left_alone():
    points, reference = np.array([[1.0, 5.0], [3.0, 4.0]]), np.array([0.0, -1.0])
    hypervolume(points, reference)
    hypervolume_gain(points, points[0] + 1, reference)
    np.testing.assert_array_equal(points, [[1, 5], [3, 4]])
    np.testing.assert_array_equal(reference, [0, -1])


@pytest.mark.parametrize("num_objectives", DIMENSIONS)
def test_gain_is_the_growth_of_the_volume(num_objectives):
    rng = np.random.default_rng(num_objectives)
    for _ in range(40):
        points, reference = random_set(rng, num_objectives)
        others, candidate = points[1:], points[0]
        growth = hypervolume(points, reference) - hypervolume(others, reference)
        assert hypervolume_gain(others, candidate, reference) == pytest.approx(growth, rel=1e-9, abs=1e-12)


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


@pytest.mark.parametrize("num_objectives", DIMENSIONS)
def test_gain_of_a_covered_candidate_is_zero_and_never_negative(num_objectives):
    rng = np.random.default_rng(0)
    for _ in range(50):
        # Digits that do not cancel exactly: in five objectives a fifth of these differences round to below 0.
        points, reference = rng.random((6, num_objectives)) + 0.1, rng.random(num_objectives) * 0.1
        gain = hypervolume_gain(points, points[0] * 0.9 + reference * 0.1, reference)
        assert 0 <= gain < 1e-12


@pytest.mark.parametrize(
    ("points", "reference", "message"),
    [
        ([], [0, 0], "points is empty"),
        (np.empty((0, 2)), [0, 0], "points is empty; the hypervolume needs at least one point"),
        ([1.0, 2.0], [0, 0], r"points must be an array \[num_points, num_objectives\], got shape \(2,\)"),
        ([[1, 2]], [0, 0, 0], r"reference must have shape \(2,\), one entry per objective; got \(3,\)"),
        ([[1, 2], [1, float("nan")]], [0, 0], r"points must be finite, row 1 is \[1.0, nan\]"),
        ([[1, 2]], [0, float("nan")], "reference must be finite, entry 1 is nan"),
    ],
)
def test_wrong_arguments_are_refused_with_what_is_wrong(points, reference, message):
    with pytest.raises(ValueError, match=message):
        hypervolume(points, reference)


@pytest.mark.parametrize(
    ("points", "candidate", "reference", "message"),
    [
        ([[1, 2]], [[1, 2]], [0, 0], r"candidate must be one point \[num_objectives\], got shape \(1, 2\)"),
        ([[1, 2]], [1, 2, 3], [0, 0, 0], "candidate must have 2 objectives like the points, got 3"),
        ([[1, 2]], [1, 2], [0, 0, 0], r"reference must have shape \(2,\)"),
    ],
)
def test_wrong_arguments_of_the_gain_are_refused_with_what_is_wrong(points, candidate, reference, message):
    with pytest.raises(ValueError, match=message):
        hypervolume_gain(points, candidate, reference)
