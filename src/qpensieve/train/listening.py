"""Training in memory that callbacks are told of; runs tell them the same things from their log."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from qpensieve import config as configs
from qpensieve.callbacks.group import Callbacks
from qpensieve.callbacks.protocol import Evaluation, Metrics, Training, evaluation_metrics, training_metrics
from qpensieve.console import EVALUATING, Progress
from qpensieve.records import folder
from qpensieve.records.log import ALARM, FULL, TRAINING
from qpensieve.records.reading import interpreting, read_rows
from qpensieve.records.scores import summarize
from qpensieve.train.evaluate import protocols
from qpensieve.train.interrupts import interrupts
from qpensieve.train.session import Session, phase_of


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


def evaluation_of(
    session: Session,
    preferences: Float64[np.ndarray, "p d"],
    returns: Float64[np.ndarray, "seed p e d"],
    is_full: bool = False,
) -> Evaluation:
    """An evaluation with its scores."""
    given = session.spec.reference
    summary = summarize(returns, preferences, None if given is None else np.array(given))
    return Evaluation(session.spec.objectives, preferences, returns, summary, is_full)


def is_past(session: Session, step: int, period: int) -> bool:
    """Whether the block that ends at `step` reached or passed a multiple of `period`."""
    return step // period > (step - session.block) // period


def learn(
    session: Session, goal: int, callbacks: Callbacks, progress: Progress, eval_period: int | None = None
) -> None:
    """Train up to a step that was planned, or until a callback or Ctrl-C stops it.

    Args:
        session: What is trained.
        goal: The step.
        callbacks: Who is told.
        progress: Shows people how far it is.
        eval_period: Steps between short evaluations; there is one at the end too. None: no evaluation.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed; the session is as of the newest block.
    """
    with interrupts() as is_interrupted:
        while session.step + session.block <= goal and not callbacks.stopped_by and not is_interrupted():
            progress.enter(phase_of(session))
            session.advance()
            callbacks.step(session.step)
            _tell_metrics(session, callbacks)
            is_last = session.step + session.block > goal
            if eval_period is not None and (is_last or is_past(session, session.step, eval_period)):
                progress.enter(EVALUATING)
                _evaluate(session, callbacks)
            progress.show(session.step)
    session.drain()
    _tell_metrics(session, callbacks)
    if is_interrupted():
        raise KeyboardInterrupt


def _tell_metrics(session: Session, callbacks: Callbacks) -> None:
    """Take a row of the log where one is due. It is taken whether or not anyone listens: so nothing depends on that."""
    if is_past(session, session.summed_to, session.config.log_period):
        means = session.take_log()
        if means:
            callbacks.metrics(session.summed_to, training_metrics(means, session.config.seeds))


def _evaluate(session: Session, callbacks: Callbacks) -> None:
    session.drain()
    _tell_metrics(session, callbacks)
    config = session.config
    preferences = protocols(session.spec.num_objectives, session.own_preferences, config.eval_stride).short
    returns = session.evaluate(preferences, config.eval_episodes)
    callbacks.evaluation(session.step, evaluation_of(session, preferences, returns))
