"""What a run and an agent may know of a trainer, and the two ways in which training fails."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from jaxtyping import Shaped


class DivergedError(RuntimeError):
    """A loss or parameter is no longer finite."""


class EnvFailedError(RuntimeError):
    """The environment raised; the session is as it was before the step that failed."""


@contextmanager
def environment_errors(when: str, kinds: tuple[type[Exception], ...] = (Exception,)) -> Iterator[None]:
    """Raise what an environment raises as `EnvFailedError`.

    Args:
        when: What the session was doing, such as `after step 100`.
        kinds: Which exceptions.
    """
    try:
        yield
    except kinds as error:
        raise EnvFailedError(f"the environment failed {when}: {error}") from error


def check_finite(what: str, value: Shaped[np.ndarray, "rows *rest"], owner: Callable[[int], str], step: int) -> None:
    """Check that all numbers are finite.

    Args:
        what: Name of the value.
        value: The numbers.
        owner: Row -> whose it is.
        step: When this was.

    Raises:
        DivergedError: If they are not; the message names the owner of the first row that is bad.
    """
    is_finite = np.isfinite(value.reshape(len(value), -1)).all(axis=1)
    if not is_finite.all():
        raise DivergedError(f"{what} of {owner(int(np.argmin(is_finite)))} is no longer finite at step {step}")
