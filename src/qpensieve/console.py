"""The terminal: a progress line, and numbers and tables as text."""

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
"""Phases of a run. The first block of random steps and the first of learning are shown as compiling."""
RUNNING = "evaluation running"
"""Shown while worker processes play an evaluation."""
HALF_LIFE = 120.0
"""Seconds after which a measured pace counts half."""
SURE_AFTER = 3.0
"""Seconds of learning after which its pace gives the estimate for the run."""
PAGE = 79
"""Columns that tables and texts keep to."""
NARROW, WIDE = 70, 100
"""Columns of a terminal too narrow for a bar, and of one with room for a long one."""
LONG_RUN = 600.0
"""Seconds; a run that takes longer announces how long it takes."""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
"""Codes that colour text on a terminal; Gymnasium puts them into its warnings."""


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show each UserWarning as a plain sentence; other warnings keep Python's format, with their line of code."""
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
        random_steps: Number of steps before learning, which are fast and timed separately.
        eval_period: Steps between evaluations; 0: there are none.
        final_evaluation: Length of the evaluation at the end, in multiples of the others.
        size: The run in words, such as `1.5M steps x 5 seeds`. Empty: the run and its time are not announced.
        hint: Text after the announced time of a long run.
        unit: Name of the steps that are counted.
    """

    random_steps: int = 0
    eval_period: int = 0
    final_evaluation: float = 0.0
    size: str = ""
    hint: str = ""
    unit: str = "steps"


class _Pace:
    """Measured seconds per step; recent measurements count more."""

    def __init__(self) -> None:
        self.seconds = self.steps = 0.0

    def add(self, seconds: float, steps: int) -> None:
        fade = 0.5 ** (seconds / HALF_LIFE)
        self.seconds = self.seconds * fade + seconds
        self.steps = self.steps * fade + steps

    def time_for(self, steps: int) -> float:
        """Return the seconds that `steps` steps should take: 0 for none, infinity before any step was timed."""
        if steps <= 0:
            return 0.0
        return steps * self.seconds / self.steps if self.steps else math.inf


class Progress:
    """A progress line: on a terminal one line that is updated and never wraps, elsewhere a plain line now and then.

    Args:
        total: The last step.
        start: The step at the beginning.
        out: Stream to write to. None: stderr.
        quiet: Write only `answer`.
        workload: Random steps and evaluations of the run, and its words. None: steps alone.
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
        """Show these values at the end of the line from now on, the most important first: UT, HV, temperature."""
        self._notes = notes

    def mark_evaluation(self, is_running: bool) -> None:
        """Show whether worker processes play an evaluation. The estimate assumes the same time for the last one."""
        now = time.monotonic()
        if is_running and self._running_since is None:
            self._running_since = now
        elif not is_running and self._running_since is not None:
            self._in_workers, self._running_since = now - self._running_since, None

    def announce(self) -> None:
        """Write how large the run is. Its time can be estimated only after the first learning steps."""
        if self._workload.size and self._step < self._total:
            self.say(self._workload.size)

    def enter(self, phase: str) -> None:
        """Begin a phase; the line shows it at once if it is new, or on a terminal if it is another phase."""
        self._account()
        is_new, is_other = phase not in self._seen, phase != self._phase
        self._seen.add(phase)
        self._phase = phase
        if phase in (RANDOM, LEARNING):
            self._work, self._is_compiling = phase, self._is_compiling or is_new
        if is_new or (is_other and self._out.isatty()):
            self._draw()

    def show(self, step: int, force: bool = False) -> None:
        """Record that the run reached `step`, and update the line if its period has passed or `force` is set."""
        self._account()
        self._count(step)
        self._say_estimate()
        if force or time.monotonic() - self._shown >= self._period:
            self._draw()

    def say(self, message: str) -> None:
        """Write a message on its own line, unless quiet."""
        if not self._quiet:
            self.answer(message)

    def answer(self, message: str) -> None:
        """Write a message on its own line even if quiet: the user asked for it."""
        self._out.write(("\r\x1b[K" if self._is_live else "") + message + "\n")
        self._is_live = False
        self._out.flush()

    def end(self) -> None:
        """End the live line, so that later output comes below it."""
        if self._is_live:
            self._out.write("\n")
            self._is_live = False

    def _account(self) -> None:
        now = time.monotonic()
        self._spent[self._phase] += now - self._marked
        self._marked = now

    def _count(self, step: int) -> None:
        """Add the time since the last steps to the pace of their phase; time to compile is left out."""
        spent, self._spent = self._spent, defaultdict(float)
        self._evaluation = spent.pop(EVALUATING, self._evaluation)
        num, self._step = step - self._step, step
        if self._is_compiling:
            self._is_compiling = num == 0
        else:
            self._paces[self._work].add(sum(spent.values()), num)

    def seconds_left(self) -> float:
        """Estimate the seconds left from the pace of each phase and the last evaluation; infinity without a pace."""
        ahead, left = self._workload, self._total - self._step
        num_random = max(0, min(left, ahead.random_steps - self._step))
        seconds = self._paces[RANDOM].time_for(num_random) + self._paces[LEARNING].time_for(left - num_random)
        period = ahead.eval_period
        num = -(-self._total // period) - self._step // period if period else 0
        return seconds + self._evaluation * num + max(self._evaluation, self._in_workers) * ahead.final_evaluation

    def _say_estimate(self) -> None:
        """Write once how long a long run will take, as soon as the pace of learning is known."""
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
        """Return rank and text of each part of the line, in order; `fit` drops high ranks first."""
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
    """Join texts in their order, two spaces apart; texts of the highest ranks are left out to fit into `width`."""
    kept: set[int] = set()
    used = -2
    for i in sorted(range(len(parts)), key=lambda i: parts[i][0]):
        needed = len(parts[i][1]) + 2
        if needed > 2 and used + needed <= width:
            kept.add(i)
            used += needed
    return "  ".join(parts[i][1] for i in sorted(kept)) or parts[0][1][: max(width, 0)]


def width_of(out: Output) -> int:
    """Return the columns of the terminal now: users resize it."""
    try:
        return os.get_terminal_size(out.fileno()).columns or shutil.get_terminal_size().columns
    except (OSError, ValueError):  # not a real terminal
        return shutil.get_terminal_size().columns


def format_duration(seconds: float) -> str:
    """Return a duration in words, such as `2.5 hours`."""
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= (2 if unit == "day" else 1) * size:
            num = format_number(seconds / size, 2) if seconds < 10 * size else f"{seconds / size:.0f}"
            return f"{num} {unit}{'' if num == '1' else 's'}"
    return LESS


LESS = "less than a minute"


def format_about(seconds: float) -> str:
    """Return an estimated duration in words, such as `about 2.5 hours`."""
    text = format_duration(seconds)
    return text if text == LESS else f"about {text}"


def format_count(num: int) -> str:
    """Return a number of steps in few characters, such as 35k or 1.5M."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if num >= size:
            return f"{num / size:.3g}{unit}"
    return str(num)


def format_number(value: float | int, digits: int = 4, whole_from: float | int = 1e4) -> str:
    """Return `value` with `digits` significant digits; from `whole_from` on as a whole number with commas."""
    return f"{value:,.0f}" if abs(value) >= whole_from else f"{value:.{digits}g}"


def format_spread(mean: float, std: float | None, show: Callable[..., str] = format_number) -> str:
    """Return mean and standard deviation as text, each shown by `show`; the mean alone if `std` is None."""
    return show(mean) if std is None else f"{show(mean)} +- {show(std)}"


def format_table(rows: Sequence[Row], width: int = PAGE, show: Callable[[float | int], str] | None = None) -> str:
    """Return rows as a table with a column per key of the first row: text left, numbers right, headings underlined.

    If the table is wider than `width`, its headings are broken. Columns that still do not fit follow in further tables.

    Args:
        rows: The rows; at least one.
        width: Columns of the page.
        show: Number -> text. None: three digits for floats.
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
    """Return a list of names, each followed by its text with indented lines."""
    width = max(map(len, entries)) + 4
    columns = max(50, min(WIDE, shutil.get_terminal_size().columns) - 1)
    gap = " " * width
    told = (textwrap.wrap(text, columns, initial_indent=gap, subsequent_indent=gap) for text in entries.values())
    lines = zip(entries, told, strict=True)
    return "\n".join("\n".join([f"  {name:{width - 2}}{first.strip()}", *more]) for name, (first, *more) in lines)


def align(lines: Sequence[Sequence[str]], is_left: Sequence[bool]) -> list[str]:
    """Return one line per row of cells, with each column aligned left or right."""
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
    """Return hours, minutes and seconds, such as 1:02:03; `--:--` if `seconds` is not finite."""
    if not math.isfinite(seconds):
        return "--:--"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"
