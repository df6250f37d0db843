"""The training loop, for runs and for agents in memory, and its calls of callbacks."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from qpensieve import config as configs
from qpensieve.callbacks.group import Callbacks
from qpensieve.callbacks.protocol import Evaluation, Metrics, Training, evaluation_metrics, training_metrics
from qpensieve.config import RunConfig
from qpensieve.console import EVALUATING, LEARNING, RANDOM, Progress
from qpensieve.envs.base import SHORT_EPISODES
from qpensieve.machine import keep_compiled
from qpensieve.records import folder
from qpensieve.records.files import interpreting
from qpensieve.records.log import ALARM, FULL, TRAINING, read_rows
from qpensieve.records.scores import summarize
from qpensieve.train.evaluate import protocols
from qpensieve.train.interrupts import interrupts
from qpensieve.train.population import PopulationTrainer
from qpensieve.train.session import Infos, Session
from qpensieve.train.trainer import Trainer


def open_session(config: RunConfig) -> Session:
    """Return a new session of a run's method, with a replay or of a population."""
    keep_compiled()
    return PopulationTrainer(config) if config.method.is_population else Trainer(config)


def describe(session: Session, goal: int, path: Path | None = None) -> Training:
    """Describe a training to callbacks, before it begins.

    Args:
        session: The session.
        goal: The step at which training ends.
        path: The run folder. None: an agent in memory.
    """
    config, spec = session.config, session.spec
    names, settings = spec.objectives, configs.to_dict(configs.lengthened(config, max(goal, config.steps)))
    past = () if path is None else tuple(_history(session, path / folder.METRICS))
    seeds = tuple(config.seed_list)
    return Training(config.domain, config.algo, names, seeds, session.step, goal, settings, path, past)


def _history(session: Session, path: Path) -> Iterator[tuple[int, Metrics]]:
    """Yield step and metrics of each row of a log, as callbacks get them; alarms are left out."""
    names, seeds = session.spec.objectives, session.config.seeds
    for row in read_rows(path):
        with interpreting(path, "the log of this run"):
            values = {name: np.asarray(value, np.float64) for name, value in row.items() if isinstance(value, list)}
            if row["event"] == TRAINING:
                yield row["step"], training_metrics(values, seeds)
            elif row["event"] != ALARM:
                scored = {name.removesuffix("_short"): value for name, value in values.items()}
                yield row["step"], evaluation_metrics(scored, names, is_full=row["event"] == FULL)


class TrainingLoop:
    """Trains a session up to a step; the session must be planned for that step.

    Subclasses evaluate, and store blocks and rows of the log: one for a run, one for an agent in memory.

    Args:
        session: The session to train.
        goal: Step at which the training ends.
        callbacks: Callbacks to call.
        progress: The progress line.
    """

    def __init__(self, session: Session, goal: int, callbacks: Callbacks, progress: Progress):
        self.session, self.goal, self.callbacks, self.progress = session, goal, callbacks, progress

    def train_blocks(self, is_interrupted: Callable[[], bool]) -> None:
        """Train until the goal, or until a callback or Ctrl-C stops it.

        Args:
            is_interrupted: Whether Ctrl-C was pressed; asked between blocks.
        """
        session, callbacks = self.session, self.callbacks
        while session.step + session.block <= self.goal and not callbacks.stopped_by and not is_interrupted():
            self.progress.enter(RANDOM if session.step < session.random_steps else LEARNING)
            self.advance()
            callbacks.tell("on_step", session.step)
            self.log_due()
            self.settle()
            self.progress.show(session.step)

    def advance(self) -> None:
        """Train for one block."""
        self.session.advance()

    def log_due(self) -> None:
        """Log a row if one is due, also without callbacks: no number may depend on callbacks."""
        step = self.session.summed_to
        if self.is_past(step, self.session.config.log_period) and (means := self.session.sums.take()):
            self.log(step, means)

    def log(self, step: int, means: Infos) -> None:
        """Call the callbacks with a row of training metrics."""
        self.callbacks.tell("on_metrics", step, training_metrics(means, self.session.config.seeds))

    def settle(self) -> None:
        """Do what is due at this step, such as an evaluation; nothing here."""

    def is_past(self, step: int, period: int) -> bool:
        """Return whether the block that ends at `step` reached or passed a multiple of `period`."""
        return step // period > (step - self.session.block) // period


class AgentTraining(TrainingLoop):
    """Trains an agent in memory, and evaluates it for its callbacks.

    Args:
        session: The session to train.
        goal: Step at which the training ends.
        callbacks: Callbacks to call.
        progress: The progress line.
        eval_period: Steps between short evaluations; one more is made at the end. None: no evaluations.
    """

    def __init__(
        self, session: Session, goal: int, callbacks: Callbacks, progress: Progress, eval_period: int | None = None
    ):
        super().__init__(session, goal, callbacks, progress)
        self._eval_period = eval_period

    def train(self) -> None:
        """Train until the goal, or until a callback stops it.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed; the session is as of the newest block.
        """
        with interrupts() as is_interrupted:
            self.train_blocks(is_interrupted)
        self.session.drain()
        self.log_due()
        if is_interrupted():
            raise KeyboardInterrupt

    def settle(self) -> None:
        """Evaluate if an evaluation is due."""
        session, config = self.session, self.session.config
        is_last = session.step + session.block > self.goal
        if self._eval_period is None or not (is_last or self.is_past(session.step, self._eval_period)):
            return
        self.progress.enter(EVALUATING)
        session.drain()
        self.log_due()
        preferences = protocols(session.spec.num_objectives, session.own_preferences, config.eval_stride).short
        returns = session.evaluate(preferences, SHORT_EPISODES)
        given = session.spec.reference
        summary = summarize(returns, preferences, None if given is None else np.array(given))
        self.callbacks.tell(
            "on_evaluation", session.step, Evaluation(session.spec.objectives, preferences, returns, summary)
        )
