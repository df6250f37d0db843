"""The messages of pages: one JSON object each, whose fields are checked before the message is followed.

docs/watch-protocol.md is the contract. A wrong message is refused with a sentence that says what would be right.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NoReturn, TypeVar

T = TypeVar("T")
LONGEST = 4096
"""Most bytes of a message."""
SEQ_LIMIT = 2**24
"""Numbers of messages come back as float32, which is exact below this."""
SPEEDS = (0.05, 16.0)
"""Slowest and fastest speed, in multiples of real time."""
MOST_STEPS = 1000
"""Most control steps that one message may ask for."""
SIDES = 2
SUM_TOLERANCE = 1e-3
"""Largest distance between 1 and the sum of a preference, because sliders round."""


class RefusedError(ValueError):
    """A message that cannot be followed; the text says why."""


def read(text: str) -> "Command":
    """Read a message.

    Raises:
        RefusedError: The message is no JSON object of known fields, each within its bounds.
    """
    try:
        said = json.loads(text, parse_constant=_refuse_constant)
    except RefusedError:
        raise
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"a message must be JSON: {error}") from error
    if not isinstance(said, dict):
        raise RefusedError(f"a message must be a JSON object, got a {type(said).__name__}")
    unknown = sorted(set(said) - _READERS.keys())
    if unknown:
        raise RefusedError(f"unknown field {unknown[0][:40]!r}; there are {', '.join(_READERS)}")
    return Command(**{name: _READERS[name](name, value) for name, value in said.items()})


def sequence_of(text: str) -> tuple[int, int | None]:
    """Return side and number of a message that was refused, as far as they can be read."""
    try:
        said: Any = json.loads(text)
        named: Mapping[str, Any] = said if isinstance(said, dict) else {}
    except (ValueError, RecursionError):
        named = {}
    is_number = lambda name, limit: type(named.get(name)) is int and 0 <= named[name] < limit
    return (named["side"] if is_number("side", SIDES) else 0), (named["seq"] if is_number("seq", SEQ_LIMIT) else None)


def preference(w: tuple[float, ...], num_objectives: int) -> tuple[float, ...]:
    """Return the preference with a sum of exactly 1.

    Raises:
        RefusedError: The preference does not have one weight per objective.
    """
    if len(w) != num_objectives:
        raise RefusedError(f"w must have {num_objectives} numbers, one per objective, got {len(w)}")
    total = math.fsum(w)
    return w if abs(total - 1.0) <= 1e-9 else tuple(weight / total for weight in w)


def _refuse_constant(word: str) -> NoReturn:
    raise RefusedError(f"numbers must be finite, got {word}")


def _whole(low: int, high: int) -> Callable[[str, object], int]:
    def read_whole(name: str, value: object) -> int:
        if type(value) is not int or not low <= value <= high:
            raise RefusedError(f"{name} must be a whole number from {low} to {high}, got {_shown(value)}")
        return value

    return read_whole


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise RefusedError(f"{name} must be true or false, got {_shown(value)}")
    return value


def _speed(name: str, value: object) -> float:
    low, high = SPEEDS
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise RefusedError(f"{name} must be a number from {low} to {high:g}, got {_shown(value)}")
    return float(value)


def _weights(name: str, value: object) -> tuple[float, ...]:
    numbers = value if isinstance(value, list) and all(type(each) in (int, float) for each in value) else []
    if not numbers or not all(0.0 <= each <= 1.0 + SUM_TOLERANCE for each in numbers):  # False for NaN too
        raise RefusedError(f"{name} must be a list of numbers from 0 to 1, got {_shown(value)}")
    weights = tuple(float(each) for each in numbers)
    if abs(math.fsum(weights) - 1.0) > SUM_TOLERANCE:
        raise RefusedError(f"{name} must sum to 1, got {math.fsum(weights):.6g}")
    return weights


def _reset(name: str, value: object) -> Literal["next", "same"]:
    if value is True:
        return "next"
    if value == "same":
        return "same"
    raise RefusedError(f'{name} must be true or "same", got {_shown(value)}')


def _at(name: str, value: object) -> int | Literal["newest"]:
    if value == "newest":
        return "newest"
    if type(value) is int and value >= 0:
        return value
    raise RefusedError(f'{name} must be a step or "newest", got {_shown(value)}')


def _shown(value: object) -> str:
    """Return a value for a sentence, cut to 40 characters."""
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _field(read_value: Callable[[str, object], T]) -> T | None:
    """Return a field of a message, with the function that reads its value."""
    return field(default=None, metadata={"read": read_value})


@dataclass(frozen=True)
class Command:
    """A message; fields that it lacks are None. The fields are described in docs/watch-protocol.md."""

    side: int = field(default=0, metadata={"read": _whole(0, SIDES - 1)})
    seq: int | None = _field(_whole(0, SEQ_LIMIT - 1))
    w: tuple[float, ...] | None = _field(_weights)
    paused: bool | None = _field(_flag)
    step: int | None = _field(_whole(1, MOST_STEPS))
    reset: Literal["next", "same"] | None = _field(_reset)
    seed: int | None = _field(_whole(0, 2**31 - 1))
    at: int | Literal["newest"] | None = _field(_at)
    sampled: bool | None = _field(_flag)
    calibrated: bool | None = _field(_flag)
    speed: float | None = _field(_speed)
    push: bool | None = _field(_flag)
    open: int | None = _field(_whole(0, 99))
    close: bool | None = _field(_flag)


_READERS: dict[str, Callable[[str, object], Any]] = {one.name: one.metadata["read"] for one in fields(Command)}
