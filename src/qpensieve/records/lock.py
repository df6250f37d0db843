"""The lock of a run folder: only one process at a time may write, or it would remove what another one writes."""

import fcntl
import os
from pathlib import Path
from typing import TextIO

from qpensieve.records.folder import LOCK
from qpensieve.records.links import open_to_append, refuse_links


class FolderInUseError(RuntimeError):
    """Another process trains, resumes or evaluates the run of this folder."""


def lock(folder: Path) -> TextIO:
    """Lock the folder until the returned file is closed; the system also unlocks it when the process dies.

    Raises:
        FolderInUseError: Another process holds it.
        LinkError: Something in it is a symbolic link, through which its holder would write elsewhere.
    """
    refuse_links(folder)
    file = open_to_append(folder / LOCK)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        owner = file.read().strip() or "unknown"
        file.close()
        raise FolderInUseError(f"{folder} is in use by process {owner}: wait for it, or stop it first") from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file
