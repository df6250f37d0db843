"""Options of lanes."""

import numpy as np
import pytest

from qpensieve.envs import LaneOptions
from qpensieve.envs.simulator import allowed_threads, check_options


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("dtype", np.int32, "dtype must be a floating type such as numpy.float32, got <class 'numpy.int32'>"),
        ("dtype", "float32", "dtype must be a floating type such as numpy.float32, got 'float32'"),
        ("first_lane", -1, "first_lane must not be negative, got -1"),
        ("num_threads", 0, "num_threads must be at least 1, got 0"),
        ("num_workers", -2, "num_workers must not be negative, got -2"),
    ],
)
def test_impossible_options_are_refused(name: str, value: object, message: str):
    options = LaneOptions()
    object.__setattr__(options, name, value)  # in the tests the annotations would refuse some of these first
    with pytest.raises(ValueError, match=message):
        check_options(options)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_floating_type_is_an_option(dtype):
    check_options(LaneOptions(dtype=dtype))


def test_threads_are_those_asked_for_or_one_per_core(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {1, 5, 6})
    assert allowed_threads(None) == 3
    assert allowed_threads(2) == 2
