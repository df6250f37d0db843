"""The terminal: the progress line, and how numbers and tables are shown."""

import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

Row = dict[str, Any]
"""Heading -> value."""


class Progress:
    """A progress line: updated in place on a terminal, else printed from time to time."""

    def __init__(self, total: int, start: int, out: TextIO | None = None, quiet: bool = False):
        self._total, self._first, self._out, self._quiet = total, start, out or sys.stderr, quiet
        self._began = self._shown = time.monotonic()
        self._parts: dict[str, str] = {}
        self._period = 0.5 if self._out.isatty() else 30.0

    def note(self, **parts: str) -> None:
        """Change the notes after the numbers: UT, HV, temperature."""
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
        """Print a message on its own line."""
        if self._quiet:
            return
        self._out.write(("\r\x1b[K" if self._out.isatty() else "") + message + "\n")
        self._out.flush()


def format_number(value: float | int, digits: int = 4, whole_from: float | int = 1e4) -> str:
    """`value` with `digits` significant digits; a whole number with commas if it is `whole_from` or more."""
    return f"{value:,.0f}" if abs(value) >= whole_from else f"{value:.{digits}g}"


def format_spread(mean: float, std: float, show: Callable[..., str] = format_number) -> str:
    """Mean and standard deviation, each shown by `show`."""
    return f"{show(mean)} +- {show(std)}"


def format_table(rows: Sequence[Row]) -> str:
    """A table with one column per key of the first row: words left, numbers right, a line below the headings."""
    names = list(rows[0])
    is_text = [all(isinstance(row[name], str) for row in rows) for name in names]
    lines = align([names, *([_show(row[name]) for name in names] for row in rows)], is_text)
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def format_markdown(rows: Sequence[Row]) -> str:
    """The rows as a table in Markdown, with one column per key of the first row."""
    names = list(rows[0])
    cells = lambda row: [f"{row[name]:,}" if isinstance(row[name], int) else str(row[name]) for name in names]
    lines = [names, ["---"] * len(names), *map(cells, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def align(lines: Sequence[Sequence[str]], is_left: Sequence[bool]) -> list[str]:
    """One line per row of cells, with aligned columns: left or right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    pad = lambda cell, width, left: cell.ljust(width) if left else cell.rjust(width)
    return ["  ".join(map(pad, cells, widths, is_left)).rstrip() for cells in lines]


def _show(value: object) -> str:
    if value is None:
        return "-"
    return format_number(value, digits=3, whole_from=1000) if isinstance(value, float) else str(value)


def _clock(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "--:--"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"
