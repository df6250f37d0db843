"""The session: the interface of both kinds of trainers for runs and agents."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Float32, Float64, Shaped

from qpensieve.config import RunConfig
from qpensieve.console import LEARNING, RANDOM
from qpensieve.errors import EnvError, ShownError
from qpensieve.learning.acting import Served
from qpensieve.learning.interface import PEAK
from qpensieve.records.search import SearchRecord
from qpensieve.replay.layout import RowLayout, Rows
from qpensieve.train.evaluate import Playing
from qpensieve.types import EnvSpec

Arrays = dict[str, np.ndarray]
"""Named arrays, as checkpoints hold them."""
Infos = dict[str, Float[np.ndarray, " rows"]]
"""Name of a logged value -> its values, for every agent, member or seed."""


class Accumulator:
    """Sums of logged values, or the largest of them, between two rows of the log."""

    def __init__(self, sums: Mapping[str, np.ndarray] | None = None, count: int = 0):
        self.sums: Infos = dict(sums or {})
        self.count = count
        """Blocks or iterations that were added."""

    def add(self, infos: Mapping[str, Float[np.ndarray, " rows"]]) -> None:
        """Add the values that one block or iteration has logged."""
        for name, value in infos.items():
            if name.endswith(PEAK):
                self.sums[name] = np.maximum(self.sums.get(name, value), value)
            else:
                self.sums[name] = self.sums.get(name, np.zeros_like(value)) + value
        self.count += 1

    def take(self) -> Infos:
        """Return the means since the last call, and the largest of peaks; nothing if nothing was logged."""
        means = {name: value if name.endswith(PEAK) else value / self.count for name, value in self.sums.items()}
        self.sums, self.count = {}, 0
        return means

    def arrays(self) -> Arrays:
        """Return the sums as named arrays; the count is saved apart."""
        return {f"log/{name}": value for name, value in self.sums.items()}


class DivergedError(ShownError, RuntimeError):
    """A loss or parameter is no longer finite."""


class EnvFailedError(ShownError, RuntimeError):
    """The environment raised an error; the session is unchanged since before the failed step."""


@contextmanager
def environment_errors(when: str) -> Iterator[None]:
    """Raise what an environment raises as `EnvFailedError`; a bug of this package in the same lines keeps its own type.

    Simulators raise `EnvError` for whatever a foreign environment or a lost process does, lanes FloatingPointError for
    numbers that are not finite. No other exception is an environment's.

    Args:
        when: What the session was doing, such as `after step 100`.
    """
    try:
        yield
    except (EnvError, FloatingPointError) as error:
        raise EnvFailedError(f"the environment failed {when}: {error}") from error


def check_finite(what: str, value: Shaped[np.ndarray, "rows *rest"], owner: Callable[[int], str], step: int) -> None:
    """Check that all numbers are finite.

    Args:
        what: Name of the value.
        value: The numbers.
        owner: Row -> name of its owner.
        step: Environment step, for the message.

    Raises:
        DivergedError: If they are not; the message names the owner of the first row that is bad.
    """
    is_finite = np.isfinite(value.reshape(len(value), -1)).all(axis=1)
    if not is_finite.all():
        raise DivergedError(f"{what} of {owner(int(np.argmin(is_finite)))} is no longer finite at step {step}")


@dataclass(frozen=True, eq=False)
class PendingEvaluation:
    """An evaluation that worker processes play while training continues.

    Attributes:
        step: Step of the policies.
        is_ready: Whether `result` would return at once.
        result: Returns or raises what `Session.evaluate` would at that step. After an error, the next call plays again.
    """

    step: int
    is_ready: Callable[[], bool]
    result: Callable[[], Float64[np.ndarray, "seed p e d"]]


@runtime_checkable
class Actors(Protocol):
    """Policies of all seeds that act in plain NumPy."""

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
class Predictor(Actors, Playing, Protocol):
    """The policies that a session had when the predictor was made."""

    def plain(self, seed: int) -> Served:
        """The policies of one seed, for programs without this package."""
        ...

    def share(
        self, returns: Float64[np.ndarray, "seed p e d"], preferences: Float64[np.ndarray, "p d"]
    ) -> Float64[np.ndarray, "seed p e d"]:
        """The returns, with one mean for all rows that one policy of an archive answers."""
        ...

    def arrays(self) -> Arrays:
        """The policies as named arrays, from which `saved.SavedPolicies` makes the predictor again."""
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
        """The step up to which `take_log` has values."""
        ...

    @property
    def own_preferences(self) -> Float64[np.ndarray, "p d"] | None:
        """Preferences that have their own agent each. None: all preferences are served."""
        ...

    @property
    def lanes_per_seed(self) -> int:
        """Number of environments that each seed steps; all of them cost samples."""
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
        """Number of the newest rows of a lane that a checkpoint may need."""
        ...

    def plan(self, steps: int) -> None:
        """Prepare to train up to `steps` in total."""
        ...

    def advance(self) -> Rows | None:
        """Train for one block; returns the rows that were added to the replay."""
        ...

    def drain(self) -> None:
        """Wait until all started work is done."""
        ...

    def take_log(self) -> dict[str, Float[np.ndarray, " rows"]]:
        """Means of what was logged since the last call; empty while nothing was learned."""
        ...

    def evaluate(self, preferences: Float64[np.ndarray, "p d"], episodes: int) -> Float64[np.ndarray, "seed p e d"]:
        """Returns of the policies as they are now; rows that one policy of an archive answers share its mean."""
        ...

    def begin_evaluation(self, preferences: Float64[np.ndarray, "p d"], episodes: int) -> PendingEvaluation | None:
        """Begin what `evaluate` does now, in worker processes while training continues; None: no core is free."""
        ...

    def play(self, preferences: Float64[np.ndarray, "p d"], episodes: int) -> Float64[np.ndarray, "seed p e d"]:
        """Returns of single episodes; `Predictor.share` makes of them what `evaluate` returns."""
        ...

    def predictor(self) -> Predictor:
        """A predictor with the current policies."""
        ...

    def search_record(self) -> SearchRecord | None:
        """The record of a population's search, for the run folder."""
        ...

    def parameters(self) -> Arrays:
        """Policies and networks of every seed, without optimisers and replay."""
        ...

    def arrays(self) -> Arrays:
        """Everything but the replay's rows."""
        ...

    def replay_rows(self) -> tuple[Rows, int] | None:
        """The replay's rows in the order written, and how many were written before them."""
        ...

    def restore(self, arrays: Arrays, rows: Rows | None = None, first: int = 0) -> None:
        """Continue from what `arrays` and `replay_rows` returned; without rows the replay starts empty."""
        ...

    def close(self) -> None: ...


def phase_of(session: Session) -> str:
    """What the next block is: random steps, or learning. Populations learn from the first step on."""
    is_random = session.layout is not None and session.step < session.config.random_steps
    return RANDOM if is_random else LEARNING
