"""Helper processes that end when their input does."""

import subprocess
from contextlib import suppress

CLOSE_SECONDS = 5.0
"""How long one may take to end by itself before it is killed."""


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
