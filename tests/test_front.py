"""Fronts and choices on returns that are worked out by hand."""

from typing import Any

import numpy as np
import pytest

from qpensieve import front

LAM = np.array([[0.0, 1.0], [0.5, 0.5], [0.75, 0.25], [1.0, 0.0]])
MEAN = np.array([[0.0, 0.0], [10.0, -20.0], [9.0, -30.0], [20.0, -100.0]])
RETURNS = MEAN[:, None] + np.array([-1.0, 1.0])[None, :, None]


@pytest.fixture
def measured() -> front.Front:
    return front.measure(("forward", "control"), LAM, RETURNS)


def test_means_spreads_and_what_is_dominated(measured: front.Front):
    np.testing.assert_array_equal(measured.mean, MEAN)
    np.testing.assert_array_equal(measured.spread, 1.0)
    assert measured.is_best.tolist() == [True, True, False, True]


def test_the_table_has_the_best_rows(measured: front.Front):
    assert [row["preference"] for row in measured.rows()] == ["0.00, 1.00", "0.50, 0.50", "1.00, 0.00"]
    assert len(measured.rows(only_best=False)) == 4
    assert "10 +- 1" in str(measured)


@pytest.mark.parametrize(
    ("maximize", "where", "row"),
    [
        ("forward", {}, 3),
        ("control", {}, 0),
        ("forward", {"control": (">=", -50)}, 1),
        ("forward", {"control": (">=", -5)}, 0),
        ("control", {"forward": (">=", 9.5)}, 1),
        ("forward", {"forward": ("<=", 9.5)}, 2),
        (0, {1: (">=", -50)}, 1),
        (1, {}, 0),
    ],
)
def test_the_best_row_that_keeps_the_bounds(
    measured: front.Front, maximize: front.Axis, where: dict[front.Axis, front.Bound], row: int
):
    choice = measured.choose(maximize, where)
    np.testing.assert_array_equal(choice.preference, LAM[row])
    assert choice.returns == {"forward": MEAN[row, 0], "control": MEAN[row, 1]}
    assert choice.is_feasible


def test_where_nothing_keeps_the_bounds_the_nearest_is_returned_with_a_warning(measured: front.Front):
    """Row 1 misses forward by 2 of 20; row 3 keeps it but misses control by 75 of 100."""
    with pytest.warns(UserWarning, match=r"no preference keeps all bounds; the nearest is preference \(0.50, 0.50\)"):
        choice = measured.choose("forward", {"control": (">=", -25), "forward": (">=", 12)})
    assert not choice.is_feasible


@pytest.mark.parametrize("objective", ["speed", 2, -1, True])
def test_unknown_objectives_are_refused(measured: front.Front, objective: Any):
    with pytest.raises(ValueError, match=f"objective must be one of forward .0., control .1., got {objective!r}"):
        measured.choose(objective)


def test_a_bound_that_is_none_is_refused_by_a_choice(measured: front.Front):
    with pytest.raises(ValueError, match="the bound of control must be written"):
        measured.choose("forward", {"control": (">", 3.0)})


def test_of_rows_that_are_equal_in_what_is_maximised_the_others_decide():
    """The first row was taken, though the second is as good in one objective and better in the other."""
    lam = np.array([[0.5, 0.5], [0.4, 0.6], [0.3, 0.7]])
    measured = front.measure(("forward", "control"), lam, np.array([[[1.0, 2.0]], [[1.0, 3.0]], [[0.0, 9.0]]]))
    assert measured.choose("forward").preference.tolist() == [0.4, 0.6]
    assert measured.choose("forward", {"control": ("<=", 2.5)}).preference.tolist() == [0.5, 0.5]
