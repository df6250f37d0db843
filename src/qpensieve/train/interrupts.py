"""Ctrl-C and SIGTERM: a message appears at once, and training stops between two blocks."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

FIRST = "stopping after this block; press again to stop now"
SECOND = "stopping now"
THIRD = 3
"""Number of presses that end the process at once; files on the disk stay whole."""
TERMINATING = "SIGTERM: stopping after this block"


class _Terminate:
    """A handler of SIGTERM that interrupts once. A scheduler may send it again, which must not disturb a save."""

    is_asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        is_first, self.is_asked = not self.is_asked, True
        if is_first:
            raise KeyboardInterrupt


@contextmanager
def _handling(number: int, handler: Callable[[int, FrameType | None], None]) -> Iterator[bool]:
    """Handle a signal within the block. Outside the main thread nothing changes, and False is yielded."""
    if threading.current_thread() is not threading.main_thread():
        yield False
        return
    before = signal.signal(number, handler)
    try:
        yield True
    finally:
        signal.signal(number, before)


@contextmanager
def termination() -> Iterator[Callable[[], bool]]:
    """Let SIGTERM, which schedulers send before they kill, do what Ctrl-C does; yields a test whether it has come."""
    handler = _Terminate()
    with _handling(signal.SIGTERM, handler):
        yield lambda: handler.is_asked


@contextmanager
def interrupts(answer: Callable[[str], None] | None = None) -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C set a flag, which is yielded as a test; a second one interrupts. Within `termination` so does SIGTERM.

    Python runs handlers between its own instructions only, and compiling is one long call: so a thread answers, and
    ends the process at the third press. Outside the main thread nothing changes.

    Args:
        answer: Called with a line for the user. None: no line, and no end at the third press: it may be a notebook.
    """
    pressed, outer = False, signal.getsignal(signal.SIGTERM)

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    def terminate(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        assert isinstance(outer, _Terminate)
        outer.is_asked = pressed = True

    with ExitStack() as opened:
        if opened.enter_context(_handling(signal.SIGINT, handle)):
            if isinstance(outer, _Terminate):
                opened.enter_context(_handling(signal.SIGTERM, terminate))
            if answer is not None:
                opened.enter_context(_answering(answer))
        yield lambda: pressed


@contextmanager
def _answering(answer: Callable[[str], None]) -> Iterator[None]:
    """Run a thread that answers signals as they arrive."""
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
        if signal.SIGTERM in numbers:
            answer(TERMINATING)
        for _ in range(numbers.count(signal.SIGINT)):
            presses += 1
            if presses == THIRD:
                os.kill(os.getpid(), signal.SIGKILL)
            answer(FIRST if presses == 1 else SECOND)
