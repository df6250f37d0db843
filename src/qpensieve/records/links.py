"""Symbolic links in the folder of a run: a received one could point anywhere, so nothing is written through them.

The folder itself may be reached by a link, and its owner may add links of other names to it.
"""

import os
import stat
from pathlib import Path
from typing import TextIO

from qpensieve.errors import UserFileError, file_errors
from qpensieve.records.folder import FILES, FOLDERS


class LinkError(UserFileError):
    """Something would be written where a symbolic link, or what is no plain file, points elsewhere; names it."""


def refuse_link(path: Path) -> None:
    """LinkError where `path` is a symbolic link."""
    if path.is_symlink():
        raise LinkError(_explain(path))


def refuse_links(run: Path) -> None:
    """LinkError where a file or folder of a run, or anything below its folders, is a symbolic link."""
    for name in (*FILES, *FOLDERS):
        refuse_link(run / name)
    for name in FOLDERS:
        for parent, folders, files in os.walk(run / name):
            for below in (*folders, *files):
                refuse_link(Path(parent, below))


def open_to_append(path: Path) -> TextIO:
    """The file, made where it is missing, to read and to write at its end; LinkError where it is no plain file."""
    refuse_link(path)
    # NOFOLLOW: a link made since; NONBLOCK: a named pipe would wait for its other end.
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    with file_errors(path):
        descriptor = os.open(path, flags, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise LinkError(f"{path} is not a plain file: remove it")
    return os.fdopen(descriptor, "a+")


def _explain(path: Path) -> str:
    return (
        f"{path} is a symbolic link to {os.readlink(path)}: nothing in a run's folder is written through a link. "
        "Remove the link, or put in its place what it points to"
    )
