"""Where a run is told about: one JSON row per event, and a progress line for people."""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np


class MetricsLog:
    """Append-only `metrics.jsonl`; fields named time_* differ between two runs of the same thing, the others do not."""

    def __init__(self, path: Path, tensorboard: Path | None = None):
        self._writer = _tensorboard(tensorboard) if tensorboard else None
        self._file = path.open("a")

    def write(self, event: str, step: int, values: Mapping[str, Any]) -> None:
        row = {"event": event, "step": step} | {name: _plain(value) for name, value in values.items()}
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        if self._writer:
            for name, value in values.items():
                if isinstance(value, np.ndarray) and value.ndim == 1:
                    self._writer.add_scalar(f"{event}/{name}", float(value.mean()), step)

    def close(self) -> None:
        self._file.close()
        if self._writer:
            self._writer.close()


def is_logged(path: Path, event: str, step: int) -> bool:
    """Whether a log has this event at this step."""
    rows = path.read_text().splitlines() if path.exists() else []
    return any((row["event"], row["step"]) == (event, step) for row in map(json.loads, rows))


class Progress:
    """One line that is kept up to date on a terminal, and now and then a plain line elsewhere."""

    def __init__(self, total: int, start: int, out: TextIO | None = None, quiet: bool = False):
        self._total, self._first, self._out, self._quiet = total, start, out or sys.stderr, quiet
        self._began = self._shown = time.monotonic()
        self._parts: dict[str, str] = {}
        self._period = 0.5 if self._out.isatty() else 30.0

    def note(self, **parts: str) -> None:
        """Change what stands behind the numbers: UT, HV, temperature."""
        self._parts |= parts

    def show(self, step: int, force: bool = False) -> None:
        now = time.monotonic()
        if self._quiet or (now - self._shown < self._period and not force):
            return
        self._shown = now
        rate = (step - self._first) / max(now - self._began, 1e-9)
        left = (self._total - step) / rate if rate > 0 else float("inf")
        share = step / self._total
        bar = "#" * int(20 * share) + "." * (20 - int(20 * share))
        notes = "  ".join(f"{name} {value}" for name, value in self._parts.items())
        line = f"[{bar}] {step:,}/{self._total:,} steps  {rate:,.0f} steps/s  {_clock(left)} left  {notes}"
        self._out.write(f"\r\x1b[K{line}" if self._out.isatty() else line + "\n")
        self._out.flush()

    def say(self, message: str) -> None:
        """A line of its own."""
        if self._quiet:
            return
        self._out.write(("\r\x1b[K" if self._out.isatty() else "") + message + "\n")
        self._out.flush()


def _clock(seconds: float) -> str:
    if not np.isfinite(seconds):
        return "--:--"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _tensorboard(folder: Path) -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ImportError("TensorBoard needs an extra package: pip install 'qpensieve[tensorboard]'") from error
    return SummaryWriter(str(folder))
