"""The terminal: the progress line, and how numbers and tables are shown."""

import math
import os
import re
import shutil
import sys
import textwrap
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

Row = Mapping[str, str | float | int | None]
"""Heading -> value."""

COMPILING, RANDOM, LEARNING, EVALUATING, SAVING = "compiling", "random steps", "learning", "evaluating", "saving"
DONE = "done"
"""What a run may be doing. The first block of random steps and the first of learning are compiling."""
RUNNING = "evaluation running"
"""Shown while worker processes play an evaluation."""
HALF_LIFE = 120.0
"""Seconds after which a measured pace counts half."""
SURE_AFTER = 3.0
"""Seconds of learning after which its pace is taken for the run's."""
PAGE = 79
"""Columns that tables and texts keep to."""
NARROW, WIDE = 70, 100
"""Columns of a terminal too narrow for a bar, and of one with room for a long one."""
LONG_RUN = 600.0
"""A run that takes more seconds than this says so."""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
"""Codes that colour text on a terminal; Gymnasium puts them into its warnings."""


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show warnings as sentences without colours; only those of other kinds name their line of code."""
    usual = warnings.formatwarning

    def format_warning(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        text = COLOUR.sub("", str(message))
        return f"qpensieve: {text}\n" if category is UserWarning else usual(text, category, filename, lineno, line)

    warnings.formatwarning = format_warning
    try:
        yield
    finally:
        warnings.formatwarning = usual


@runtime_checkable
class Output(Protocol):
    """A stream of text, such as stderr."""

    def write(self, text: str, /) -> int: ...
    def flush(self) -> None: ...
    def isatty(self) -> bool: ...
    def fileno(self) -> int: ...


@dataclass(frozen=True)
class Workload:
    """The work of a run: its random steps and evaluations, and words for people.

    Attributes:
        random_steps: Up to this step nothing is learned; these steps are fast, and timed apart.
        eval_period: Steps between evaluations; 0: there are none.
        final_evaluation: How many of them the evaluation at the end is worth.
        size: The run in words, such as `1.5M steps x 5 seeds`; nothing is said of a run without.
        hint: What is said after the time that a long run takes.
        unit: What is counted.
    """

    random_steps: int = 0
    eval_period: int = 0
    final_evaluation: float = 0.0
    size: str = ""
    hint: str = ""
    unit: str = "steps"


class _Pace:
    """Seconds per step; recent ones count more."""

    def __init__(self) -> None:
        self.seconds = self.steps = 0.0

    def add(self, seconds: float, steps: int) -> None:
        fade = 0.5 ** (seconds / HALF_LIFE)
        self.seconds = self.seconds * fade + seconds
        self.steps = self.steps * fade + steps

    def time_for(self, steps: int) -> float:
        """Seconds that so many steps take; infinite while no step was timed."""
        if steps <= 0:
            return 0.0
        return steps * self.seconds / self.steps if self.steps else math.inf


class Progress:
    """One line that is kept up to date on a terminal and never wraps; now and then a plain line elsewhere.

    Args:
        total: The step at which all is done.
        start: The step reached already.
        out: Where to write; default: stderr.
        quiet: Write nothing but answers.
        workload: What else takes time.
    """

    def __init__(
        self, total: int, start: int, out: Output | None = None, quiet: bool = False, workload: Workload | None = None
    ):
        self._total, self._step, self._out, self._quiet = total, start, out or sys.stderr, quiet
        self._workload = workload or Workload()
        self._phase = self._work = LEARNING
        self._seen: set[str] = set()
        self._is_compiling = self._is_live = False
        self._is_estimated = not self._workload.size
        self._began = self._marked = self._shown = time.monotonic()
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._paces: defaultdict[str, _Pace] = defaultdict(_Pace)
        self._evaluation = self._in_workers = 0.0
        self._running_since: float | None = None
        self._notes: dict[str, str] = {}
        self._period = 0.5 if self._out.isatty() else 30.0

    def note(self, **notes: str) -> None:
        """Show these values after the numbers from now on, the most important first: UT, HV, temperature."""
        self._notes = notes

    def mark_evaluation(self, is_running: bool) -> None:
        """Show whether worker processes play an evaluation. The one at the end is assumed to take as long."""
        now = time.monotonic()
        if is_running and self._running_since is None:
            self._running_since = now
        elif not is_running and self._running_since is not None:
            self._in_workers, self._running_since = now - self._running_since, None

    def announce(self) -> None:
        """Say how large the run is; how long it takes can be said after the first learning steps."""
        if self._workload.size and self._step < self._total:
            self.say(self._workload.size)

    def enter(self, phase: str) -> None:
        """What is done from now on; shown at once where it is new, however long it takes."""
        self._account()
        is_new, is_other = phase not in self._seen, phase != self._phase
        self._seen.add(phase)
        self._phase = phase
        if phase in (RANDOM, LEARNING):
            self._work, self._is_compiling = phase, self._is_compiling or is_new
        if is_new or (is_other and self._out.isatty()):
            self._draw()

    def show(self, step: int, force: bool = False) -> None:
        """What was done since the last call has brought the run to `step`."""
        self._account()
        self._count(step)
        self._say_estimate()
        if force or time.monotonic() - self._shown >= self._period:
            self._draw()

    def say(self, message: str) -> None:
        """A line of its own."""
        if not self._quiet:
            self.answer(message)

    def answer(self, message: str) -> None:
        """A line of its own even where all else is quiet: someone has asked."""
        self._out.write(("\r\x1b[K" if self._is_live else "") + message + "\n")
        self._is_live = False
        self._out.flush()

    def end(self) -> None:
        """Leave the line as it is: what others write comes below it."""
        if self._is_live:
            self._out.write("\n")
            self._is_live = False

    def _account(self) -> None:
        now = time.monotonic()
        self._spent[self._phase] += now - self._marked
        self._marked = now

    def _count(self, step: int) -> None:
        """Take the time since the last steps as the pace of what made them; compiling is nobody's pace."""
        spent, self._spent = self._spent, defaultdict(float)
        self._evaluation = spent.pop(EVALUATING, self._evaluation)
        num, self._step = step - self._step, step
        if self._is_compiling:
            self._is_compiling = num == 0
        else:
            self._paces[self._work].add(sum(spent.values()), num)

    def seconds_left(self) -> float:
        """Random steps at their pace, learning at its own, and evaluations as the last one took; or infinite."""
        ahead, left = self._workload, self._total - self._step
        num_random = max(0, min(left, ahead.random_steps - self._step))
        seconds = self._paces[RANDOM].time_for(num_random) + self._paces[LEARNING].time_for(left - num_random)
        period = ahead.eval_period
        num = -(-self._total // period) - self._step // period if period else 0
        return seconds + self._evaluation * num + max(self._evaluation, self._in_workers) * ahead.final_evaluation

    def _say_estimate(self) -> None:
        """Once, as soon as learning has shown its pace: how long a long run will take."""
        if self._is_estimated or self._paces[LEARNING].seconds < SURE_AFTER:
            return
        self._is_estimated = True
        seconds = self.seconds_left()
        if seconds > LONG_RUN:
            hint = self._workload.hint and f"; {self._workload.hint}"
            self.say(f"{self._workload.size}: {format_about(seconds)} more on this machine{hint}")

    def _draw(self) -> None:
        self._shown = time.monotonic()
        if self._quiet:
            return
        self._is_live = self._out.isatty()
        # The last column stays free: some terminals wrap once it is written.
        line = fit(self._parts(), width_of(self._out) - 1) if self._is_live else fit(self._parts(), sys.maxsize)
        self._out.write(f"\r\x1b[K{line}" if self._is_live else line + "\n")
        self._out.flush()

    def _parts(self) -> list[tuple[int, str]]:
        """Rank and text of all there is to show, in order."""
        share = self._step / self._total
        width = width_of(self._out) if self._is_live else WIDE
        size = 20 if width >= WIDE else 10
        bar = f"{share:.0%}" if width < NARROW else f"[{'#' * int(size * share):.<{size}}]"
        phase = COMPILING if self._is_compiling and self._phase == self._work else self._phase
        phase += f", {RUNNING}" if self._running_since is not None and self._phase != EVALUATING else ""
        pace = self._paces[self._work]
        notes = [f"{name} {value}" for name, value in self._notes.items()]
        return [
            (4, bar),
            (0, phase if self._seen else ""),
            (0, f"{self._step:,}/{self._total:,} {self._workload.unit}"),
            (1, self._left()),
            (2, f"{pace.steps / pace.seconds:,.0f} {self._workload.unit}/s" if pace.seconds and pace.steps else ""),
            *((3 if i == 0 else 5 + i, note) for i, note in enumerate(notes)),
        ]

    def _left(self) -> str:
        if self._phase == DONE:
            return f"took {clock(time.monotonic() - self._began)}"
        left = self.seconds_left()
        num_random = self._workload.random_steps - self._step
        if math.isinf(left) and 0 < num_random < self._total - self._step:
            return f"{clock(self._paces[RANDOM].time_for(num_random))} to learning"
        return f"{clock(left)} left"


def fit(parts: Sequence[tuple[int, str]], width: int) -> str:
    """The texts in their order, two spaces apart; where not all fit into `width`, those of the lowest ranks that do."""
    kept: set[int] = set()
    used = -2
    for i in sorted(range(len(parts)), key=lambda i: parts[i][0]):
        needed = len(parts[i][1]) + 2
        if needed > 2 and used + needed <= width:
            kept.add(i)
            used += needed
    return "  ".join(parts[i][1] for i in sorted(kept)) or parts[0][1][: max(width, 0)]


def width_of(out: Output) -> int:
    """Columns of the terminal now: people resize it."""
    try:
        return os.get_terminal_size(out.fileno()).columns or shutil.get_terminal_size().columns
    except (OSError, ValueError):  # not a real terminal
        return shutil.get_terminal_size().columns


def format_duration(seconds: float) -> str:
    """About how long, in words."""
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= (2 if unit == "day" else 1) * size:
            num = format_number(seconds / size, 2) if seconds < 10 * size else f"{seconds / size:.0f}"
            return f"{num} {unit}{'' if num == '1' else 's'}"
    return LESS


LESS = "less than a minute"


def format_about(seconds: float) -> str:
    """The same where it is an estimate and may stand alone."""
    text = format_duration(seconds)
    return text if text == LESS else f"about {text}"


def format_count(num: int) -> str:
    """A large number of steps in few characters: 35k, 1.5M."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if num >= size:
            return f"{num / size:.3g}{unit}"
    return str(num)


def format_number(value: float | int, digits: int = 4, whole_from: float | int = 1e4) -> str:
    """`value` with `digits` significant digits; a whole number with commas if it is `whole_from` or more."""
    return f"{value:,.0f}" if abs(value) >= whole_from else f"{value:.{digits}g}"


def format_spread(mean: float, std: float | None, show: Callable[..., str] = format_number) -> str:
    """Mean and standard deviation, each shown by `show`; the mean alone where one value has no deviation (None)."""
    return show(mean) if std is None else f"{show(mean)} +- {show(std)}"


def format_table(rows: Sequence[Row], width: int = PAGE, show: Callable[[float | int], str] | None = None) -> str:
    """A table with one column per key of the first row: words left, numbers right, a line below the headings.

    If it is wider than `width`, headings are broken; columns that still do not fit follow in a second table below.

    Args:
        rows: What to show.
        width: Columns of the page.
        show: How to show numbers; default: three digits.
    """
    cells = {name: [_show(row[name], show) for row in rows] for name in rows[0]}
    heads = {name: [name] for name in cells}
    size = lambda name: max(map(len, heads[name] + cells[name]))
    if sum(map(size, cells)) + 2 * (len(cells) - 1) > width:  # headings as narrow as cells and words allow
        narrow = {name: max(map(len, cells[name] + name.split())) for name in cells}
        heads = {name: textwrap.wrap(name, narrow[name], break_long_words=False) or [""] for name in cells}
    first, *others = cells
    blocks = [[first]]
    for name in others:
        if len(blocks[-1]) > 1 and sum(map(size, blocks[-1])) + 2 * len(blocks[-1]) + size(name) > width:
            blocks.append([first])
        blocks[-1].append(name)
    return "\n\n".join(_format_block(rows, heads, {name: cells[name] for name in block}) for block in blocks)


def _format_block(rows: Sequence[Row], heads: Mapping[str, list[str]], cells: Mapping[str, list[str]]) -> str:
    depth = max(len(heads[name]) for name in cells)
    columns = [[""] * (depth - len(heads[name])) + heads[name] + cells[name] for name in cells]
    is_text = [all(isinstance(row[name], str) for row in rows) for name in cells]
    lines = align(list(zip(*columns, strict=True)), is_text)
    return "\n".join([*lines[:depth], "-" * max(map(len, lines)), *lines[depth:]])


def format_entries(entries: Mapping[str, str]) -> str:
    """Return a list of names, each with its text."""
    width = max(map(len, entries)) + 4
    columns = max(50, min(WIDE, shutil.get_terminal_size().columns) - 1)
    gap = " " * width
    told = (textwrap.wrap(text, columns, initial_indent=gap, subsequent_indent=gap) for text in entries.values())
    lines = zip(entries, told, strict=True)
    return "\n".join("\n".join([f"  {name:{width - 2}}{first.strip()}", *more]) for name, (first, *more) in lines)


def align(lines: Sequence[Sequence[str]], is_left: Sequence[bool]) -> list[str]:
    """One line per row of cells, with aligned columns: left or right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    pad = lambda cell, width, left: cell.ljust(width) if left else cell.rjust(width)
    return ["  ".join(map(pad, cells, widths, is_left)).rstrip() for cells in lines]


def _show(value: str | float | int | None, show: Callable[[float | int], str] | None) -> str:
    if value is None:
        return "-"
    if show is not None and not isinstance(value, str):
        return show(value)
    return format_number(value, digits=3, whole_from=1000) if isinstance(value, float) else str(value)


def clock(seconds: float) -> str:
    """Hours, minutes and seconds; dashes for what nobody knows."""
    if not math.isfinite(seconds):
        return "--:--"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"
