"""The picture of training: which panels, which lines, alarms; and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from qpensieve import cli
from qpensieve.report.training import draw_training
from tests.report.runs import titles


def _row(step: int, seeds: int = 2) -> dict[str, Any]:
    each = lambda value: [float(value)] * seeds
    binned = {f"{name}_bin_{i}": each(-i) for name in ("entropy", "q") for i in range(1, 6)}
    errors = {"td_error_1": each(1), "td_error_2": each(2)}
    return (
        {"event": "train", "step": step, "critic_loss": each(step), "critic_loss_max": each(2 * step)} | binned | errors
    )


def _run(path: Path, rows: list[dict[str, Any]], **config: Any) -> Path:
    path.mkdir()
    config = {"domain": "HalfCheetah2d", "algo": "qpensieve", "seeds": 2} | config
    (path / "config.json").write_text(json.dumps(config))
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_panels_are_those_that_were_logged_with_a_line_per_bin_and_per_alarm(tmp_path: Path, drawn: list[Figure]):
    alarm = {"event": "alarm", "step": 1500, "sign": "entropy", "who": "seed 1", "value": -9.0, "limit": -6.9}
    run = _run(tmp_path / "run", [_row(1000), _row(2000), alarm])
    draw_training(run, tmp_path / "t.png")
    shown = dict(zip(titles(drawn[0]), drawn[0].axes, strict=True))
    assert list(shown) == [
        *("critic loss, mean of a row", "critic loss, largest of a row", "error of the critics"),
        *("entropy by preference for forward", "value λ · Q by preference for forward"),
    ]
    legend = shown["error of the critics"].get_legend()
    assert legend is not None
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == ["forward", "control"]
    values = shown["value λ · Q by preference for forward"].get_lines()
    means = [float(np.asarray(line.get_ydata())[0]) for line in values[2:15:3]]  # after the lines of two seeds each
    assert means == [-1, -2, -3, -4, -5]
    np.testing.assert_array_equal(np.asarray(values[15].get_xdata()), [1500, 1500])
    seeds_and_mean = shown["critic loss, mean of a row"].get_lines()
    assert [np.asarray(line.get_ydata()).tolist() for line in seeds_and_mean[:3]] == [[1000, 2000]] * 3
    assert shown["critic loss, mean of a row"].get_yscale() == "log"


def test_the_command_draws_it_alone_and_before_the_first_evaluation(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = _run(tmp_path / "run", [_row(1000)])
    cli.main(["plot", str(run), "--what", "training"])
    assert capsys.readouterr().out.split() == [str(run / "training.png")]
    cli.main(["plot", str(run), "--what", "training", "--out", str(tmp_path / "x.svg")])
    assert (tmp_path / "x.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("rows", "config", "words"),
    [([], {}, "nothing yet"), ([_row(1)], {"seeds": "many"}, "seeds must be a whole number")],
)
def test_what_cannot_be_drawn_is_said(
    tmp_path: Path, rows: list, config: dict, words: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        cli.main(["plot", str(_run(tmp_path / "run", rows, **config)), "--what", "training"])
    assert words in capsys.readouterr().err


def test_one_picture_of_several_runs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    runs = [str(_run(tmp_path / name, [_row(1)])) for name in "ab"]
    with pytest.raises(SystemExit):
        cli.main(["plot", *runs, "--what", "training"])
    assert "draws one run, got 2" in capsys.readouterr().err
