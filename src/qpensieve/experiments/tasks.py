"""Tasks: one task is one run folder. The state of a task is read from its folder alone."""

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

from qpensieve import compatibility
from qpensieve import config as configs
from qpensieve.compatibility import SAME_SETTINGS
from qpensieve.config import RunConfig, spec_of
from qpensieve.envs import code_of
from qpensieve.errors import UserError, make_folder
from qpensieve.population.pgmorl import iteration_steps, num_tasks
from qpensieve.records import checkpoint, critic_errors
from qpensieve.records.files import FileError, read_object, write_json
from qpensieve.records.folder import CONFIG, CRITIC, FAILED, METRICS, SUMMARY, WORKER_LOG, holder
from qpensieve.records.log import TRAINING, read_rows
from qpensieve.report.critic import PAPER_STEPS
from qpensieve.settings import LENGTH, SEEDS

SAME_RUN = {*SAME_SETTINGS, SEEDS} - {LENGTH}
"""A folder must agree with its task in all of these."""
PACE_BYTES = 1 << 18
"""Bytes at the end of a run's log that are read to measure its pace."""
LOG_LINES = 15
"""Lines of the worker's log that are shown for a failed run."""
State = Literal["waiting", "running", "done", "failed", "other settings"]
"""`other settings`: the folder holds another run, which is neither trained nor reported."""


@dataclass(frozen=True)
class Task:
    """A run to make.

    Attributes:
        folder: The run folder.
        config: Configuration of the run.
        critic: Whether L_critic is measured in the end.
    """

    folder: Path
    config: RunConfig
    critic: bool = False

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def worker_options(self) -> tuple[str, ...]:
        """Options of the task's worker. The maker of the plan named the code of its domain, so it is trusted."""
        critic = ("--critic",) if self.critic else ()
        trust = ("--trust",) if code_of(self.config.domain) is not None else ()
        return ("--steps", str(self.config.steps), *critic, *trust)


@dataclass(frozen=True)
class TaskProgress:
    """The progress of a task, read from its folder.

    Attributes:
        task: The task.
        state: State of the task.
        step: Step of the newest checkpoint; of a running task the step of the newest row of its log, if that is later.
        rate: Steps per second. None: not known.
        message: The process that works on the task, why it has failed, or which settings differ; else empty.
    """

    task: Task
    state: State
    step: int
    rate: float | None = None
    message: str = ""

    @property
    def goal(self) -> int:
        """Last step of the task."""
        return last_step(self.task.config)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the last step; None: not known."""
        return max(0, self.goal - self.step) / self.rate if self.rate and self.state == "running" else None


@cache
def iteration_of(config: RunConfig) -> int:
    """Return the steps of one iteration of a population."""
    return iteration_steps(config.agent, num_tasks(config.agent.stages, spec_of(config).num_objectives))


def last_step(config: RunConfig) -> int:
    """Return the step at which a run ends; a population ends after its last whole iteration."""
    return config.steps - config.steps % iteration_of(config) if config.method.is_population else config.steps


def folder_differences(task: Task) -> list[str]:
    """List in words the settings in which a task's folder holds another run; the number of steps may differ.

    Without a configuration the list is empty. If the configuration cannot be read, the list holds the error.
    """
    if not (task.folder / CONFIG).exists():
        return []
    try:
        found = compatibility.settings_that_differ(read_object(task.folder / CONFIG), task.config, SAME_RUN)
    except (FileError, OSError, KeyError, TypeError, ValueError) as error:
        return [str(error)]
    return [str(difference) for difference in found]


def prepare(task: Task) -> None:
    """Write the configuration of a run folder, or check the one that it has.

    Raises:
        ValueError: The name or the settings cannot be used, or the folder holds a run with other settings or more
            steps.
    """
    if not re.fullmatch(r"[A-Za-z0-9][\w.,+=-]*", task.name):
        raise UserError(f"the name of a task must be a valid name of a folder, got {task.name!r}")
    configs.check(task.config)
    configs.check_can_be_saved(task.config)
    path = task.folder / CONFIG
    if not path.exists():
        make_folder(task.folder)
        configs.save(task.config, path)
        return
    found = folder_differences(task)
    if saved_step(task) > last_step(task.config) and not is_done(task):
        found.append(f"it has reached step {saved_step(task):,} of more than {task.config.steps:,}")
    if found:
        raise UserError(f"{task.folder} holds a run with other settings: {'; '.join(found)}. Use another folder")


def is_done(task: Task) -> bool:
    """Return whether the run is trained and scored up to the task's steps, and its critics are measured if needed."""
    try:
        if int(read_object(task.folder / SUMMARY).get("step", -1)) < last_step(task.config):
            return False
        if not task.critic:
            return True
        steps = set(critic_steps(task.folder))
        return bool(steps) and steps <= {row.step for row in critic_errors.load(task.folder / CRITIC).rows}
    except (FileError, OSError, KeyError, TypeError, ValueError):
        return False


def saved_step(task: Task) -> int:
    """Return the step of the newest checkpoint; -1 if there is none."""
    return max(checkpoint.kept_steps(task.folder), default=-1)


def progress(task: Task) -> TaskProgress:
    """Return the progress of a task, without comparing its settings with those of the folder."""
    if is_done(task):
        return TaskProgress(task, "done", last_step(task.config))
    step = max(saved_step(task), 0)
    if (worker := holder(task.folder)) is not None:
        logged, rate = _pace(task.folder / METRICS)
        return TaskProgress(task, "running", max(step, logged), rate, str(worker))
    why = failure(task)
    return TaskProgress(task, "waiting" if why is None else "failed", step, message=why or "")


def status(task: Task) -> TaskProgress:
    """Return the progress of a task; `other settings` if the folder holds another run. Slower than `progress`."""
    found, others = progress(task), folder_differences(task)
    return replace(found, state="other settings", message="; ".join(others)) if others else found


def record_failure(task: Task, why: str) -> None:
    """Record that a task has failed, and why; the next call of the command tries the task again."""
    write_json(task.folder / FAILED, {"message": why})


def clear_failure(task: Task) -> None:
    """Remove the record that a task has failed."""
    (task.folder / FAILED).unlink(missing_ok=True)


def failure(task: Task) -> str | None:
    """Return why a task has failed; None if it has not."""
    try:
        return str(read_object(task.folder / FAILED).get("message", ""))
    except (FileError, OSError):
        return None


def log_tail(task: Task) -> str:
    """Return the last lines that workers of a task have written; empty without a log."""
    try:
        lines = (task.folder / WORKER_LOG).read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-LOG_LINES:])


def critic_steps(folder: Path) -> list[int]:
    """Return the steps of kept parameters nearest to the paper's, or to the same parts of a run of another length."""
    kept = np.array(list(checkpoint.parameter_steps(folder)))
    if not kept.size:
        return []
    wanted = np.array(PAPER_STEPS) / PAPER_STEPS[-1] * int(read_object(folder / CONFIG)["steps"])
    return sorted({int(kept[np.abs(kept - step).argmin()]) for step in wanted})


def _pace(log: Path) -> tuple[int, float | None]:
    """Return the step of the newest training row, and steps per second over the last rows of its process.

    The rate is None if it cannot be measured.
    """
    rows = [row for row in read_rows(log, PACE_BYTES) if row["event"] == TRAINING and "time_seconds" in row]
    if not rows:
        return 0, None
    last = first = rows[-1]
    for row in reversed(rows[:-1]):
        if row["time_seconds"] >= first["time_seconds"]:  # a row of an earlier process
            break
        first = row
    seconds = last["time_seconds"] - first["time_seconds"]
    return last["step"], (last["step"] - first["step"]) / seconds if seconds else None
