"""Annotations are checked at run time, arguments and results, by the check that pyproject.toml names."""

from dataclasses import dataclass
from typing import Any

import jaxtyping
import numpy as np
import pytest
from jaxtyping import Float, TypeCheckError

from qpensieve.preferences import draw_preferences
from qpensieve.types import Step
from tests.checking import checked

Row = Float[np.ndarray, " n"]


@checked
def add(x: Row, y: Row, *, at: int = 0, result: Any = None) -> Row:
    return x + y if result is None else result


@checked
@dataclass
class Pair:
    one: Row
    other: "Row"
    later: "Unknown | None" = None  # pyright: ignore[reportUndefinedVariable]

    @property
    @checked
    def num(self) -> int:
        return len(self.one) if self.later is None else self.later

    @classmethod
    @checked
    def twice(cls, row: list[Row]) -> "Pair":
        return cls(row[0], row[0])


@checked
def name_of(pair: Pair, number: int) -> str:
    return number * "n" if number else number  # pyright: ignore[reportReturnType]


ROW = np.zeros(3)


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


def test_what_the_names_of_axes_stood_for_is_told(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(TypeCheckError):
        add(ROW, np.zeros(2))
    assert "n=3" in capsys.readouterr().out


def test_a_name_of_an_axis_means_the_same_within_one_call_only():
    @checked
    def outer(x: Row) -> Row:
        np.testing.assert_array_equal(add(np.zeros(5), np.zeros(5)), np.zeros(5))
        return x

    outer(ROW)
    assert len(add(np.zeros(2), np.zeros(2))) == 2


def test_classes_their_methods_and_functions_without_arrays_are_checked():
    pair = Pair(ROW, ROW)
    assert (pair.num, Pair.twice([ROW]).num, name_of(pair, 2)) == (3, 3, "nn")
    wrong: list[Any] = [
        lambda: Pair(ROW, np.zeros(2)),
        lambda: Pair(ROW, 3),  # pyright: ignore[reportArgumentType]
        lambda: Pair(ROW, ROW, later="?").num,
        lambda: Pair.twice([3]),  # pyright: ignore[reportArgumentType]
        lambda: name_of(pair, 0),
        lambda: name_of("pair", 2),  # pyright: ignore[reportArgumentType]
    ]
    for call in wrong:
        with pytest.raises(TypeCheckError):
            call()


def test_our_functions_are_checked():
    assert jaxtyping.jaxtyped is checked
    with pytest.raises(TypeCheckError, match="draw_preferences"):
        draw_preferences(np.random.default_rng(0), "three", 2)  # pyright: ignore[reportArgumentType]
    row = np.zeros(2)
    with pytest.raises(TypeCheckError, match="Step"):
        Step(row, row, row, row, row)
