"""A run folder: the names of its files, links that are refused, and its lock.

A received folder could hold a symbolic link that points anywhere, so nothing is written through one. The folder itself
may be reached by a link, and its owner may add links of other names to it.

One process at a time writes into a folder. The system releases its lock when its process ends. On a file system whose
locks do not reach other machines, two processes may both get it. So the lock file also names its newest owner, and a
process that is no longer the owner stops before its next save.
"""

import json
import os
import platform
import secrets
import stat
import time
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from qpensieve.errors import (
    FileInTheWayError,
    MissingFileError,
    MissingPackageError,
    ShownError,
    UserFileError,
    file_errors,
)

try:
    import fcntl
except ModuleNotFoundError as error:
    message = "qpensieve needs Linux, macOS or WSL: this Python has no fcntl, which locks run folders"
    raise MissingPackageError(message) from error

CONFIG = "config.json"
"""The configuration of the run."""
PROVENANCE = "environment.json"
"""Versions, machine and commit that made the run."""
METRICS = "metrics.jsonl"
"""One row per event: training, short evaluation, full evaluation."""
EVALUATIONS = "evaluations.npz"
"""The returns of every evaluation."""
SEARCH = "search.npz"
"""The search of a population; other methods have none."""
SUMMARY = "summary.json"
"""The scores of the newest full evaluation."""
CRITIC = "critic.json"
"""L_critic, the errors of the critics; written by `qpensieve critic`."""
CALIBRATION = "calibration.json"
"""The preference to ask for in place of another; written by `qpensieve calibrate`."""
WORKER_LOG = "worker.log"
"""Output of the workers that trained the run as a part of an experiment."""
FAILED = "failed.json"
"""Why an experiment has given up the run; the next call tries the run again."""
POLICY = "policy"
"""Folder of an exported policy and its loader; no part of the run."""
LOCK = "run.lock"
"""Locked by the process that writes into the folder."""
CHECKPOINTS = "checkpoints"
"""Folder of the last two checkpoints."""
PARAMETERS = "parameters"
"""Folder of the parameters that are kept."""
REPLAY = "replay"
"""Folder of the replay's rows."""
TENSORBOARD = "tensorboard"
"""Folder of TensorBoard's files."""
WANDB = "wandb.json"
"""Id of the run at Weights & Biases, and the last step sent there. The folder `wandb` is no part of the run, because it
holds links."""

FILES = (
    *(CONFIG, PROVENANCE, METRICS, EVALUATIONS, SEARCH, SUMMARY, CRITIC, CALIBRATION),
    *(WORKER_LOG, FAILED, LOCK, WANDB),
)
PICTURES = ("front.png", "curves.png", "training.png", "generations.png", "predictions.png")
"""Pictures that commands draw in the folder."""
FOLDERS = (CHECKPOINTS, PARAMETERS, REPLAY, TENSORBOARD)


SHOWN = 8
"""Most names of runs in a message."""


ZOO = "zoo:"
"""Begins the name of a policy that comes with the package, wherever a run folder may be named."""


def why_no_run(path: Path) -> str:
    """Say why a path is no run folder and no saved agent; the text completes "not a run: ..."."""
    if str(path).startswith(ZOO) or (path.suffix == ".npz" and path.is_file()):
        return (
            "it is a policy, for watch, video, evaluate, export-policy and qpensieve.load; name the run that trained it"
        )
    if not path.is_dir():
        return "it is a file" if path.exists() else "it does not exist"
    runs = sorted(found.parent.name for found in path.glob(f"*/{CONFIG}"))
    if not runs:
        return f"it has no {CONFIG}"
    more = f" and {len(runs) - SHOWN} more" if len(runs) > SHOWN else ""
    holds = f"it holds {'several' if len(runs) > 1 else 'one'} ({', '.join(runs[:SHOWN])}{more})"
    return f"{holds}: name {'one of them' if len(runs) > 1 else path / runs[0]}"


def check_run(path: Path) -> None:
    """Raise MissingFileError unless a path is a run folder or a saved agent."""
    if not (path / CONFIG).is_file():
        raise MissingFileError(f"{path} is not a run folder: {why_no_run(path)}")


def check_out(out: Path, example: str) -> None:
    """Refuse a folder, and a file that belongs to a run, as the file to write.

    Raises:
        UserFileError: `out` is a folder.
        FileInTheWayError: `out` is a file of a run.
    """
    if out.is_dir() or not out.name:
        raise UserFileError(f"out must be a file such as {example}, but {out} is a folder")
    if out.name in FILES and (out.parent / CONFIG).exists():
        raise FileInTheWayError(f"{out} is part of a run: choose another file, such as {example}")


def refuse_file(path: Path) -> None:
    """Raise UserFileError if a path cannot be a folder because it, or a folder above it, is a file."""
    found = next((one for one in (path, *path.parents) if one.exists()), None)
    if found is not None and not found.is_dir():
        raise UserFileError(f"{path} must be a folder, but {found} is a file; choose another folder")


class LinkError(UserFileError):
    """A path to write is a symbolic link or no plain file; the message names it."""


def refuse_link(path: Path) -> None:
    """Raise LinkError if `path` is a symbolic link."""
    if path.is_symlink():
        raise LinkError(
            f"{path} is a symbolic link to {os.readlink(path)}: nothing in a run's folder is written through a link. "
            "Remove the link, or put in its place what it points to"
        )


def refuse_links(run: Path) -> None:
    """Raise LinkError if a file or folder of a run, or anything below its folders, is a symbolic link."""
    for name in (*FILES, *FOLDERS):
        refuse_link(run / name)
    for name in FOLDERS:
        for parent, folders, files in os.walk(run / name):
            for below in (*folders, *files):
                refuse_link(Path(parent, below))


def open_to_append(path: Path) -> TextIO:
    """Open a file to read and to append, made if it is missing; LinkError if it is no plain file."""
    refuse_link(path)
    # NOFOLLOW: a link made since; NONBLOCK: a named pipe would wait for its other end.
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    with file_errors(path):
        descriptor = os.open(path, flags, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise LinkError(f"{path} is not a plain file: remove it")
    return os.fdopen(descriptor, "a+")


TRIES, PAUSE = 5, 0.05
"""Attempts to get the lock, and seconds between attempts: `holder` takes the lock for a moment."""


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
        FolderInUseError: Another process holds the folder.
        LinkError: The folder holds a symbolic link, through which the run would write elsewhere.
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
    """Return the process that holds a folder; None if no process does."""
    try:
        with open(folder / LOCK) as file:
            return None if _is_free(file, fcntl.LOCK_SH) else _named(folder)
    except OSError:
        return None


def _is_free(file: TextIO, kind: int) -> bool:
    """Try to get the lock; returns whether this process has it now."""
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
    """Read the lock file; empty if it cannot be read."""
    try:
        content = json.loads((folder / LOCK).read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
