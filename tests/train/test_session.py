"""The two ways in which training fails."""

import numpy as np
import pytest

from qpensieve.errors import EnvError
from qpensieve.train.session import DivergedError, EnvFailedError, check_finite, environment_errors


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
