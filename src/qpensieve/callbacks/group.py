"""Several callbacks as one: called in order; messages name the callback that stops or fails."""

import difflib
import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from qpensieve.callbacks.protocol import CallbackError, End, Evaluation, Metrics, StopTraining, Training
from qpensieve.errors import UserError
from qpensieve.importing import place_of, working_folder

HOOKS = ("on_start", "on_step", "on_metrics", "on_evaluation", "on_end")


@dataclass(frozen=True, eq=False)
class _Listener:
    """One callback: its name for people, and its methods by name."""

    name: str
    hooks: dict[str, Callable[..., object]]


class Callbacks:
    """All callbacks of a training.

    Args:
        given: A callback, several of them, or None.

    Raises:
        TypeError: One of them is no callback; says what would be.
    """

    def __init__(self, given: object = None):
        several = given if isinstance(given, list | tuple) else [] if given is None else [given]
        self._listeners = [_listener(one) for one in several]
        self._told: list[_Listener] = []
        """Callbacks whose training has begun and not yet ended."""
        self._step = 0
        self.stopped_by: str | None = None
        """Name of the callback that asked to stop."""

    def __len__(self) -> int:
        return len(self._listeners)

    @contextmanager
    def during(self, training: Training) -> Iterator[None]:
        """Call all at the begin of a training and, whatever happens, at its end."""
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

    def step(self, step: int) -> None:
        """A block is done."""
        self._step = step
        self._tell("on_step", step)

    def metrics(self, step: int, metrics: Metrics) -> None:
        """There is a row of training metrics."""
        self._tell("on_metrics", step, metrics)

    def evaluation(self, step: int, evaluation: Evaluation) -> None:
        """The policies were evaluated."""
        self._tell("on_evaluation", step, evaluation)

    def _tell(self, hook: str, *arguments: object) -> None:
        for listener in self._told:
            self._call(listener, hook, *arguments)

    def _call(self, listener: _Listener, hook: str, *arguments: object) -> None:
        method = listener.hooks.get(hook)
        if method is None:
            return
        try:
            answer = method(*arguments)
        except StopTraining:
            answer = False
        except Exception as error:
            where = f"the callback {listener.name} failed in {hook} at step {self._step}"
            reason = f"{type(error).__name__}: {error}".rstrip(": ")
            raise CallbackError(f"{where}: {reason}{place_of(error)}") from error
        if isinstance(answer, bool | np.bool_) and not answer:
            self.stopped_by = self.stopped_by or listener.name

    def _end(self, end: End) -> list[CallbackError]:
        """Call all at the end, also if some fail; return their errors."""
        failures: list[CallbackError] = []
        for listener in self._told:
            try:
                self._call(listener, "on_end", self._step, end)
            except CallbackError as error:
                failures.append(error)
        self._told = []
        return failures


def _listener(one: object) -> _Listener:
    if isinstance(one, type):
        raise TypeError(f"callback must be an object, got the class {one.__name__}: write {one.__name__}(...)")
    name = getattr(one, "__qualname__", type(one).__qualname__)
    hooks = {hook: getattr(one, hook) for hook in HOOKS if callable(getattr(one, hook, None))}
    _check_spelling(one, name)
    if hooks:
        return _Listener(name, hooks)
    if callable(one):
        on_evaluation = lambda step, evaluation: one(step, evaluation.metrics)
        return _Listener(name, {"on_metrics": one, "on_evaluation": on_evaluation})
    raise TypeError(
        f"callback must be a function (step, metrics) or an object with a method {', '.join(HOOKS)}, got {one!r}"
    )


def _check_spelling(one: object, name: str) -> None:
    """Refuse a method whose name is nearly that of a hook: it would never be called."""
    for own in dir(one):
        near = difflib.get_close_matches(own, HOOKS, n=1, cutoff=0.75) if own.startswith("on_") else []
        if near and own not in HOOKS:
            raise TypeError(f"the callback {name} has a method {own}, which is never called; did you mean {near[0]}?")


def find_callbacks(names: Iterable[str]) -> list[object]:
    """The callbacks that `module:name` name, from the working folder too; a class is called to make one.

    Raises:
        ValueError: There is no such module or name, or it is no callback; says which.
    """
    return [_find(name) for name in names]


def _find(name: str) -> object:
    module, _, rest = name.partition(":")
    if not module or not rest:
        raise UserError(f"a callback must be named as module:name, such as my_callbacks:EarlyStop; got {name!r}")
    try:
        with working_folder():
            found = importlib.import_module(module)
            for part in rest.split("."):
                found = getattr(found, part)
            made = found() if isinstance(found, type) else found
            _listener(made)  # what is no callback is refused now, by its name
            return made
    except Exception as error:
        raise UserError(
            f"the callback {name} cannot be made: {type(error).__name__}: {error}{place_of(error)}"
        ) from error
