"""Files that are written whole or not at all: a reader sees the old file or the new one, never half of one.

A file is written under a temporary name, synced and renamed. So a name that does not start with `TEMPORARY` belongs to
something complete.
"""

import io
import json
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qpensieve.errors import file_errors

TEMPORARY = ".tmp-"
"""Prefix of the name of everything that is still being written."""
CHUNK = 1 << 20
"""Bytes read at a time when a file is checked."""


class _Checksummed(io.RawIOBase):
    """A file that computes the checksum of what is written. It cannot seek, so no byte changes afterwards."""

    def __init__(self, file: io.BufferedWriter):
        self._file, self._size, self._crc = file, 0, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        size = memoryview(data).nbytes
        self._crc, self._size = zlib.crc32(data, self._crc), self._size + size
        self._file.write(data)
        return size

    @property
    def checksum(self) -> str:
        return _format_checksum(self._size, self._crc)


def write_file(path: Path, write: Callable[[io.RawIOBase], object]) -> str:
    """Write `path` through `write`, whole or not at all; returns the checksum of what was written.

    A symbolic link of that name is replaced; what it points to is left alone. The folder must be there: one that was
    renamed while a process wrote into it (`experiments/tasks.py`) must not come back.
    """
    temporary = _temporary(path)
    with file_errors(path, temporary):
        temporary.unlink(missing_ok=True)  # one from before
        try:
            with open(temporary, "xb") as file:  # a new file, never one that a link of that name points to
                stream = _Checksummed(file)
                write(stream)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(path.parent)
    return stream.checksum


def _temporary(path: Path) -> Path:
    """The name under which this process writes a file."""
    return path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}")


def check_can_write(path: Path) -> None:
    """Raise now what `write_file` would raise later where nothing can be written beside `path`; leaves no file."""
    temporary = _temporary(path)
    with file_errors(path, temporary):
        temporary.unlink(missing_ok=True)
        temporary.touch(exist_ok=False)
        temporary.unlink()


def write_text(path: Path, text: str) -> str:
    """Write `text` to `path`; returns its checksum."""
    return write_file(path, lambda file: file.write(text.encode()))


def write_json(path: Path, content: Any) -> str:
    """Write `content` to `path` as indented JSON; returns its checksum."""
    return write_text(path, json.dumps(content, indent=2) + "\n")


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Write named arrays to `path`; returns its checksum."""
    return write_file(path, lambda file: np.savez(file, allow_pickle=False, **arrays))  # pyright: ignore[reportArgumentType]


def write_small_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Write named arrays to `path`, compressed; returns its checksum.

    The archive is put together in memory, so that equal arrays make the same bytes as a plain `np.savez_compressed`.
    """
    archive = io.BytesIO()
    np.savez_compressed(archive, allow_pickle=False, **arrays)  # pyright: ignore[reportArgumentType]
    return write_file(path, lambda file: file.write(archive.getbuffer()))


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum_of(data: bytes) -> str:
    """The checksum that a file of these bytes has."""
    return _format_checksum(len(data), zlib.crc32(data))


def find_damage(path: Path, checksum: str) -> str | None:
    """What is wrong with a file that was written with this checksum; None if nothing."""
    if not path.is_file():
        return f"{path.name} is missing"
    size = path.stat().st_size
    if str(size) != checksum.split("-")[0]:
        return f"{path.name} has {size} bytes, but {checksum.split('-')[0]} were written"
    if _format_checksum(size, _crc(path)) != checksum:
        return f"{path.name} was altered: its checksum is not the one written"
    return None


def _format_checksum(size: int, crc: int) -> str:
    return f"{size}-crc32-{crc:08x}"


def _crc(path: Path) -> int:
    crc, buffer = 0, memoryview(bytearray(CHUNK))
    with open(path, "rb", buffering=0) as file:
        while size := file.readinto(buffer):
            crc = zlib.crc32(buffer[:size], crc)
    return crc
