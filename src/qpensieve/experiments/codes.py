"""How a worker ended, as its exit code."""

import enum


class Code(enum.IntEnum):
    """Exit codes of `attempt`; any other number means that it died."""

    DONE = 0
    FAILED = 1
    INTERRUPTED = 75
    """It has saved; go on later."""
    OUT_OF_MEMORY = 76
    TAKEN_OVER = 77
    """Another attempt has the task."""
