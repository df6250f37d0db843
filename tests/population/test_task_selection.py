"""Candidate preferences by hand, and the greedy choice against a plain loop over hypervolume and sparsity."""

import numpy as np
import pytest

from qpensieve.metrics import hypervolume, sparsity
from qpensieve.population import task_selection
from qpensieve.preferences import das_dennis

NONE = np.empty((0, 2))


def _candidates(lam: list[float], tried: np.ndarray = NONE, num: int = 7) -> np.ndarray:
    return task_selection.candidate_lams(np.array(lam, np.float64), tried, num, 0.25, np.random.default_rng(0))


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


def test_an_axis_reached_by_turning_stays_in_the_fan():
    """15 degrees and -15: rounding must not push it out of the quadrant."""
    for degrees in (15, 30, 45, 60, 75):
        angle = np.deg2rad(degrees)
        got = _candidates([float(np.cos(angle)), float(np.sin(angle))])
        assert _angles(got) == pytest.approx([x for x in range(degrees - 45, degrees + 46, 15) if 0 <= x <= 90])
        assert (got >= 0).all()


@pytest.mark.parametrize("lam", [[1.0, 1.0 + 1e-12], [1.0 + 1e-12, 1.0]])
def test_an_end_of_the_fan_that_rounding_put_beyond_an_axis_is_on_it(lam: list[float]):
    got = _candidates(lam)
    assert len(got) == 7
    assert (got >= 0).all()


def test_the_fan_has_as_many_directions_as_asked():
    assert _angles(_candidates([0.5, 0.5], num=3)) == pytest.approx([0, 45, 90], abs=1e-9)


def test_preferences_already_tried_are_left_out_whatever_their_length():
    """Nearer than 1e-3 as unit vectors is the same; 1.5e-3 is another one."""
    same, other = np.deg2rad(30.0) + 0.9e-3, np.deg2rad(60.0) + 1.5e-3
    tried = np.array([[5.0, 0.0], [0.2 * np.cos(same), 0.2 * np.sin(same)], [3 * np.cos(other), 3 * np.sin(other)]])
    assert _angles(_candidates([0.5, 0.5], tried)) == pytest.approx([15, 45, 60, 75, 90])


def test_where_all_were_tried_there_are_none():
    assert _candidates([0.5, 0.5], _candidates([0.5, 0.5])).shape == (0, 2)


def _around(lam: np.ndarray, tried: np.ndarray, seed: int, spacing: float = 0.25) -> np.ndarray:
    return task_selection.candidate_lams(lam, tried, 7, spacing, np.random.default_rng(seed))


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


def test_what_is_at_exactly_45_degrees_is_outside():
    got = _around(np.array([1.0, 0.0, 0.0]), np.empty((0, 3)), 0, spacing=1.0)
    np.testing.assert_array_equal(got, [[1.0, 0.0, 0.0]])


def test_others_take_the_place_of_what_was_tried():
    lam = np.array([0.25, 0.25, 0.5])
    first = _around(lam, np.empty((0, 3)), 0)
    second = _around(lam, 7.0 * first, 0)
    assert len(second) == 7
    assert not {tuple(row) for row in first.round(9)} & {tuple(row) for row in second.round(9)}
    assert _around(lam, np.concatenate([das_dennis(3, 8), lam[None]]), 0).shape == (0, 3)


def test_the_draw_is_the_generator_s():
    lam = np.array([0.25, 0.25, 0.5])
    np.testing.assert_array_equal(_around(lam, np.empty((0, 3)), 1), _around(lam, np.empty((0, 3)), 1))
    assert not np.array_equal(_around(lam, np.empty((0, 3)), 1), _around(lam, np.empty((0, 3)), 2))


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


@pytest.mark.parametrize("weight", [0.0, 0.03, 1.0, 30.0, -1.0])
@pytest.mark.parametrize(("d", "num_front"), [(2, 12), (2, 0), (2, 1), (3, 20), (4, 12), (5, 8)])
def test_the_choice_is_that_of_the_loops(d: int, num_front: int, weight: float):
    """With some predictions below the reference, dominated or equal, and dominated points in the archive's rows."""
    rng = np.random.default_rng(100 * d + num_front)
    for _ in range(3):
        f = rng.dirichlet(np.ones(d), num_front + 33) * rng.uniform(3.5, 6.0, (num_front + 33, 1)) - 0.1
        reference = rng.normal(size=d) * 10.0
        front, predicted = reference + f[:num_front], reference + f[num_front:]
        predicted[[3, 11]] = predicted[[20, 5]]
        predicted[7:9] = front[:2] if num_front > 1 else predicted[7:9]
        got = task_selection.select(front, predicted, 6, reference, weight)
        assert got.tolist() == _choose_by_loops(front, predicted, 6, reference, weight)
        assert got.dtype == np.int64


FRONT = np.array([[1.0, 10.0], [2.0, 9.0], [9.0, 2.0], [10.0, 1.0]])
INTO_THE_GAP, OUTWARD = [5.5, 5.5], [20.0, 1.9]


def test_a_weight_on_sparsity_sends_tasks_into_the_gap_and_its_opposite_away_from_it():
    """Gains 12.25 and 19.9, sparsities 13.25 and 73.67: without a weight, outward; the sign is trap 7."""
    predicted = np.array([OUTWARD, INTO_THE_GAP])
    chosen = [task_selection.select(FRONT, predicted, 1, np.zeros(2), weight).tolist() for weight in (0.0, 1.0, -1.0)]
    assert chosen == [[0], [1], [0]]
    chosen = [task_selection.select(FRONT, predicted, 1, np.zeros(2), weight).tolist() for weight in (0.1, 0.13)]
    assert chosen == [[0], [1]]  # the scores meet at 7.65 / 60.42 = 0.1266


def test_where_every_addition_tears_the_front_apart_a_prediction_without_effect_wins():
    front = np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]])
    predicted = np.array([[50.0, 0.5], [1.0, 1.0], [2.0, 2.0]])
    assert task_selection.select(front, predicted, 3, np.zeros(2), 1.0).tolist() == [1, 2, 0]
    assert task_selection.select(front, predicted, 3, np.zeros(2), 0.0).tolist() == [0, 1, 2]


def test_a_prediction_as_good_as_the_front_in_one_objective_and_worse_in_another_adds_nothing():
    """As a fourth point (2, 1.5) would lower the sparsity from 2 to 1.17."""
    front = np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]])
    predicted = np.array([[1.0, 1.0], [2.0, 1.5]])
    assert task_selection.select(front, predicted, 2, np.zeros(2), 1.0).tolist() == [0, 1]


def test_a_chosen_prediction_counts_as_reached():
    """The same prediction again adds nothing, so the second task goes elsewhere."""
    predicted = np.array([[5.0, 5.0], [5.0, 5.0], [1.0, 8.0]])
    assert task_selection.select(NONE, predicted, 3, np.zeros(2), 0.0).tolist() == [0, 2, 1]


def test_a_winner_that_covers_part_of_a_candidate_lowers_its_gain():
    """Alone (6, 4) adds 24, (4, 6) too and (9, 1.5) 13.5; after (6, 4) they add 8 and 4.5; after both, 4.5."""
    predicted = np.array([[9.0, 1.5], [6.0, 4.0], [5.9, 4.0], [4.0, 6.0]])
    assert task_selection.select(NONE, predicted, 4, np.zeros(2), 0.0).tolist() == [1, 3, 0, 2]


def test_predictions_below_the_reference_add_nothing_and_never_join():
    """(100, -60) would shadow (90, -60.5) and stretch the front; here both leave it as it is."""
    front, reference = np.array([[5.0, -10.0], [6.0, -11.0]]), np.array([0.0, -50.0])
    predicted = np.array([[100.0, -60.0], [90.0, -60.5], [7.0, -12.0], [100.0, -50.0], [0.0, 40.0]])
    assert task_selection.select(front, predicted, 5, reference, 0.0).tolist() == [2, 0, 1, 3, 4]
    assert task_selection.select(front, predicted[[0, 2, 1]], 3, reference, 1.0).tolist() == [1, 0, 2]
    torn = np.array([[100.0, -60.0], [5.5, -10.5]])
    assert task_selection.select(front, torn, 2, reference, 1e3).tolist() == [1, 0]


def test_archive_rows_below_the_reference_do_not_count():
    front, predicted = np.array([[5.0, 5.0], [-1.0, 100.0]]), np.array([[4.0, 7.0], [6.0, 5.5]])
    for weight in (0.0, 1.0):
        expected = task_selection.select(front[:1], predicted, 2, np.zeros(2), weight)
        np.testing.assert_array_equal(task_selection.select(front, predicted, 2, np.zeros(2), weight), expected)


def test_objectives_below_zero_are_chosen_as_if_shifted():
    """Measured from the origin nothing would add anything (trap 1)."""
    shift = np.array([-100.0, -64.0])
    predicted = np.array([[1.5, 1.0], OUTWARD, INTO_THE_GAP])
    for weight, expected in ((0.0, [1, 2]), (1.0, [2, 0])):
        got = task_selection.select(FRONT + shift, predicted + shift, 2, shift, weight)
        assert got.tolist() == task_selection.select(FRONT, predicted, 2, np.zeros(2), weight).tolist() == expected


def test_with_fewer_candidates_than_tasks_all_are_chosen_once():
    predicted = np.array([OUTWARD, INTO_THE_GAP])
    assert sorted(task_selection.select(FRONT, predicted, 5, np.zeros(2), 1.0).tolist()) == [0, 1]
    assert task_selection.select(FRONT, NONE, 5, np.zeros(2), 1.0).shape == (0,)


def test_the_inputs_are_left_alone():
    predicted = np.array([OUTWARD, INTO_THE_GAP])
    before = FRONT.copy(), predicted.copy()
    task_selection.select(FRONT, predicted, 2, np.zeros(2), 1.0)
    np.testing.assert_array_equal(FRONT, before[0])
    np.testing.assert_array_equal(predicted, before[1])


@pytest.mark.parametrize("d", [2, 3, 5])
def test_the_sparsity_with_each_point_is_that_of_the_joined_front(d: int):
    rng = np.random.default_rng(d)
    front = task_selection.non_dominated(rng.dirichlet(np.ones(d), 15))
    points = rng.dirichlet(np.ones(d), 60) * (2.0 if d == 5 else 1.1)
    points = points[~task_selection._is_covered(points, front)]
    replaced = [len(task_selection._join(front, point)) <= len(front) for point in points]
    assert 3 < sum(replaced) < len(points) - 3
    expected = [sparsity(np.concatenate([front, point[None]])) for point in points]
    np.testing.assert_allclose(task_selection._sparsity_with(front, points), expected, rtol=1e-12)
