"""Evaluations, log and alarms of a run folder. Training and `evaluate` write them only through this module."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from qpensieve.callbacks import Evaluation
from qpensieve.config import RunConfig
from qpensieve.metrics import utility
from qpensieve.records import calibration, critic_errors, evaluations, folder
from qpensieve.records.files import interpreting
from qpensieve.records.folder import FolderLock
from qpensieve.records.log import FULL, SHORT, TRAINING, MetricsLog, cut_log, is_logged, read_rows
from qpensieve.records.scores import scores, summarize
from qpensieve.train.alarms import Watch
from qpensieve.train.evaluate import protocols
from qpensieve.types import EnvSpec


class RunFiles:
    """Writes the evaluations, log and alarms of a run folder.

    Args:
        path: The run folder.
        config: Its configuration.
        spec: The environment.
        own: Preferences that have their own agent each. None: one agent of a seed serves all.
        say: Called with the text of each alarm.
    """

    def __init__(
        self,
        path: Path,
        config: RunConfig,
        spec: EnvSpec,
        own: Float64[np.ndarray, "p d"] | None,
        say: Callable[[str], None],
    ):
        self.path, self._objectives = path, spec.objectives
        on = protocols(spec.num_objectives, own, config.eval_stride, config.full_eval_stride)
        reference = None if spec.reference is None else np.array(spec.reference)
        self.table = evaluations.empty(config.seeds, on.short, on.curve, on.full, reference)
        """All evaluations."""
        self.held: FolderLock | None = None
        """The lock of the folder."""
        self._alarms = Watch(config, spec, own, say)
        self._log = MetricsLog(path / folder.METRICS)

    def check_owner(self) -> None:
        """Raise FolderInUseError if another process has taken the folder over."""
        if self.held is not None:
            self.held.check()

    def load(self) -> None:
        """Load the evaluations of the folder, if there are any."""
        file = self.path / folder.EVALUATIONS
        self.table = evaluations.load(file) if file.exists() else self.table

    def cut(self, step: int) -> None:
        """Remove evaluations, measurements and rows of the log after a step."""
        log = self.path / folder.METRICS
        self.load()
        if (self.path / folder.EVALUATIONS).exists():
            self._save(evaluations.cut(self.table, step))
        critic_errors.cut(self.path / folder.CRITIC, step)
        calibration.cut(self.path / folder.CALIBRATION, step)
        cut_log(log, step)
        with interpreting(log, "the log of this run"):
            self._alarms.resume([row for row in read_rows(log) if row["event"] == TRAINING])
        if step in self.table.short_steps and not is_logged(log, SHORT, step):
            self._log_evaluation(SHORT, step)  # the run was killed between writing the table and the log

    def add_training(self, step: int, values: Mapping[str, object]) -> None:
        """Write a row of training metrics."""
        self._log.write(TRAINING, step, values, self._alarms.training(step, values))

    def add_short(self, step: int, returns: Float64[np.ndarray, "seed p e d"]) -> Evaluation:
        """Write a short evaluation: returns under the preferences of its protocol and of the curves."""
        short, curve = np.split(returns, [len(self.table.short_preferences)], axis=1)
        self._save(evaluations.append_short(self.table, step, short, curve))
        return self._log_evaluation(SHORT, step)

    def add_full(self, step: int, play: Callable[[], Float64[np.ndarray, "seed p e d"]]) -> Evaluation | None:
        """Play and write the full evaluation of a step, unless the folder has it; return the evaluation.

        Args:
            step: Environment step of the policies.
            play: Plays the full protocol with the policies.

        Returns:
            The evaluation. None: the log already has it.
        """
        if step not in self.table.full_steps:
            self._save(evaluations.append_full(self.table, step, play()))
        return None if is_logged(self.path / folder.METRICS, FULL, step) else self._log_evaluation(FULL, step)

    def close(self) -> None:
        """Close the log and release the folder."""
        self._log.close()
        if self.held is not None:
            self.held.close()

    def _log_evaluation(self, event: str, step: int) -> Evaluation:
        """Score an evaluation that is in the table, and write its row of the log, with its alarms."""
        table, is_full, alarms = self.table, event == FULL, []
        if is_full:
            preferences, returns = table.full_preferences, table.full_returns[table.full_steps == step][0]
        else:
            preferences, returns = table.short_preferences, table.short_returns[table.short_steps == step][0]
            past = table.short_returns[table.short_steps <= step].mean(axis=3)
            alarms = self._alarms.evaluation(step, np.asarray(utility(past, preferences)))
        summary = summarize(returns, preferences, table.reference)
        values = {name if is_full else f"{name}_short": value for name, value in scores(summary).items()}
        self._log.write(event, step, values, alarms)
        return Evaluation(self._objectives, preferences, returns, summary, is_full)

    def _save(self, table: evaluations.Evaluations) -> None:
        self.check_owner()
        evaluations.save(self.path / folder.EVALUATIONS, table)
        self.table = table
