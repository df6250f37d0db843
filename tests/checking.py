"""The run-time check of annotations: what jaxtyping's import hook calls for every function and class of ours.

jaxtyping's own decorator prepares two stand-ins for each function, checks arguments in one and arguments and result in
the other, and binds every call to a signature: a third of the time of all tests. Ours lets beartype wrap the function
itself, and opens a frame for the names of axes only where an annotation names some. It checks the same.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, ForwardRef, TypeVar, get_args, get_type_hints

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, TypeCheckError, jaxtyped, print_bindings

FRAME = jaxtyped("context")
"""Inside of it a name of an axis has one length. It holds nothing itself, so that all calls share it."""

MARK = "is_checked"
SETTINGS = BeartypeConf(violation_type=TypeCheckError)
"""What is raised is a TypeError, as by jaxtyping."""


def checked(function: Any = None, *, typechecker: Any = None) -> Any:
    """Takes the place of `jaxtyping.jaxtyped`, whatever `typechecker` is."""
    if function is None:
        return checked
    if inspect.isclass(function):
        if dataclasses.is_dataclass(function) and not hasattr(function.__init__, MARK):
            function.__init__ = _checked(function.__init__)
        return function
    return _checked(function)


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with beartype around it from its first call: most are never called by the tests of one process."""
    hints = getattr(function, "__annotations__", {})
    if not hints:
        return function
    prepared: list[Callable[..., Any]] = []

    @wraps(function)
    def plain(*arguments: Any, **named: Any) -> Any:
        if not prepared:
            function.__annotations__ = {name: _resolved(hint, function) for name, hint in hints.items()}
            prepared.append(beartype(conf=SETTINGS)(function))
        return prepared[0](*arguments, **named)

    @wraps(function)
    def framed(*arguments: Any, **named: Any) -> Any:
        with FRAME:
            try:
                return plain(*arguments, **named)
            except TypeCheckError:
                print_bindings()
                raise

    setattr(framed, MARK, True)
    setattr(plain, MARK, True)
    return framed if _name_axes(hints.values()) else plain


def _resolved(hint: Any, function: Callable[..., Any]) -> Any:
    """The annotation without names in quotes; anything goes where one is unknown, as in those that come from optax."""

    def stand_in() -> None: ...

    stand_in.__annotations__ = {"hint": hint}
    try:
        return get_type_hints(stand_in, function.__globals__, include_extras=True)["hint"]
    except NameError:
        return Any


def _name_axes(hints: Iterable[Any]) -> bool:
    """Whether there is an array in these annotations; what is yet unknown may be one."""
    return any(
        isinstance(hint, str | ForwardRef)
        or (inspect.isclass(hint) and issubclass(hint, AbstractArray))
        or (isinstance(hint, TypeVar) and _name_axes((hint.__bound__, *hint.__constraints__)))
        or _name_axes(hint if isinstance(hint, list) else get_args(hint))
        for hint in hints
    )


jaxtyping.jaxtyped = checked
