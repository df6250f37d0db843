"""What `qpensieve paper status` says of the runs of a plan is what has happened to them."""

import re
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from qpensieve import cli
from tests.contracts import support
from tests.contracts.support import Strike

PLAN = ("envelope", "--only", "DST2d", "--scale", "smoke", "--seeds", "1")
"""Two runs: Envelope's and Q-Pensieve's."""
FIRST, SECOND = "DST2d-envelope", "DST2d-qpensieve"
NOT_STARTED, INTERRUPTED = ("waiting", "not started"), ("waiting", "interrupted", "stopped")
CHECKPOINT = rf"/{FIRST}[^/]*/.*step_\d+$"


class Line(NamedTuple):
    """What a status says of one run."""

    state: str
    step: int
    goal: int


def status(out: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Line]:
    """Name of a run without its seeds -> what is said of it."""
    cli.main(["paper", "status", *PLAN, "--out", str(out)])
    shown, found = capsys.readouterr().out, {}
    for line in shown.splitlines():
        if match := re.match(r"(DST2d-\w+?)(?:-s\d+-\d+)?\s{2,}(\w[\w ]*?)\s{2,}(\d+)/(\d+)", line):
            found[match[1]] = Line(match[2], int(match[3]), int(match[4]))
    assert found.keys() == {FIRST, SECOND}, shown
    return found


def test_status_says_what_has_happened(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out, pipe = tmp_path / "runs", support.make_pipe(tmp_path)
    words = ("paper", "run", *PLAN, "--out", out, "--quiet", "--at-once", "1", "--tries", "1")
    out.mkdir()
    said = status(out, capsys)
    assert all(line.state in NOT_STARTED and line.step == 0 for line in said.values()), said

    driver = support.start(*words, strike=Strike("hold", 2, CHECKPOINT, str(pipe)))
    worker = support.wait_until_held(pipe, driver)
    try:
        said = status(out, capsys)
        assert said[FIRST].state == "running", said
        assert said[SECOND].state in NOT_STARTED, said
    finally:
        support.kill(driver, worker)

    while (said := status(out, capsys))[FIRST].state == "running":
        time.sleep(0.05)  # the system releases the lock of a killed process a moment later
    assert said[FIRST].state in INTERRUPTED, said
    assert 0 < said[FIRST].step < said[FIRST].goal, said
    assert said[SECOND].state in NOT_STARTED, said
    assert said[SECOND].step == 0, said

    ended = support.run(*words, strike=Strike("fail", 1, CHECKPOINT))
    assert ended.returncode != 0
    assert FIRST in ended.stderr
    said = status(out, capsys)
    assert said[FIRST].state == "failed", said
    assert said[SECOND].state == "done", said
    assert said[SECOND].step == said[SECOND].goal, said
