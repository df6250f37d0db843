"""Preferences: points `lam` on the simplex, where entry i is the weight of objective i.

This module draws preferences on the host; `learning/losses.py` draws them on the device. It also has grids, and the
versioned tables on which every algorithm is scored.
"""

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np
from jaxtyping import Float64

from qpensieve.errors import UserError

Sampler = Literal["uniform-sum", "dirichlet", "abs-normal"]
"""Random numbers divided by their sum: uniform (`uniform-sum`, the authors' code), exponential (`dirichlet`: uniform on
the simplex) or absolute values of normal numbers (`abs-normal`, the Envelope authors' code)."""


@runtime_checkable
class HasArray(Protocol):
    """An array of NumPy, of JAX, or of any other package that NumPy can convert."""

    def __array__(self) -> np.ndarray: ...


# numpy.typing.ArrayLike does not accept tuples when checked at run time, so the package has its own alias.
ArrayLike = np.ndarray | HasArray | Sequence[object]
"""An array, or nested sequences, that `np.asarray` turns into numbers."""

TEST_TABLE_VERSION = 1
"""Newest version of the test tables. Results of different versions must not be compared."""

SUM_TOLERANCE = 1e-6
"""Largest difference between 1 and the sum of a preference, from float32 rounding."""

_TABLE_SEED = 20230501
_TABLE_UNITS = 10**6


def draw_preferences(
    generator: np.random.Generator, num: int, num_objectives: int, sampler: Sampler = "uniform-sum"
) -> Float64[np.ndarray, "m d"]:
    """Draw `num` float64 preferences on the host, distributed as `losses.sample_preferences` draws on the device.

    Raises:
        ValueError: `check_draw` refuses the arguments.
    """
    check_draw(num, num_objectives, sampler)
    draw = {
        "uniform-sum": generator.random,
        "dirichlet": generator.standard_exponential,
        "abs-normal": generator.standard_normal,
    }
    return normalize(np.abs(draw[sampler](size=(num, num_objectives))))


def check_draw(num: int, num_objectives: int, sampler: Sampler) -> None:
    """Raise ValueError for a negative number of preferences, no objectives or an unknown sampler."""
    if num < 0:
        raise UserError(f"num must be 0 or more preferences, got {num}")
    _check_num_objectives(num_objectives)
    if sampler not in get_args(Sampler):
        raise UserError(f"sampler must be one of {', '.join(get_args(Sampler))}, got {sampler!r}")


def _check_num_objectives(num_objectives: int) -> None:
    if num_objectives < 1:
        raise UserError(f"num_objectives must be 1 or more, got {num_objectives}")


def normalize(draws: Any) -> Any:
    """Divide rows of a JAX or NumPy array by their sums. A row of zeros becomes the centre of the simplex.

    Rows of zeros occur, because a float32 uniform number is 0 once in 2^23 draws.
    """
    draws = draws + (draws.sum(axis=-1, keepdims=True) == 0)
    return draws / draws.sum(axis=-1, keepdims=True)


def spaced_grid(num: int) -> Float64[np.ndarray, "m 2"]:
    """Return `num` equally spaced preferences (a, 1 - a) of two objectives, a from 0 to 1; ValueError if `num` < 2."""
    if num < 2:
        raise UserError(f"num must be 2 or more to hold both ends of the grid, got {num}")
    return das_dennis(num_objectives=2, divisions=num - 1)


def das_dennis(num_objectives: int, divisions: int) -> Float64[np.ndarray, "m d"]:
    """Return all preferences whose entries are multiples of 1 / `divisions`, in lexicographic order.

    There are C(divisions + d - 1, d - 1): the ways to put d - 1 bars between `divisions` stars.
    """
    _check_num_objectives(num_objectives)
    if divisions < 1:
        raise UserError(f"divisions must be 1 or more, got {divisions}")
    places = divisions + num_objectives - 1
    edges = [(-1, *bars, places) for bars in combinations(range(places), num_objectives - 1)]
    return (np.diff(np.array(edges), axis=1) - 1) / divisions


def sac_preferences() -> Float64[np.ndarray, "19 2"]:
    """Return the paper's 19 preferences of single-objective SAC: (0.05k, 1 - 0.05k) for k = 1..19."""
    return das_dennis(num_objectives=2, divisions=20)[1:-1]


@cache
def test_table(num_objectives: int, version: int = TEST_TABLE_VERSION) -> Float64[np.ndarray, "p d"]:  # noqa: PT028
    """Return the fixed, read-only table of test preferences for `num_objectives` objectives.

    One objective: (1). Two: (i/100, 1 - i/100), i = 0..99. Three and four: 100 draws of uniform/sum. Five and more: 500
    draws of Dirichlet(1). Entries are multiples of 1e-6. The draws use the raw words of PCG64, whose stream NumPy keeps
    fixed, and none of NumPy's distributions, whose streams may change.

    Raises:
        ValueError: There is no such version, or fewer than one objective.
    """
    _check_num_objectives(num_objectives)
    if version != 1:
        raise UserError(f"version of the test table must be 1, got {version}")
    table = _build_table(num_objectives)
    table.setflags(write=False)
    return table


test_table.__test__ = False  # pyright: ignore[reportAttributeAccessIssue]  # not a test, whatever pytest thinks


def _build_table(num_objectives: int) -> Float64[np.ndarray, "p d"]:
    if num_objectives == 1:
        return np.ones((1, 1))
    if num_objectives == 2:
        return das_dennis(num_objectives=2, divisions=100)[:-1]
    if num_objectives <= 4:
        return _round_rows(normalize(_raw_uniforms(100, num_objectives)))
    return _round_rows(normalize(-np.log(_raw_uniforms(500, num_objectives))))


def _raw_uniforms(num: int, num_objectives: int) -> Float64[np.ndarray, "p d"]:
    """Return uniform numbers above 0 from the raw words of a bit generator seeded by the number of objectives."""
    words = np.random.PCG64([_TABLE_SEED, num_objectives]).random_raw(num * num_objectives)
    uniforms = ((words >> np.uint64(11)) + 0.5) * 2.0**-53
    return uniforms.reshape(num, num_objectives)


def _round_rows(table: Float64[np.ndarray, "p d"]) -> Float64[np.ndarray, "p d"]:
    """Make entries multiples of 1e-6. All but the last are rounded down, so that the last is never negative."""
    units = np.floor(table * _TABLE_UNITS).astype(np.int64)
    units[:, -1] = _TABLE_UNITS - units[:, :-1].sum(axis=1)
    return units / _TABLE_UNITS


def check_preference(preference: ArrayLike, num_objectives: int) -> Float64[np.ndarray, "*batch d"]:
    """Return the preference, or array of preferences [..., d], as float64.

    Raises:
        ValueError: It is not made of numbers, its last axis is not `num_objectives` long, an entry is negative or not
            finite, or the entries of a preference do not sum to 1 within 1e-6.
    """
    try:
        lam = np.asarray(preference, dtype=np.float64)
    except (ValueError, TypeError):
        needed = f"{num_objectives} numbers, one per objective, or rows of them"
        raise UserError(f"preference must be {needed}, got {preference!r}") from None
    if lam.ndim == 0 or lam.shape[-1] != num_objectives:
        got = lam.shape[-1] if lam.ndim else "a single number"
        needed = f"{num_objectives} entries, one per objective"
        raise UserError(f"preference must have {needed}, got {got} (shape {lam.shape})")
    _raise_at(lam, ~np.isfinite(lam), "finite")
    _raise_at(lam, lam < 0, "0 or more")
    sums = lam.sum(axis=-1)
    wrong = np.argwhere(np.abs(sums - 1) > SUM_TOLERANCE)
    if len(wrong):
        index = tuple(wrong[0].tolist())
        place = f" at row {_index_text(index)}" if index else ""
        raise UserError(f"preference must sum to 1, got {sums[index]:.9g}{place}; divide it by its sum")
    return lam


def parse_preference(word: str, num_objectives: int) -> Float64[np.ndarray, " d"]:
    """Return the preference in a text such as `0.9,0.1`, checked; ValueError names the text."""
    try:
        numbers = [float(part) for part in word.split(",")]
    except ValueError:
        raise UserError(f"preference must be numbers separated by commas, such as 0.9,0.1; got {word!r}") from None
    try:
        return check_preference(numbers, num_objectives)
    except UserError as error:
        raise UserError(f"preference {word!r}: {error}") from error


def _raise_at(lam: Float64[np.ndarray, "*batch d"], is_wrong: np.ndarray, needed: str) -> None:
    if is_wrong.any():
        index = tuple(np.argwhere(is_wrong)[0].tolist())
        raise UserError(f"preference entries must be {needed}, got {lam[index]} at index {_index_text(index)}")


def _index_text(index: tuple[int, ...]) -> str:
    return str(index[0]) if len(index) == 1 else str(index)
