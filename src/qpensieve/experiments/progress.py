"""Progress of all runs: on a terminal a table that is updated, elsewhere a line for each change.

The numbers come from the folders of the tasks (`tasks.progress`).
"""

import sys
from collections import Counter
from collections.abc import Sequence

from qpensieve.console import Output, align, clock, fit, format_about, format_count, size_of
from qpensieve.experiments.tasks import Progress, State, Task

ORDER: tuple[State, ...] = ("running", "failed", "other settings", "waiting", "done")
"""States in the order shown; without room for all rows the last ones are left out."""
Rows = Sequence[tuple[Task, Progress]]


class Table:
    """A live table of runs.

    Args:
        out: Stream to write to. None: stderr.
        is_quiet: Write nothing.
    """

    def __init__(self, out: Output | None = None, is_quiet: bool = False):
        self._out, self._is_quiet = out or sys.stderr, is_quiet
        self._num_lines = 0
        self._seen: dict[str, State] = {}

    def show(self, rows: Rows) -> None:
        """Show the current progress of all runs; for `train_all(show=...)`."""
        if self._is_quiet or not rows:
            return
        if self._out.isatty():
            self._draw(rows)
        else:
            self._tell(rows)
        self._out.flush()

    def _draw(self, rows: Rows) -> None:
        columns, height = size_of(self._out)
        width = columns - 1
        lines = [format_counts(rows, width), *format_rows(rows, width, max(1, height - 3))]
        back = f"\x1b[{self._num_lines}F" if self._num_lines else ""
        self._out.write(back + "".join(f"\x1b[K{line}\n" for line in lines) + "\x1b[J")
        self._num_lines = len(lines)

    def _tell(self, rows: Rows) -> None:
        """Write a line for each run that has begun, ended or failed since the last call.

        Runs that were done before the first call share one line.
        """
        is_first = not self._seen
        for task, progress in rows:
            if is_first and progress.state == "done":
                self._seen[task.name] = progress.state
        if is_first and self._seen:
            self._out.write(f"{format_counts(rows)}\n")
        for task, progress in rows:
            before = self._seen.get(task.name, "waiting")
            self._seen[task.name] = progress.state
            if progress.state not in (before, "waiting"):
                self._out.write(f"{_describe(task, progress)}  ({format_counts(rows)})\n")


def format_counts(rows: Rows, width: int = sys.maxsize) -> str:
    """Return in words how many runs are done, running, waiting and failed, and about how long they will take."""
    counts = Counter(progress.state for _, progress in rows)
    left = seconds_left(rows)
    parts = [(0, f"{counts['done']} of {len(rows)} done")]
    parts += [(rank, f"{counts[state]} {state}") for rank, state in ((2, "running"), (3, "waiting")) if counts[state]]
    parts += [(1, f"{counts['failed']} failed")] if counts["failed"] else []
    parts += [(1, f"{counts['other settings']} with other settings")] if counts["other settings"] else []
    parts += [(1, f"{format_about(left)} left")] if left else []
    return fit(parts, width)


def format_rows(rows: Rows, width: int, most: int) -> list[str]:
    """Return one line per run in the order of `ORDER`, at most `most` lines; the last one may count the rest."""
    ranked = sorted(rows, key=lambda row: ORDER.index(row[1].state))
    shown = ranked[: most if len(ranked) <= most else most - 1]
    cells = [_cells(task, progress) for task, progress in shown]
    lines = [line[:width] for line in align(cells, [True, True, False, False, False, True])] if cells else []
    return lines if len(shown) == len(ranked) else [*lines, f"and {len(ranked) - len(shown)} more"[:width]]


def _cells(task: Task, progress: Progress) -> list[str]:
    steps = f"{format_count(progress.step)}/{format_count(progress.goal)}"
    rate = f"{progress.rate:,.0f} steps/s" if progress.rate else ""
    left = "" if progress.seconds_left is None else clock(progress.seconds_left)
    return [task.name, progress.state, steps, rate, left, progress.message.split("\n")[0]]


def _describe(task: Task, progress: Progress) -> str:
    if progress.state in ("failed", "other settings"):
        return f"{task.name}: {progress.state}: {progress.message}"
    if progress.state == "done":
        return f"{task.name}: done"
    return f"{task.name}: running ({progress.message}) from step {progress.step:,} of {progress.goal:,}"


def seconds_left(rows: Rows) -> float | None:
    """Estimate how long all runs will take, with as many side by side as now; None if no pace is known.

    Waiting runs are assumed to take as long per step and seed as the running ones.
    """
    running = [(task, progress) for task, progress in rows if progress.state == "running"]
    paces = [1 / (progress.rate * task.config.seeds) for task, progress in running if progress.rate]
    if not paces:
        return None
    pace = sum(paces) / len(paces)
    estimate = lambda task, progress: (progress.goal - progress.step) * task.config.seeds * pace
    known = [estimate(*row) if row[1].seconds_left is None else row[1].seconds_left for row in running]
    waiting = [estimate(*row) for row in rows if row[1].state == "waiting"]
    return max(max(known), (sum(known) + sum(waiting)) / len(running))
