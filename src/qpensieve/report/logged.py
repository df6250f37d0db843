"""Rows of training metrics, as pictures read them."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from qpensieve.records.log import ALARM, TRAINING
from qpensieve.records.reading import read_rows

Series = tuple[Int64[np.ndarray, " t"], Float64[np.ndarray, "t seed"]]
"""Steps and the values of all seeds."""


def read_training(path: Path) -> list[dict[str, Any]]:
    """Training rows by step; if a step occurs twice (a resumed run), the later row counts. Broken lines are skipped."""
    by_step = {row["step"]: row for row in read_rows(path) if row["event"] == TRAINING}
    return [by_step[step] for step in sorted(by_step)]


def alarm_steps(path: Path) -> list[int]:
    """Steps at which there was an alarm."""
    return sorted({row["step"] for row in read_rows(path) if row["event"] == ALARM})


def read_series(rows: list[dict[str, Any]], key: str, num_seeds: int) -> Series | None:
    """Steps and values of one logged quantity, or None if no row has it; values that are not finite leave a gap.

    Where seeds have several agents, the mean over a seed's, or the largest of peaks.
    """
    pairs = [(row["step"], row[key]) for row in rows if _fits(row.get(key, ()), num_seeds)]
    if not pairs:
        return None
    steps = np.array([step for step, _ in pairs], np.int64)
    agents = np.array([value for _, value in pairs], np.float64).reshape(len(pairs), num_seeds, -1)
    values = agents.max(axis=2) if key.endswith("_max") else agents.mean(axis=2)
    is_finite = np.isfinite(values)
    return (steps, np.where(is_finite, values, np.nan)) if is_finite.any() else None


def _fits(value: Any, num_seeds: int) -> bool:
    return np.size(value) > 0 and np.size(value) % num_seeds == 0
