"""Helper processes that end when their input does."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CLOSE_SECONDS = 5.0
"""How long one may take to end by itself before it is killed."""


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Processes started meanwhile never hear Ctrl-C, which terminals send to all: their parent ends them.

    To ignore it in their first lines would be too late: Python would print a traceback of its own start.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end(process: subprocess.Popen[bytes]) -> None:
    """Close the pipes of a process and wait until it is gone."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.close()  # it ends at the end of its input
    process.stdout.close()
    try:
        process.wait(CLOSE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
