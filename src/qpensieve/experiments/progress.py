"""Progress of all runs: on a terminal a table that is updated, elsewhere a line for each change.

The numbers come from the folders of the tasks (`tasks.progress`).
"""

import sys
from collections import Counter
from collections.abc import Sequence

from qpensieve.console import Output, align, clock, fit, format_about, format_count, size_of
from qpensieve.experiments.tasks import State, TaskProgress

ORDER: tuple[State, ...] = ("running", "failed", "other settings", "waiting", "done")
"""States in the order shown; without room for all rows the last ones are left out."""
Runs = Sequence[TaskProgress]


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

    def show(self, runs: Runs) -> None:
        """Show the current progress of all runs; for `train_all(show=...)`."""
        if self._is_quiet or not runs:
            return
        if self._out.isatty():
            self._draw(runs)
        else:
            self._tell(runs)
        self._out.flush()

    def _draw(self, runs: Runs) -> None:
        columns, height = size_of(self._out)
        width = columns - 1
        lines = [format_counts(runs, width), *format_rows(runs, width, max(1, height - 3))]
        back = f"\x1b[{self._num_lines}F" if self._num_lines else ""
        self._out.write(back + "".join(f"\x1b[K{line}\n" for line in lines) + "\x1b[J")
        self._num_lines = len(lines)

    def _tell(self, runs: Runs) -> None:
        """Write a line for each run that has begun, ended or failed since the last call.

        Runs that were done before the first call share one line.
        """
        is_first = not self._seen
        if is_first:
            self._seen |= {run.task.name: run.state for run in runs if run.state == "done"}
        if is_first and self._seen:
            self._out.write(f"{format_counts(runs)}\n")
        for run in runs:
            before = self._seen.get(run.task.name, "waiting")
            self._seen[run.task.name] = run.state
            if run.state not in (before, "waiting"):
                self._out.write(f"{_describe(run)}  ({format_counts(runs)})\n")


def format_counts(runs: Runs, width: int = sys.maxsize) -> str:
    """Return in words how many runs are done, running, waiting and failed, and about how long they will take."""
    counts = Counter(run.state for run in runs)
    left = seconds_left(runs)
    parts = [(0, f"{counts['done']} of {len(runs)} done")]
    parts += [(rank, f"{counts[state]} {state}") for rank, state in ((2, "running"), (3, "waiting")) if counts[state]]
    parts += [(1, f"{counts['failed']} failed")] if counts["failed"] else []
    parts += [(1, f"{counts['other settings']} with other settings")] if counts["other settings"] else []
    parts += [(1, f"{format_about(left)} left")] if left else []
    return fit(parts, width)


def format_rows(runs: Runs, width: int, most: int) -> list[str]:
    """Return one line per run in the order of `ORDER`, at most `most` lines; the last one may count the rest."""
    ranked = sorted(runs, key=lambda run: ORDER.index(run.state))
    shown = ranked[: most if len(ranked) <= most else most - 1]
    cells = list(map(_cells, shown))
    lines = [line[:width] for line in align(cells, [True, True, False, False, False, True])] if cells else []
    return lines if len(shown) == len(ranked) else [*lines, f"and {len(ranked) - len(shown)} more"[:width]]


def _cells(run: TaskProgress) -> list[str]:
    steps = f"{format_count(run.step)}/{format_count(run.goal)}"
    rate = f"{run.rate:,.0f} steps/s" if run.rate else ""
    left = "" if run.seconds_left is None else clock(run.seconds_left)
    return [run.task.name, run.state, steps, rate, left, run.message.split("\n")[0]]


def _describe(run: TaskProgress) -> str:
    if run.state in ("failed", "other settings"):
        return f"{run.task.name}: {run.state}: {run.message}"
    if run.state == "done":
        return f"{run.task.name}: done"
    return f"{run.task.name}: running ({run.message}) from step {run.step:,} of {run.goal:,}"


def seconds_left(runs: Runs) -> float | None:
    """Estimate how long all runs will take, with as many side by side as now; None if no pace is known.

    Waiting runs are assumed to take as long per step and seed as the running ones.
    """
    running = [run for run in runs if run.state == "running"]
    paces = [1 / (run.rate * run.task.config.seeds) for run in running if run.rate]
    if not paces:
        return None
    pace = sum(paces) / len(paces)
    estimate = lambda run: (run.goal - run.step) * run.task.config.seeds * pace
    known = [estimate(run) if run.seconds_left is None else run.seconds_left for run in running]
    waiting = [estimate(run) for run in runs if run.state == "waiting"]
    return max(max(known), (sum(known) + sum(waiting)) / len(running))
