"""Ctrl-C: answered at once, obeyed between blocks."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType

FIRST = "stopping after this block; press again to stop now"
SECOND = "stopping now"
THIRD = 3
"""So many presses end the process, wherever it is; what is on disk stays whole."""


@contextmanager
def interrupts(answer: Callable[[str], None] | None = None) -> Iterator[Callable[[], bool]]:
    """Ctrl-C sets a flag that is read between blocks; a second one interrupts.

    Python runs handlers between its own instructions only, and compiling is one long call: so a thread answers, and
    ends the process at the third press.

    Args:
        answer: Tells the user. None: nobody is told and no process is ended, which may be a notebook with much in it.
    """
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
        with nullcontext() if answer is None else _answering(answer):
            yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _answering(answer: Callable[[str], None]) -> Iterator[None]:
    """A thread that reads the numbers of signals as they arrive."""
    source, sink = os.pipe()
    os.set_blocking(sink, False)
    before = signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
    thread = threading.Thread(target=_answer, args=(source, answer), daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(sink)
        thread.join()
        os.close(source)


def _answer(source: int, answer: Callable[[str], None]) -> None:
    presses = 0
    while numbers := os.read(source, 64):
        for _ in range(numbers.count(signal.SIGINT)):
            presses += 1
            if presses == THIRD:
                os.kill(os.getpid(), signal.SIGKILL)
            answer(FIRST if presses == 1 else SECOND)
