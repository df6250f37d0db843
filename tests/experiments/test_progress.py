"""The table of all runs, in place on a terminal and as lines elsewhere."""

import io
import os
from pathlib import Path
from typing import Any

import pytest

from qpensieve.config import RunConfig
from qpensieve.experiments.progress import Table, format_counts, format_rows, seconds_left
from qpensieve.experiments.tasks import Task, TaskProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError


def row(name: str, state: Any, step: int = 0, **known: Any) -> TaskProgress:
    return TaskProgress(Task(Path(name), RunConfig("DST2d", seeds=2, steps=1000)), state, step, **known)


ROWS = [
    row("a", "done", 1000),
    row("b", "running", 500, rate=10.0, message="process 7 on node1"),
    row("c", "waiting"),
    row("d", "failed", 200, message="out of memory\nand more"),
]


def test_the_first_line_counts_and_says_how_long_it_takes():
    assert format_counts(ROWS) == "1 of 4 done  1 running  1 waiting  1 failed  about 2.5 minutes left"
    soon = [row("a", "running", 950, rate=10.0)]
    assert format_counts(soon) == "0 of 1 done  1 running  less than a minute left"
    assert format_counts(ROWS, 25) == "1 of 4 done  1 failed"


def test_runs_come_first_and_the_rest_is_counted_where_there_is_no_room():
    lines = format_rows(ROWS, 200, 10)
    assert lines[0].split() == ["b", "running", "500/1k", "10", "steps/s", "00:50", "process", "7", "on", "node1"]
    assert lines[1].split() == ["d", "failed", "200/1k", "out", "of", "memory"]
    assert [line.split()[1] for line in lines] == ["running", "failed", "waiting", "done"]
    assert format_rows(ROWS, 200, 2)[-1] == "and 3 more"
    assert all(len(line) <= 20 for line in format_rows(ROWS, 20, 10))


def test_time_left_is_that_of_the_longest_run_or_of_all_work_shared():
    assert seconds_left([row("a", "waiting")]) is None
    assert seconds_left([row("a", "running", rate=None)]) is None
    assert seconds_left([row("a", "running", 500, rate=10.0)]) == 50
    # c waits for 1000 steps at 10 steps/s: 100 s, beside two that run
    both = [row("a", "running", 500, rate=10.0), row("b", "running", 900, rate=10.0)]
    assert seconds_left([*both, row("c", "waiting")]) == pytest.approx((50 + 10 + 100) / 2)


def test_on_a_terminal_the_table_is_drawn_over_itself(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((60, 24)))
    out = Terminal()
    table = Table(out)
    table.show(ROWS)
    first = out.getvalue()
    assert first.count("\n") == 5
    assert all(len(line.replace("\x1b[K", "").replace("\x1b[J", "")) < 60 for line in first.split("\n"))
    table.show(ROWS[:2])
    assert out.getvalue()[len(first) :].startswith("\x1b[5F")  # back to its first line
    assert out.getvalue().endswith("\x1b[J")  # lines that are no longer there are gone


def test_elsewhere_a_line_is_written_when_something_changes():
    out = io.StringIO()
    Table(out, is_quiet=True).show(ROWS)
    table = Table(out)
    table.show([row("a", "waiting")])
    assert out.getvalue() == ""
    for _ in range(3):
        table.show([row("a", "running", 20, message="process 7 on node1")])
    table.show([row("a", "waiting", 500)])
    table.show([row("a", "running", 500, message="process 8 on node2")])
    table.show([row("a", "failed", 500, message="the disk is full")])
    table.show([row("a", "done", 1000)])
    assert [line.split("  (")[0] for line in out.getvalue().splitlines()] == [
        "a: running (process 7 on node1) from step 20 of 1,000",
        "a: running (process 8 on node2) from step 500 of 1,000",
        "a: failed: the disk is full",
        "a: done",
    ]
