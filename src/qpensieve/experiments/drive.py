"""The loop that sees tasks through, wherever their workers run: skip what is done, start what fits, restart what died.

All it knows is in the folders, so it may be killed at any time and started again, on another machine too. Several such
programs may share a store: each leaves alone what another one's worker is alive in.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from qpensieve.envs import code_of
from qpensieve.experiments import fence
from qpensieve.experiments.codes import Code
from qpensieve.experiments.executors.protocol import Ended, Executor, Needs
from qpensieve.experiments.tasks import Progress, Store, Task, check_unique

TRIES = 5
WAIT_SECONDS = 1.0
Show = Callable[[Sequence[tuple[Task, Progress]]], None]
"""Is given all tasks and how far they are, about once a second."""


@dataclass
class Summary:
    """What became of the tasks."""

    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Name -> why, with the last lines of its log."""
    left: list[str] = field(default_factory=list)
    """What is not done: it was stopped before."""
    is_stopped: bool = False
    """Whether Ctrl-C ended it."""


def drive(  # noqa: PLR0913 (all but three have a default)
    store: Store,
    tasks: Sequence[Task],
    executor: Executor,
    tries: int = TRIES,
    show: Show | None = None,
    say: Callable[[str], None] | None = None,
) -> Summary:
    """See tasks through; what cannot be done is reported, and the others go on. Ctrl-C ends all workers, which save.

    Args:
        store: Where their folders are.
        tasks: All tasks, in the order in which they are started.
        executor: Where workers run; it is closed in the end.
        tries: So many attempts in a row that bring a task no further, and it has failed.
        show: Shows how far they are.
        say: Is told what happens, in words.

    Raises:
        ValueError: A task cannot run, or its folder is of one with other settings; nothing was started.
    """
    check_unique(tasks)
    for task in tasks:
        store.prepare(task)
    driver = _Driver(store, tasks, executor, tries, show or (lambda _: None))
    try:
        driver.run()
    except KeyboardInterrupt:
        driver.summary.is_stopped = True
        if say is not None:
            say("stopping: workers save what they have; press again to end them at once")
    finally:
        with suppress(KeyboardInterrupt):  # a second one: workers are killed, and what they saved stays
            executor.close()
    return driver.summarize()


class _Driver:
    def __init__(self, store: Store, tasks: Sequence[Task], executor: Executor, tries: int, show: Show):
        self._store, self._tasks, self._executor, self._tries, self._show = store, tasks, executor, tries, show
        self._waiting = list(tasks)
        self._running: dict[str, Task] = {}
        self._began_at: dict[str, int] = {}
        self._tries_used = dict.fromkeys((task.name for task in tasks), 0)
        self._is_ours: set[str] = set()
        """Tasks whose last worker was ours and has ended: nobody is at them, whatever its sign of life says."""
        self.summary = Summary()

    def run(self) -> None:
        for task in self._tasks:
            self._store.forgive(task)
            fence.clean(self._store.folder(task))
        while self._waiting or self._running:
            self._start_what_fits()
            self._show_all()
            for ended in self._executor.ended(WAIT_SECONDS):
                self._settle(self._running.pop(ended.folder.name), ended)
        self._show_all()

    def summarize(self) -> Summary:
        done = [task for task in self._tasks if self._store.is_done(task)]
        self.summary.done = [task.name for task in done]
        self.summary.left = [
            task.name for task in self._tasks if task not in done and task.name not in self.summary.failed
        ]
        return self.summary

    def _show_all(self) -> None:
        self._show([(task, self._store.progress(task)) for task in self._tasks])

    def _start_what_fits(self) -> None:
        for task in list(self._waiting):
            if self._store.is_done(task):
                self._waiting.remove(task)
            elif not self._executor.has_room():
                return
            elif task.name in self._is_ours or not self._store.is_running(task):
                self._start(task)

    def _start(self, task: Task) -> None:
        needs = Needs(task.config.seeds, len(self._waiting), code_of(task.config.domain) is not None)
        self._began_at[task.name] = self._store.saved_step(task)
        self._executor.start(self._store.folder(task), needs)
        self._is_ours.discard(task.name)
        self._waiting.remove(task)
        self._running[task.name] = task

    def _settle(self, task: Task, ended: Ended) -> None:
        """What to do about a worker that has ended."""
        if self._store.is_done(task):
            return
        if ended.code != Code.TAKEN_OVER:  # else another program's worker has it, and may be alive
            self._is_ours.add(task.name)
        if ended.code == Code.OUT_OF_MEMORY and not self._executor.shrink(ended.folder):
            self._fail(task, "out of memory, with no other run beside it; use fewer seeds or a smaller replay")
            return
        if ended.code not in (Code.OUT_OF_MEMORY, Code.TAKEN_OVER):
            is_further = self._store.saved_step(task) > self._began_at[task.name]
            self._tries_used[task.name] += not is_further
        if self._tries_used[task.name] >= self._tries:
            self._fail(task, f"{self._tries} attempts brought it no further; the last {ended.reason}")
        else:
            self._waiting.insert(0, task)

    def _fail(self, task: Task, why: str) -> None:
        tail = self._store.log_tail(task)
        self.summary.failed[task.name] = f"{why}\n{tail}" if tail else why
        self._store.give_up(task, why)
