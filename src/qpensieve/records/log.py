"""The log of a run, `metrics.jsonl`: one JSON row per event."""

import json
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from qpensieve.records.checkpoint import CheckpointError
from qpensieve.records.files import FileError, parse, write_file
from qpensieve.records.folder import open_to_append, refuse_link

TRAINING = "train"
"""Event of the rows of training metrics."""
SHORT = "evaluation"
"""Event of the rows of short evaluations."""
FULL = "full evaluation"
"""Event of the rows of full evaluations."""
ALARM = "alarm"
"""Event of the rows of alarms: signs that the values of a policy run away."""


class MetricsLog:
    """Appends rows to `metrics.jsonl`. Logs of equal configurations differ only in fields named time_*.

    The file is opened when the first row is written: before that, a resumed run may replace the file.
    """

    def __init__(self, path: Path):
        self._path = path
        self._file: TextIO | None = None

    def write(
        self, event: str, step: int, values: Mapping[str, object], alarms: Iterable[Mapping[str, object]] = ()
    ) -> None:
        """Add a row and the rows of its alarms, in one piece."""
        if self._file is None:
            refuse_link(self._path)
            if self._path.exists() and not self._path.read_bytes().endswith(b"\n"):
                cut_log(self._path, sys.maxsize)  # drops the row that a killed run left unfinished
            self._file = open_to_append(self._path)
        rows = [(event, values), *((ALARM, alarm) for alarm in alarms)]
        plain = lambda value: value.tolist()  # of NumPy's arrays and numbers
        texts = [json.dumps({"event": event, "step": step} | dict(of), default=plain) for event, of in rows]
        self._file.write("".join(text + "\n" for text in texts))
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def read_rows(path: Path, newest: int | None = None) -> list[dict[str, Any]]:
    """Read the rows of a log that have an event and a step; leave out other lines, such as one cut off by a crash.

    Args:
        path: The log; a missing one has no rows.
        newest: Number of bytes to read, at the end of the log. None: all.
    """
    if not path.is_file():
        return []
    with open(path, "rb") as file:
        file.seek(0 if newest is None else max(0, path.stat().st_size - newest))
        lines = file.read().splitlines()
    rows = []
    for line in lines:
        with suppress(FileError):
            row = parse(path, line)
            if isinstance(row, dict) and isinstance(row.get("event"), str) and type(row.get("step")) is int:
                rows.append(row)
    return rows


def is_logged(path: Path, event: str, step: int) -> bool:
    """Return whether a log has this event at this step."""
    return any((row["event"], row["step"]) == (event, step) for row in read_rows(path))


def has_evaluations(path: Path) -> bool:
    """Return whether a log has rows of evaluations."""
    return any(row["event"] in (SHORT, FULL) for row in read_rows(path))


def cut_log(path: Path, step: int) -> None:
    """Keep only the rows of a log up to `step`, and drop a last line that a killed run left unfinished.

    Raises:
        CheckpointError: Another line is no row with a step.
    """
    if not path.exists():
        return
    lines, kept = path.read_bytes().splitlines(), list[bytes]()
    for number, line in enumerate(lines, start=1):
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + b"\n")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if number < len(lines):
                raise CheckpointError(f"line {number} of {path} must be a row with a step: {error!r}") from error
    write_file(path, lambda file: file.writelines(kept))
