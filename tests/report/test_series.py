"""What figures draw, from runs: scores and returns over training, seeds of several runs, fronts."""

from pathlib import Path

import numpy as np
import pytest

from qpensieve import metrics
from qpensieve.records import evaluations
from qpensieve.records.folder import EVALUATIONS
from qpensieve.report import series
from qpensieve.report.cells import read_cell, read_runs
from qpensieve.report.export import export
from tests.report.test_cells import REFERENCE, TABLE, make, returns_of

HALF = np.array([0.5, 0.5])


def add_curves(folder: Path, seeds: range) -> Path:
    """Curve evaluations under one preference: step, -step of seed 0, and one more for every seed after."""
    made = evaluations.empty(len(seeds), TABLE[::5], HALF[None], TABLE, REFERENCE)
    for step in (50_000, 100_000, 200_000):
        curve = np.array([[[[step + seed, -step]]] for seed in seeds], np.float64)
        made = evaluations.append_short(made, step, returns_of(seeds)[:, ::5, None], curve)
    evaluations.save(folder / EVALUATIONS, made)
    return folder


def test_a_score_over_training(tmp_path: Path):
    run = make(tmp_path / "run", range(2), short=(100, 200))
    expected = [metrics.hypervolume(one[::5], REFERENCE) for one in returns_of(range(2))]
    for path in (run, export(run, tmp_path / "run.json")):
        curve = series.score_curve(read_runs([path]), "hv")
        assert curve is not None
        assert (curve.steps.tolist(), curve.goal) == ([100, 200], 1000)
        np.testing.assert_allclose(curve.values, [expected, expected], rtol=1e-5)


def test_seeds_of_several_runs_stand_side_by_side(tmp_path: Path):
    paths = [make(tmp_path / "a", range(2), short=(100, 200)), make(tmp_path / "b", range(2, 5), short=(100,))]
    curve = series.score_curve(read_runs(paths), "ut")
    assert curve is not None
    # At step 200 three of five seeds are missing: the mean would be one of other runs.
    assert (curve.steps.tolist(), curve.values.shape) == ([100], (1, 5))
    np.testing.assert_allclose(curve.values[0], metrics.utility(returns_of(range(5))[:, ::5], TABLE[::5]))


def test_short_evaluations_of_other_preferences_do_not_stand_in_one_curve_or_cell(tmp_path: Path):
    paths = [make(tmp_path / "a", range(2), full=(), short=(100,)), make(tmp_path / "b", range(2, 4), full=())]
    thin = evaluations.empty(2, TABLE[::25], np.empty((0, 2)), TABLE, REFERENCE)
    thin = evaluations.append_short(thin, 100, returns_of(range(2, 4))[:, ::25, None], np.empty((2, 0, 1, 2)))
    evaluations.save(paths[1] / EVALUATIONS, thin)
    for read in (lambda: series.score_curve(read_runs(paths)), lambda: read_cell(paths)):
        with pytest.raises(ValueError, match=r"must have the same preferences \(eval_stride\) to stand together"):
            read()


def test_no_score(tmp_path: Path):
    runs = read_runs([make(tmp_path / "run", short=(100,), reference=None)])
    assert series.score_curve(runs, "hv") is None
    assert series.score_curve([], "ut") is None
    with pytest.raises(ValueError, match=r"score must be one of ut, .*hv, .*, got 'loss'"):
        series.score_curve(runs, "loss")


def test_the_return_under_a_preference(tmp_path: Path):
    runs = read_runs([add_curves(make(tmp_path / "run", range(2)), range(2))])
    curve = series.preference_curve(runs, HALF)
    assert curve is not None
    assert curve.steps.tolist() == [50_000, 100_000, 200_000]
    assert curve.values.tolist() == [[0.0, 0.5]] * 3
    path = series.preference_path(runs, HALF)
    assert path is not None
    assert path.steps.tolist() == [100_000, 200_000]
    assert path.returns.tolist() == [[100_000.5, -100_000.0], [200_000.5, -200_000.0]]
    only = series.preference_path(runs, HALF, steps=[50_000])
    assert only is not None
    assert only.steps.tolist() == [50_000]
    assert series.preference_curve(runs, [0.987, 0.013]) is None
    assert series.preference_path(runs, [0.987, 0.013]) is None


def test_full_evaluations_count_before_short_ones(tmp_path: Path):
    runs = read_runs([make(tmp_path / "run", range(2), full=(100,), short=(100, 200))])
    curve = series.preference_curve(runs, TABLE[5])
    assert curve is not None
    played = returns_of(range(2))[:, 5] @ TABLE[5]
    np.testing.assert_allclose(curve.values, [played + 0.1, played])
