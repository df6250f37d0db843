"""The table of scores: what one evaluation scores, and that everything shown comes from the table."""

from dataclasses import fields

import numpy as np
import pytest

from qpensieve import metrics
from qpensieve.records.scores import SCORES, RunSummary, columns, summarize

SHORT = np.array([[1.0, 0.0], [0.5, 0.5]])
FULL = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
REFERENCE = np.array([0.0, -50.0])


def test_a_summary_averages_episodes_before_it_scores():
    # The means are (4, -10) and (8, -20); the single episodes would give another front and another volume.
    # Under the mean preference (0.75, 0.25) row 0 has -2.5 and 3.5, row 1 9.5 and -7.5: episode 0 chooses row 1, which
    # episode 1 measures, and episode 1 chooses row 0, which episode 0 measures.
    returns = np.array([[[[0.0, -10.0], [8.0, -10.0]], [[16.0, -10.0], [0.0, -30.0]]]])
    summary = summarize(returns, SHORT, REFERENCE)
    np.testing.assert_allclose(summary.ut, [(4 - 6) / 2])
    np.testing.assert_allclose(summary.best_single, [(-7.5 - 2.5) / 2])
    assert summary.hv is not None
    np.testing.assert_allclose(summary.hv, [4 * 40 + 4 * 30])
    np.testing.assert_array_equal(summary.front_size, [2])
    np.testing.assert_allclose(summary.correlation, [[-1, -1]])


def test_a_summary_keeps_the_seeds_apart():
    rng = np.random.default_rng(0)
    returns = rng.normal(size=(4, 3, 5, 2))
    summary = summarize(returns, FULL, REFERENCE)
    for i in range(4):
        alone = summarize(returns[i : i + 1], FULL, REFERENCE)
        for name, values in vars(alone).items():
            if name == "calibrated":
                continue
            np.testing.assert_allclose(getattr(summary, name)[i : i + 1], values, err_msg=name)
        rows = returns[i].mean(axis=1)
        assert summary.ut[i] == pytest.approx(metrics.utility(rows, FULL))
        assert summary.front_size[i] == len(metrics.non_dominated(rows))


def test_without_a_reference_there_is_no_hypervolume():
    assert summarize(np.ones((2, 2, 2, 2)), SHORT, None).hv is None


def test_nothing_cannot_be_summarized():
    with pytest.raises(ValueError, match=r"shape \(2, 2, 0, 2\): there is nothing to summarize"):
        summarize(np.zeros((2, 2, 0, 2)), SHORT)


def test_the_table_has_a_column_per_score_and_one_per_objective_where_a_score_has_them():
    summary = summarize(np.random.default_rng(0).normal(size=(2, 3, 4, 2)), FULL, REFERENCE)
    shown = columns(summary)
    later = ["best single row UT", "front size", "corr lam1, obj 1", "corr lam2, obj 2"]
    assert list(shown) == ["UT", "UT best row", "HV", *later]
    np.testing.assert_array_equal(shown["HV"][1], summary.hv)
    np.testing.assert_array_equal(shown["corr lam2, obj 2"][1], summary.correlation[:, 1])
    assert [name for name, (score, _) in shown.items() if not score.is_averaged] == ["front size"]


def test_every_field_has_a_score_with_a_heading_of_its_own():
    assert list(SCORES) == [field.name for field in fields(RunSummary)]
    assert len({score.label for score in SCORES.values()}) == len(SCORES)
