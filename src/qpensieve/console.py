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
"""Phases of a run. The first block of random steps, and the first block that learns, are shown as compiling."""
RUNNING = "evaluation running"
"""Text while worker processes play an evaluation."""
HALF_LIFE = 120.0
"""Seconds after which the weight of a measured pace is half."""
SURE_AFTER = 3.0
"""Seconds of learning after which its pace is sure enough to estimate the time of a run."""
PAGE = 79
"""Width of tables and texts, columns."""
NARROW, WIDE = 70, 100
"""Columns of a terminal: below the first there is no bar, from the second on the bar is long."""
LONG_RUN = 600.0
"""Estimated seconds above which a run announces its time."""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
"""Codes that colour text on a terminal, as in Gymnasium's warnings."""


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show each UserWarning as a plain sentence. Other warnings keep Python's format, with the line of code."""
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
    """The work of a run, for the progress line and its estimate of the time left.

    Attributes:
        random_steps: Number of steps before learning; they are fast, so they are timed separately.
        eval_period: Steps between evaluations. 0: no evaluations.
        final_evaluation: Duration of the evaluation at the end, in multiples of the earlier evaluations.
        size: The size in words, such as `1.5M steps x 5 seeds`. Empty: size and time are not announced.
        hint: Advice after the announced time of a long run.
        unit: Name of the counted steps.
    """

    random_steps: int = 0
    eval_period: int = 0
    final_evaluation: float = 0.0
    size: str = ""
    hint: str = ""
    unit: str = "steps"


class _Pace:
    """Measured seconds per step. Recent measurements have more weight."""

    def __init__(self) -> None:
        self.seconds = self.steps = 0.0

    def add(self, seconds: float, steps: int) -> None:
        fade = 0.5 ** (seconds / HALF_LIFE)
        self.seconds = self.seconds * fade + seconds
        self.steps = self.steps * fade + steps

    def time_for(self, steps: int) -> float:
        """Return the seconds that `steps` steps should take; infinity before any step was timed."""
        if steps <= 0:
            return 0.0
        return steps * self.seconds / self.steps if self.steps else math.inf


class Progress:
    """A progress line. On a terminal it is updated in place and never wraps; elsewhere a plain line is added at times.

    Args:
        total: The last step.
        start: The step at the beginning.
        out: Stream to write to. None: stderr.
        quiet: Write nothing except answers.
        workload: The work of the run. None: steps alone.
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
        if self._workload.size and start < total:
            self.say(self._workload.size)

    def note(self, **notes: str) -> None:
        """Show these values at the end of the line from now on, the most important first."""
        self._notes = notes

    def mark_evaluation(self, is_running: bool) -> None:
        """Show whether worker processes play an evaluation, and measure its time for the estimate."""
        now = time.monotonic()
        if is_running and self._running_since is None:
            self._running_since = now
        elif not is_running and self._running_since is not None:
            self._in_workers, self._running_since = now - self._running_since, None

    def enter(self, phase: str) -> None:
        """Begin a phase. A phase that was never shown is shown at once, and on a terminal every change."""
        self._account()
        is_new, is_other = phase not in self._seen, phase != self._phase
        self._seen.add(phase)
        self._phase = phase
        if phase in (RANDOM, LEARNING):
            self._work, self._is_compiling = phase, self._is_compiling or is_new
        if is_new or (is_other and self._out.isatty()):
            self._draw()

    def show(self, step: int, force: bool = False) -> None:
        """Record that the run reached `step`. Update the line if an update is due or `force` is set."""
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
        """Write a message that the user asked for on its own line, even if quiet."""
        self._out.write(("\r\x1b[K" if self._is_live else "") + message + "\n")
        self._is_live = False
        self._out.flush()

    def end(self) -> None:
        """End the line that is updated, so that later output comes below it."""
        if self._is_live:
            self._out.write("\n")
            self._is_live = False

    def _account(self) -> None:
        now = time.monotonic()
        self._spent[self._phase] += now - self._marked
        self._marked = now

    def _count(self, step: int) -> None:
        """Add the new steps and their time to the pace of the phase, without the time to compile."""
        spent, self._spent = self._spent, defaultdict(float)
        self._evaluation = spent.pop(EVALUATING, self._evaluation)
        num, self._step = step - self._step, step
        if self._is_compiling:
            self._is_compiling = num == 0
        else:
            self._paces[self._work].add(sum(spent.values()), num)

    def seconds_left(self) -> float:
        """Estimate the seconds left from the measured paces and the newest evaluation; infinity without a pace."""
        ahead, left = self._workload, self._total - self._step
        num_random = max(0, min(left, ahead.random_steps - self._step))
        seconds = self._paces[RANDOM].time_for(num_random) + self._paces[LEARNING].time_for(left - num_random)
        period = ahead.eval_period
        num = -(-self._total // period) - self._step // period if period else 0
        return seconds + self._evaluation * num + max(self._evaluation, self._in_workers) * ahead.final_evaluation

    def _say_estimate(self) -> None:
        """Announce the time of a long run once, as soon as the pace of learning is known."""
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
        # The last column stays free, because some terminals wrap when it is written.
        line = fit(self._parts(), size_of(self._out).columns - 1) if self._is_live else fit(self._parts(), sys.maxsize)
        self._out.write(f"\r\x1b[K{line}" if self._is_live else line + "\n")
        self._out.flush()

    def _parts(self) -> list[tuple[int, str]]:
        """Return the parts of the line in order, each with its rank; `fit` drops high ranks first."""
        share = self._step / self._total
        width = size_of(self._out).columns if self._is_live else WIDE
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
    """Join texts in their order, two spaces apart. Texts of the highest ranks are left out until the rest fits."""
    kept: set[int] = set()
    used = -2
    for i in sorted(range(len(parts)), key=lambda i: parts[i][0]):
        needed = len(parts[i][1]) + 2
        if needed > 2 and used + needed <= width:
            kept.add(i)
            used += needed
    return "  ".join(parts[i][1] for i in sorted(kept)) or parts[0][1][: max(width, 0)]


def size_of(out: Output) -> os.terminal_size:
    """Return the current columns and lines of the terminal, which users resize."""
    usual = shutil.get_terminal_size()
    try:
        columns, lines = os.get_terminal_size(out.fileno())
    except (OSError, ValueError):  # not a real terminal
        return usual
    return os.terminal_size((columns or usual.columns, lines or usual.lines))


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
    """Return a number in few characters, such as 35k or 1.5M."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if num >= size:
            return f"{num / size:.3g}{unit}"
    return str(num)


def plural(num: int, word: str) -> str:
    """Return a number and its word, such as `1 seed` or `3 seeds`."""
    return f"{num} {word}" if num == 1 else f"{num} {word}s"


def format_number(value: float | int, digits: int = 4, whole_from: float | int = 1e4) -> str:
    """Return `value` with `digits` significant digits, or as a whole number with commas from `whole_from` on."""
    return f"{value:,.0f}" if abs(value) >= whole_from else f"{value:.{digits}g}"


def format_spread(mean: float, std: float | None, show: Callable[..., str] = format_number) -> str:
    """Return mean and standard deviation as text; the mean alone if `std` is None."""
    return show(mean) if std is None else f"{show(mean)} +- {show(std)}"


def format_table(rows: Sequence[Row], width: int = PAGE, show: Callable[[float | int], str] | None = None) -> str:
    """Return rows as a table with a column for each key of the first row.

    Text is aligned left and numbers right. If the table is wider than `width`, headings are broken into lines, and
    columns that still do not fit follow in further tables.

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
    """Return names with their texts as an indented list."""
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
