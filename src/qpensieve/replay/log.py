"""The replay on disk: every checkpoint writes one file, with only the rows that are new."""

import io
import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypedDict

import numpy as np
from jaxtyping import Float32

from qpensieve.records.checkpoint import CheckpointError, write_error
from qpensieve.records.files import TEMPORARY, find_damage, read_header, write_file
from qpensieve.records.folder import REPLAY

DTYPE = np.dtype("<f4")


class Segment(TypedDict):
    """One file of rows [lane, end - start, width], as a checkpoint's JSON lists it."""

    file: str
    start: int
    """Transitions that each lane had written before the first row."""
    end: int
    """Transitions that each lane had written after the last row."""
    checksum: str


Manifest = Sequence[Segment]
"""Segments that a checkpoint needs, oldest first and without gaps."""


class ReplayLog:
    """Rows of the replay in `run/replay`, in addition to the ring on the device.

    Every block goes to `append`; at a checkpoint `flush` returns the manifest to save in its `meta`. When that
    checkpoint is written, `prune` deletes files that no kept checkpoint needs.

    Args:
        run: The run folder.
        width: Numbers in a row.
        num_lanes: Number of lanes; they write together.
        capacity: Rows of each lane's ring.
    """

    def __init__(self, run: Path, width: int, num_lanes: int, capacity: int):
        self._run = run
        self._folder = run / REPLAY
        self._num_lanes, self._width, self._capacity = num_lanes, width, capacity
        self._segments: list[Segment] = []
        self._pending: list[Float32[np.ndarray, "lane K width"]] = []
        self._flushed = 0
        self.written = 0
        """Transitions of each lane so far, with those that are not yet on disk."""

    def append(self, block: Float32[np.ndarray, "lane K width"]) -> None:
        """Remember a copy of new rows until the next flush."""
        self._pending.append(np.array(block, dtype=DTYPE, order="C"))
        self.written += block.shape[1]

    def flush(self) -> list[Segment]:
        """Write the rows since the last flush; return the manifest of all rows in the ring.

        Raises:
            CheckpointError: The disk is full or cannot be written; the rows stay in memory for another try.
        """
        start, end = self._flushed, self.written
        if end > start:
            path = self._folder / f"rows_{start}_{end}.npy"
            try:
                self._folder.mkdir(exist_ok=True)
                checksum = write_file(path, self._write_pending)
            except OSError as error:
                raise write_error(path, self._run, error) from error
            self._segments.append(Segment(file=path.name, start=start, end=end, checksum=checksum))
            self._pending, self._flushed = [], end
        self._segments = [segment for segment in self._segments if segment["end"] > end - self._capacity]
        return [segment.copy() for segment in self._segments]

    def _write_pending(self, file: io.BufferedIOBase) -> None:
        """Write the pending blocks as one array [lane, rows, width]; block by block, to need no second copy."""
        shape = (self._num_lanes, self.written - self._flushed, self._width)
        header = {"descr": DTYPE.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)  # pyright: ignore[reportArgumentType]
        for lane in range(self._num_lanes):
            for block in self._pending:
                file.write(block[lane].data)

    def prune(self, keep: Iterable[Manifest]) -> None:
        """Delete files that neither these manifests (of the kept checkpoints) nor the log need."""
        needed = {segment["file"] for manifest in [*keep, self._segments] for segment in manifest}
        for path in [*self._folder.glob("rows_*.npy"), *self._folder.glob(f"{TEMPORARY}*")]:
            if path.name not in needed:
                path.unlink()

    def resume(self, manifest: Manifest, start: int = 0) -> None:
        """Continue after the rows of `manifest`; if it is empty, after `start` transitions that are not kept.

        Files with later rows, which a killed run wrote, are deleted. Files from before the manifest stay: an older
        checkpoint may need them.
        """
        self._segments, self._pending = [Segment(**segment) for segment in manifest], []
        self._flushed = self.written = manifest[-1]["end"] if manifest else start
        needed = {segment["file"] for segment in manifest}
        for path in self._folder.glob("rows_*.npy"):
            name = re.fullmatch(r"rows_(\d+)_(\d+)\.npy", path.name)
            if name and int(name[2]) > self._flushed and path.name not in needed:
                path.unlink()
        for path in self._folder.glob(f"{TEMPORARY}*"):
            path.unlink()

    def verify(self, manifest: Manifest) -> str | None:
        """Return what is wrong with the files of `manifest`; None if nothing is."""
        if not all(map(_is_segment, manifest)):
            return "the list of its replay's files is not one that this program writes"
        for segment, following in itertools.pairwise(manifest):
            if segment["end"] != following["start"]:
                return f"the replay has no rows between {segment['file']} and {following['file']}"
        if manifest and manifest[0]["start"] > self._first(manifest):
            return f"the replay has no rows before {manifest[0]['file']}"
        for segment in manifest:
            if problem := self._verify_segment(segment):
                return f"segment of the replay {self._folder / segment['file']}: {problem}"
        return None

    def _verify_segment(self, segment: Segment) -> str | None:
        # The name is checked, so that an altered manifest cannot point outside the folder.
        if segment["file"] != f"rows_{segment['start']}_{segment['end']}.npy":
            return "its name does not fit its rows"
        if problem := find_damage(self._folder / segment["file"], segment["checksum"]):
            return problem
        try:  # the header first: it may lie
            found = read_header(self._folder / segment["file"])
        except ValueError as error:
            return str(error)
        expected = (self._num_lanes, segment["end"] - segment["start"], self._width)
        if found.shape != expected or found.dtype != DTYPE:
            return f"it holds {found.dtype} {found.shape}, not {DTYPE} {expected}"
        return None

    def _first(self, manifest: Manifest) -> int:
        """Return the index of the oldest row in the ring."""
        return max(manifest[-1]["end"] - self._capacity, 0) if manifest else 0

    def load(self, manifest: Manifest) -> tuple[Float32[np.ndarray, "lane rows width"], int]:
        """Return the newest rows, at most `capacity`, in the order written, and the number of rows before them.

        Row i belongs at (first + i) % capacity of the ring.

        Raises:
            CheckpointError: A file is missing or damaged; the message names it.
        """
        if problem := self.verify(manifest):
            raise CheckpointError(problem)
        first, end = self._first(manifest), manifest[-1]["end"] if manifest else 0
        rows = np.empty((self._num_lanes, end - first, self._width), DTYPE)
        for segment in manifest:
            skipped = max(first - segment["start"], 0)
            begin = segment["start"] + skipped - first
            kept = np.load(self._folder / segment["file"], mmap_mode="r", allow_pickle=False)
            rows[:, begin : segment["end"] - first] = kept[:, skipped:]
        return rows, first


def _is_segment(found: object) -> bool:
    """Return whether an entry of a checkpoint's JSON is a segment; the JSON may be from an unknown source."""
    types = {"file": str, "start": int, "end": int, "checksum": str}
    if not isinstance(found, dict) or {name: type(value) for name, value in found.items()} != types:
        return False
    return 0 <= found["start"] < found["end"]
