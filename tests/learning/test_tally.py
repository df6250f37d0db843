"""Means of what is logged."""

import numpy as np

from qpensieve.learning.tally import Tally


def test_the_mean_since_the_last_call():
    tally = Tally()
    assert tally.take() == {}
    tally.add({"loss": np.array([1.0, 2.0])})
    tally.add({"loss": np.array([3.0, 6.0])})
    np.testing.assert_array_equal(tally.take()["loss"], [2.0, 4.0])
    assert tally.take() == {}


def test_what_was_added_is_not_changed_and_numbers_keep_their_type():
    tally, value = Tally(), np.array([1.0, 2.0], np.float32)
    tally.add({"loss": value})
    tally.add({"loss": value})
    assert value.tolist() == [1.0, 2.0]
    assert tally.take()["loss"].dtype == np.float32


def test_a_restored_one_goes_on():
    tally = Tally()
    tally.add({"loss": np.array([1.0])})
    saved = {name.removeprefix("log/"): value for name, value in tally.arrays().items()}
    again = Tally(saved, tally.count)
    for one in (tally, again):
        one.add({"loss": np.array([2.0])})
    np.testing.assert_array_equal(again.take()["loss"], tally.take()["loss"])


def test_a_row_that_an_earlier_version_began_begins_anew():
    tally = Tally({"loss": np.array([3.0]), "priority_max": np.array([13.0])}, 5)
    for value in (1.0, 2.0):
        tally.add({"loss": np.array([value]), "priority_max": np.array([value]), "entropy": np.array([value])})
    assert {name: value.tolist() for name, value in tally.take().items()} == {
        "loss": [1.5],
        "priority_max": [2.0],
        "entropy": [1.5],
    }


def test_of_peaks_the_largest_counts():
    tally = Tally()
    for value in (-3.0, -1.0, -2.0):
        tally.add({"loss_max": np.array([value, 0.5]), "loss": np.array([value, 0.5])})
    taken = tally.take()
    assert taken["loss_max"].tolist() == [-1.0, 0.5]
    assert taken["loss"].tolist() == [-2.0, 0.5]
