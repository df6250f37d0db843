"""The pictures of learning curves: what is drawn where, and that odd runs are drawn without a warning."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from qpensieve.metrics import reference_point
from qpensieve.records.scores import summarize
from qpensieve.report import curves
from qpensieve.report.curves import compare_curves, draw_training
from qpensieve.report.results import read_run
from tests.report.runs import (
    EXACT,
    STEPS,
    draw_curves,
    draw_front,
    dst_returns,
    lines,
    make_run,
    make_table,
    titles,
    train_rows,
)


def test_curves_show_all_panels_and_the_ceilings_of_the_short_preferences(tmp_path: Path, drawn: list[Figure]):
    table = make_table(dst_returns(), reference="DST2d")
    draw_curves(make_run(tmp_path, table, train_rows(3)))
    assert titles(drawn[0]) == ["utility (UT)", "hypervolume (HV)", "temperature", "samples that climb a snapshot"]
    ceilings = EXACT.ceilings(table.short_preferences, reference_point("DST2d"))
    utility, volume = lines(drawn[0], 0), lines(drawn[0], 1)
    assert utility[f"ceiling of UT (short protocol) {ceilings.utility:.2f}"][1, 0] == ceilings.utility
    assert utility[f"UT of the best single policy {ceilings.best_single:.2f}"][1, 0] == ceilings.best_single
    assert volume["ceiling of HV (short protocol) 1,055"][1, 0] == ceilings.hypervolume
    steps, mean = utility["mean ± 1 std, seeds thin"]
    np.testing.assert_array_equal(steps, [STEPS, 2 * STEPS, 3 * STEPS])
    np.testing.assert_allclose(np.diff(mean), [1, 1])
    last = summarize(table.short_returns[-1], table.short_preferences)
    assert mean[-1] == pytest.approx(last.ut.mean())
    note = "short protocol: 20 preferences x 2 episodes; not comparable with the paper's table"
    assert drawn[0].legends[0].get_title().get_text() == note
    assert legend_of(drawn[0])[:2] == ["mean ± 1 std, seeds thin", "run's best single row"]
    assert drawn[0].axes[0].get_legend() is None  # it would hide lines
    temperature, share = drawn[0].axes[-2:]
    assert temperature.get_yscale() == "log"
    second = np.asarray(temperature.get_lines()[1].get_ydata())
    np.testing.assert_allclose(second, 100 / np.arange(1000, 5000, 1000) + 1)
    np.testing.assert_array_equal(share.get_lines()[0].get_xdata(), [3000, 4000])  # the steps that have them


def test_the_later_of_two_rows_at_one_step_counts_and_torn_lines_are_skipped(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    rows = [{"event": "train", "step": step, "x": [step + shift]} for shift in (0, 5) for step in (2, 1)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '[1]\n{"event": "train", "st')
    curve = curves.read_series(curves.read_training(path), "x", num_seeds=1)
    assert curve is not None
    np.testing.assert_array_equal(curve.steps, [1, 2])
    np.testing.assert_array_equal(curve.values, [[6], [7]])


def test_without_a_reference_there_is_no_hypervolume_panel(tmp_path: Path, drawn: list[Figure]):
    returns = np.random.default_rng(0).normal(size=(2, 100, 2))
    run = make_run(tmp_path, make_table(returns), domain="module:factory", objectives=["speed", "comfort"])
    draw_curves(run)
    draw_front(run)
    compare_curves([read_run(run)] * 2, tmp_path / "c.png")
    assert titles(drawn[0]) == titles(drawn[2]) == ["utility (UT)"]
    assert drawn[1].axes[0].get_ylabel() == "comfort"


def legend_of(drawn: Any) -> list[str]:
    legend = drawn.legends[0] if isinstance(drawn, Figure) else drawn.get_legend()
    return [text.get_text() for text in legend.get_texts()]


def test_runs_whose_scores_do_not_compare_are_refused(tmp_path: Path):
    table = make_table(dst_returns(), reference="DST2d")
    run = make_run(tmp_path / "a", table)
    compare = lambda *paths: compare_curves([read_run(path) for path in paths], tmp_path / "c.png")
    with pytest.raises(ValueError, match=r"must have the same domain to be compared: .*a and .*b differ"):
        compare(run, make_run(tmp_path / "b", table, domain="Hopper2d"))
    with pytest.raises(ValueError, match="same preferences of the short protocol"):
        compare(run, make_run(tmp_path / "b", make_table(dst_returns()[:, :50])))
    with pytest.raises(ValueError, match="same reference point"):
        compare(run, make_run(tmp_path / "b", make_table(dst_returns(), reference="Hopper2d")))


def _row(step: int, seeds: int = 2) -> dict[str, Any]:
    each = lambda value: [float(value)] * seeds
    binned = {f"{name}_bin_{i}": each(-i) for name in ("entropy", "q") for i in range(1, 6)}
    errors = {"td_error_1": each(1), "td_error_2": each(2)}
    return (
        {"event": "train", "step": step, "critic_loss": each(step), "critic_loss_max": each(2 * step)} | binned | errors
    )


def _run(path: Path, rows: list[dict[str, Any]], **config: Any) -> Path:
    """A run that was not evaluated yet."""
    return make_run(path, None, rows, **{"domain": "HalfCheetah2d", "seeds": 2} | config)


def test_panels_are_those_that_were_logged_with_a_line_per_bin_and_per_alarm(tmp_path: Path, drawn: list[Figure]):
    alarm = {"event": "alarm", "step": 1500, "sign": "entropy", "who": "seed 1", "value": -9.0, "limit": -6.9}
    run = _run(tmp_path / "run", [_row(1000), _row(2000), alarm])
    draw_training(read_run(run), tmp_path / "t.png")
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
    np.testing.assert_allclose([np.asarray(line.get_ydata()) for line in seeds_and_mean[:3]], [[1000, 2000]] * 3)
    assert shown["critic loss, mean of a row"].get_yscale() == "log"
