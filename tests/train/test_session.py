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


def test_means_since_the_last_call_keep_type_and_what_was_added():
    sums, value = Accumulator(), np.array([1.0, 2.0], np.float32)
    assert sums.take() == {}
    sums.add({"loss": value})
    sums.add({"loss": np.array([3.0, 6.0], np.float32)})
    assert value.tolist() == [1.0, 2.0]
    taken = sums.take()["loss"]
    assert (taken.tolist(), taken.dtype) == ([2.0, 4.0], np.float32)
    assert sums.take() == {}


def test_a_restored_one_goes_on_and_of_peaks_the_largest_counts():
    sums = Accumulator()
    add = lambda to, value: to.add({"loss_max": np.array([value, 0.5]), "loss": np.array([value, 0.5])})
    for value in (-3.0, -1.0):
        add(sums, value)
    again = Accumulator(sums.sums, sums.count)
    for one in (sums, again):
        add(one, -2.0)
        taken = one.take()
        assert taken["loss_max"].tolist() == [-1.0, 0.5]
        assert taken["loss"].tolist() == [-2.0, 0.5]
