"""The fence around the folder of a task: of all workers that ever took it up, one at most can change the result.

A worker may be thought dead and still live: its node was cut off from the network, it was stopped and continues hours
later. So each attempt writes into a folder of its own, `attempt-0001`, and the next one first renames that folder to
`attempt-0001.left`, which is one step: there or not there. Everything that counts is published by path (written under a
temporary name, then renamed: `records/atomic.py`), and the path of the orphan has gone: it gets `FileNotFoundError` and
ends. What it still writes through open files lands in the folder that was left, and nobody reads that any more. The
next attempt is put together beside it and renamed into place, and the last one is renamed to `run`.

Why not a lock: a process that is stopped keeps its lock, so nobody could take its place; one that is cut off may lose
it without knowing. Why not a number that is checked before each write: the process can be stopped between the check and
the write.

    task.json             what is to be done
    attempt-0001.left     taken away from its worker; removed when the task is done
    attempt-0002          a run folder; its worker writes here
    run                   the same folder once it is complete
    log-0001.txt ...      what each worker said

Numbers only grow and no name is used twice, so an old worker cannot meet a new folder under its own name.
"""

import errno
import os
import platform
import re
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from qpensieve.records.atomic import TEMPORARY, sync_folder, write_file, write_json
from qpensieve.records.folder import LOCK
from qpensieve.records.reading import FileError, read_object

RUN, LEFT, WORKER = "run", ".left", "worker.json"
"""The published run; ending of a folder that was taken away; who works in an attempt, and how far it is."""
OCCUPIED = (errno.ENOTEMPTY, errno.EEXIST)
NEVER_CHANGED = (".npz", ".npy")
"""Endings of files that are only ever replaced as a whole: two folders may share them."""
TRIES = 100
"""So often the folder may change under our feet."""


class TakenOverError(RuntimeError):
    """Another attempt has the task."""

    def __init__(self, task: Path):
        super().__init__(f"another attempt has taken over {task.name}: this one ends")


class Attempt(NamedTuple):
    """One folder of an attempt; sorted by age. Where a number is there twice, the one that was left is the true one."""

    number: int
    is_left: bool
    path: Path


def attempts(task: Path) -> list[Attempt]:
    """All attempts that have a folder, oldest first."""
    found = [(re.fullmatch(r"attempt-(\d{4,})(\.left)?", path.name), path) for path in task.glob("attempt-*")]
    return sorted(Attempt(int(match[1]), match[2] is not None, path) for match, path in found if match)


def newest(task: Path) -> Path | None:
    """The run, or the newest attempt at it; None where nothing was ever begun."""
    if (task / RUN).is_dir():
        return task / RUN
    found = attempts(task)
    return found[-1].path if found else None


def claim(task: Path, is_done: Callable[[Path], bool]) -> Path | None:
    """A folder of our own that starts where the newest attempt stands; None where the task is done.

    Killed between any two steps, the next call goes on.

    Args:
        task: The folder of the task.
        is_done: Whether a published run is all that is wanted; one that is not is gone on with.

    Raises:
        TakenOverError: Another worker claims it at the same time and was faster.
    """
    for _ in range(TRIES):
        try:
            number, source = _take(task, is_done)
        except _MovedError:
            continue
        if number is None:
            return None
        try:
            return _build(task, number + 1, source)
        except FileNotFoundError:  # what we copy was removed: someone has published
            continue
    raise TakenOverError(task)


class _MovedError(Exception):
    """Another process was faster: look again."""


def _take(task: Path, is_done: Callable[[Path], bool]) -> tuple[int | None, Path | None]:
    """Take the newest state away from its worker; returns its number (None: done) and folder (None: there is none)."""
    run, found = task / RUN, attempts(task)
    if run.is_dir():
        if is_done(run):
            return None, None
        number = max([number_of(run), *(one.number + 1 for one in found)])
        return number, _leave(run, _name(task, number, LEFT))
    if not found:
        return 0, None
    last = found[-1]
    if last.is_left:
        return last.number, last.path
    return last.number, _leave(last.path, _name(task, last.number, LEFT))


def _leave(path: Path, left: Path) -> Path:
    try:
        os.rename(path, left)
    except OSError as error:
        if isinstance(error, FileNotFoundError) or error.errno in OCCUPIED:
            raise _MovedError from None
        raise
    return left


def _build(task: Path, number: int, source: Path | None) -> Path:
    """Put a new attempt together and into place."""
    temporary = task / f"{TEMPORARY}{_name(task, number).name}-{secrets.token_hex(4)}"
    path = _name(task, number)
    temporary.mkdir()
    try:
        if source is not None:
            _carry(source, temporary)
        # Never empty: a folder can be renamed onto an empty one.
        write_json(temporary / WORKER, {"number": number, "machine": platform.node(), "pid": os.getpid()})
        try:
            os.rename(temporary, path)
        except OSError as error:
            if error.errno in OCCUPIED:
                raise TakenOverError(task) from None
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    sync_folder(task)
    _check_newest(task, path, number)
    return path


def _check_newest(task: Path, path: Path, number: int) -> None:
    """Withdraw if we were stopped for so long that others have come and gone under this number."""
    later = [one for one in attempts(task) if (one.number, one.is_left) > (number, False)]
    if later or (task / RUN).exists():
        doomed = task / f"{TEMPORARY}{path.name}-{secrets.token_hex(4)}"
        try:
            os.rename(path, doomed)
        except FileNotFoundError:
            pass
        else:
            shutil.rmtree(doomed, ignore_errors=True)
        raise TakenOverError(task)


def _carry(source: Path, target: Path) -> None:
    """Copy a run folder that nobody publishes into any more.

    Large files are never changed, only replaced, so both folders may share them; the log is copied, because an orphan
    may still hold it open. Folders come first: an orphan can be in the middle of one rename, and results without their
    checkpoint are cut off, but a checkpoint without its results would lose them.
    """
    entries = sorted(os.scandir(source), key=lambda entry: (not entry.is_dir(follow_symlinks=False), entry.name))
    for entry in entries:
        if entry.name.startswith(TEMPORARY) or entry.name in (LOCK, WORKER) or entry.is_symlink():
            continue
        if entry.is_dir():
            (target / entry.name).mkdir()
            _carry(Path(entry.path), target / entry.name)
        elif not (entry.name.endswith(NEVER_CHANGED) and _link(entry.path, target / entry.name)):
            _copy(Path(entry.path), target / entry.name)


def _link(source: str, target: Path) -> bool:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without hard links
        return False
    return True


def _copy(source: Path, target: Path) -> None:
    with open(source, "rb") as file:
        write_file(target, lambda out: shutil.copyfileobj(file, out))


def publish(attempt: Path) -> Path:
    """Make a complete attempt the run of its task: one rename. Then remove what earlier attempts left.

    Raises:
        TakenOverError: A later attempt has taken the folder away, or has published before.
    """
    task = attempt.parent
    try:
        os.rename(attempt, task / RUN)
    except OSError as error:
        if isinstance(error, FileNotFoundError) or error.errno in OCCUPIED:
            raise TakenOverError(task) from None
        raise
    sync_folder(task)
    clean(task)
    return task / RUN


def bring(scratch: Path, task: Path) -> None:
    """Put the newest state of a folder that was brought from elsewhere into that of the task.

    Raises:
        TakenOverError: Another one is there under this number.
    """
    state = newest(scratch)
    if state is None:
        return
    number = number_of(state)
    target = task / RUN if state.name == RUN else _name(task, number, LEFT)
    later = [one for one in attempts(task) if one.number >= number]
    before = number_of(task / RUN) if (task / RUN).exists() else -1
    if later or before >= number:
        raise TakenOverError(task)
    if before >= 0:  # it has been gone on with
        _leave(task / RUN, _name(task, before, LEFT))
    try:
        os.rename(state, target)
    except OSError as error:
        if error.errno in OCCUPIED:
            raise TakenOverError(task) from None
        raise
    sync_folder(task)
    clean(task)


def clean(task: Path) -> None:
    """Remove the folders of attempts before the published run, as far as possible; nothing where there is no run."""
    if not (task / RUN).is_dir():
        return
    last = number_of(task / RUN)
    for path in [*task.glob("attempt-*"), *task.glob(f"{TEMPORARY}attempt-*")]:
        match = re.match(rf"(?:{re.escape(TEMPORARY)})?attempt-(\d+)", path.name)
        if match and int(match[1]) < last + path.name.startswith(TEMPORARY):
            shutil.rmtree(path, ignore_errors=True)


def number_of(attempt: Path) -> int:
    """The number of the attempt that a folder is or was; 0 for a run that came from elsewhere."""
    try:
        number = read_object(attempt / WORKER).get("number", 0)
    except (FileError, OSError):
        return 0
    return number if isinstance(number, int) else 0


def _name(task: Path, number: int, ending: str = "") -> Path:
    return task / f"attempt-{number:04d}{ending}"
