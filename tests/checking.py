"""The run-time check of annotations: beartype, at a function's first call and once for each value."""

from collections.abc import Callable
from typing import Any

from beartype import beartype


def checked(stand_in: Callable[..., Any]) -> Callable[..., Any]:
    """A stand-in of jaxtyping for one of our functions, checked.

    jaxtyping makes two for each function: one takes the arguments before the call, and one takes arguments and result
    after it, with the same shapes in mind. The second need not look at the arguments again. Most functions are never
    called by the tests of one process, and beartype takes long to prepare for a call.
    """
    hints = stand_in.__annotations__
    if hints.get("return", Any) is not Any:
        stand_in.__annotations__ = {"return": hints["return"]}
    prepared: list[Callable[..., Any]] = []

    def check(*arguments: Any, **named: Any) -> Any:
        if not prepared:
            prepared.append(beartype(stand_in))
        return prepared[0](*arguments, **named)

    return check
