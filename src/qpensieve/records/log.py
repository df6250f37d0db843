"""The log of a run, `metrics.jsonl`: one JSON row per event."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qpensieve.records.files import read_rows
from qpensieve.records.links import open_to_append

TRAINING = "train"
"""Event of the rows of training metrics."""
SHORT = "evaluation"
"""Event of the rows of short evaluations."""
FULL = "full evaluation"
"""Event of the rows of full evaluations."""
ALARM = "alarm"
"""Event of the rows of alarms: signs that the values of a policy run away."""


class MetricsLog:
    """Append-only `metrics.jsonl`; two runs of the same configuration differ only in fields named time_*."""

    def __init__(self, path: Path):
        self._file = open_to_append(path)

    def write(self, event: str, step: int, values: Mapping[str, Any], alarms: Iterable[Mapping[str, Any]] = ()) -> None:
        """Add a row, and with it, in one piece, those of alarms that it gives rise to."""
        rows = [(event, values), *((ALARM, alarm) for alarm in alarms)]
        named = lambda of: {name: _plain(value) for name, value in of.items()}
        self._file.write("".join(json.dumps({"event": event, "step": step} | named(of)) + "\n" for event, of in rows))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def is_logged(path: Path, event: str, step: int) -> bool:
    """Whether a log has this event at this step."""
    return any((row["event"], row["step"]) == (event, step) for row in read_rows(path))


def has_evaluations(path: Path) -> bool:
    """Whether a log tells of more than training."""
    return any(row["event"] in (SHORT, FULL) for row in read_rows(path))


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
