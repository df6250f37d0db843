"""A run and its folder: evaluations, log, checkpoints. A run that is stopped and resumed has the same numbers."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float64

from qpensieve import config as configs
from qpensieve.callbacks import CallbackError, Evaluation, StopTraining, TensorBoard, WandB
from qpensieve.callbacks.group import Callbacks, find_callbacks
from qpensieve.callbacks.protocol import training_metrics
from qpensieve.callbacks.tensorboard import remove_files
from qpensieve.config import RunConfig
from qpensieve.console import DONE, EVALUATING, SAVING, Progress, Workload, format_count
from qpensieve.envs import code_of
from qpensieve.errors import FileInTheWayError, MissingFileError, UserError, make_folder
from qpensieve.metrics import utility
from qpensieve.records import calibration, checkpoint, critic_errors, evaluations, folder, provenance, search
from qpensieve.records.checkpoint import Checkpoint, CheckpointError
from qpensieve.records.evaluations import Evaluations
from qpensieve.records.files import FileError, interpreting, read_object, write_json
from qpensieve.records.links import refuse_links
from qpensieve.records.lock import FolderLock, lock
from qpensieve.records.log import (
    FULL,
    SHORT,
    TRAINING,
    MetricsLog,
    cut_log,
    drop_unfinished_row,
    has_evaluations,
    is_logged,
    read_rows,
)
from qpensieve.records.scores import RunSummary, scores, summarize
from qpensieve.train.alarms import Watch
from qpensieve.train.checkpointer import Checkpointer
from qpensieve.train.evaluate import play_policies, protocols
from qpensieve.train.interrupts import interrupts
from qpensieve.train.loop import describe, is_past, log_due, train
from qpensieve.train.saved import SavedPolicies
from qpensieve.train.session import EnvFailedError, Infos, PendingEvaluation, environment_errors
from qpensieve.train.sessions import open_session
from qpensieve.types import EnvSpec

RESULTS = (folder.EVALUATIONS, folder.SEARCH, folder.SUMMARY, folder.CRITIC, folder.CALIBRATION)
"""Files that a run never loses unless asked."""
RESUMED_WITH = "resumed_with"
"""Where a run's record of versions has those that it went on with."""
SHOWN = {"temperature": "temperature", "snapshot_share": "climbs a snapshot", "archive_hv": "archive HV"}
"""Logged values that the progress line shows -> their labels."""


class Stopped(StopTraining):
    """Ctrl-C was pressed, or a callback stopped the run; it is saved."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What a run shows and writes.

    Attributes:
        quiet: No progress line.
        tensorboard: Also write TensorBoard files into the run folder.
        wandb: Also send metrics to this project of Weights & Biases.
        wandb_mode: offline: keep them in the run folder for 'wandb sync'; auto: as WANDB_MODE says, else online.
        callback: Callbacks of your own, as module:name; from the working folder too.
        final_evaluation: Run the full protocol at the end.
    """

    quiet: bool = False
    tensorboard: bool = False
    wandb: str | None = None
    wandb_mode: Literal["auto", "online", "offline"] = "auto"
    callback: tuple[str, ...] = ()
    final_evaluation: bool = True

    def callbacks(self, path: Path) -> list[Any]:
        """The callbacks asked for, for the run of a folder.

        Raises:
            ImportError: One needs a package that is not installed.
            ValueError: One cannot be found.
        """
        made: list[Any] = [TensorBoard(path / folder.TENSORBOARD)] if self.tensorboard else []
        if self.wandb is not None:
            made.append(WandB(self.wandb, mode=None if self.wandb_mode == "auto" else self.wandb_mode))
        return made + find_callbacks(self.callback)


class Run:
    """One run folder and the trainer behind it; made by `start` and `resume`.

    Args:
        path: The run folder.
        config: What to train.
        options: What the run shows and writes.
    """

    def __init__(self, path: Path, config: RunConfig, options: Options):
        self.folder, self.config, self._options = path, config, options
        self.callbacks = Callbacks(options.callbacks(path))
        """Called while it trains."""
        self.session = open_session(config)
        self.checkpointer = Checkpointer(path, self.session)
        self.progress = Progress(self.session.goal, 0, quiet=True)
        """What the run shows while it trains."""
        self.held: FolderLock | None = None
        """The lock of the folder."""
        self.evaluations = _empty_table(config, self.session.spec, self.session.own_preferences)
        self._pending: PendingEvaluation | None = None
        """The evaluation that worker processes play."""
        self._watch = Watch(self.session, self._say)
        self._scored: dict[str, str] = {}
        self._latest: dict[str, str] = {}
        self._open_log: MetricsLog | None = None
        self._last_checkpoint = self._began = time.monotonic()
        self._saving = 0.0

    @property
    def resume_command(self) -> str:
        """The command that continues the run."""
        return f"qpensieve resume {self.folder}" + (" --trust" if code_of(self.config.domain) is not None else "")

    def restore(self, saved: Checkpoint) -> None:
        """Go back to a checkpoint; remove everything in the folder that is later."""
        self.checkpointer.restore(saved)
        self.checkpointer.cut(saved)
        self._save_search()
        path = self.folder / folder.EVALUATIONS
        if path.exists():
            self.evaluations = evaluations.cut(evaluations.load(path), saved.step)
            evaluations.save(path, self.evaluations)
        critic_errors.cut(self.folder / folder.CRITIC, saved.step)
        calibration.cut(self.folder / folder.CALIBRATION, saved.step)
        cut_log(self.folder / folder.METRICS, saved.step)
        with interpreting(self.folder / folder.METRICS, "the log of this run"):
            rows = read_rows(self.folder / folder.METRICS)
            self._watch.go_on_from([row for row in rows if row["event"] == TRAINING])
        self._log_lost_evaluation(saved.step)

    def _log_lost_evaluation(self, step: int) -> None:
        """Log the evaluation of a step if it is in its file alone: the run may have been killed between the two."""
        table = self.evaluations
        if step in table.short_steps and not is_logged(self.folder / folder.METRICS, SHORT, step):
            returns = table.short_returns[table.short_steps.tolist().index(step)]
            self._log_short(step, summarize(returns, table.short_preferences, table.reference))

    def start_over(self) -> None:
        """Empty the folder of everything but its configuration and provenance."""
        self.checkpointer.cut(None)
        for path in (self.folder / folder.PARAMETERS).glob("step_*.npz"):
            path.unlink()
        for name in (*RESULTS, folder.METRICS, folder.WANDB):
            (self.folder / name).unlink(missing_ok=True)
        remove_files(self.folder / folder.TENSORBOARD)

    def train(self, hint: str = "") -> None:
        """Train to the configured number of steps; where Ctrl-C or a callback stops it, saves and raises `Stopped`.

        Args:
            hint: What to tell people whose run will take long.

        Raises:
            CallbackError: A callback failed; the run is saved.
        """
        with self._naming_callbacks(), self._telling():
            self._train_all(hint)

    def _telling(self) -> AbstractContextManager[None]:
        if len(self.callbacks) == 0:  # nobody needs the history
            return nullcontext()
        return self.callbacks.during(describe(self.session, self.session.goal, self.folder))

    @contextmanager
    def _naming_callbacks(self) -> Iterator[None]:
        """Save the run if a callback fails."""
        try:
            yield
        except CallbackError as error:
            if self.session.step > 0:
                self._save_in_spite_of(error)
            raise CallbackError(f"{error}; continue with: {self.resume_command}") from error.__cause__

    def _save_in_spite_of(self, error: CallbackError) -> None:
        """Save after a callback's error, also where it fails again when told of an evaluation that comes with it."""
        try:
            self.save()
        except CallbackError as another:
            error.add_note(str(another))
            self.save()

    def _train_all(self, hint: str) -> None:
        session = self.session
        progress = Progress(session.goal, session.step, quiet=self._options.quiet, workload=self._workload(hint))
        self.progress = progress
        progress.announce()
        try:
            with interrupts(progress.answer) as is_interrupted:
                if session.step > 0:  # an environment that failed in an evaluation has left it to do
                    self.settle()
                train(session, session.goal, self, self.callbacks, progress, is_interrupted)
                if session.step < session.goal:
                    self._stop(progress)
                self._finish_evaluation()
            self._finish(progress)
        finally:
            progress.end()

    def _stop(self, progress: Progress) -> None:
        """Save the run, which Ctrl-C or a callback has stopped before its end."""
        progress.enter(SAVING)
        self.save()
        by = self.callbacks.stopped_by
        stopped = f"stopped by {by}" if by else "stopped"
        raise Stopped(f"{stopped} at step {self.session.step:,}; continue with: {self.resume_command}")

    def _workload(self, hint: str) -> Workload:
        """What else takes time: evaluations, by the number of their episodes."""
        config, table = self.config, self.evaluations
        num_short = len(table.short_preferences) + len(table.curve_preferences)
        worth = len(table.full_preferences) * config.full_eval_episodes / (num_short * config.eval_episodes)
        seeds = f"{config.seeds} seed{'s' if config.seeds > 1 else ''}"
        return Workload(
            random_steps=0 if config.method.is_population else config.random_steps,
            eval_period=config.eval_period,
            final_evaluation=worth if self._options.final_evaluation else 0.0,
            size=f"{format_count(config.steps)} steps x {seeds}",
            hint=hint,
        )

    def save(self) -> None:
        """Write a checkpoint of the newest block; no evaluation of an earlier block is missing then."""
        if self._pending is not None and self._pending.step < self.session.step:
            self._finish_evaluation()
        log_due(self.session, self)  # a row that was due before the last block, where a callback has failed in between
        self.session.drain()
        began = time.monotonic()
        log_due(self.session, self)
        self._check_owner()
        self.checkpointer.save()
        self._last_checkpoint = time.monotonic()
        self._saving += self._last_checkpoint - began

    def _check_owner(self) -> None:
        """Stop before a save if another process has taken the folder over."""
        if self.held is not None:
            self.held.check()

    def close(self) -> None:
        if self._open_log is not None:
            self._open_log.close()
        if self.held is not None:
            self.held.close()
        self.session.close()

    def advance(self) -> None:
        """Train for one block, and remember its rows: callbacks may fail, and the run is saved then."""
        with self._saving_first():
            rows = self.session.advance()
        self.checkpointer.append(rows)

    def log(self, step: int, means: Infos) -> None:
        """Write a row of training metrics."""
        times = {"time_seconds": time.monotonic() - self._began, "time_saving": self._saving}
        self._latest = {label: f"{means[name].mean():.2g}" for name, label in SHOWN.items() if name in means}
        self._log().write(TRAINING, step, {**means, **times}, self._watch.training(step, means))
        self.callbacks.metrics(step, training_metrics(means, self.config.seeds))

    def settle(self) -> None:
        """Do what is due at this step: evaluation, parameters, checkpoint."""
        step, config, progress = self.session.step, self.config, self.progress
        is_evaluated = self._is_evaluation_due()
        is_fully = config.full_eval_period is not None and self._is_due(config.full_eval_period)
        if (is_evaluated or is_fully) and self.last_checkpoint_step is None:
            self.save()  # results always have a checkpoint to continue from
        if is_evaluated:
            progress.enter(EVALUATING)
            self._evaluate(can_go_on=not is_fully and step < self.session.goal)
        elif self._pending is not None and self._pending.is_ready():
            self._finish_evaluation()
        if is_fully:
            progress.enter(EVALUATING)
            self.evaluate_fully()
        if self._is_due(config.parameters_period):
            self._check_owner()
            checkpoint.save_parameters(self.folder, step, self.session.parameters())
        if is_evaluated:
            self._save_search()
        if is_evaluated or time.monotonic() - self._last_checkpoint > config.checkpoint_seconds:
            progress.enter(SAVING)
            self.save()
        progress.mark_evaluation(self._pending is not None)
        progress.note(**self._scored, **self._latest)

    def _save_search(self) -> None:
        """Write the search of a population, for people and pictures; the checkpoint has its own copy."""
        record = self.session.search_record()
        if record is not None:
            search.save(self.folder / folder.SEARCH, record)

    def _is_evaluation_due(self) -> bool:
        step = self.session.step
        is_time = self._is_due(self.config.eval_period) or step == self.session.goal
        is_begun = self._pending is not None and self._pending.step == step
        return is_time and not is_begun and step not in self.evaluations.short_steps

    def _is_due(self, period: int) -> bool:
        """Whether the newest block (or iteration) has reached or passed a multiple of `period`."""
        return is_past(self.session, self.session.step, period)

    @contextmanager
    def _saving_first(self) -> Iterator[None]:
        """Save the run if the environment fails, unless that is before its first step."""
        try:
            yield
        except EnvFailedError as error:
            if self.session.step > 0:
                self.save()
            saved = "the run is saved" if self.session.step > 0 else "nothing is learned yet"
            raise EnvFailedError(f"{error}; {saved}, continue with: {self.resume_command}") from error

    def _evaluate(self, can_go_on: bool) -> None:
        """Make the short evaluation of this step: in worker processes if training continues and there are cores."""
        self._finish_evaluation()
        self.session.drain()
        log_due(self.session, self)
        table, episodes = self.evaluations, self.config.eval_episodes
        both = np.concatenate([table.short_preferences, table.curve_preferences])
        self._pending = self.session.begin_evaluation(both, episodes) if can_go_on else None
        if self._pending is None:
            with self._saving_first():
                returns = self.session.evaluate(both, episodes)
            self._add_short(self.session.step, returns)

    def _finish_evaluation(self) -> None:
        """Wait for the pending evaluation, if there is one, and add it to the table and the log.

        Where its environment fails, a resumed run plays it again from the checkpoint of its step.
        """
        pending = self._pending
        if pending is None:
            return
        try:
            returns = pending.result()
        except EnvFailedError as error:
            saved = f"the run is saved as of step {pending.step:,}"
            raise EnvFailedError(f"{error}; {saved}, continue with: {self.resume_command}") from error
        self._pending = None
        self._add_short(pending.step, returns)

    def _add_short(self, step: int, returns: Float64[np.ndarray, "seed p e d"]) -> None:
        table = self.evaluations
        short, curve = np.split(returns, [len(table.short_preferences)], axis=1)
        self._check_owner()
        self.evaluations = evaluations.append_short(table, step, short, curve)
        evaluations.save(self.folder / folder.EVALUATIONS, self.evaluations)
        summary = summarize(short, table.short_preferences, table.reference)
        self._scored = _notes(summary)
        self._log_short(step, summary)
        self.callbacks.evaluation(
            step, Evaluation(self.session.spec.objectives, table.short_preferences, short, summary)
        )

    def _log_short(self, step: int, summary: RunSummary) -> None:
        table = self.evaluations
        past = table.short_returns[: table.short_steps.tolist().index(step) + 1].mean(axis=3)
        ut = np.asarray(utility(past, table.short_preferences))
        values = {f"{name}_short": value for name, value in scores(summary).items()}
        self._log().write(SHORT, step, values, self._watch.evaluation(step, ut))

    def evaluate_fully(self) -> RunSummary:
        """Run the full protocol at this step, and add it to the table and the log; at most once per step."""
        self._finish_evaluation()
        self.session.drain()
        log_due(self.session, self)
        with self._saving_first():
            return self._add_full_evaluation()

    def _add_full_evaluation(self) -> RunSummary:
        table, step = self.evaluations, self.session.step
        if step not in table.full_steps:
            returns = self.session.evaluate(table.full_preferences, self.config.full_eval_episodes)
            self._check_owner()
            self.evaluations = evaluations.insert_full(table, step, returns)
            evaluations.save(self.folder / folder.EVALUATIONS, self.evaluations)
        returns, summary = _full(self.evaluations, step)
        # The run may have been killed between the two writes.
        if not is_logged(self.folder / folder.METRICS, FULL, step):
            self._log().write(FULL, step, scores(summary))
            names = self.session.spec.objectives
            self.callbacks.evaluation(step, Evaluation(names, table.full_preferences, returns, summary, is_full=True))
        return summary

    def _say(self, line: str) -> None:
        self.progress.say(line)

    @property
    def last_checkpoint_step(self) -> int | None:
        return checkpoint.last_good_step(self.folder)

    def _finish(self, progress: Progress) -> None:
        if self._options.final_evaluation:
            episodes = self.config.full_eval_episodes
            if self.session.step not in self.evaluations.full_steps:
                num = len(self.evaluations.full_preferences)
                progress.say(f"full evaluation: {num} preferences x {episodes} episodes")
                progress.enter(EVALUATING)
            self.evaluate_fully()
        progress.enter(DONE)

    def _log(self) -> MetricsLog:
        """The log, opened at the first row, because a resumed run first removes the rows after its checkpoint."""
        if self._open_log is None:
            self._open_log = MetricsLog(self.folder / folder.METRICS)
        return self._open_log


def start(path: Path, config: RunConfig, options: Options) -> Run:
    """A new run in a new folder: configuration and provenance are written first. If it cannot start, no folder is left.

    Raises:
        ValueError: The settings cannot run, or the environment has no name that `resume` could make it by.
        OSError: The folder holds a run or parts of one, or cannot be made.
    """
    config = configs.resolve(config)
    configs.check(config)
    configs.check_can_be_saved(config)
    _check_new(path)
    made = [one for one in (path, *path.parents) if not one.exists()]
    run = Run(path, config, options)
    try:
        if made:  # a folder that has been there must not come back: another process may have renamed it since
            make_folder(path)
        run.held = lock(path)
        configs.save(config, path / folder.CONFIG)
        _write_provenance(run)
    except BaseException:
        _undo_start(path, made, is_ours=run.held is not None)
        run.close()
        raise
    return run


def _write_provenance(run: Run) -> None:
    session = run.session
    about = {"lanes_per_seed": session.lanes_per_seed, "objectives": list(session.spec.objectives)}
    write_json(run.folder / folder.PROVENANCE, provenance.describe() | about)


def _note_other_versions(run: Run, warn: Callable[[str], None]) -> None:
    """Report and record that a run continues with other versions or on another machine, which round differently."""
    path, now = run.folder / folder.PROVENANCE, provenance.rounding()
    try:
        said = read_object(path)
        earlier = said.get(RESUMED_WITH, [])
        with interpreting(path, "a record of versions"):
            changed = provenance.differences({**said, **(earlier[-1] if earlier else {})}, now)
    except (FileNotFoundError, FileError):  # who needs the file will say so; going on does not
        return
    if changed:
        warn(f"{run.folder} goes on with the same numbers only up to rounding: {'; '.join(changed)}")
        write_json(path, said | {RESUMED_WITH: [*earlier, {"step": run.session.step, **now}]})


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


def _undo_start(path: Path, made: list[Path], is_ours: bool) -> None:
    """Remove what a start that failed has made, but nothing of another process that holds the folder."""
    for name in (folder.CONFIG, folder.PROVENANCE, folder.LOCK) if is_ours else ():
        (path / name).unlink(missing_ok=True)
    for one in made:
        with suppress(OSError):
            one.rmdir()


def resume(
    path: Path,
    options: Options,
    warn: Callable[[str], None],
    trust: bool = False,
    start_over: bool = False,
    **changes: Any,
) -> Run:
    """The run of a folder as of its newest whole checkpoint, or from the start if it was killed before the first one.

    The folder of a saved agent becomes a run.

    Args:
        path: The run folder.
        options: What the run shows and writes.
        warn: Called with a message if something was lost.
        trust: Whether the code that the configuration names may be imported.
        start_over: Begin from the start; whatever the run has reached is removed.
        changes: Settings that may change: `num_threads`, and `steps`, which may grow, and shrink to what is reached.

    Raises:
        CheckpointError: The run has results, but no checkpoint to continue from.
    """
    if not (path / folder.CONFIG).exists():
        raise MissingFileError(f"{path} is not a run folder: {folder.why_no_run(path)}")
    run, before = _open(path, options, trust, changes, start_over)
    try:
        if start_over:
            warn(f"{path} starts over: what it had reached is removed")
            run.start_over()
        else:
            _restore(run, warn)
        if not (path / folder.PROVENANCE).exists():  # a saved agent, which becomes a run, or a folder of a plan
            _write_provenance(run)
        _note_other_versions(run, warn)
        if run.config.steps != before.steps:
            configs.save(configs.lengthened(before, run.config.steps), path / folder.CONFIG)
    except BaseException:
        run.close()
        raise
    return run


def _check_steps(path: Path, before: RunConfig, steps: int, start_over: bool) -> None:
    """Refuse a length that the run has passed already; that of a population, which is planned, may only grow."""
    if before.method.is_population and steps < before.steps:
        raise UserError(f"steps of {before.algo} may only grow: the run has {before.steps:,}, got {steps:,}")
    reached = 0 if start_over else checkpoint.last_good_step(path) or 0
    if steps < reached:
        raise UserError(f"steps must be at least {reached:,}, which the run has reached, got {steps:,}")


def evaluate(path: Path, warn: Callable[[str], None], trust: bool = False) -> None:
    """Evaluate the newest policies of a run by the full protocol; adds to its table and log, removes nothing.

    They are those of its newest whole checkpoint, or of parameters that were kept, where these are newer.

    Args:
        path: The run folder.
        warn: Is told which step it is, and of damaged checkpoints.
        trust: Whether the code that the configuration names may be imported.
    """
    refuse_links(path)
    saved = SavedPolicies(path, trust)
    policies, step = saved.newest(warn)
    held, config, file = lock(path), saved.config, path / folder.EVALUATIONS
    try:
        table = evaluations.load(file) if file.exists() else _empty_table(config, saved.spec, saved.own_preferences)
        newest = max(table.full_steps.tolist(), default=0)
        if step not in table.full_steps:
            warn(f"evaluating the policies of step {step:,}")
        if newest > step:
            warn(f"the full evaluation of step {newest:,} is newer: it stays, and the scores shown are its")
        if step not in table.full_steps:
            given = (table.full_preferences, config.full_eval_episodes, config.max_eval_steps)
            with environment_errors(f"in the evaluation at step {step}"):
                returns = play_policies(policies, config.domain, config.seed_list, *given)
            held.check()
            table = evaluations.insert_full(table, step, policies.share(returns, table.full_preferences))
            evaluations.save(file, table)
        drop_unfinished_row(path / folder.METRICS)
        if not is_logged(path / folder.METRICS, FULL, step):
            log = MetricsLog(path / folder.METRICS)
            log.write(FULL, step, scores(_full(table, step)[1]))
            log.close()
    finally:
        held.close()


def _empty_table(config: RunConfig, spec: EnvSpec, own: Float64[np.ndarray, "p d"] | None) -> Evaluations:
    on = protocols(spec.num_objectives, own, config.eval_stride, config.full_eval_stride)
    reference = None if spec.reference is None else np.array(spec.reference)
    return evaluations.empty(config.seeds, on.short, on.curve, on.full, reference)


def _full(table: Evaluations, step: int) -> tuple[Float64[np.ndarray, "seed p e d"], RunSummary]:
    """The returns of the full evaluation of a step, and their scores."""
    returns = table.full_returns[table.full_steps.tolist().index(step)]
    return returns, summarize(returns, table.full_preferences, table.reference)


def _open(
    path: Path, options: Options, trust: bool, changes: dict[str, Any], start_over: bool = False
) -> tuple[Run, RunConfig]:
    """The run of a folder, which it holds, before its first step; and its configuration without the changes.

    The file is read once: what was checked is what runs, and what is written back.
    """
    held = lock(path)
    try:
        before = saved = configs.load(path / folder.CONFIG, trust)
        if not checkpoint.kept_steps(path):  # perhaps prepared on a machine with another accelerator
            before = configs.resolve(saved)
        if before != saved:
            configs.save(before, path / folder.CONFIG)
        others = {name: value for name, value in changes.items() if name != "steps"}
        config = configs.lengthened(dataclasses.replace(before, **others), changes.get("steps", before.steps))
        _check_steps(path, before, config.steps, start_over)
        run = Run(path, config, options)
    except BaseException:
        held.close()
        raise
    run.held = held
    return run, before


def _restore(run: Run, warn: Callable[[str], None]) -> None:
    saved = run.checkpointer.latest(warn)
    if saved is not None:
        if not (run.folder / folder.EVALUATIONS).exists() and has_evaluations(run.folder / folder.METRICS):
            lost = "evaluations of before are lost, and curves begin where the run goes on"
            warn(f"{run.folder / folder.EVALUATIONS} is gone: {lost}; to keep them, stop and put it back")
        run.restore(saved)
        return
    path = run.folder
    found = [name for name in RESULTS if (path / name).exists()]
    if not found and has_evaluations(path / folder.METRICS):
        found = [folder.METRICS]
    if found:
        raise CheckpointError(
            f"{path} has results ({', '.join(found)}) but no checkpoint to go on from, and starting over would remove "
            f"them; put its {folder.CHECKPOINTS} back, or ask for it: qpensieve resume {path} --start-over"
        )
    warn(f"{path} has no checkpoint yet: starting over from {folder.CONFIG}")
    run.start_over()


def _notes(summary: RunSummary) -> dict[str, str]:
    notes = {"UT(short)": f"{summary.ut.mean():.4g}"}
    return notes if summary.hv is None else notes | {"HV(short)": f"{summary.hv.mean():.4g}"}
