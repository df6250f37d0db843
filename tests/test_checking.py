"""Annotations are checked at run time, arguments and results, by the check that pyproject.toml names."""

from typing import Any

import numpy as np
import pytest
from jaxtyping import Float, TypeCheckError, jaxtyped

from qpensieve.preferences import draw_preferences
from tests.checking import checked

Row = Float[np.ndarray, " n"]


@jaxtyped(typechecker=checked)
def add(x: Row, y: Row, *, at: int = 0, result: Any = None) -> Row:
    return x + y if result is None else result


ROW = np.zeros(3)


def test_right_values_pass():
    for _ in range(2):
        np.testing.assert_array_equal(add(ROW, y=ROW, at=1), ROW)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((ROW, np.zeros(2)), {}),
        ((ROW, [0.0, 0.0, 0.0]), {}),
        ((ROW, ROW), {"at": "first"}),
        ((ROW, ROW), {"result": np.zeros(2)}),  # not the length of the arguments
        ((ROW, ROW), {"result": np.zeros((3, 1))}),
        ((ROW, ROW), {"result": "three zeros"}),
    ],
)
def test_a_wrong_argument_or_result_is_refused_the_first_time_and_again(arguments: tuple, named: dict[str, Any]):
    for _ in range(2):
        with pytest.raises(TypeCheckError):
            add(*arguments, **named)


def test_our_functions_are_checked():
    with pytest.raises(TypeCheckError, match="draw_preferences"):
        draw_preferences(np.random.default_rng(0), "three", 2)  # pyright: ignore[reportArgumentType]
