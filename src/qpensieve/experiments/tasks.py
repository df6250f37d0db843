"""Tasks: one task is one run folder. All that is known of a task is read from its folder."""

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
NEWEST = 1 << 18
"""Bytes at the end of the log of training that are read to see the pace."""
LOG_LINES = 15
"""Lines of a worker's log that are shown of a run that failed."""
State = Literal["waiting", "running", "done", "failed", "other settings"]
"""`other settings`: the folder holds another run, so it counts for nothing."""


@dataclass(frozen=True)
class Task:
    """A run to make.

    Attributes:
        folder: Its run folder.
        config: What to train.
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
        """Options of its worker. Whoever made the plan has named its code, so that may be imported."""
        critic = ("--critic",) if self.critic else ()
        trust = ("--trust",) if code_of(self.config.domain) is not None else ()
        return ("--steps", str(self.config.steps), *critic, *trust)


@dataclass(frozen=True)
class Progress:
    """How far a task is, as its folder tells.

    Attributes:
        state: Its state.
        step: Steps done: those of the newest checkpoint, or while it runs of the newest row of its log.
        goal: Steps to do.
        rate: Steps per second; None: not known.
        message: Which process works on it, why it has failed, or which settings differ.
    """

    state: State
    step: int
    goal: int
    rate: float | None = None
    message: str = ""

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the last step; None: not known."""
        return max(0, self.goal - self.step) / self.rate if self.rate and self.state == "running" else None


@cache
def iteration_of(config: RunConfig) -> int:
    """Steps of one iteration of a population."""
    return iteration_steps(config.agent, num_tasks(config.agent.stages, spec_of(config).num_objectives))


def last_step(config: RunConfig) -> int:
    """The step at which a run ends: a population ends after a whole iteration."""
    return config.steps - config.steps % iteration_of(config) if config.method.is_population else config.steps


def folder_differences(task: Task) -> list[str]:
    """The settings in which the folder of a task holds another run, in words. The number of steps may differ."""
    if not (task.folder / CONFIG).exists():
        return []
    try:
        found = compatibility.settings_that_differ(read_object(task.folder / CONFIG), task.config, SAME_RUN)
    except (FileError, OSError, KeyError, TypeError, ValueError) as error:
        return [str(error)]
    return [str(difference) for difference in found]


def prepare(task: Task) -> None:
    """Write the configuration of a run folder that has none.

    Raises:
        ValueError: The settings cannot run, or the folder holds a run with other settings or more steps.
    """
    if not re.fullmatch(r"[A-Za-z0-9][\w.,+=-]*", task.name):
        raise UserError(f"the name of a task must be that of a folder, got {task.name!r}")
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
    """Whether the run is trained and scored as far as the task says, and its critics are measured if they must be."""
    try:
        scored = int(read_object(task.folder / SUMMARY).get("step", -1))
        return scored >= last_step(task.config) and (not task.critic or _has_critics(task))
    except (FileError, OSError, KeyError, TypeError, ValueError):
        return False


def is_held(task: Task) -> bool:
    """Whether a process works on the folder."""
    return holder(task.folder) is not None


def saved_step(task: Task) -> int:
    """The step of the newest checkpoint; -1 where there is none."""
    return max(checkpoint.kept_steps(task.folder), default=-1)


def progress(task: Task) -> Progress:
    """How far a task is."""
    goal = last_step(task.config)
    if is_done(task):
        return Progress("done", goal, goal)
    step = max(saved_step(task), 0)
    if (worker := holder(task.folder)) is not None:
        logged, rate = _pace(task.folder / METRICS)
        return Progress("running", max(step, logged), goal, rate, str(worker))
    why = failure(task)
    return Progress("waiting" if why is None else "failed", step, goal, message=why or "")


def status(task: Task) -> Progress:
    """The same, also of a folder that holds another run; it takes longer."""
    found, others = progress(task), folder_differences(task)
    return replace(found, state="other settings", message="; ".join(others)) if others else found


def give_up(task: Task, why: str) -> None:
    """Note that a task has failed; the next call tries it again."""
    write_json(task.folder / FAILED, {"message": why})


def forgive(task: Task) -> None:
    """Forget that a task has failed."""
    (task.folder / FAILED).unlink(missing_ok=True)


def failure(task: Task) -> str | None:
    """Why a task has failed; None if it has not."""
    try:
        return str(read_object(task.folder / FAILED).get("message", ""))
    except (FileError, OSError):
        return None


def log_tail(task: Task) -> str:
    """The last lines that workers of a task have written."""
    try:
        lines = (task.folder / WORKER_LOG).read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-LOG_LINES:])


def critic_steps(folder: Path) -> list[int]:
    """Steps of kept parameters: those nearest to the paper's, or to the same parts of a run of another length."""
    kept = np.array(list(checkpoint.parameter_steps(folder)))
    if not kept.size:
        return []
    wanted = np.array(PAPER_STEPS) / PAPER_STEPS[-1] * int(read_object(folder / CONFIG)["steps"])
    return sorted({int(kept[np.abs(kept - step).argmin()]) for step in wanted})


def _has_critics(task: Task) -> bool:
    steps = critic_steps(task.folder)
    return bool(steps) and set(steps) <= {row.step for row in critic_errors.load(task.folder / CRITIC).rows}


def _pace(log: Path) -> tuple[int, float | None]:
    """The step of the newest training row, and steps per second over the last rows of the same process."""
    rows = [row for row in read_rows(log, NEWEST) if row["event"] == TRAINING and "time_seconds" in row]
    if not rows:
        return 0, None
    last = first = rows[-1]
    for row in reversed(rows[:-1]):
        if row["time_seconds"] >= first["time_seconds"]:  # of the process before
            break
        first = row
    seconds = last["time_seconds"] - first["time_seconds"]
    return last["step"], (last["step"] - first["step"]) / seconds if seconds else None
