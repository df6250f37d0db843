"""Performance buffers against sorted insertion, one sample after the other, and cases by hand."""

from math import comb

import numpy as np
import pytest

from qpensieve.population import cones as buffers

ORIGIN = np.zeros(2)


def _insert_all(objs: np.ndarray, reference: np.ndarray, num_buffers: int, size: int) -> list[int]:
    """Survivors by insertion: a buffer is a list from far to near, cut to its size after every sample."""
    kept: dict[int, list[tuple[float, int]]] = {}
    for row, point in enumerate(objs):
        f = point - reference
        if min(f) < 1e-7:
            continue
        far = float(np.sqrt(np.sum(f**2)))
        if len(f) == 2:
            number = int(np.arccos(f[1] / far) // (np.pi / 2 / num_buffers))
        else:
            number = max(enumerate(buffers.directions(len(f), num_buffers)), key=lambda pair: (pair[1] @ f, -pair[0]))[
                0
            ]
        buffer = kept.setdefault(number, [])
        place = next((i for i, (other, _) in enumerate(buffer) if other < far), len(buffer))
        buffer.insert(place, (far, row))
        del buffer[size:]
    return [row for number in sorted(kept) for _, row in kept[number]]


# Directions


@pytest.mark.parametrize(
    ("d", "asked", "count"), [(3, 200, 210), (3, 199, 190), (3, 190, 190), (4, 400, 364), (5, 400, 330), (3, 1, 3)]
)
def test_directions_are_the_grid_with_the_nearest_number_of_points_and_at_a_tie_the_larger(d, asked, count):
    vectors = buffers.directions(d, asked)
    assert vectors.shape == (count, d)
    np.testing.assert_allclose(np.sum(vectors**2, axis=1), 1.0, rtol=1e-12)
    assert (vectors >= 0).all()
    assert {tuple(row) for row in np.eye(d)} <= {tuple(row) for row in vectors}


def test_no_other_grid_is_nearer():
    for d in (3, 4, 5):
        counts = [comb(divisions + d - 1, d - 1) for divisions in range(1, 40)]
        for asked in range(1, 500, 7):
            nearest = min(abs(count - asked) for count in counts)
            assert abs(len(buffers.directions(d, asked)) - asked) == nearest


def test_two_objectives_have_no_directions():
    with pytest.raises(ValueError, match="3 or more objectives, got 2"):
        buffers.directions(2, 100)


# Which buffer


def test_four_sectors_by_hand():
    """Sectors of 22.5 degrees, counted from the second axis."""
    angles = np.deg2rad([1.0, 22.0, 23.0, 44.0, 46.0, 67.0, 68.0, 89.0])
    f = 3.0 * np.stack([np.sin(angles), np.cos(angles)], axis=1)
    assert buffers.buffer_of(f, 4).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_point_on_a_border_belongs_to_the_next_sector_and_the_last_sector_has_no_next():
    f = np.array([[1.0, 1.0], [1e-7, 1e4], [1e4, 1e-7], [1e300, 1e-7]])
    assert buffers.buffer_of(f, 100).tolist() == [50, 0, 99, 99]


def test_sectors_are_those_of_the_arccos_and_do_not_depend_on_the_distance():
    f = np.random.default_rng(0).uniform(0.01, 3.0, size=(500, 2))
    angle = np.arccos(f[:, 1] / np.linalg.norm(f, axis=1))
    got = buffers.buffer_of(f, 37)
    np.testing.assert_array_equal(got, np.floor(angle / (np.pi / 2 / 37)))
    np.testing.assert_array_equal(buffers.buffer_of(1000.0 * f, 37), got)
    assert set(got.tolist()) == set(range(37))


@pytest.mark.parametrize(("d", "asked"), [(3, 10), (4, 50), (5, 100)])
def test_a_point_along_a_direction_is_in_its_buffer(d: int, asked: int):
    vectors = buffers.directions(d, asked)
    nudged = vectors + 0.01 * np.random.default_rng(0).normal(size=vectors.shape)
    np.testing.assert_array_equal(buffers.buffer_of(70.0 * nudged, asked), np.arange(len(vectors)))


# Survivors


def test_the_two_farthest_of_a_buffer_stay_ordered_by_buffer_and_from_far_to_near():
    objs = np.array([[1, 9], [9, 1], [1.1, 11], [0.9, 8], [5, 5], [10, 1.2], [1, 10]])
    assert buffers.survivors(objs, ORIGIN, 3, 2).tolist() == [2, 6, 4, 5, 1]
    assert buffers.survivors(objs, ORIGIN, 3, 1).tolist() == [2, 4, 5]
    assert buffers.survivors(objs, ORIGIN, 1, 2).tolist() == [2, 5]


def test_what_is_not_above_the_reference_everywhere_is_rejected():
    objs = np.array([[5, 0.9e-7], [-1, 5], [0, 5], [5, 1e-7], [1e-7, 5]])
    assert buffers.survivors(objs, ORIGIN, 10, 2).tolist() == [4, 3]
    assert buffers.survivors(objs[:3], ORIGIN, 10, 2).tolist() == []
    assert buffers.survivors(np.empty((0, 3)), np.zeros(3), 10, 2).tolist() == []


def test_objectives_below_zero_are_measured_from_their_reference():
    """Angle and distance: measured from the origin none would stay (trap 1)."""
    reference = np.array([-100.0, -50.0])
    objs = np.array([[-99.0, -40.0], [-99.0, -41.0], [-90.0, -49.0], [-99.0, -42.0]])
    assert buffers.survivors(objs, reference, 3, 2).tolist() == [0, 1, 2]


@pytest.mark.parametrize("d", [2, 3, 4])
def test_a_shift_of_objectives_and_reference_changes_nothing(d: int):
    objs = np.random.default_rng(d).integers(1, 50, size=(60, d)).astype(np.float64)
    shift = -np.arange(40.0, 40.0 + d)
    here = buffers.survivors(objs, np.zeros(d), 20, 2)
    np.testing.assert_array_equal(buffers.survivors(objs + shift, shift, 20, 2), here)
    assert 2 < len(here) < 60


@pytest.mark.parametrize(("d", "num_buffers", "size"), [(2, 10, 2), (2, 30, 1), (3, 15, 2), (4, 20, 3), (5, 35, 2)])
def test_survivors_are_those_of_sorted_insertion_in_any_order(d: int, num_buffers: int, size: int):
    rng = np.random.default_rng(d)
    reference = rng.normal(size=d)
    for _ in range(10):
        objs = reference + rng.uniform(-0.1, 1.0, size=(80, d))
        got = buffers.survivors(objs, reference, num_buffers, size)
        assert got.tolist() == _insert_all(objs, reference, num_buffers, size)
        order = rng.permutation(80)
        np.testing.assert_array_equal(order[buffers.survivors(objs[order], reference, num_buffers, size)], got)
        assert 0 < len(got) < 80


def test_equal_samples_both_stay_and_at_equal_distance_the_earlier_goes_first():
    objs = np.array([[3.0, 4.0], [1.0, 1.0], [3.0, 4.0], [4.0, 3.0], [3.0, 4.0]])
    assert buffers.survivors(objs, ORIGIN, 1, 2).tolist() == [0, 2]
    assert buffers.survivors(objs[[3, 0]], ORIGIN, 1, 1).tolist() == [0]
    assert buffers.survivors(objs, ORIGIN, 1, 9).tolist() == [0, 2, 3, 4, 1]


def test_samples_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="objs must be finite"):
        buffers.survivors(np.array([[1.0, np.nan]]), ORIGIN, 4, 2)
