import jax
import numpy as np
import pytest

from tests.rounding import EPS, assert_largest, assert_same_to_rounding

TREE = {"weight": np.array([1e-9, 8.0], np.float32), "count": np.array(3), "key": jax.random.key(1)}


def test_rounding_is_measured_by_the_largest_value_of_each_array():
    assert_same_to_rounding(TREE, TREE | {"weight": np.array([60 * 8 * EPS, 8.0], np.float32)})


@pytest.mark.parametrize(
    "other",
    [
        {"weight": np.array([68 * 8 * EPS, 8.0], np.float32)},
        {"weight": np.array([np.nan, 8.0], np.float32)},
        {"weight": np.array([1e-9, 8.0])},
        {"weight": np.array([1e-9], np.float32)},
        {"count": np.array(4)},
        {"key": jax.random.key(2)},
        {"more": 1},
    ],
    ids=str,
)
def test_what_differs_by_more_fails(other):
    with pytest.raises(AssertionError):
        assert_same_to_rounding(TREE, TREE | other)


def test_a_winner_may_be_the_runner_up_by_rounding_only():
    values = np.array([[1.0, 2.0], [1.0 + EPS, 3.0]])
    assert_largest(values, [0, 1])
    with pytest.raises(AssertionError):
        assert_largest(values, [1, 0])
