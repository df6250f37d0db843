"""A run in a folder: start, train, resume, evaluate. A run that is stopped and resumed has the same numbers."""

import dataclasses
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from qpensieve import config as configs
from qpensieve.callbacks import CallbackError, StopTraining, TensorBoard, WandB
from qpensieve.callbacks.group import Callbacks, find_callbacks
from qpensieve.callbacks.loggers import remove_files
from qpensieve.config import RunConfig
from qpensieve.console import DONE, EVALUATING, SAVING, Progress, Workload, format_count
from qpensieve.envs import code_of
from qpensieve.envs.base import SHORT_EPISODES
from qpensieve.errors import FileInTheWayError, UserError, make_folder
from qpensieve.records import checkpoint, folder
from qpensieve.records.checkpoint import Checkpoint, CheckpointError
from qpensieve.records.files import save_record
from qpensieve.records.folder import lock, refuse_links
from qpensieve.records.log import has_evaluations
from qpensieve.train.checkpointer import Checkpointer
from qpensieve.train.interrupts import interrupts
from qpensieve.train.loop import TrainingLoop, describe, open_session
from qpensieve.train.run_files import RunFiles
from qpensieve.train.saved import SavedPolicies, finish_save
from qpensieve.train.session import EnvFailedError, Infos, environment_errors, play
from qpensieve.train.workers import EvaluationWorkers

RESULTS = (folder.EVALUATIONS, folder.SEARCH, folder.SUMMARY, folder.CRITIC, folder.CALIBRATION)
"""Files that only `--start-over` removes."""
SHOWN = {"temperature": "temperature", "snapshot_share": "climbs a snapshot", "archive_hv": "archive HV"}
"""Logged values that the progress line shows -> their labels."""


class Stopped(StopTraining):
    """Ctrl-C was pressed, or a callback stopped the run; the message has the command that continues it."""


@dataclasses.dataclass(frozen=True)
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
    """One run folder and the trainer behind it; made by `start` and `resume`.

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
        progress.announce()
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
        """Train for one block, and add its rows to the replay log at once: a failed callback saves the run."""
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


def start(path: Path, config: RunConfig, options: Options) -> Run:
    """Start a new run in a new folder. If it cannot start, no folder is left.

    Raises:
        ValueError: The settings cannot run, or the environment has no name by which `resume` could make it.
        OSError: The folder holds a run or parts of one, or cannot be made.
        FolderInUseError: Another process holds the folder.
    """
    config = configs.with_schedule(config)
    configs.check(config)
    configs.check_can_be_saved(config)
    _check_new(path)
    made = [one for one in (path, *path.parents) if not one.exists()]
    run = Run(path, config, options)
    try:
        if made:  # a folder that has been there must not come back: another process may have renamed it since
            make_folder(path)
        run.files.held = lock(path)
        configs.save(config, path / folder.CONFIG)
        run.files.write_provenance(run.session.lanes_per_seed)
    except BaseException:
        is_ours = run.files.held is not None  # else the folder belongs to another process
        for name in (folder.CONFIG, folder.PROVENANCE, folder.LOCK) if is_ours else ():
            (path / name).unlink(missing_ok=True)
        for one in made:
            with suppress(OSError):
                one.rmdir()
        run.close()
        raise
    return run


def _check_new(path: Path) -> None:
    """Refuse a folder that holds a run, or parts of one that a new run would be mixed with."""
    folder.refuse_file(path)
    if (path / folder.CONFIG).exists():
        raise FileInTheWayError(
            f"{path} holds a run already: continue it with 'qpensieve resume {path}', or choose --name"
        )
    found = [name for name in (*folder.FILES, *folder.FOLDERS) if name != folder.LOCK and (path / name).exists()]
    if found:
        raise FileInTheWayError(
            f"{path} must not hold parts of another run, but it holds {', '.join(found)} without {folder.CONFIG}; "
            "choose another --name, or move them away"
        )


def resume(
    path: Path,
    options: Options,
    warn: Callable[[str], None],
    trust: bool = False,
    start_over: bool = False,
    **changes: Any,
) -> Run:
    """Open a run as of its newest whole checkpoint, or from the start if it was killed before the first one.

    The folder of a saved agent becomes a run.

    Args:
        path: The run folder.
        options: What the run shows and writes.
        warn: Called with a message if something was lost, or steps were rounded.
        trust: Whether the code that the configuration names may be imported.
        start_over: Begin from the start; whatever the run has reached is removed.
        changes: Settings that may change: `num_threads`, and `steps`, which may grow, and shrink to what is reached.

    Raises:
        CheckpointError: The run has results, but no checkpoint to continue from.
    """
    finish_save(path)
    folder.check_run(path)
    with ExitStack() as opened:
        held = lock(path)
        opened.callback(held.close)
        # The file is read once: what was checked is what runs, and what is written back.
        before = saved = configs.load(path / folder.CONFIG, trust)
        if not checkpoint.kept_steps(path):  # perhaps prepared on a machine with another accelerator
            before = configs.with_schedule(saved)
        if before != saved:
            configs.save(before, path / folder.CONFIG)
        steps = configs.whole_blocks(before, changes.pop("steps", before.steps), warn)
        config = configs.lengthened(dataclasses.replace(before, **changes), steps)
        _check_steps(path, before, steps, start_over)
        run = Run(path, config, options)
        run.files.held = held
        opened.callback(run.close)
        if start_over:
            warn(f"{path} starts over: what it had reached is removed")
            run.start_over()
        else:
            _restore(run, warn)
        if not (path / folder.PROVENANCE).exists():  # a saved agent, which becomes a run, or a folder of a plan
            run.files.write_provenance(run.session.lanes_per_seed)
        run.files.note_other_versions(run.session.step, warn)
        if config.steps != before.steps:
            configs.save(configs.lengthened(before, config.steps), path / folder.CONFIG)
        opened.pop_all()
    return run


def _check_steps(path: Path, before: RunConfig, steps: int, start_over: bool) -> None:
    """Refuse a length that the run has passed. The length of a population is planned and may only grow."""
    if before.method.is_population and steps < before.steps:
        raise UserError(f"steps of {before.algo} may only grow: the run has {before.steps:,}, got {steps:,}")
    reached = 0 if start_over else checkpoint.last_good_step(path) or 0
    if steps < reached:
        raise UserError(f"steps must be at least {reached:,}, which the run has reached, got {steps:,}")


def _restore(run: Run, warn: Callable[[str], None]) -> None:
    """Take a run to its newest whole checkpoint, or to its start if it has neither a checkpoint nor results."""
    path, log = run.folder, run.folder / folder.METRICS
    saved = run.checkpointer.latest(warn)
    if saved is not None:
        if not (path / folder.EVALUATIONS).exists() and has_evaluations(log):
            lost = "earlier evaluations are lost, and curves begin where the run continues"
            warn(f"{path / folder.EVALUATIONS} is gone: {lost}; to keep them, stop and put it back")
        run.restore(saved)
        return
    found = [name for name in RESULTS if (path / name).exists()]
    if found or has_evaluations(log):
        raise CheckpointError(
            f"{path} has results ({', '.join(found or [folder.METRICS])}) but no checkpoint to continue from, and "
            f"starting over would remove them; put its {folder.CHECKPOINTS} back, or ask for it: qpensieve resume "
            f"{path} --start-over"
        )
    warn(f"{path} has no checkpoint yet: starting over from {folder.CONFIG}")
    run.start_over()


def evaluate(path: Path, warn: Callable[[str], None], trust: bool = False) -> None:
    """Evaluate the newest policies of a run by the full protocol; add to its table and log, and remove nothing.

    The newest policies are those of the newest readable checkpoint or file of parameters.

    Args:
        path: The run folder.
        warn: Called with the step that is evaluated, and with damaged checkpoints.
        trust: Whether the code that the configuration names may be imported.
    """
    refuse_links(path)
    saved = SavedPolicies(path, trust)
    # An agent that has not learned yet is saved without schedules.
    (policies, step), config = saved.newest(warn), configs.with_schedule(saved.config)
    files = RunFiles(path, config, saved.spec, saved.own_preferences, warn)
    files.held = lock(path)
    try:
        files.load()
        table = files.table
        newest = max(table.full_steps.tolist(), default=0)
        if step not in table.full_steps:
            warn(f"evaluating the policies of step {step:,}")
        if newest > step:
            warn(f"the full evaluation of step {newest:,} is newer: it stays, and the scores shown are its")
        played = lambda: play(policies, config, step, table.full_preferences, config.full_eval_episodes)
        files.add_full(step, lambda: policies.share(played(), table.full_preferences))
    finally:
        files.close()
