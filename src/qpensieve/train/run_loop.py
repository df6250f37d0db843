"""The training loop of a run folder: it also evaluates, logs and writes checkpoints."""

import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from qpensieve.callbacks import CallbackError, StopTraining, TensorBoard, WandB
from qpensieve.callbacks.group import Callbacks, find_callbacks
from qpensieve.callbacks.loggers import remove_files
from qpensieve.config import RunConfig
from qpensieve.console import DONE, EVALUATING, SAVING, Progress, Workload, format_count
from qpensieve.envs import code_of
from qpensieve.envs.base import SHORT_EPISODES
from qpensieve.records import checkpoint, folder
from qpensieve.records.checkpoint import Checkpoint
from qpensieve.records.files import save_record
from qpensieve.train.checkpointer import Checkpointer
from qpensieve.train.interrupts import interrupts
from qpensieve.train.loop import TrainingLoop, describe, open_session
from qpensieve.train.run_files import RunFiles
from qpensieve.train.session import EnvFailedError, Infos, environment_errors
from qpensieve.train.workers import EvaluationWorkers

RESULTS = (folder.EVALUATIONS, folder.SEARCH, folder.SUMMARY, folder.CRITIC, folder.CALIBRATION)
"""Files that only `--start-over` removes."""
SHOWN = {"temperature": "temperature", "snapshot_share": "climbs a snapshot", "archive_hv": "archive HV"}
"""Logged values that the progress line shows -> their labels."""


class Stopped(StopTraining):
    """Ctrl-C was pressed, or a callback stopped the run; the message has the command that continues it."""


@dataclass(frozen=True)
class Options:
    """What a run shows and writes.

    Attributes:
        quiet: No progress line.
        tensorboard: Also write TensorBoard files into the run folder.
        wandb: Also send metrics to this project of Weights & Biases; with WANDB_MODE=offline keep them on disk.
        callback: Your own callbacks, as module:name; modules may be in the working folder.
        final_evaluation: Run the full protocol at the end.
    """

    quiet: bool = False
    tensorboard: bool = False
    wandb: str | None = None
    callback: tuple[str, ...] = ()
    final_evaluation: bool = True

    def callbacks(self, path: Path) -> list[object]:
        """Make the callbacks that these options name, for the run of a folder.

        Raises:
            ImportError: A callback needs a package that is not installed.
            ValueError: A callback cannot be found.
        """
        made: list[object] = [TensorBoard(path / folder.TENSORBOARD)] if self.tensorboard else []
        if self.wandb is not None:
            made.append(WandB(self.wandb))
        return made + find_callbacks(self.callback)


class Run(TrainingLoop):
    """A run folder and its training; made by `start` and `resume`.

    Args:
        path: The run folder.
        config: What to train.
        options: What the run shows and writes.
    """

    def __init__(self, path: Path, config: RunConfig, options: Options):
        self.folder, self.config, self._options = path, config, options
        callbacks = Callbacks(options.callbacks(path))
        session = open_session(config)
        super().__init__(session, session.goal, callbacks, Progress(session.goal, 0, quiet=True))
        self.checkpointer = Checkpointer(path, session)
        say = lambda line: self.progress.say(line)
        self.files = RunFiles(path, config, session.spec, session.own_preferences, say)
        """Evaluations and log of the folder."""
        self._pending: EvaluationWorkers | None = None
        """The workers that play an evaluation; None: no evaluation is pending."""
        self._scored: dict[str, str] = {}
        self._latest: dict[str, str] = {}
        self._last_checkpoint = self._began = time.monotonic()
        self._saving = 0.0

    @property
    def resume_command(self) -> str:
        """The command that continues the run."""
        return f"qpensieve resume {self.folder}" + (" --trust" if code_of(self.config.domain) is not None else "")

    @property
    def last_checkpoint_step(self) -> int | None:
        """Step of the newest checkpoint; None if there is none."""
        return checkpoint.last_good_step(self.folder)

    def restore(self, saved: Checkpoint) -> None:
        """Go back to a checkpoint, and remove everything later from the folder."""
        self.checkpointer.restore(saved)
        self.checkpointer.cut(saved)
        self._save_search()
        self.files.cut(saved.step)

    def start_over(self) -> None:
        """Remove checkpoints, replay, results and log; the configuration and the provenance stay."""
        self.checkpointer.cut(None)
        for name in (*RESULTS, folder.METRICS, folder.WANDB):
            (self.folder / name).unlink(missing_ok=True)
        remove_files(self.folder / folder.TENSORBOARD)

    def train(self, hint: str = "") -> None:
        """Train to the configured number of steps, then evaluate fully if the options say so.

        Args:
            hint: Text to show with the estimated time of a long run.

        Raises:
            Stopped: Ctrl-C or a callback stopped the run; the run is saved.
            CallbackError: A callback failed; the run is saved if it has made a step.
            EnvFailedError: The environment failed; the run is saved if it has made a step.
            DivergedError: A loss or parameter is no longer finite.
        """
        is_heard = len(self.callbacks) > 0  # else no callback needs the history
        try:
            with self.callbacks.during(describe(self.session, self.goal, self.folder)) if is_heard else nullcontext():
                self._train(hint)
        except CallbackError as error:
            if self.session.step > 0:
                try:
                    self.save()
                except CallbackError as another:  # a callback failed at an evaluation that comes with the save
                    error.add_note(str(another))
                    self.save()
            raise CallbackError(f"{error}; continue with: {self.resume_command}") from error.__cause__

    def _train(self, hint: str) -> None:
        session = self.session
        self.progress = progress = Progress(
            session.goal, session.step, quiet=self._options.quiet, workload=self._workload(hint)
        )
        try:
            with interrupts(progress.answer) as is_interrupted:
                if session.step > 0:  # an evaluation in which the environment failed is still due
                    self.settle()
                self.train_blocks(is_interrupted)
                if session.step < session.goal:
                    progress.enter(SAVING)
                    self.save()
                    by = f"stopped by {self.callbacks.stopped_by}" if self.callbacks.stopped_by else "stopped"
                    raise Stopped(f"{by} at step {session.step:,}; continue with: {self.resume_command}")
                self._finish_evaluation()
            if self._options.final_evaluation:
                if session.step not in self.files.table.full_steps:
                    num, episodes = len(self.files.table.full_preferences), self.config.full_eval_episodes
                    progress.say(f"full evaluation: {num} preferences x {episodes} episodes")
                    progress.enter(EVALUATING)
                self.evaluate_fully()
            progress.enter(DONE)
        except EnvFailedError as error:
            raise EnvFailedError(f"{error}; {self._save_after()}, continue with: {self.resume_command}") from error
        finally:
            progress.end()

    def _save_after(self) -> str:
        """Save the run after its environment has failed, unless it has made no step; return in words what is saved."""
        if self.session.step == 0:
            return "nothing is learned yet"
        try:
            self.save()
        except EnvFailedError:  # an evaluation that worker processes have begun is played again before it
            return f"the run is saved as of step {self.last_checkpoint_step:,}"
        return "the run is saved"

    def _workload(self, hint: str) -> Workload:
        """Describe the run to the progress line; evaluations are weighed by their number of episodes."""
        config, table = self.config, self.files.table
        num_short = len(table.short_preferences) + len(table.curve_preferences)
        worth = len(table.full_preferences) * config.full_eval_episodes / (num_short * SHORT_EPISODES)
        seeds = f"{config.seeds} seed{'s' if config.seeds > 1 else ''}"
        return Workload(
            random_steps=self.session.random_steps,
            eval_period=config.eval_period,
            final_evaluation=worth if self._options.final_evaluation else 0.0,
            size=f"{format_count(config.steps)} steps x {seeds}",
            hint=hint,
        )

    def save(self) -> None:
        """Write a checkpoint of the newest block, after pending evaluations of earlier blocks."""
        if self._pending is not None and self._pending.step < self.session.step:
            self._finish_evaluation()
        self.log_due()  # a row that was due before the last block, where a callback has failed in between
        self.session.drain()
        began = time.monotonic()
        self.log_due()
        self.files.check_owner()
        self.checkpointer.save()
        self._last_checkpoint = time.monotonic()
        self._saving += self._last_checkpoint - began

    def close(self) -> None:
        """Release the folder, and end threads and worker processes."""
        self.files.close()
        self.session.close()

    def advance(self) -> None:
        """Train for one block, and add its rows to the replay log before any callback can fail and save the run."""
        self.checkpointer.append(self.session.advance())

    def log(self, step: int, means: Infos) -> None:
        """Write a row of training metrics."""
        times = {"time_seconds": time.monotonic() - self._began, "time_saving": self._saving}
        self._latest = {label: f"{means[name].mean():.2g}" for name, label in SHOWN.items() if name in means}
        self.files.add_training(step, {**means, **times})
        super().log(step, means)

    def settle(self) -> None:
        """Do what is due at this step: evaluations, parameters, checkpoint."""
        step, config, progress = self.session.step, self.config, self.progress
        is_due = lambda period: period is not None and self.is_past(step, period)
        is_begun = self._pending is not None and self._pending.step == step
        is_new = not is_begun and step not in self.files.table.short_steps
        is_short = is_new and (is_due(config.eval_period) or step == self.goal)
        is_full = is_due(config.full_eval_period)
        if is_short or is_full:
            if not checkpoint.kept_steps(self.folder):
                self.save()  # results always have a checkpoint to continue from
            progress.enter(EVALUATING)
            self._settle_log()
        if is_short:
            self._evaluate_short(can_wait=not is_full and step < self.goal)
        elif self._pending is not None and self._pending.is_ready():
            self._finish_evaluation()
        if is_full:
            self.evaluate_fully()
        if is_due(config.parameters_period):
            self.files.check_owner()
            checkpoint.save_parameters(self.folder, step, self.session.parameters())
        if is_short:
            self._save_search()
        if is_short or time.monotonic() - self._last_checkpoint > config.checkpoint_seconds:
            progress.enter(SAVING)
            self.save()
        progress.mark_evaluation(self._pending is not None)
        progress.note(**self._scored, **self._latest)

    def _save_search(self) -> None:
        """Write the file of a population's search, for pictures; other methods have none. Checkpoints hold a copy."""
        record = self.session.search_record()
        if record is not None:
            save_record(self.folder / folder.SEARCH, record)

    def _evaluate_short(self, can_wait: bool) -> None:
        """Make the short evaluation of this step: in worker processes if `can_wait` and cores are free."""
        both = np.concatenate([self.files.table.short_preferences, self.files.table.curve_preferences])
        self._pending = self.session.begin_evaluation(both, SHORT_EPISODES) if can_wait else None
        if self._pending is None:
            self._add_short(self.session.step, self.session.evaluate(both, SHORT_EPISODES))

    def _finish_evaluation(self) -> None:
        """Wait for the pending evaluation, if there is one, and add it to the table and the log."""
        if (pending := self._pending) is None:
            return
        with environment_errors(f"in the evaluation at step {pending.step}"):
            returns = pending.result()
        self._pending = None
        self._add_short(pending.step, returns)

    def evaluate_fully(self) -> None:
        """Run the full protocol at this step, and add it to the table and the log; at most once per step."""
        self._settle_log()
        preferences, episodes = self.files.table.full_preferences, self.config.full_eval_episodes
        played = self.files.add_full(self.session.step, lambda: self.session.evaluate(preferences, episodes))
        if played is not None:
            self.callbacks.tell("on_evaluation", self.session.step, played)

    def _settle_log(self) -> None:
        """Write the pending evaluation and rows of the log that come before an evaluation of this step."""
        self._finish_evaluation()
        self.session.drain()
        self.log_due()

    def _add_short(self, step: int, returns: Float64[np.ndarray, "seed p e d"]) -> None:
        """Write a short evaluation, show it and tell callbacks."""
        played = self.files.add_short(step, returns)
        ut, hv = played.summary.ut, played.summary.hv
        self._scored = {"UT(short)": f"{ut.mean():.4g}"} | ({} if hv is None else {"HV(short)": f"{hv.mean():.4g}"})
        self.callbacks.tell("on_evaluation", step, played)
