"""The two ways in which training fails, and means of what is logged."""

import numpy as np
import pytest

from qpensieve.errors import EnvError
from qpensieve.train.session import Accumulator, DivergedError, EnvFailedError, check_finite, environment_errors


@pytest.mark.parametrize("kind", [EnvError, FloatingPointError])
def test_what_an_environment_raises_is_named_with_its_moment(kind: type[Exception]):
    with (
        pytest.raises(EnvFailedError, match="the environment failed after step 20: no fuel") as failure,
        environment_errors("after step 20"),
    ):
        raise kind("no fuel")
    assert isinstance(failure.value.__cause__, kind)


@pytest.mark.parametrize("kind", [LookupError, ValueError, RuntimeError, MemoryError, ZeroDivisionError])
def test_a_bug_of_ours_is_not_blamed_on_the_environment(kind: type[Exception]):
    with pytest.raises(kind, match="ours"), environment_errors("after step 20"):
        raise kind("ours")


def test_the_first_row_that_is_not_finite_is_named():
    values = np.zeros((3, 2, 2), np.float32)
    check_finite("a loss", values, str, 40)
    values[2, 0, 1], values[1, 1, 0] = np.nan, np.inf
    with pytest.raises(DivergedError, match=r"^a loss of row 1 is no longer finite at step 40$"):
        check_finite("a loss", values, lambda row: f"row {row}", 40)


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
