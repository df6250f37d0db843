"""JSON and logs of a folder that anyone may have written: one error that names the file, whatever is wrong."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qpensieve.errors import MissingFileError, UserError, file_errors

LIMIT = 64 << 20
"""Bytes of a JSON file; parsed it takes many times as much."""


class FileError(UserError):
    """A file does not hold what it should; the message names it."""


def parse(path: Path, content: bytes | str) -> Any:
    """What JSON of a file says; FileError where it is none."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise FileError(f"cannot read {path}: its JSON is nested too deeply") from error
    except (ValueError, MemoryError) as error:
        raise FileError(f"cannot read {path}: it is not JSON ({error})") from error


def read_bytes(path: Path) -> bytes:
    """The content of a file of moderate size; FileError where it is no plain file or too large."""
    with file_errors(path):
        if not path.exists():
            raise MissingFileError(f"{path} is missing")
        if not path.is_file():
            raise FileError(f"cannot read {path}: it is not a file")
        if path.stat().st_size > LIMIT:
            raise FileError(f"cannot read {path}: it has {path.stat().st_size:,} bytes, at most {LIMIT:,} are read")
        return path.read_bytes()


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object of a file; FileError where it is none."""
    content = parse(path, read_bytes(path))
    if not isinstance(content, dict):
        raise FileError(f"cannot read {path}: it holds a {type(content).__name__}, not a JSON object")
    return content


def read_rows(path: Path, newest: int | None = None) -> list[dict[str, Any]]:
    """The rows of a log that have an event and a step; other lines (one cut off by a crash) are left out.

    Args:
        path: The log; it may be missing.
        newest: Read only so many bytes at its end; None: all.
    """
    if not path.is_file():
        return []
    with open(path, "rb") as file:
        file.seek(0 if newest is None else max(0, path.stat().st_size - newest))
        lines = file.read().splitlines()
    rows = []
    for line in lines:
        try:
            row = parse(path, line)
        except FileError:
            continue
        if isinstance(row, dict) and isinstance(row.get("event"), str) and type(row.get("step")) is int:
            rows.append(row)
    return rows


@contextmanager
def interpreting(path: Path, kind: str) -> Iterator[None]:
    """Raise what goes wrong while the content of a file is taken apart as FileError.

    Args:
        path: The file.
        kind: What it should hold, such as `a configuration`.
    """
    try:
        yield
    except (FileError, OSError):
        raise
    except KeyError as error:
        raise FileError(f"cannot read {path} as {kind}: {error.args[0]!r} is missing") from error
    except (ValueError, TypeError, AttributeError, IndexError, OverflowError, RecursionError, MemoryError) as error:
        raise FileError(f"cannot read {path} as {kind}: {error}") from error
