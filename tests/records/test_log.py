"""The log of a run."""

import json
from pathlib import Path

import numpy as np
import pytest

from qpensieve.records.checkpoint import CheckpointError
from qpensieve.records.log import MetricsLog, cut_log, has_evaluations, is_logged


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

    def test_is_logged_knows_the_rows_of_a_log(self, tmp_path: Path):
        path = tmp_path / "metrics.jsonl"
        assert not is_logged(path, "train", 40)
        metrics = MetricsLog(path)
        metrics.write("train", 40, {})
        metrics.close()
        assert is_logged(path, "train", 40)
        assert not is_logged(path, "train", 80)
        assert not is_logged(path, "evaluation", 40)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", False),
        ('{"event": "train", "step": 40}\n', False),
        ('{"event": "train", "step": 40}\n{"event": "evaluation", "ste', False),
        ('{"event": "train", "step": 40}\n{"event": "evaluation", "step": 40}\n', True),
        ('not a row\n{"event": "full evaluation", "step": 40}\n', True),
    ],
)
def test_a_log_tells_whether_it_has_evaluations(text: str, answer: bool, tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_text(text)
    assert has_evaluations(tmp_path / "metrics.jsonl") is answer
    assert not is_logged(tmp_path / "metrics.jsonl", "train", 80)
    assert not has_evaluations(tmp_path / "none.jsonl")


def test_a_log_is_cut_after_the_step_and_its_torn_line_is_dropped(tmp_path: Path):
    path = tmp_path / "log.jsonl"
    rows = [f'{{"step": {step}, "value": "é"}}\n' for step in (1, 2, 3, 3, 4)]
    path.write_text("".join(rows) + '{"step": 3, "val', encoding="utf-8")
    cut_log(path, 3)
    assert path.read_text(encoding="utf-8") == "".join(rows[:4])
    assert list(tmp_path.iterdir()) == [path]


def test_a_last_row_that_only_lacks_its_newline_is_kept(tmp_path: Path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}')
    cut_log(path, 2)
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'


def test_a_broken_row_inside_a_log_is_named_and_the_log_left_as_it_is(tmp_path: Path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\nbroken\n{"step": 2}\n')
    with pytest.raises(CheckpointError, match="line 2"):
        cut_log(path, 2)
    assert path.read_text() == '{"step": 1}\nbroken\n{"step": 2}\n'
    assert list(tmp_path.iterdir()) == [path]


def test_a_row_that_a_killed_run_left_unfinished_is_dropped_before_more_are_added(tmp_path: Path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n{"step": 2')
    metrics = MetricsLog(path)
    metrics.write("train", 3, {})
    metrics.close()
    assert path.read_text() == '{"step": 1}\n{"event": "train", "step": 3}\n'
