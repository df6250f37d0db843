"""A session on disk: checkpoints of runs, and agents that are saved whole or not at all."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from qpensieve import config as configs
from qpensieve.compatibility import SAME_NUMBERS, Difference, differences
from qpensieve.config import RunConfig
from qpensieve.errors import FileInTheWayError, UserError, make_folder
from qpensieve.records import calibration as calibrations
from qpensieve.records import checkpoint, folder
from qpensieve.records.calibration import Calibration
from qpensieve.records.checkpoint import Checkpoint, CheckpointError
from qpensieve.records.files import Expected, headers_of, interpreting, read_object, write_json
from qpensieve.records.folder import refuse_links
from qpensieve.replay.log import Segment
from qpensieve.train.session import Rows, Session

GROWING = ("lanes/", "memory/", "search/", "record/", checkpoint.POLICY)
"""Beginnings of names of arrays that grow during a run."""
FREE = ("log/",)
"""Beginnings of names of arrays that may be missing."""


class Checkpointer:
    """Writes a session into a folder and reads it back.

    Args:
        folder: A run folder, or one that an agent is saved in.
        session: What to keep.
    """

    def __init__(self, folder: Path, session: Session):
        self._folder, self._session = folder, session
        self._log = session.replay_log(folder)

    def append(self, rows: Rows | None) -> None:
        """Remember the rows of a block for the next checkpoint."""
        if self._log is not None and rows is not None and self._is_replay_kept:
            self._log.append(rows)

    @property
    def _is_replay_kept(self) -> bool:
        return self._session.config.keep_replay == "on"

    def save(self) -> None:
        """Write a checkpoint, with only the rows of the replay that are new since the last one."""
        self._write(self._log.flush() if self._log is not None and self._is_replay_kept else None, keep=2)
        if self._log is not None:
            self._log.prune(meta["replay"] or [] for _, meta in checkpoint.kept_metas(self._folder))

    def save_whole(self) -> None:
        """Write a checkpoint with the whole replay into a new folder."""
        held = self._session.replay_rows()
        if self._log is None or held is None:
            self._write(None, keep=1)
            return
        rows, first = held
        self._log.begin(first)
        self._log.append(rows)
        self._write(self._log.flush(), keep=1)

    def _write(self, manifest: list[Segment] | None, keep: int) -> None:
        meta = {"config": configs.to_dict(self._session.config), "replay": manifest}
        checkpoint.save(self._folder, self._session.step, self._session.arrays(), meta, keep)

    def latest(self, warn: Callable[[str], None], needs_replay: bool = True) -> Checkpoint | None:
        """Load the newest checkpoint that is whole and of this configuration; None if none was ever written.

        Args:
            warn: Called with a message for each damaged checkpoint, and if the checkpoint has no replay.
            needs_replay: Whether the replay must be whole too. False: where none is, the newest checkpoint is taken
                without its replay.

        Raises:
            NoneWholeError: There are only damaged ones.
        """
        said: list[str] = []
        expected = Expected(headers_of(self._session.arrays()), GROWING, FREE)
        try:
            check = lambda found: self._differs(found) or self._lost_replay(found)
            saved = checkpoint.load_latest(self._folder, said.append, check, expected)
        except checkpoint.NoneWholeError as damage:
            try:
                saved = checkpoint.load_latest(self._folder, lambda _: None, self._differs, expected)
            except checkpoint.NoneWholeError:
                raise damage from None
            if saved is None:
                return None
            said, lost = [], self._lost_replay(saved)
            if needs_replay:
                raise CheckpointError(
                    f"{self._folder} cannot continue with the same numbers: its replay is lost ({lost}). Its policies "
                    f"of step {saved.step:,} are whole: qpensieve evaluate, export-policy, watch and video take them, "
                    "and qpensieve.load in Python, which can also learn on with a new replay. Or start a new run in "
                    "another folder"
                ) from damage
            said.append(
                f"{saved.path} is loaded without its replay ({lost}): its policies are whole; training would fill a "
                "new replay first and continue with other numbers"
            )
            saved = replace(saved, meta=saved.meta | {"replay": None})
        else:
            if saved is not None and self._log is not None and saved.meta["replay"] is None:
                kept = "has no replay (keep_replay is off): training continues, but with other numbers"
                said.append(f"{saved.path} {kept}")
        for message in said:
            warn(message)
        return saved

    def _lost_replay(self, saved: Checkpoint) -> str | None:
        """Say what is wrong with the replay of a checkpoint; None if nothing."""
        return None if self._log is None else self._log.verify(saved.meta["replay"] or [])

    def _differs(self, saved: Checkpoint) -> str | None:
        """Say what is wrong with the `meta` of a checkpoint; None if nothing. Raises if the configuration differs."""
        before, manifest = saved.meta.get("config"), saved.meta.get("replay")
        if not isinstance(before, dict) or not isinstance(manifest, list | None):
            return "it must say its configuration and its replay"
        config, steps = self._session.config, before.get("steps", 0)
        # A population is planned for its length, which may grow; others end wherever they are told to.
        least = steps if config.method.is_population and isinstance(steps, int) else saved.step
        if found := _settings_that_differ(before, config, may_lengthen=least <= config.steps):
            raise CheckpointError(
                f"the checkpoint is of another configuration: {'; '.join(map(str, found))}. "
                "Resume with the saved configuration, or use another folder"
            )
        return None

    def restore(self, saved: Checkpoint) -> None:
        """Take the session back to a checkpoint; the folder stays as it is."""
        manifest = saved.meta["replay"]
        rows, first = (None, 0) if manifest is None or self._log is None else self._log.load(manifest)
        with interpreting(saved.path, "a checkpoint of this configuration"):
            self._session.restore(saved.arrays, rows, first)

    def cut(self, saved: Checkpoint | None) -> None:
        """Remove what a run wrote after a checkpoint (None: everything), so that it can be written again."""
        checkpoint.discard_after(self._folder, -1 if saved is None else saved.step)
        if self._log is not None:
            self._log.resume([] if saved is None else saved.meta["replay"] or [])


def _settings_that_differ(saved: dict[str, object], config: RunConfig, may_lengthen: bool) -> list[Difference]:
    """List the settings in which a checkpoint differs; both are planned for the new length where that is allowed."""
    try:
        before = configs.from_dict(saved)
    except (ValueError, TypeError):  # the comparison names what is odd
        return differences(saved, config, SAME_NUMBERS)
    before = configs.lengthened(before, config.steps) if may_lengthen else before
    return differences(before, configs.lengthened(config, config.steps), SAME_NUMBERS)


REPLACED = (
    *(folder.CHECKPOINTS, folder.REPLAY, folder.CONFIG, folder.METRICS, folder.EVALUATIONS, folder.SUMMARY),
    *(folder.CRITIC, folder.CALIBRATION, folder.LOCK, *folder.PICTURES),
)
"""Contents of a saved agent's folder that a save replaces: the earlier agent, and what commands measured of it."""
_BELOW = {
    folder.REPLAY: r"rows_\d+_\d+\.npy",
    folder.CHECKPOINTS: rf"step_\d+(/({re.escape(checkpoint.ARRAYS)}|{re.escape(checkpoint.META)}))?",
}
"""Folder of a saved agent -> what its files and folders are called."""
_READY, _MANIFEST = f"{checkpoint.TEMPORARY}ready", "parts.json"
"""Folder of a complete new save that takes the place of an earlier one, and the file in it that lists its parts."""


def save_agent(session: Session, path: str | Path, calibration: Calibration | None = None) -> Path:
    """Write a session and its calibration into a new or empty folder or over an earlier save; returns the folder.

    Raises:
        ValueError: The path is empty, or the environment has no name that another process could make it by.
        OSError: Something else is in the folder, or a file is in the way.
        CheckpointError: It cannot be written; an earlier save is as it was.
    """
    configs.check_can_be_saved(session.config)
    if not str(path).strip():
        raise UserError("path must name the folder to save the agent in, got an empty one")
    target = Path(path)
    folder.refuse_file(target)
    is_new = not target.exists()
    if not is_new:
        refuse_links(target)
        finish_save(target)
        _check_replaceable(target)
    make_folder(target)
    new = Path(tempfile.mkdtemp(prefix=checkpoint.TEMPORARY, dir=target))
    try:
        configs.save(session.config, new / folder.CONFIG)
        if calibration is not None:
            calibrations.save(new / folder.CALIBRATION, calibration)
        Checkpointer(new, session).save_whole()
        _replace(new, target)
    except (CheckpointError, OSError) as error:
        reason = error.__cause__ or error
        left = "the next load completes the save" if (target / _READY).exists() else f"{target} is unchanged"
        raise CheckpointError(f"cannot save the agent: {reason}; {left}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
        if is_new:
            with suppress(OSError):  # only an empty folder goes
                target.rmdir()
    return target


def is_saved_agent(path: Path) -> bool:
    """Return whether a folder holds a saved agent, perhaps with results of it, and nothing else."""
    names = _names(path)
    if not {folder.CONFIG, folder.CHECKPOINTS} <= names <= {*REPLACED, folder.POLICY}:
        return False
    try:
        configs.from_dict(read_object(path / folder.CONFIG))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False
    below = [(part, found.relative_to(path / part)) for part in _BELOW for found in (path / part).rglob("*")]
    ours = [(part, name) for part, name in below if not name.parts[0].startswith(checkpoint.TEMPORARY)]
    return all(re.fullmatch(_BELOW[part], name.as_posix()) for part, name in ours)


def _names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir() if not entry.name.startswith(checkpoint.TEMPORARY)}


def _check_replaceable(target: Path) -> None:
    """Refuse a folder that holds anything but a saved agent."""
    names = _names(target)
    if names and not is_saved_agent(target):
        shown = f"{', '.join(sorted(names)[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
        what = "a run" if folder.PROVENANCE in names else "something else"
        raise FileInTheWayError(
            f"cannot save the agent in {target}: the folder must be new, empty or hold an earlier save, but it holds "
            f"{what} ({shown}); choose another folder"
        )


def _replace(new: Path, target: Path) -> None:
    """Put the parts of `new` into `target`. Its name says that it is complete: the next load or save finishes it."""
    write_json(new / _MANIFEST, [part for part in REPLACED if (new / part).exists()])
    new.rename(target / _READY)
    finish_save(target)


def finish_save(target: Path) -> None:
    """Complete a save over an earlier one that was cut off between two renames, if there is one."""
    ready = target / _READY
    if not (ready / _MANIFEST).is_file() or ready.is_symlink():
        return
    listed = json.loads((ready / _MANIFEST).read_text())
    for part in REPLACED:
        if part in listed and not (ready / part).exists():  # it has moved already
            continue
        for source, place in ((target / part, ready / f"old-{part}"), (ready / part, target / part)):
            if source.exists():
                source.rename(place)
    gone = ready.with_name(f"{checkpoint.TEMPORARY}gone-{os.getpid()}")
    ready.rename(gone)  # first, so that a half removed folder is not taken for a save
    shutil.rmtree(gone, ignore_errors=True)
