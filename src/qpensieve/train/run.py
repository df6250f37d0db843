"""A run and its folder: evaluations, log, checkpoints, pictures; started, stopped and resumed to the same numbers."""

import dataclasses
import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import numpy as np

from qpensieve import config as configs
from qpensieve.config import RunConfig
from qpensieve.console import Progress
from qpensieve.evaluation import FULL_EPISODES, SHORT_EPISODES, protocols
from qpensieve.population.trainer import PopulationTrainer
from qpensieve.records import checkpoint, provenance
from qpensieve.records import evaluations as tables
from qpensieve.records import search as records
from qpensieve.records.checkpoint import Checkpoint
from qpensieve.records.folder import CONFIG, EVALUATIONS, METRICS, PROVENANCE, SEARCH, TENSORBOARD
from qpensieve.records.lock import lock
from qpensieve.records.log import MetricsLog, is_logged
from qpensieve.records.scores import RunSummary, scores, summarize
from qpensieve.replay.log import ReplayLog
from qpensieve.replay.ring import row_width
from qpensieve.train.sessions import AnyTrainer, make_trainer
from qpensieve.train.trainer import EnvFailedError

FULL = "full evaluation"
MAY_DIFFER = ("checkpoint_seconds", "num_threads")
"""Fields of the configuration that may change between a run and its resumption: they do not change its numbers."""


class Stopped(Exception):  # noqa: N818 (not an error: the user asked for it)
    """Ctrl-C was pressed; the run is saved."""


@dataclasses.dataclass(frozen=True)
class Options:
    """How a run shows itself.

    Attributes:
        quiet: No progress line.
        tensorboard: Also write TensorBoard files into the run's folder.
        final_evaluation: Run the full protocol at the end.
    """

    quiet: bool = False
    tensorboard: bool = False
    final_evaluation: bool = True


class Run:
    """One run folder and the trainer behind it; made by `start` and `resume`.

    Args:
        folder: The run's folder.
        config: What to train.
        options: How to show it.
    """

    def __init__(self, folder: Path, config: RunConfig, options: Options):
        self.folder, self.config, self._options = folder, config, options
        self.trainer = make_trainer(config)
        self.held: TextIO | None = None
        """The lock of the folder."""
        self.replay_log = make_replay_log(folder, self.trainer)
        spec = self.trainer.spec
        on = protocols(spec.num_objectives, self.trainer.own_preferences)
        reference = None if spec.reference is None else np.array(spec.reference)
        self.evaluations = tables.empty(config.seeds, on.short, on.curve, on.full, reference)
        self._logged_to = 0
        self._latest: dict[str, str] = {}
        self._open_log: MetricsLog | None = None
        self._last_checkpoint = self._began = time.monotonic()
        self._saving = 0.0

    def restore(self, saved: Checkpoint) -> None:
        """Go back to a checkpoint; what the folder holds from after it is cut."""
        restore(self.trainer, self.replay_log, saved)
        self._logged_to = saved.step
        checkpoint.discard_after(self.folder, saved.step)
        if self.replay_log is not None:
            self.replay_log.resume(saved.meta["replay"] or [])
        self._save_search()
        path = self.folder / EVALUATIONS
        if path.exists():
            self.evaluations = tables.cut(tables.load(path), saved.step)
            tables.save(path, self.evaluations)

    def train(self) -> None:
        """Train to the configured number of steps; on Ctrl-C saves and raises `Stopped`."""
        goal = self.trainer.goal
        progress = Progress(goal, self.trainer.step, quiet=self._options.quiet)
        with _interrupts() as is_interrupted:
            if self.trainer.step > 0:  # an environment that failed in an evaluation has left it to do
                self._settle(progress)
            while self.trainer.step < goal:
                self._advance(progress)
                if is_interrupted() and self.trainer.step < goal:
                    self.save()
                    step = self.trainer.step
                    raise Stopped(f"stopped at step {step:,}; continue with: qpensieve resume {self.folder}")
        self._finish(progress)

    def save(self) -> None:
        """Write a checkpoint of the newest block."""
        self.trainer.drain()
        began = time.monotonic()
        self._log_training()
        log = self.replay_log
        manifest = log.flush() if log is not None and self.config.keep_replay == "on" else None
        meta = {"config": configs.to_dict(self.config), "replay": manifest}
        checkpoint.save(self.folder, self.trainer.step, self.trainer.arrays(), meta)
        if log is not None:
            log.prune(meta["replay"] or [] for meta in checkpoint.kept_metas(self.folder))
        self._last_checkpoint = time.monotonic()
        self._saving += self._last_checkpoint - began

    def close(self) -> None:
        if self._open_log is not None:
            self._open_log.close()
        if self.held is not None:
            self.held.close()
        self.trainer.close()

    def _advance(self, progress: Progress) -> None:
        """One block, and what is due after it."""
        with self._saving_first():
            rows = self.trainer.advance()
        self._log_training()
        if self.replay_log is not None and rows is not None and self.config.keep_replay == "on":
            self.replay_log.append(rows)
        self._settle(progress)

    def _settle(self, progress: Progress) -> None:
        """What is due at the step reached: evaluation, parameters, checkpoint."""
        step, config = self.trainer.step, self.config
        is_evaluated = self._is_evaluation_due()
        if is_evaluated:
            progress.note(**_notes(self._evaluate_shortly()))
        if config.full_eval_period and self._is_due(config.full_eval_period):
            self.evaluate_fully()
        if self._is_due(config.parameters_period):
            checkpoint.save_parameters(self.folder, step, self.trainer.parameters())
        if is_evaluated:
            self._save_search()
        if is_evaluated or time.monotonic() - self._last_checkpoint > config.checkpoint_seconds:
            self.save()
        progress.note(**self._latest)
        progress.show(step)

    def _save_search(self) -> None:
        """A population's search, for people and pictures; the checkpoint has its own copy."""
        if isinstance(self.trainer, PopulationTrainer):
            records.save(self.folder / SEARCH, self.trainer.search_record())

    def _is_evaluation_due(self) -> bool:
        step = self.trainer.step
        is_time = self._is_due(self.config.eval_period) or step == self.trainer.goal
        return is_time and step not in self.evaluations.short_steps

    def _is_due(self, period: int) -> bool:
        """Whether the newest block (or iteration) has reached or passed a multiple of `period`."""
        step = self.trainer.step
        return step // period > (step - self.trainer.block) // period

    @contextmanager
    def _saving_first(self) -> Iterator[None]:
        """Save the run where the environment fails."""
        try:
            yield
        except EnvFailedError as error:
            self.save()
            raise EnvFailedError(f"{error}; saved, continue with: qpensieve resume {self.folder}") from error

    def _log_training(self) -> None:
        """Write the row of training metrics, when one is due and its last update has been handed over."""
        step, period = self.trainer.summed_to, self.config.log_period
        if step // period <= (step - self.trainer.block) // period or step <= self._logged_to:
            return
        self._logged_to = step
        means = self.trainer.take_log()
        if means:
            times = {"time_seconds": time.monotonic() - self._began, "time_saving": self._saving}
            self._log().write("train", step, {**means, **times})
            shown = {"temperature": "temperature", "snapshot_share": "climbs a snapshot", "archive_hv": "archive HV"}
            self._latest = {label: f"{means[name].mean():.2g}" for name, label in shown.items() if name in means}

    def _evaluate_shortly(self) -> RunSummary:
        self.trainer.drain()
        self._log_training()
        table = self.evaluations
        both = np.concatenate([table.short_preferences, table.curve_preferences])
        with self._saving_first():
            returns = self.trainer.evaluate(both, SHORT_EPISODES)
        short, curve = np.split(returns, [len(table.short_preferences)], axis=1)
        self.evaluations = tables.append_short(table, self.trainer.step, short, curve)
        tables.save(self.folder / EVALUATIONS, self.evaluations)
        summary = summarize(short, table.short_preferences, table.reference)
        self._log().write("evaluation", self.trainer.step, {f"{k}_short": v for k, v in scores(summary).items()})
        return summary

    def evaluate_fully(self) -> RunSummary:
        """The full protocol at the step reached, added to the table and the log; once a step."""
        self.trainer.drain()
        self._log_training()
        table, step = self.evaluations, self.trainer.step
        if step not in table.full_steps:
            with self._saving_first():
                returns = self.trainer.evaluate(table.full_preferences, FULL_EPISODES)
            self.evaluations = tables.append_full(table, step, returns)
            tables.save(self.folder / EVALUATIONS, self.evaluations)
        summary = summarize(self.evaluations.full_returns[-1], table.full_preferences, table.reference)
        if not is_logged(self.folder / METRICS, FULL, step):  # or a run was killed between the table and the row
            self._log().write(FULL, step, scores(summary))
        return summary

    @property
    def last_checkpoint_step(self) -> int | None:
        return checkpoint.last_good_step(self.folder)

    def _finish(self, progress: Progress) -> None:
        if self._options.final_evaluation:
            progress.say(f"full evaluation: {len(self.evaluations.full_preferences)} preferences x {FULL_EPISODES}")
            self.evaluate_fully()
        progress.show(self.trainer.step, force=True)
        progress.say("")

    def _log(self) -> MetricsLog:
        """The log, opened at the first row: only then has a resumed run cut what came after its checkpoint."""
        if self._open_log is None:
            folder = self.folder / TENSORBOARD if self._options.tensorboard else None
            self._open_log = MetricsLog(self.folder / METRICS, folder)
        return self._open_log


def make_replay_log(folder: Path, trainer: AnyTrainer) -> ReplayLog | None:
    """The replay of a trainer, on disk; a population has none."""
    if isinstance(trainer, PopulationTrainer):
        return None
    return ReplayLog(folder, row_width(trainer.stored), len(trainer.lane_seeds), trainer.log_capacity)


def restore(trainer: AnyTrainer, log: ReplayLog | None, saved: Checkpoint) -> None:
    """Take a trainer back to a checkpoint."""
    if isinstance(trainer, PopulationTrainer):
        trainer.restore(saved.arrays)
        return
    manifest = saved.meta["replay"]
    rows, first = (None, 0) if manifest is None or log is None else log.load(manifest)
    trainer.restore(saved.arrays, rows, first)


def find_fault(log: ReplayLog | None, saved: Checkpoint, config: RunConfig) -> str | None:
    """What else is wrong with a checkpoint that is whole: another configuration (raises), a damaged replay."""
    checkpoint.check_config(saved.meta["config"], configs.to_dict(config), ignore=MAY_DIFFER)
    return None if log is None else log.verify(saved.meta["replay"] or [])


def forgets_replay(log: ReplayLog | None, saved: Checkpoint) -> bool:
    """Whether a checkpoint should have a replay and has none."""
    return log is not None and saved.meta["replay"] is None


def start(folder: Path, config: RunConfig, options: Options) -> Run:
    """A new run in a new folder: configuration and provenance are written first."""
    config = configs.resolve(config)
    configs.check(config)
    if (folder / CONFIG).exists():
        raise FileExistsError(
            f"{folder} holds a run already: continue it with 'qpensieve resume {folder}', or choose --name"
        )
    run = Run(folder, config, options)
    folder.mkdir(parents=True, exist_ok=True)
    run.held = lock(folder)
    configs.save(config, folder / CONFIG)
    made_by = provenance.describe() | {"lanes_per_seed": run.trainer.lanes_per_seed}
    (folder / PROVENANCE).write_text(json.dumps(made_by, indent=2) + "\n")
    return run


def resume(folder: Path, options: Options, warn: Callable[[str], None], **changes: Any) -> Run:
    """The run of `folder` as of its newest whole checkpoint, or from the start where it has none.

    Args:
        folder: The run's folder.
        options: How to show it.
        warn: Is told what was lost, if anything.
        changes: Fields of the configuration that may differ (`MAY_DIFFER`).
    """
    if not (folder / CONFIG).exists():
        raise FileNotFoundError(f"{folder} is not a run's folder: it has no {CONFIG}")
    held = lock(folder)
    try:
        config = dataclasses.replace(configs.load(folder / CONFIG), **changes)
        run = _restored(folder, config, options, warn)
    except BaseException:
        held.close()
        raise
    run.held = held
    return run


def _restored(folder: Path, config: RunConfig, options: Options, warn: Callable[[str], None]) -> Run:
    run = Run(folder, config, options)

    saved = checkpoint.load_latest(folder, warn, lambda saved: find_fault(run.replay_log, saved, config))
    if saved is None:
        warn(f"{folder} has no checkpoint yet: starting over from {CONFIG}")
        if run.replay_log is not None:
            run.replay_log.resume([])
        for name in (EVALUATIONS, SEARCH):
            (folder / name).unlink(missing_ok=True)
        checkpoint.cut_jsonl(folder / METRICS, 0)
        return run
    if forgets_replay(run.replay_log, saved):
        warn("this run keeps no replay (keep_replay is off): it goes on, but not to the same numbers")
    run.restore(saved)
    checkpoint.cut_jsonl(folder / METRICS, saved.step)
    return run


def _notes(summary: RunSummary) -> dict[str, str]:
    notes = {"UT(short)": f"{summary.ut.mean():.4g}"}
    return notes if summary.hv is None else notes | {"HV(short)": f"{summary.hv.mean():.4g}"}


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Ctrl-C sets a flag that is read between blocks; a second one interrupts at once."""
    pressed = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    try:
        before = signal.signal(signal.SIGINT, handle)
    except ValueError:  # not the main thread: the caller's business
        yield lambda: False
        return
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)
