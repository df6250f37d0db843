"""The program of a worker: python -m qpensieve.experiments.attempt [--alone] [--trust] TASK_FOLDER.

It claims the task (`fence.py`), trains or resumes, computes what comes after training and publishes the run. What it
says goes to `log-0001.txt` in the folder of the task. It saves and ends at SIGINT and SIGTERM, when another attempt has
taken over, and when its input ends, so with the program that started it (not with --alone: a batch system has no input
to give). How it ended is its exit code.
"""

import argparse
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from qpensieve.console import plain_warnings
from qpensieve.experiments import fence
from qpensieve.experiments.codes import Code
from qpensieve.experiments.fence import TakenOverError
from qpensieve.experiments.pulse import Heart, Pulse

if TYPE_CHECKING:
    from qpensieve.experiments.tasks import Task
    from qpensieve.train.run import Run

END_SECONDS = 120.0
"""How long a worker that is to end may take to save; then it kills itself. What is on disk is whole at any time."""


@plain_warnings()
def main(words: list[str] | None = None) -> int:
    """The worker; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m qpensieve.experiments.attempt", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="TASK_FOLDER")
    parser.add_argument("--alone", action="store_true", help="do not end with the input")
    parser.add_argument("--trust", action="store_true", help="import the code that the task's domain names")
    given = parser.parse_args(words)
    folder: Path = given.folder.resolve()
    _open_log(folder)
    ending = Ending()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have told us to ignore it
    signal.signal(signal.SIGTERM, ending.on_signal)
    if not given.alone:
        threading.Thread(target=_watch_input, args=(ending,), daemon=True).start()
    return Worker(folder, ending, given.trust).work()


def _open_log(folder: Path) -> None:
    """From here on all that this process says goes into the next free log of the task."""
    number = 1 + max((int(path.stem.removeprefix("log-")) for path in folder.glob("log-[0-9]*.txt")), default=0)
    while True:
        try:
            log = os.open(folder / f"log-{number:04d}.txt", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        except FileExistsError:
            number += 1
            continue
        break
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(log, stream.fileno())
    os.close(log)


class Ending:
    """Tells the training to save and end, once: a second Ctrl-C would not let it save."""

    def __init__(self) -> None:
        self._is_asked = False
        self._turn = threading.Lock()

    def ask(self, why: str) -> None:
        with self._turn:
            if self._is_asked:
                return
            self._is_asked = True
        print(f"{why}: saving", file=sys.stderr, flush=True)
        threading.Thread(target=_end_anyhow, daemon=True).start()
        os.kill(os.getpid(), signal.SIGINT)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        # In a thread: the lock may be held by what the signal interrupts.
        threading.Thread(target=self.ask, args=(signal.Signals(number).name,), daemon=True).start()


def _end_anyhow() -> None:
    time.sleep(END_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def _watch_input(ending: Ending) -> None:
    with suppress(OSError):
        while os.read(sys.stdin.fileno(), 4096):
            pass
    ending.ask("the program that started this worker has ended")


class Worker:
    """One attempt at a task.

    Args:
        folder: The folder of the task.
        ending: Asks the training to end.
        trusted: Whether code that the task's domain names may be imported.
    """

    def __init__(self, folder: Path, ending: Ending, trusted: bool):
        self._folder, self._ending, self._trusted = folder, ending, trusted
        self._attempt: Path | None = None
        self._heart: Heart | None = None
        self._run: Run | None = None

    def work(self) -> int:
        """All of it; returns the exit code, and says in the attempt how it ended."""
        try:
            self._complete()
        except BaseException as error:
            if isinstance(error, SystemExit):
                raise
            code, message = self._explain(error)
            if code is Code.FAILED:
                traceback.print_exc()
            print(message, file=sys.stderr, flush=True)
            if self._heart is not None and code is not Code.TAKEN_OVER:
                with suppress(OSError):
                    self._heart.beat(code=int(code), message=message)
            return int(code)
        return int(Code.DONE)

    def _complete(self) -> None:
        from qpensieve.experiments.tasks import is_complete, read_task

        task = read_task(self._folder, self._trusted)
        self._attempt = fence.claim(self._folder, partial(is_complete, task=task))
        if self._attempt is None:
            print(f"{task.name} is done", file=sys.stderr)
            return
        print(f"works in {self._attempt}, process {os.getpid()}", file=sys.stderr, flush=True)
        self._heart = Heart(self._attempt, fence.number_of(self._attempt), self._measure)
        with self._heart.beating(lambda: self._ending.ask("another attempt has taken over")):
            self._train(self._attempt, task)
            compute(self._attempt, task)
            self._heart.beat(seconds_left=0.0)
        self._heart.beat(code=int(Code.DONE))
        print(f"published: {fence.publish(self._attempt)}", file=sys.stderr)

    def _train(self, attempt: Path, task: "Task") -> None:
        from qpensieve.records.folder import CONFIG
        from qpensieve.train import run as runs

        config = task.config
        if (attempt / CONFIG).exists():
            changes = {"steps": config.steps, "num_threads": config.num_threads}
            changes["checkpoint_seconds"] = config.checkpoint_seconds
            self._run = runs.resume(attempt, runs.Options(), _say, self._trusted, **changes)
        else:
            self._run = runs.start(attempt, config, runs.Options())
        try:
            self._run.train()
        finally:
            self._run.close()

    def _measure(self, before: Pulse) -> Pulse:
        """What the training shows of itself; called by a thread beside it."""
        run = self._run
        if run is None or run.progress is None:
            return before
        left, rate = run.progress.outlook()
        return replace(before, step=run.session.step, goal=run.session.goal, seconds_left=left, rate=rate)

    def _explain(self, error: BaseException) -> tuple[Code, str]:
        """How a worker ends by an error, and one sentence."""
        runs = sys.modules.get("qpensieve.train.run")  # importing it may be what has failed
        is_stopped = isinstance(error, KeyboardInterrupt) or (runs and isinstance(error, runs.Stopped))
        if isinstance(error, TakenOverError) or (self._attempt is not None and not self._attempt.is_dir()):
            return Code.TAKEN_OVER, str(TakenOverError(self._folder))
        if is_stopped:
            return Code.INTERRUPTED, "stopped; the next attempt goes on"
        if is_out_of_memory(error):
            return Code.OUT_OF_MEMORY, f"out of memory: {str(error).splitlines()[0] if str(error) else 'on the host'}"
        return Code.FAILED, f"{type(error).__name__}: {error}"


def compute(attempt: Path, task: "Task") -> None:
    """Summary, and what comes after training."""
    from qpensieve.experiments.then import THEN, missing, note
    from qpensieve.report.summary import write_summary

    write_summary(attempt)
    for name in missing(attempt, task.then):
        _say(f"computing: {name}")
        THEN[name].compute(attempt)
        note(attempt, name)
        if missing(attempt, (name,)):
            raise RuntimeError(f"{name} was computed, but has not written {THEN[name].file}")


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, is a lack of memory: the card's, as XLA says it, or the machine's."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
