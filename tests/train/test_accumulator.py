"""Means of what is logged."""

import numpy as np

from qpensieve.train.session import Accumulator


def test_the_mean_since_the_last_call():
    sums = Accumulator()
    assert sums.take() == {}
    sums.add({"loss": np.array([1.0, 2.0])})
    sums.add({"loss": np.array([3.0, 6.0])})
    np.testing.assert_array_equal(sums.take()["loss"], [2.0, 4.0])
    assert sums.take() == {}


def test_what_was_added_is_not_changed_and_numbers_keep_their_type():
    sums, value = Accumulator(), np.array([1.0, 2.0], np.float32)
    sums.add({"loss": value})
    sums.add({"loss": value})
    assert value.tolist() == [1.0, 2.0]
    assert sums.take()["loss"].dtype == np.float32


def test_a_restored_one_goes_on():
    sums = Accumulator()
    sums.add({"loss": np.array([1.0])})
    saved = {name.removeprefix("log/"): value for name, value in sums.arrays().items()}
    again = Accumulator(saved, sums.count)
    for one in (sums, again):
        one.add({"loss": np.array([2.0])})
    np.testing.assert_array_equal(again.take()["loss"], sums.take()["loss"])


def test_of_peaks_the_largest_counts():
    sums = Accumulator()
    for value in (-3.0, -1.0, -2.0):
        sums.add({"loss_max": np.array([value, 0.5]), "loss": np.array([value, 0.5])})
    taken = sums.take()
    assert taken["loss_max"].tolist() == [-1.0, 0.5]
    assert taken["loss"].tolist() == [-2.0, 0.5]
