"""The log of a run and the line that people watch."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from qpensieve.records import log
from qpensieve.records.log import MetricsLog, Progress, is_logged


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, to be moved by hand."""
    now = [100.0]
    monkeypatch.setattr(log.time, "monotonic", lambda: now[0])
    return now


class TestMetricsLog:
    def test_every_event_is_one_row_that_is_on_the_disk_at_once(self, tmp_path: Path):
        path = tmp_path / "metrics.jsonl"
        metrics = MetricsLog(path)
        metrics.write("train", 40, {"loss": np.array([1.5, 2.0], np.float32), "time_seconds": 0.5})
        assert json.loads(path.read_text()) == {"event": "train", "step": 40, "loss": [1.5, 2.0], "time_seconds": 0.5}
        metrics.write("evaluation", 80, {"size": np.int64(3), "correlation": np.eye(2)})
        metrics.close()
        assert json.loads(path.read_text().splitlines()[1]) == {
            **{"event": "evaluation", "step": 80, "size": 3},
            "correlation": [[1.0, 0.0], [0.0, 1.0]],
        }

    def test_an_opened_log_goes_on_after_its_rows(self, tmp_path: Path):
        for step in (1, 2):
            metrics = MetricsLog(tmp_path / "metrics.jsonl")
            metrics.write("train", step, {})
            metrics.close()
        lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == [1, 2]

    def test_it_knows_what_it_holds(self, tmp_path: Path):
        path = tmp_path / "metrics.jsonl"
        assert not is_logged(path, "train", 40)
        metrics = MetricsLog(path)
        metrics.write("train", 40, {})
        metrics.close()
        assert is_logged(path, "train", 40)
        assert not is_logged(path, "train", 80)
        assert not is_logged(path, "evaluation", 40)

    def test_tensorboard_gets_the_mean_over_seeds(self, tmp_path: Path):
        metrics = MetricsLog(tmp_path / "metrics.jsonl", tmp_path / "tensorboard")
        metrics.write("train", 40, {"loss": np.array([1.0, 3.0]), "table": np.eye(2), "time_seconds": 1.0})
        metrics.close()
        files = list((tmp_path / "tensorboard").iterdir())
        assert len(files) == 1
        assert b"train/loss" in files[0].read_bytes()

    def test_without_tensorboard_installed_it_says_what_to_install(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setitem(sys.modules, "tensorboardX", None)
        with pytest.raises(ImportError, match=r"pip install 'qpensieve\[tensorboard\]'"):
            MetricsLog(tmp_path / "metrics.jsonl", tmp_path / "tensorboard")


class TestProgress:
    def test_a_terminal_sees_one_line_with_rate_time_left_and_notes(
        self, clock: list[float], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        progress = Progress(1000, 0)
        progress.note(**{"UT(short)": "5.2"})
        clock[0] += 10.0
        progress.show(250)
        text = capsys.readouterr().err
        assert text.startswith("\r\x1b[K")
        assert "\n" not in text
        for part in ("[#####...............]", "250/1,000 steps", "25 steps/s", "00:30 left", "UT(short) 5.2"):
            assert part in text

    def test_it_is_shown_twice_a_second_at_most(
        self, clock: list[float], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        progress = Progress(1000, 0)
        for step in range(1, 101):
            clock[0] += 0.1
            progress.show(step)
        assert 15 <= capsys.readouterr().err.count("\r") <= 20

    def test_a_file_gets_a_plain_line_now_and_then(self, clock: list[float], capsys: pytest.CaptureFixture[str]):
        progress = Progress(1000, 0)
        for step in range(1, 101):
            clock[0] += 1.0
            progress.show(step)
        text = capsys.readouterr().err
        assert len(text.splitlines()) == 3
        assert "\x1b" not in text

    def test_the_rate_of_a_resumed_run_counts_from_where_it_began(
        self, clock: list[float], capsys: pytest.CaptureFixture[str]
    ):
        progress = Progress(1000, 500)
        clock[0] += 10.0
        progress.show(600, force=True)
        assert " 10 steps/s  00:40 left" in capsys.readouterr().err

    def test_nothing_is_said_in_quiet_nor_divided_by_zero(self, clock: list[float], capsys: pytest.CaptureFixture[str]):
        quiet = Progress(10, 0, quiet=True)
        quiet.show(5, force=True)
        quiet.say("hello")
        assert capsys.readouterr().err == ""
        Progress(10, 10).show(10, force=True)
        assert "--:-- left" in capsys.readouterr().err

    def test_long_times_have_hours(self, clock: list[float], capsys: pytest.CaptureFixture[str]):
        progress = Progress(100_000, 0)
        clock[0] += 100.0
        progress.show(1000, force=True)
        assert "2:45:00 left" in capsys.readouterr().err
