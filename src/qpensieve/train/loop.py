"""The training loop of runs and of agents in memory, and what it tells callbacks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from qpensieve import config as configs
from qpensieve.callbacks.group import Callbacks
from qpensieve.callbacks.protocol import Evaluation, Metrics, Training, evaluation_metrics, training_metrics
from qpensieve.console import EVALUATING, Progress
from qpensieve.records import folder
from qpensieve.records.files import interpreting
from qpensieve.records.log import ALARM, FULL, TRAINING, read_rows
from qpensieve.records.scores import summarize
from qpensieve.train.evaluate import protocols
from qpensieve.train.interrupts import interrupts
from qpensieve.train.session import Infos, Session, phase_of


def describe(session: Session, goal: int, path: Path | None = None) -> Training:
    """What callbacks are told before a session is trained to a step.

    Args:
        session: What is trained.
        goal: The step.
        path: The run folder; None: an agent.
    """
    config, spec = session.config, session.spec
    names, settings = spec.objectives, configs.to_dict(configs.lengthened(config, max(goal, config.steps)))
    past = () if path is None else tuple(_history(session, path / folder.METRICS))
    seeds = tuple(config.seed_list)
    return Training(config.domain, config.algo, names, seeds, session.step, goal, settings, path, past)


def _history(session: Session, path: Path) -> Iterator[tuple[int, Metrics]]:
    """Step and metrics of all rows of a log, as they were told when they were written."""
    names, seeds = session.spec.objectives, session.config.seeds
    for row in read_rows(path):
        with interpreting(path, "the log of this run"):
            values = {name: np.asarray(value, np.float64) for name, value in row.items() if isinstance(value, list)}
            if row["event"] == TRAINING:
                yield row["step"], training_metrics(values, seeds)
            elif row["event"] != ALARM:
                scored = {name.removesuffix("_short"): value for name, value in values.items()}
                yield row["step"], evaluation_metrics(scored, names, is_full=row["event"] == FULL)


def is_past(session: Session, step: int, period: int) -> bool:
    """Whether the block that ends at `step` reached or passed a multiple of `period`."""
    return step // period > (step - session.block) // period


@runtime_checkable
class Sink(Protocol):
    """Receives what a training makes, and does what is due: a run, or an agent in memory."""

    def advance(self) -> None:
        """Train for one block."""
        ...

    def log(self, step: int, means: Infos) -> None:
        """Take a row of training metrics."""
        ...

    def settle(self) -> None:
        """Do what is due at this step, such as an evaluation."""
        ...


def train(  # noqa: PLR0913 (a training and all that take part in it)
    session: Session,
    goal: int,
    sink: Sink,
    callbacks: Callbacks,
    progress: Progress,
    is_interrupted: Callable[[], bool],
) -> None:
    """Train up to a step that was planned, or until a callback or Ctrl-C stops it.

    Args:
        session: What is trained.
        goal: The step.
        sink: Receives what is made.
        callbacks: Are told.
        progress: Shows people how far it is.
        is_interrupted: Whether Ctrl-C was pressed; asked between blocks.
    """
    while session.step + session.block <= goal and not callbacks.stopped_by and not is_interrupted():
        progress.enter(phase_of(session))
        sink.advance()
        callbacks.step(session.step)
        log_due(session, sink)
        sink.settle()
        progress.show(session.step)


def log_due(session: Session, sink: Sink) -> None:
    """Hand over a row of the log where one is due.

    It is taken whether or not anyone listens, so no number depends on that.
    """
    if is_past(session, session.summed_to, session.config.log_period):
        means = session.take_log()
        if means:
            sink.log(session.summed_to, means)


@dataclass(frozen=True, eq=False)
class AgentTraining:
    """The training of an agent in memory, for its callbacks.

    Attributes:
        session: What is trained.
        goal: Step at which the training ends.
        callbacks: Are told.
        progress: Shows people how far it is.
        eval_period: Steps between short evaluations; there is one at the end too. None: no evaluation.
    """

    session: Session
    goal: int
    callbacks: Callbacks
    progress: Progress
    eval_period: int | None = None

    def train(self) -> None:
        """Train until the goal, or until a callback stops it.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed; the session is as of the newest block.
        """
        with interrupts() as is_interrupted:
            train(self.session, self.goal, self, self.callbacks, self.progress, is_interrupted)
        self.session.drain()
        log_due(self.session, self)
        if is_interrupted():
            raise KeyboardInterrupt

    def advance(self) -> None:
        """Train for one block."""
        self.session.advance()

    def log(self, step: int, means: Infos) -> None:
        """Tell the callbacks."""
        self.callbacks.metrics(step, training_metrics(means, self.session.config.seeds))

    def settle(self) -> None:
        """Evaluate where that is due."""
        session, config = self.session, self.session.config
        is_last = session.step + session.block > self.goal
        if self.eval_period is None or not (is_last or is_past(session, session.step, self.eval_period)):
            return
        self.progress.enter(EVALUATING)
        session.drain()
        log_due(session, self)
        preferences = protocols(session.spec.num_objectives, session.own_preferences, config.eval_stride).short
        returns = session.evaluate(preferences, config.eval_episodes)
        given = session.spec.reference
        summary = summarize(returns, preferences, None if given is None else np.array(given))
        self.callbacks.evaluation(session.step, Evaluation(session.spec.objectives, preferences, returns, summary))
