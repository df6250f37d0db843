"""Sessions: training in memory, with a replay or of a population, for runs and agents."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float64, Shaped

from qpensieve.config import RunConfig
from qpensieve.errors import EnvError, ShownError
from qpensieve.learning.interface import PEAK
from qpensieve.learning.predictor import AgentPredictor
from qpensieve.machine import available_cores
from qpensieve.population.members import ArchivePredictor
from qpensieve.records.checkpoint import POLICY
from qpensieve.records.search import SearchRecord
from qpensieve.replay.layout import Rows
from qpensieve.replay.log import ReplayLog
from qpensieve.train.evaluate import evaluate, foreign_lanes
from qpensieve.train.workers import EvaluationWorkers
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
        """Return the means since the last call, and the largest of peaks; an empty dict if nothing was logged."""
        means = {name: value if name.endswith(PEAK) else value / self.count for name, value in self.sums.items()}
        self.sums, self.count = {}, 0
        return means


class DivergedError(ShownError, RuntimeError):
    """A loss or parameter is no longer finite."""


class EnvFailedError(ShownError, RuntimeError):
    """The environment raised an error; the session is as before the failed step or evaluation."""


@contextmanager
def environment_errors(when: str) -> Iterator[None]:
    """Turn errors of an environment into `EnvFailedError`; a bug of this package keeps its own type.

    Simulators raise `EnvError` for any failure of a foreign environment or process, and lanes raise FloatingPointError
    for numbers that are not finite. No other exception is an environment's.

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
        DivergedError: A number is not finite; the message names the owner of its row.
    """
    is_finite = np.isfinite(value.reshape(len(value), -1)).all(axis=1)
    if not is_finite.all():
        raise DivergedError(f"{what} of {owner(int(np.argmin(is_finite)))} is no longer finite at step {step}")


def agent_names(seeds: list[int], own: Float64[np.ndarray, "p d"] | None) -> list[str]:
    """Return the names of all agents for messages, seed by seed. A seed has an agent for each of `own`; None: one."""
    ends = [""] if own is None else [f", preference {','.join(f'{x:g}' for x in lam)}" for lam in own]
    return [f"seed {seed}{end}" for seed in seeds for end in ends]


Predictor = AgentPredictor | ArchivePredictor
"""The policies of a session at the time when the predictor was made; they act in plain NumPy."""


class Session(ABC):
    """Training in memory, advanced block by block: what off-policy trainers and populations share.

    Attributes:
        config: The configuration of the run.
        spec: The environment.
        own_preferences: Preferences that have their own agent each. None: the policies of a seed serve all.
        lanes_per_seed: Number of environments that each seed steps; the steps of all of them count as samples.
        block: Steps of one `advance`.
        step: Environment steps each seed has done.
        summed_to: The step up to which `sums` has values.
        sums: Sums of what was logged since the last row of the log.
    """

    config: RunConfig
    spec: EnvSpec
    own_preferences: Float64[np.ndarray, "p d"] | None = None
    lanes_per_seed: int
    block: int

    def __init__(self) -> None:
        self.step = self.summed_to = 0
        self.sums = Accumulator()

    @property
    def goal(self) -> int:
        """The step at which the run ends, with its last whole block."""
        return self.config.steps // self.block * self.block

    @property
    def random_steps(self) -> int:
        """Steps before learning begins; populations learn from the first step on."""
        return 0 if self.config.method.is_population else self.config.random_steps

    @abstractmethod
    def plan(self, steps: int) -> None:
        """Prepare to train up to `steps` in total."""

    @abstractmethod
    def advance(self) -> Rows | None:
        """Train for one block; returns the rows that were added to the replay, None without a replay."""

    def drain(self) -> None:
        """Wait until all started work is done."""
        return

    @abstractmethod
    def predictor(self) -> Predictor:
        """Return a predictor with the current policies; DivergedError if they are no longer finite."""

    def evaluate(self, preferences: Float64[np.ndarray, "p d"], episodes: int) -> Float64[np.ndarray, "seed p e d"]:
        """Play the current policies and return the returns; rows that one policy of an archive serves share a mean."""
        policies = self.predictor()
        return policies.share(play(policies, self.config, self.step, preferences, episodes), preferences)

    def begin_evaluation(self, preferences: Float64[np.ndarray, "p d"], episodes: int) -> EvaluationWorkers | None:
        """Start this evaluation in worker processes and return them. None: there are no workers, so call `evaluate`."""
        del preferences, episodes
        return None

    def search_record(self) -> SearchRecord | None:
        """Return the record of a population's search, for the run folder; None for other methods."""
        return None

    @abstractmethod
    def parameters(self) -> Arrays:
        """Return policies and networks of every seed, without optimisers and replay."""

    def policy_arrays(self) -> Arrays:
        """Return the arrays that acting needs, for checkpoints and files of parameters."""
        return {POLICY + name: value for name, value in self.predictor().arrays().items()}

    @abstractmethod
    def arrays(self) -> Arrays:
        """Return everything that changes, except the replay's rows."""

    def replay_log(self, folder: Path) -> ReplayLog | None:
        """Return the log of the replay's rows in a folder; None: there is no replay."""
        del folder
        return None

    def replay_rows(self) -> tuple[Rows, int] | None:
        """Return the replay's rows in the order written and the number written before; None without a replay."""
        return None

    @abstractmethod
    def restore(self, arrays: Arrays, rows: Rows | None = None, first: int = 0) -> None:
        """Continue from the results of `arrays` and `replay_rows`; without rows the replay starts empty."""

    @abstractmethod
    def close(self) -> None:
        """End threads and worker processes."""


def play(  # noqa: PLR0913 (policies, whose they are, and what to play)
    policies: Predictor,
    config: RunConfig,
    step: int,
    preferences: Float64[np.ndarray, "p d"],
    episodes: int,
    first_row: int = 0,
) -> Float64[np.ndarray, "seed p e d"]:
    """Play single episodes with the policies of all seeds and return their returns.

    Foreign environments are played a few preferences at a time, because they need much memory.

    Args:
        policies: The policies.
        config: Their run.
        step: Their environment step, for messages.
        preferences: Preferences to play under.
        episodes: Episodes per preference.
        first_row: Number of the first preference, which decides the starts.

    Raises:
        EnvFailedError: The environment failed.
    """
    seeds = config.seed_list
    num = min(available_cores(), len(seeds))
    size = foreign_lanes(config.domain, len(seeds), episodes) // (len(seeds) * episodes) or len(preferences)
    parts = [slice(first, first + size) for first in range(0, len(preferences), size)]
    with environment_errors(f"in the evaluation at step {step}"), ThreadPoolExecutor(num) as pool:
        player = policies.player(preferences, episodes, pool.map if num > 1 else map)
        played = [
            evaluate(
                config.domain,
                seeds,
                player(part),
                preferences[part],
                episodes,
                config.max_eval_steps,
                first_row=first_row + part.start,
            )
            for part in parts
        ]
    return np.concatenate(played, axis=1)
