"""Checkpoints of a session: write them, find the newest whole one, restore it."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from qpensieve import config as configs
from qpensieve.compatibility import SAME_NUMBERS, settings_that_differ
from qpensieve.records import checkpoint
from qpensieve.records.checkpoint import Checkpoint, CheckpointError
from qpensieve.records.files import Expected, headers_of, interpreting
from qpensieve.replay.log import Segment
from qpensieve.train.session import Rows, Session

GROWING = ("lanes/", "memory/", "search/", "record/", checkpoint.POLICY)
"""Prefixes of the names of arrays that grow during a run."""
FREE = ("log/",)
"""Prefixes of the names of arrays that a checkpoint may hold although a new session has none."""


class Checkpointer:
    """Writes a session into a folder and reads it back.

    Args:
        folder: A run folder, or the folder of a saved agent.
        session: The session to write and to restore.
    """

    def __init__(self, folder: Path, session: Session):
        self._folder, self._session = folder, session
        self._log = session.replay_log(folder)
        self._kept_log = self._log if session.config.keep_replay == "on" else None

    def append(self, rows: Rows | None) -> None:
        """Add the rows of a block (None: no replay) to the next checkpoint; without `keep_replay` do nothing."""
        if self._kept_log is not None and rows is not None:
            self._kept_log.append(rows)

    def save(self) -> None:
        """Write a checkpoint and drop all but the last two; only new rows of the replay are written."""
        self._write(None if self._kept_log is None else self._kept_log.flush())
        if self._kept_log is not None:
            self._kept_log.prune(meta["replay"] or [] for _, meta in checkpoint.kept_metas(self._folder))

    def save_whole(self) -> None:
        """Write a checkpoint with the whole replay (if there is one) into a new folder."""
        held, manifest = self._session.replay_rows(), None
        if self._log is not None and held is not None:
            rows, first = held
            self._log.resume([], first)
            self._log.append(rows)
            manifest = self._log.flush()
        self._write(manifest)

    def _write(self, manifest: list[Segment] | None) -> None:
        meta = {"config": configs.to_dict(self._session.config), "replay": manifest}
        checkpoint.save(self._folder, self._session.step, self._session.arrays(), meta)

    def latest(self, warn: Callable[[str], None], needs_replay: bool = True) -> Checkpoint | None:
        """Load the newest checkpoint that is whole and of this configuration; None if none was ever written.

        Args:
            warn: Called with a message for each damaged checkpoint, and if the checkpoint has no replay.
            needs_replay: Whether the replay must be whole too. False: if no checkpoint has a whole replay, the newest
                one is taken without its replay.

        Raises:
            NoneWholeError: There are only damaged checkpoints.
            CheckpointError: The replay is lost and needed, or the configuration is another one.
        """
        said: list[str] = []
        expected = Expected(headers_of(self._session.arrays()), GROWING, FREE)
        try:
            check = lambda found: self._differs(found) or self._lost_replay(found)
            saved = checkpoint.load_latest(self._folder, said.append, check, expected)
        except checkpoint.NoneWholeError as damage:
            saved = checkpoint.load_latest(self._folder, lambda _: None, self._differs, expected)
            # Meanwhile a run that trains may have replaced its checkpoints.
            if saved is None or (lost := self._lost_replay(saved)) is None:
                return saved
            if needs_replay:
                raise CheckpointError(
                    f"{self._folder} cannot continue with the same numbers: its replay is lost ({lost}). Its policies "
                    f"of step {saved.step:,} are whole: qpensieve evaluate, export-policy, watch and video take them, "
                    "and qpensieve.load in Python, which can also learn on with a new replay. Or start a new run in "
                    "another folder"
                ) from damage
            warn(
                f"{saved.path} is loaded without its replay ({lost}): its policies are whole; training would fill a "
                "new replay first and continue with other numbers"
            )
            return replace(saved, meta=saved.meta | {"replay": None})
        if saved is not None and self._log is not None and saved.meta["replay"] is None:
            kept = "has no replay (keep_replay is off): training continues, but with other numbers"
            said.append(f"{saved.path} {kept}")
        for message in said:
            warn(message)
        return saved

    def _lost_replay(self, saved: Checkpoint) -> str | None:
        """Return what is wrong with the replay of a checkpoint; None if nothing is."""
        return None if self._log is None else self._log.verify(saved.meta["replay"] or [])

    def _differs(self, saved: Checkpoint) -> str | None:
        """Return what is wrong with the `meta` of a checkpoint; None if nothing is.

        Raises:
            CheckpointError: The checkpoint is of another configuration.
        """
        before, manifest = saved.meta.get("config"), saved.meta.get("replay")
        if not isinstance(before, dict) or not isinstance(manifest, list | None):
            return "it must say its configuration and its replay"
        config, steps = self._session.config, before.get("steps", 0)
        # The length of a population is planned and may only grow; other runs may end at any later step.
        least = steps if config.method.is_population and isinstance(steps, int) else saved.step
        with suppress(ValueError, TypeError):  # else the comparison names the settings that cannot be read
            before = configs.from_dict(before)
            before = configs.lengthened(before, config.steps) if least <= config.steps else before
            config = configs.lengthened(config, config.steps)
        if found := settings_that_differ(before, config, SAME_NUMBERS):
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
