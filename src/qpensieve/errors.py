"""Errors whose cause a user can remove, and the request to stop. All other errors are bugs."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

REFUSALS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}
"""Numbers of errors of a full, read-only or broken disk."""
PERMISSIONS = {errno.EACCES, errno.EPERM}


class StopTraining(Exception):  # noqa: N818 (not an error: the user wants it)
    """Raised by a callback to stop the training. The agent keeps what it learned."""


class ShownError(Exception):
    """An error that the command shows as its message alone, without a traceback."""


class UserError(ShownError, ValueError):
    """A value, name or choice of the user cannot be used; the message says why and what to do."""


class UserFileError(OSError, UserError):
    """A file or folder that the user named cannot be used."""


class MissingFileError(FileNotFoundError, UserFileError):
    """A file or folder that the user named does not exist."""


class FileInTheWayError(FileExistsError, UserFileError):
    """A file or folder exists where a new one must be made."""


class MissingPackageError(UserError, ImportError):
    """A package or module is not installed, or cannot be imported."""


class UntrustedError(ShownError, RuntimeError):
    """A folder names code to import that the user has not allowed; the message names the code and how to allow it."""


class EnvError(ShownError, RuntimeError):
    """A foreign environment raised or cannot be made, or a process that steps lanes ended; the message names it."""


@contextmanager
def file_errors(path: str | os.PathLike[str], temporary: str | os.PathLike[str] = "") -> Iterator[None]:
    """Raise each OSError of the block as a `UserFileError`, which names `path` where the error names no other file."""
    try:
        yield
    except UserError:
        raise
    except OSError as error:
        kinds = (MissingFileError, FileInTheWayError)
        kind = next((kind for kind in kinds if isinstance(error, kind.__bases__[0])), UserFileError)
        if error.errno is None:
            raise kind(f"{path}: {error}") from error
        named = path if error.filename in (None, str(temporary)) else error.filename
        raise kind(error.errno, error.strerror, str(named)) from error


def make_folder(path: str | os.PathLike[str]) -> None:
    """Make a folder and all missing folders above it; UserFileError if that fails."""
    with file_errors(path):
        os.makedirs(path, exist_ok=True)


def is_refusal(error: BaseException) -> bool:
    """Return whether the machine caused the error: the disk, or a missing permission for a named file."""
    if not isinstance(error, OSError):
        return False
    return error.errno in REFUSALS or (error.errno in PERMISSIONS and error.filename is not None)
