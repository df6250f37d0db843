"""An agent's folder: written whole or not at all, and only where nothing of anyone else would be replaced."""

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from qpensieve import config as configs
from qpensieve.errors import FileInTheWayError, UserError, make_folder
from qpensieve.records import calibration as calibrations
from qpensieve.records import checkpoint, folder
from qpensieve.records.calibration import Calibration
from qpensieve.records.checkpoint import CheckpointError
from qpensieve.records.files import write_json
from qpensieve.records.links import refuse_links
from qpensieve.train.checkpointer import Checkpointer
from qpensieve.train.session import Session

PARTS = (folder.REPLAY, folder.CHECKPOINTS, folder.CALIBRATION, folder.CONFIG)
"""All that a saved agent may consist of."""
_BELOW = {
    folder.REPLAY: r"rows_\d+_\d+\.npy",
    folder.CHECKPOINTS: rf"step_\d+(\.old)?(/({re.escape(checkpoint.ARRAYS)}|{re.escape(checkpoint.META)}))?",
}
"""Folder of a saved agent -> what its files and folders are called."""
_READY, _MANIFEST = f"{checkpoint.TEMPORARY}ready", "parts.json"
"""Folder of a complete new save that takes the place of an earlier one, and the file in it that lists its parts."""
_SHOWN = 3
"""How many names of what is in the way a message shows."""


def save_agent(session: Session, path: str | Path, calibration: Calibration | None = None) -> Path:
    """Write a session and its calibration into a new or empty folder or over an earlier save; returns the folder.

    Raises:
        ValueError: The path is empty, or the environment has no name that another process could make it by.
        OSError: Something else is in the folder, or a file is in the way.
        CheckpointError: It cannot be written; an earlier save is as it was.
    """
    configs.check_can_be_saved(session.config)
    target = _checked(path)
    with _folder(target):
        new = Path(tempfile.mkdtemp(prefix=checkpoint.TEMPORARY, dir=target))
        try:
            configs.save(session.config, new / folder.CONFIG)
            if calibration is not None:
                calibrations.save(new / folder.CALIBRATION, calibration)
            Checkpointer(new, session).save_whole()
            _replace(new, target)
        except (CheckpointError, OSError) as error:
            reason = error.__cause__ or error
            raise CheckpointError(f"cannot save the agent: {reason}; {target} is unchanged") from error
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return target


def is_saved_agent(path: Path) -> bool:
    """Whether a folder holds an agent that was saved, and nothing else."""
    names = {entry.name for entry in path.iterdir() if not entry.name.startswith(checkpoint.TEMPORARY)}
    if not {folder.CONFIG, folder.CHECKPOINTS} <= names <= {*PARTS, folder.POLICY}:
        return False
    return _is_config(path / folder.CONFIG) and all(_fits(path / part, called) for part, called in _BELOW.items())


def _checked(path: str | Path) -> Path:
    """The path as a folder that may be written to."""
    if not str(path).strip():
        raise UserError("path must name the folder to save the agent in, got an empty one")
    target = Path(path)
    folder.refuse_file(target)
    if not target.exists():
        return target
    refuse_links(target)
    finish_save(target)
    names = sorted(entry.name for entry in target.iterdir() if not entry.name.startswith(checkpoint.TEMPORARY))
    if names and not is_saved_agent(target):
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        what = "a run" if folder.METRICS in names or folder.PROVENANCE in names else "something else"
        raise FileInTheWayError(
            f"cannot save the agent in {target}: the folder must be new, empty or hold an earlier save, but it holds "
            f"{what} ({', '.join(names[:_SHOWN])}{more}); choose another folder"
        )
    return target


def _is_config(path: Path) -> bool:
    try:
        configs.from_dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False
    return True


def _fits(part: Path, pattern: str) -> bool:
    """Whether all below a folder of a saved agent is called as it should be; what was still being written is."""
    below = [path.relative_to(part) for path in part.rglob("*")]
    ours = [name for name in below if not name.parts[0].startswith(checkpoint.TEMPORARY)]
    return all(re.fullmatch(pattern, name.as_posix()) for name in ours)


@contextlib.contextmanager
def _folder(target: Path) -> Iterator[None]:
    """Make a folder; where it is new and nothing comes of it, it is gone afterwards."""
    is_new = not target.exists()
    make_folder(target)
    try:
        yield
    except BaseException:
        if is_new:
            with contextlib.suppress(OSError):
                target.rmdir()
        raise


def finish_save(target: Path) -> None:
    """Complete a save over an earlier one that was killed between two renames; nothing where none was."""
    ready = target / _READY
    if ready.is_symlink() or not (ready / _MANIFEST).is_file():
        return
    _swap(ready, target)
    _discard(ready)


def _replace(new: Path, target: Path) -> None:
    """Put the parts of `new` into `target`, all of them or none.

    First `new` gets the name that says it is complete: from then on the next load or save
    finishes a killed one.
    """
    parts = [part for part in PARTS if (new / part).exists()]
    write_json(new / _MANIFEST, parts)
    ready = target / _READY
    new.rename(ready)
    try:
        _swap(ready, target)
    except BaseException:
        ready.rename(new)  # everything is back in its place, and not complete any more
        raise
    _discard(ready)


def _swap(new: Path, target: Path) -> None:
    """Move what `new` lists into `target` and what it replaces into `new`; if a move fails, all are taken back.

    It may be called again where it was cut off: what has moved already is no longer in `new`.
    """
    listed, done = json.loads((new / _MANIFEST).read_text()), []
    try:
        for part in PARTS:
            is_moved = part in listed and not (new / part).exists()
            for source, place in ((target / part, new / f"old-{part}"), (new / part, target / part)):
                if source.exists() and not is_moved:
                    source.rename(place)
                    done.append((source, place))
    except BaseException:
        for source, place in reversed(done):
            place.rename(source)
        raise


def _discard(ready: Path) -> None:
    """Remove the replaced parts; the name goes first, so that a half removed folder is not taken for a save."""
    gone = ready.with_name(f"{checkpoint.TEMPORARY}gone-{os.getpid()}")
    ready.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
