"""The log of a run, `metrics.jsonl`: one JSON row per event."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qpensieve.records.links import open_to_append
from qpensieve.records.reading import read_rows

TRAINING = "train"
"""Event of the rows of training metrics; the others are of evaluations."""
SHORT = "evaluation"
"""Event of the rows of short evaluations."""
FULL = "full evaluation"
"""Event of the rows of full evaluations."""


class MetricsLog:
    """Append-only `metrics.jsonl`; two runs of the same configuration differ only in fields named time_*."""

    def __init__(self, path: Path):
        self._file = open_to_append(path)

    def write(self, event: str, step: int, values: Mapping[str, Any]) -> None:
        row = {"event": event, "step": step} | {name: _plain(value) for name, value in values.items()}
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def is_logged(path: Path, event: str, step: int) -> bool:
    """Whether a log has this event at this step."""
    return any((row["event"], row["step"]) == (event, step) for row in read_rows(path))


def has_evaluations(path: Path) -> bool:
    """Whether a log tells of more than training."""
    return any(row["event"] != TRAINING for row in read_rows(path))


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
