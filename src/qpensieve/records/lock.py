"""The lock of a run folder: one process at a time writes into it.

The system releases the lock when its process ends. On a file system whose locks do not reach other machines, two
processes may both get it. So the lock file also names its newest owner, and a process that is no longer the owner
stops before its next save.
"""

import fcntl
import json
import os
import platform
import secrets
import time
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from qpensieve.errors import ShownError
from qpensieve.records.folder import LOCK
from qpensieve.records.links import open_to_append, refuse_links

TRIES, PAUSE = 5, 0.05
"""How often to ask for the lock, and seconds between: `holder` may have it for a moment."""


class FolderInUseError(ShownError, RuntimeError):
    """Another process trains, resumes or evaluates the run of this folder."""


class Holder(NamedTuple):
    """The process that holds a folder."""

    host: str = "an unknown host"
    pid: int | None = None

    def __str__(self) -> str:
        return f"process {self.pid or '?'} on {self.host}"


class FolderLock:
    """A held lock.

    Args:
        folder: The run folder.
        file: The locked file.
    """

    def __init__(self, folder: Path, file: TextIO):
        self._folder, self._file, self._token = folder, file, secrets.token_hex(8)
        file.truncate(0)
        file.write(json.dumps({"host": platform.node(), "pid": os.getpid(), "token": self._token}) + "\n")
        file.flush()

    def check(self) -> None:
        """Raise `FolderInUseError` if another process has taken the folder over."""
        if _read(self._folder).get("token") != self._token:
            raise FolderInUseError(f"{self._folder} was taken over by another process: this one stops without saving")

    def close(self) -> None:
        """Release the lock."""
        self._file.close()


def lock(folder: Path) -> FolderLock:
    """Lock a folder until the returned object is closed or the process ends.

    Raises:
        FolderInUseError: Another process holds it.
        LinkError: Something in it is a symbolic link, through which its holder would write elsewhere.
    """
    refuse_links(folder)
    file = open_to_append(folder / LOCK)
    for _ in range(TRIES):
        if _is_free(file, fcntl.LOCK_EX):
            return FolderLock(folder, file)
        time.sleep(PAUSE)
    file.close()
    raise FolderInUseError(f"{folder} is in use by {_named(folder)}: wait for it, or stop it first")


def holder(folder: Path) -> Holder | None:
    """The process that holds a folder; None if no process does."""
    try:
        with open(folder / LOCK) as file:
            return None if _is_free(file, fcntl.LOCK_SH) else _named(folder)
    except OSError:
        return None


def _is_free(file: TextIO, kind: int) -> bool:
    """Whether this process has the lock now."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _named(folder: Path) -> Holder:
    content = _read(folder)
    host, pid = content.get("host"), content.get("pid")
    return Holder(host, pid) if isinstance(host, str) and isinstance(pid, int) else Holder()


def _read(folder: Path) -> dict[str, Any]:
    """Content of the lock file; empty if it cannot be read."""
    try:
        content = json.loads((folder / LOCK).read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
