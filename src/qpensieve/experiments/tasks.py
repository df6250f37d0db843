"""Tasks and their folders: one task is one run folder with many seeds. All that is known of a task is in its folder."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from qpensieve import config as configs
from qpensieve.config import RunConfig
from qpensieve.envs import code_of
from qpensieve.errors import UserError, make_folder
from qpensieve.experiments import alike, fence, pulse
from qpensieve.experiments.then import check_names, missing
from qpensieve.records import checkpoint, trust
from qpensieve.records.atomic import write_json, write_text
from qpensieve.records.folder import CONFIG
from qpensieve.records.reading import FileError, interpreting, parse, read_bytes, read_object

TASK, FAILED = "task.json", "failed.json"
"""What is to be done; why nobody tries any more."""
MAY_DIFFER = ("checkpoint_seconds", "num_threads", "steps")
"""Settings that may change between two invocations; `steps` may only grow."""
TAIL = 15
"""Lines of a log that are shown of a task that failed."""
State = Literal["waiting", "running", "done", "failed", "other settings"]
"""`other settings`: the folder is of another run, so it counts for nothing."""


@dataclass(frozen=True)
class Task:
    """One run, and what is computed after it."""

    name: str
    """Name of its folder."""
    config: RunConfig
    then: tuple[str, ...] = ()
    """Names from the table `then.THEN`."""


@dataclass(frozen=True)
class Progress:
    """How far a task is, as its folder tells."""

    state: State
    step: int
    goal: int
    seconds_left: float | None = None
    rate: float | None = None
    """Steps per second; None while it does not run."""
    attempts: int = 0
    """How many workers have taken it up."""
    machine: str = ""
    message: str = ""


class Store:
    """The folder that holds the folders of all tasks.

    Args:
        root: That folder.
    """

    def __init__(self, root: Path):
        self.root = root

    def folder(self, task: Task) -> Path:
        return self.root / task.name

    def prepare(self, task: Task) -> None:
        """Write down what is to be done, before a worker looks for it.

        Raises:
            ValueError: The settings cannot run, or the folder is of a task with other settings; names them.
        """
        _check(task)
        folder = self.folder(task)
        content = {"config": configs.to_dict(task.config), "then": list(task.then)}
        if (folder / TASK).exists():
            before = read_object(folder / TASK)
            with interpreting(folder / TASK, "a task"):
                config, then = configs.completed(dict(before["config"])), list(before["then"])
            _check_same(folder, config | {"steps": _steps_of(self.run_folder(task))}, content["config"])
            content["then"] = [*task.then, *(name for name in then if name not in task.then)]
            if before == json.loads(json.dumps(content)):
                return
        else:
            _refuse(folder, self.differences(task))
        make_folder(folder)
        text = json.dumps(content, indent=2) + "\n"
        write_text(folder / TASK, text)
        if code_of(task.config.domain) is not None:
            trust.record(folder, text.encode())

    def differences(self, task: Task) -> list[str]:
        """In which settings the folder of a task is of another run, in words; none where it tells no settings."""
        before, now = self._prepared(task), task.config
        if before is None:
            return []
        # A folder has seeds of its own, where a cell of a table takes any.
        pairs = {name: (getattr(before, name), getattr(now, name)) for name in ("seeds", "first_seed")}
        seeds = [f"{name} was {theirs}, is {ours}" for name, (theirs, ours) in pairs.items() if theirs != ours]
        return [*alike.differences(before, now), *seeds]

    def _prepared(self, task: Task) -> RunConfig | None:
        """The settings of a folder: those it was prepared with, else those of the run that somebody put there."""
        path, run = self.folder(task) / TASK, self.run_folder(task)
        try:
            if path.exists() or run is None:
                return configs.from_dict(dict(read_object(path)["config"]))
            return configs.from_dict(read_object(run / CONFIG))
        except (FileError, OSError, KeyError, TypeError, ValueError):
            return None

    def run_folder(self, task: Task) -> Path | None:
        """The published run, or the newest attempt at it; None where nothing was begun."""
        return fence.newest(self.folder(task))

    def is_done(self, task: Task) -> bool:
        """Whether the run is published, with all steps and all that is computed after it."""
        return is_complete(self.folder(task) / fence.RUN, task)

    def is_running(self, task: Task) -> bool:
        """Whether a worker is at it, of this program or of another one."""
        attempt = fence.newest(self.folder(task))
        return attempt is not None and attempt.name != fence.RUN and pulse.is_alive(attempt)

    def saved_step(self, task: Task) -> int:
        """The step of the newest checkpoint; -1 where there is none."""
        run = self.run_folder(task)
        return max(checkpoint.kept_steps(run), default=-1) if run is not None else -1

    def progress(self, task: Task) -> Progress:
        """How far it is."""
        folder, goal = self.folder(task), task.config.steps
        num = len(logs(folder))
        if self.is_done(task):
            return Progress("done", goal, goal, attempts=num, machine=pulse.read(folder / fence.RUN).machine)
        attempt = self.run_folder(task)
        seen = pulse.Pulse() if attempt is None else pulse.read(attempt)
        if attempt is not None and self.is_running(task):
            known = (seen.seconds_left, seen.rate, num, seen.machine, seen.message)
            # Before its first step it stands where the last one saved.
            return Progress("running", seen.step or max(self.saved_step(task), 0), seen.goal or goal, *known)
        step = max(self.saved_step(task), 0)
        if (folder / FAILED).exists():
            return Progress("failed", step, goal, attempts=num, machine=seen.machine, message=_why_failed(folder))
        return Progress("waiting", step, goal, attempts=num, machine=seen.machine, message=seen.message)

    def give_up(self, task: Task, message: str) -> None:
        """Note that a task has failed; the next invocation tries it again."""
        write_json(self.folder(task) / FAILED, {"message": message})

    def forgive(self, task: Task) -> None:
        """Forget that a task has failed."""
        (self.folder(task) / FAILED).unlink(missing_ok=True)

    def log_tail(self, task: Task) -> str:
        """The last lines of what its newest worker said."""
        found = logs(self.folder(task))
        return "\n".join(found[-1].read_text(errors="replace").splitlines()[-TAIL:]) if found else ""


def read_task(folder: Path, trusted: bool) -> Task:
    """The task of a folder.

    Args:
        folder: Its folder.
        trusted: Whether the code that its domain names may be imported, where the folder is not of this user.
    """
    path = folder / TASK
    content = read_bytes(path)
    with interpreting(path, "a task"):
        found: dict[str, Any] = parse(path, content)
        config = configs.from_dict(found["config"])
        task = Task(folder.name, config, tuple(map(str, found["then"])))
        _check(task)
    code = code_of(config.domain)
    if code is not None:
        trust.check(path, content, code, trusted)
    return task


def is_complete(run: Path, task: Task) -> bool:
    """Whether a published run is all that a task asks for."""
    if not run.is_dir() or missing(run, task.then):
        return False
    try:
        return int(read_object(run / CONFIG).get("steps", 0)) >= task.config.steps
    except (FileError, OSError):
        return False


def logs(folder: Path) -> list[Path]:
    """What the workers of a task said, oldest first."""
    return sorted(folder.glob("log-*.txt"))


def check_unique(tasks: Sequence[Task]) -> None:
    """ValueError if two tasks would share a folder."""
    names = [task.name for task in tasks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"tasks must have names of their own, but there are several called {', '.join(twice)}")


def _check(task: Task) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][\w.,+=-]*", task.name):
        raise UserError(f"the name of a task must be that of a folder, got {task.name!r}")
    configs.check(task.config)
    configs.check_can_be_saved(task.config)
    check_names(task.then)


def _steps_of(run: Path | None) -> int:
    """Steps that a run was begun with; 0 where there is none, so that a number which was mistyped can be taken back."""
    try:
        return 0 if run is None else int(read_object(run / CONFIG).get("steps", 0))
    except (FileError, OSError):
        return 0


def _check_same(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    found = checkpoint.differences(before, now, ignore=MAY_DIFFER)
    if now["steps"] < before["steps"]:
        found.append(f"steps was {before['steps']}, is {now['steps']}, and may only grow")
    _refuse(folder, found)


def _refuse(folder: Path, found: Sequence[str]) -> None:
    if found:
        raise UserError(f"{folder} is of a task with other settings: {'; '.join(found)}. Use another folder or name")


def _why_failed(folder: Path) -> str:
    try:
        return str(read_object(folder / FAILED).get("message", ""))
    except (FileError, OSError):
        return ""
