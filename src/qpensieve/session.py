"""What a run and an agent may know of a trainer, and the two ways in which training fails."""

from collections.abc import Iterator
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


def first_bad_row(value: Shaped[np.ndarray, "rows *rest"]) -> int | None:
    """The first row that holds a number which is not finite; None where all are."""
    is_finite = np.isfinite(value.reshape(len(value), -1)).all(axis=1)
    return None if is_finite.all() else int(np.argmin(is_finite))
