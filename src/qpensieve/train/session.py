"""What a run and an agent may know of a trainer: the session. Both kinds of trainers meet it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Float32, Float64, Shaped

from qpensieve.config import RunConfig
from qpensieve.records.search import SearchRecord
from qpensieve.replay.layout import RowLayout, Rows
from qpensieve.types import EnvSpec

Arrays = dict[str, np.ndarray]
"""Named arrays, as checkpoints hold them."""


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


@runtime_checkable
class Predictor(Protocol):
    """The policies of a session as they were when it was made, acting in plain NumPy."""

    def act(
        self,
        seed: int,
        obs: Float32[np.ndarray, "n obs"],
        lam: Float32[np.ndarray, "n d"],
        stream: np.random.Generator | None = None,
    ) -> Float32[np.ndarray, "n act"]:
        """Actions of one seed's policy: deterministic, or sampled if there is a `stream`."""
        ...


@runtime_checkable
class Session(Protocol):
    """Training in memory, advanced block by block.

    Off-policy trainers keep a replay, whose rows are saved apart from the other arrays. Populations keep none: their
    `layout` is None, `advance` and `replay_rows` return None.
    """

    config: RunConfig
    spec: EnvSpec

    @property
    def step(self) -> int:
        """Environment steps each seed has done."""
        ...

    @property
    def goal(self) -> int:
        """The step at which the run ends."""
        ...

    @property
    def block(self) -> int:
        """Steps of one `advance`."""
        ...

    @property
    def summed_to(self) -> int:
        """The step up to which `take_log` has something to tell."""
        ...

    @property
    def own_preferences(self) -> Float64[np.ndarray, "p d"] | None:
        """Preferences that each have an agent of their own; None: every preference is served."""
        ...

    @property
    def lanes_per_seed(self) -> int:
        """Environments that each seed steps: every one of them costs samples."""
        ...

    @property
    def layout(self) -> RowLayout | None:
        """Layout of a replay row; None: there is no replay."""
        ...

    @property
    def num_lanes(self) -> int:
        """Lanes that write into the replay."""
        ...

    @property
    def log_capacity(self) -> int:
        """How many of a lane's newest rows a checkpoint may need."""
        ...

    def plan(self, steps: int) -> None:
        """Be ready to go on until `steps`."""
        ...

    def advance(self) -> Rows | None:
        """One block; returns the rows that the replay took."""
        ...

    def drain(self) -> None:
        """Wait for all that was started."""
        ...

    def take_log(self) -> dict[str, Float[np.ndarray, " rows"]]:
        """Means of what was logged since the last call; empty while nothing was learned."""
        ...

    def evaluate(self, preferences: Float64[np.ndarray, "p d"], episodes: int) -> Float64[np.ndarray, "seed p e d"]:
        """Returns of the policies as they are now; rows that one policy of an archive answers share its mean."""
        ...

    def predictor(self) -> Predictor:
        """Acts as the policies do now."""
        ...

    def search_record(self) -> SearchRecord | None:
        """What a population's search has done, for the run folder."""
        ...

    def parameters(self) -> Arrays:
        """Networks of every seed, without optimisers and replay."""
        ...

    def arrays(self) -> Arrays:
        """Everything but the replay's rows."""
        ...

    def replay_rows(self) -> tuple[Rows, int] | None:
        """The replay's rows in the order written, and how many were written before them."""
        ...

    def restore(self, arrays: Arrays, rows: Rows | None = None, first: int = 0) -> None:
        """Take over what `arrays` and `replay_rows` returned; without rows the replay starts empty."""
        ...

    def close(self) -> None: ...
