"""The loop that trains many run folders: it skips finished runs, starts those that fit, and restarts those that died.

All its knowledge is in the folders, so it may be killed at any time and called again, on another machine too. Several
such programs may share the folders: each leaves a folder alone while another process holds its lock.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from qpensieve.experiments import tasks as states
from qpensieve.experiments.local import Code, Ended
from qpensieve.experiments.tasks import Task, TaskProgress
from qpensieve.records.folder import holder

TRIES = 5
LOOK_SECONDS = 1.0
"""Seconds between two checks of all folders."""
Show = Callable[[Sequence[TaskProgress]], None]


@runtime_checkable
class Job(Protocol):
    """A run that an engine has started."""

    def poll(self) -> Ended | None:
        """Return how the worker has ended; None while it waits or works."""
        ...

    def shrink(self) -> bool:
        """Let fewer runs share memory, because this run had too little; return False if no other run shared it."""
        ...


@runtime_checkable
class Engine(Protocol):
    """Starts workers on this machine, a Ray cluster or Slurm.

    Attributes:
        pause: Seconds between two checks of its jobs.
    """

    pause: float

    def start(self, waiting: Sequence[Task]) -> Sequence[Job]:
        """Start the first of the waiting tasks, as many as there is room for; returns a job for each started task."""
        ...

    def close(self) -> None:
        """End all workers, which save their runs; jobs that can outlive this program continue."""
        ...


@dataclass
class Summary:
    """The outcome of all tasks.

    Attributes:
        done: Names of the finished tasks.
        failed: Name -> why the task has failed, with the last lines of its workers.
        left: Names of the other tasks.
        is_stopped: Whether Ctrl-C has ended the loop.
    """

    done: list[str]
    failed: dict[str, str]
    left: list[str]
    is_stopped: bool


def train_all(
    tasks: Sequence[Task],
    engine: Engine,
    tries: int = TRIES,
    show: Show = lambda runs: None,
    say: Callable[[str], None] = lambda line: None,
) -> Summary:
    """Train run folders to their end. Failed runs are reported, and the others continue.

    Args:
        tasks: All tasks, in the order in which they are started.
        engine: The engine that runs the workers; it is closed at the end.
        tries: Number of tries in a row without progress after which a run has failed.
        show: Called with the progress of all tasks, about once a second.
        say: Called with a line for the user.

    Raises:
        ValueError: A task cannot run, or its folder holds a run with other settings; nothing was started.
    """
    for task in tasks:
        states.prepare(task)
    for task in tasks:
        states.clear_failure(task)
    loop = _Loop(tasks, engine, tries, show)
    is_stopped = False
    try:
        loop.run()
    except KeyboardInterrupt:
        is_stopped = True
        say("stopping: workers save what they have; press again to end them at once")
    finally:
        with suppress(KeyboardInterrupt):  # at a second one workers are killed; what they saved stays
            engine.close()
    done = [task.name for task in tasks if states.is_done(task)]
    left = [task.name for task in tasks if task.name not in (*done, *loop.failed)]
    return Summary(done, loop.failed, left, is_stopped)


class _Loop:
    def __init__(self, tasks: Sequence[Task], engine: Engine, tries: int, show: Show):
        self._tasks, self._engine, self._tries, self._show = tasks, engine, tries, show
        self._waiting = list(tasks)
        self._started: dict[Task, tuple[Job, int]] = {}
        """Task -> its job, and the saved step of the run when it was started."""
        self._tries_used = dict.fromkeys(tasks, 0)
        self.failed: dict[str, str] = {}

    def run(self) -> None:
        looked = -LOOK_SECONDS
        while True:
            ended = {task: how for task, (job, _) in self._started.items() if (how := job.poll()) is not None}
            for task, how in ended.items():
                self._settle(task, *self._started.pop(task), how)
            if ended or time.monotonic() >= looked + LOOK_SECONDS:
                self._start()
                self._show([states.progress(task) for task in self._tasks])
                looked = time.monotonic()
                if not self._waiting and not self._started:
                    return
            time.sleep(self._engine.pause)

    def _start(self) -> None:
        self._waiting = [task for task in self._waiting if not states.is_done(task)]
        free = [task for task in self._waiting if holder(task.folder) is None]
        for task, job in zip(free, self._engine.start(free) if free else (), strict=False):
            self._started[task] = job, states.saved_step(task)
            self._waiting.remove(task)

    def _settle(self, task: Task, job: Job, step: int, ended: Ended) -> None:
        """Drop a task whose worker has ended and that is done or has failed; else let it wait again."""
        if states.is_done(task):
            return
        if (why := states.failure(task)) is not None:  # a loop inside a job has given up the task
            self._fail(task, why)
            return
        if ended.code == Code.OUT_OF_MEMORY and not job.shrink():
            self._fail(task, "out of memory, with no other run on its card; use fewer seeds or a smaller replay")
            return
        if ended.code not in (Code.OUT_OF_MEMORY, Code.IN_USE):
            is_further = states.saved_step(task) > step
            self._tries_used[task] = 0 if is_further else self._tries_used[task] + 1
        if self._tries_used[task] >= self._tries:
            cause = f": {states.log_tail(task).splitlines()[-1]}" if ended.code == Code.FAILED else ""
            self._fail(task, f"{self._tries} tries brought it no further; the last {ended.how}{cause}")
        else:
            self._waiting.insert(0, task)

    def _fail(self, task: Task, why: str) -> None:
        self.failed[task.name] = f"{why}\n{states.log_tail(task)}"
        states.record_failure(task, why)
