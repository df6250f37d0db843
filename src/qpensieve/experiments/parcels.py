"""Folders of tasks that travel, where machines share no file system: as a tar file, in pieces of a few megabytes.

What goes out is the task and its newest state; what comes home is the run, or the attempt as it was left, so that the
next worker goes on from there, wherever that one runs.
"""

import os
import secrets
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from qpensieve.experiments import fence
from qpensieve.records.atomic import TEMPORARY
from qpensieve.records.trust import TRUSTED

PIECE = 8 << 20
"""Bytes that are sent at a time."""
TASK = "task.json"


class Parcel(NamedTuple):
    """A tar file on a node."""

    node: str
    path: str
    size: int


def pack_task(folder: Path) -> Iterator[bytes]:
    """A task and its newest state, in pieces."""
    state = fence.newest(folder)
    names = [name for name in (TASK, TRUSTED) if (folder / name).exists()] + ([] if state is None else [state.name])
    with tempfile.TemporaryDirectory(prefix="qpensieve-") as scratch:
        path = Path(scratch) / "task.tar"
        _pack(folder, names, path)
        for start in range(0, path.stat().st_size, PIECE):
            yield read_piece(str(path), start)


def unpack_away(pieces: Iterable[bytes], name: str) -> Path:
    """Put a task into a new folder of this machine."""
    folder = Path(tempfile.mkdtemp(prefix="qpensieve-")) / name
    folder.mkdir()
    _unpack(pieces, folder)
    return folder


def pack_run(folder: Path, node: str) -> Parcel:
    """Pack what has become of a task that was unpacked here, with the logs of its workers."""
    state = fence.newest(folder)
    names = [path.name for path in folder.glob("log-*.txt")] + ([] if state is None else [state.name])
    path = folder.parent / "run.tar"
    _pack(folder, names, path)
    return Parcel(node, str(path), path.stat().st_size)


def read_piece(path: str, start: int) -> bytes:
    """A piece of a file."""
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(PIECE)


def discard(path: str) -> None:
    """Remove a parcel and what it was packed from."""
    shutil.rmtree(Path(path).parent, ignore_errors=True)


def unpack_home(pieces: Iterable[bytes], folder: Path) -> None:
    """Put what has become of a task into its folder: the run, or an attempt that was left.

    Where another attempt has come home before, this one is dropped.
    """
    scratch = folder / f"{TEMPORARY}attempt-0000-{secrets.token_hex(4)}"
    scratch.mkdir()
    try:
        _unpack(pieces, scratch)
        for path in sorted(scratch.glob("log-*.txt")):
            number = 1 + max((int(log.stem.removeprefix("log-")) for log in folder.glob("log-[0-9]*.txt")), default=0)
            os.rename(path, folder / f"log-{number:04d}.txt")
        fence.bring(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _pack(folder: Path, names: list[str], path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        for name in names:
            archive.add(folder / name, name, filter=_without_temporaries)


def _without_temporaries(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if Path(entry.name).name.startswith(TEMPORARY) else entry


def _unpack(pieces: Iterable[bytes], folder: Path) -> None:
    with tempfile.TemporaryFile() as file:
        for piece in pieces:
            file.write(piece)
        file.seek(0)
        with tarfile.open(fileobj=file, mode="r:") as archive:
            archive.extractall(folder, filter="data")  # plain files and folders, none outside
