"""Several callbacks as one. They are called in order; messages name the callback that stops or fails."""

import difflib
import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Literal, get_args

import numpy as np

from qpensieve.callbacks.protocol import CallbackError, End, Evaluation, Metrics, Training
from qpensieve.errors import StopTraining, UserError
from qpensieve.importing import place_of, working_folder

Hook = Literal["on_start", "on_step", "on_metrics", "on_evaluation", "on_end"]
HOOKS: tuple[Hook, ...] = get_args(Hook)
Listener = tuple[str, dict[Hook, Callable[..., object]]]
"""One callback: its name in messages, and its methods by name."""


class Callbacks:
    """All callbacks of a training.

    Args:
        given: A callback, several of them, or None.

    Raises:
        TypeError: An object is no callback; the message says what a callback is.
    """

    def __init__(self, given: object = None):
        several = given if isinstance(given, list | tuple) else [] if given is None else [given]
        self._listeners = [_listener(one) for one in several]
        self._told: list[Listener] = []
        """Callbacks whose training has begun and not yet ended."""
        self._step = 0
        self.stopped_by: str | None = None
        """Name of the callback that asked to stop."""

    def __len__(self) -> int:
        return len(self._listeners)

    @contextmanager
    def during(self, training: Training) -> Iterator[None]:
        """Call all callbacks at the beginning of a training and, whatever happens, at its end.

        Raises:
            CallbackError: A callback failed.
        """
        self._step, self.stopped_by, self._told = training.step, None, []
        try:
            for listener in self._listeners:
                self._told.append(listener)
                self._call(listener, "on_start", training)
            yield
        except BaseException as error:
            is_stop = isinstance(error, StopTraining | KeyboardInterrupt)
            for failure in self._end("stopped" if is_stop else "failed"):
                error.add_note(str(failure))
            raise
        failures = self._end("stopped" if self.stopped_by else "done")
        if failures:
            raise failures[0]

    def tell(self, hook: Hook, step: int, *what: Metrics | Evaluation) -> None:
        """Call a method of all callbacks: on_step, on_metrics or on_evaluation; CallbackError if a callback fails."""
        self._step = step if hook == "on_step" else self._step
        for listener in self._told:
            self._call(listener, hook, step, *what)

    def _call(self, listener: Listener, hook: Hook, *arguments: object) -> None:
        name, hooks = listener
        try:
            answer = hooks[hook](*arguments) if hook in hooks else None
        except StopTraining:
            answer = False
        except Exception as error:
            where = f"the callback {name} failed in {hook} at step {self._step}"
            reason = f"{type(error).__name__}: {error}".rstrip(": ")
            raise CallbackError(f"{where}: {reason}{place_of(error)}") from error
        if isinstance(answer, bool | np.bool_) and not answer:
            self.stopped_by = self.stopped_by or name

    def _end(self, end: End) -> list[CallbackError]:
        """Call on_end of all callbacks, even if some fail; return their errors."""
        failures: list[CallbackError] = []
        for listener in self._told:
            try:
                self._call(listener, "on_end", self._step, end)
            except CallbackError as error:
                failures.append(error)
        self._told = []
        return failures


def _listener(one: object) -> Listener:
    if isinstance(one, type):
        raise TypeError(f"callback must be an object, got the class {one.__name__}: write {one.__name__}(...)")
    name = getattr(one, "__qualname__", type(one).__qualname__)
    hooks: dict[Hook, Callable[..., object]] = {}
    for own in filter(lambda own: own.startswith("on_"), dir(one)):
        if own in HOOKS:
            hooks |= {own: getattr(one, own)} if callable(getattr(one, own)) else {}
        elif near := difflib.get_close_matches(own, HOOKS, n=1, cutoff=0.75):
            raise TypeError(f"the callback {name} has a method {own}, which is never called; did you mean {near[0]}?")
    if not hooks and callable(one):
        hooks = {"on_metrics": one, "on_evaluation": lambda step, evaluation: one(step, evaluation.metrics)}
    if not hooks:
        methods = f"an object with a method {', '.join(HOOKS)}"
        raise TypeError(f"callback must be a function (step, metrics) or {methods}, got {one!r}")
    return name, hooks


def find_callbacks(names: Iterable[str]) -> list[object]:
    """Return the callbacks with these names, `module:name`; a class is called without arguments.

    Modules may be in the working folder.

    Raises:
        ValueError: There is no such module or name, or it is no callback; the message names it.
    """
    return [_find(*name.partition(":")) for name in names]


def _find(module: str, colon: str, rest: str) -> object:
    name = module + colon + rest
    if not module or not rest:
        raise UserError(f"a callback must be named as module:name, such as my_callbacks:EarlyStop; got {name!r}")
    try:
        with working_folder():
            found = attrgetter(rest)(importlib.import_module(module))
            made = found() if isinstance(found, type) else found
            _listener(made)  # refuse an object that is no callback by its name
            return made
    except Exception as error:
        cause = f"{type(error).__name__}: {error}{place_of(error)}"
        raise UserError(f"the callback {name} cannot be made: {cause}") from error
