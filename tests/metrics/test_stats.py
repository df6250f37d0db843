"""Tests of the statistics over seeds and tasks."""

import numpy as np
import pytest

from qpensieve.metrics import (
    bootstrap_interval,
    improvement_interval,
    iqm,
    mean_std,
    normalize,
    paired_difference,
    performance_profile,
    probability_of_improvement,
    summarize,
)
from tests.oracles import stats as oracle

NAN = float("nan")


def mean(scores):
    return float(scores.mean())


def test_mean_and_deviation_over_seeds_with_divisor_n_of_the_mean_over_tasks():
    assert mean_std([1, 2, 6]) == pytest.approx((3, np.sqrt(14 / 3)), rel=1e-12)
    # Every seed has mean 5: no spread over seeds, although the tasks differ much.
    assert mean_std([[0, 10], [1, 9], [2, 8]]) == (5, 0)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([7], 7),
        ([1, 2, 9], 4),  # int(0.75) = 0 are cut
        ([-100, 2, 3, 90], 2.5),
        ([100, 1, 2, 6, -50], 3),  # 1 of 5 from either end
        ([0, 0, 1, 2, 3, 9, 50, 70], 3.75),  # 2 of 8 from either end
        ([[0, 9], [70, 1], [2, 50], [3, 0]], 3.75),
    ],
)
def test_interquartile_mean_by_hand(scores, expected):
    assert iqm(scores) == pytest.approx(expected, rel=1e-12)


def test_resampling_stays_within_tasks():
    scores = [[0, 10], [0, 10], [0, 10]]
    assert bootstrap_interval(scores, mean) == (5, 5)
    assert bootstrap_interval(scores, lambda resample: mean(resample[:, 0])) == (0, 0)
    # Tasks are redrawn independently: were whole seeds redrawn, every resample would have mean 0.5.
    assert bootstrap_interval([[0, 1], [1, 0]], mean) == (0, 1)


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ([2, 3], [0, 1], 1),
        ([0, 1], [2, 3], 0),
        ([1, 1], [1, 1], 0.5),
        ([1, 4], [0, 1, 5], 3.5 / 6),  # wins: 1>0, 4>0, 4>1; tie: 1=1
        ([[2, 0], [3, 0]], [[0, 0], [1, 0]], 0.75),  # tasks: 1 and 0.5; pairs never cross tasks
    ],
)
def test_probability_of_improvement_by_hand(x, y, expected):
    assert probability_of_improvement(x, y) == pytest.approx(expected, rel=1e-12)
    assert probability_of_improvement(y, x) == pytest.approx(1 - expected, rel=1e-12, abs=1e-15)


def test_both_sides_of_the_improvement_are_resampled():
    assert improvement_interval([1], [0, 2]) == (0, 1)
    assert improvement_interval([0, 2], [1]) == (0, 1)


def test_summary_holds_every_statistic_in_its_place():
    scores = [100, 1, 2, 6, -50]
    summary = summarize(scores)
    assert (summary.mean, summary.std) == mean_std(scores)
    assert summary.iqm == 3
    assert (summary.low, summary.high) == bootstrap_interval(scores)
    assert summary.num_seeds == 5
    assert summarize([[1, 2, 3], [4, 5, 6]]).num_seeds == 2


@pytest.mark.parametrize("function", [mean_std, bootstrap_interval, lambda scores: improvement_interval(scores, [1])])
@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([], r" is empty \(shape \(0,\)\)"),
        (np.empty((3, 0)), r" is empty \(shape \(3, 0\)\)"),
        ([1, NAN], r" must be finite, the score at \(1,\) is nan"),
        (np.ones((2, 2, 2)), r" must be .*, got shape \(2, 2, 2\)"),
    ],
)
def test_wrong_scores_are_refused_with_what_is_wrong(function, scores, message):
    with pytest.raises(ValueError, match=message):
        function(scores)


@pytest.mark.parametrize(
    ("function", "arguments", "settings", "message"),
    [
        (probability_of_improvement, ([[1, 2]], [1, 2]), {}, "x and y must have the same tasks, got 2 and 1"),
        (improvement_interval, ([1], []), {}, "y is empty"),
        (paired_difference, ([1, 2], [1, 2, 3]), {}, "the same seeds to be paired, got 2 and 3"),
        (performance_profile, ([1, 2], []), {}, "taus must be a list of finite numbers"),
        *((normalize, ([[1, 2]], scale), {}, "scale must") for scale in ([1, 0], [1, -2], [1, NAN], [1])),
        (bootstrap_interval, ([1, 2],), {"confidence": 0.0}, "confidence must be .*, got"),
        (improvement_interval, ([1, 2], [1]), {"confidence": 95.0}, "confidence must be .*, got"),
        (bootstrap_interval, ([1, 2],), {"num_resamples": 0}, "num_resamples must be .*, got"),
    ],
)
def test_wrong_arguments_are_refused_with_what_is_wrong(function, arguments, settings, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments, **settings)


def scores_with_ties(seed: int, num_seeds: int, num_tasks: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, size=(num_seeds, num_tasks)) / 2


@pytest.mark.parametrize(("num_seeds", "num_tasks"), [(1, 1), (5, 1), (5, 10), (7, 3), (8, 4)])
class TestAgainstTheOracle:
    """Plain loops over the same draws; the draws of side y follow those of side x."""

    def test_interquartile_mean(self, num_seeds, num_tasks):
        scores = np.random.default_rng(num_seeds).normal(size=(num_seeds, num_tasks))
        assert iqm(scores) == pytest.approx(oracle.iqm(scores.tolist()), rel=1e-12)
        expected = oracle.interval(oracle.resampled(oracle.iqm, [scores.tolist()], 200, seed=3), 0.9)
        assert bootstrap_interval(scores, confidence=0.9, num_resamples=200, seed=3) == pytest.approx(
            expected, rel=1e-12
        )

    def test_probability_of_improvement(self, num_seeds, num_tasks):
        x, y = scores_with_ties(0, num_seeds, num_tasks), scores_with_ties(1, num_seeds + 2, num_tasks)
        lists = [x.tolist(), y.tolist()]
        assert probability_of_improvement(x, y) == pytest.approx(oracle.improvement(*lists), rel=1e-12)
        expected = oracle.interval(oracle.resampled(oracle.improvement, lists, 100, seed=3), 0.9)
        assert improvement_interval(x, y, 0.9, 100, 3) == pytest.approx(expected, rel=1e-12)

    def test_performance_profile(self, num_seeds, num_tasks):
        scores, taus = scores_with_ties(0, num_seeds, num_tasks), [-3.0, -0.5, 0.0, 0.3, 2.0]
        profile = performance_profile(scores, taus, 0.9, 100, 3)
        for i, tau in enumerate(taus):
            above = lambda resample, tau=tau: oracle.share_above(resample, tau)
            values = oracle.resampled(above, [scores.tolist()], 100, seed=3)
            assert profile.share[i] == pytest.approx(above(scores.tolist()), rel=1e-12)
            assert (profile.low[i], profile.high[i]) == pytest.approx(oracle.interval(values, 0.9), rel=1e-12)

    def test_paired_difference(self, num_seeds, num_tasks):
        x, y = scores_with_ties(0, num_seeds, num_tasks), scores_with_ties(1, num_seeds, num_tasks)
        lists, found = [x.tolist(), y.tolist()], paired_difference(x, y, 0.9, 100, 3)
        for statistic, got in (
            (oracle.mean_gap, (found.mean, found.low, found.high)),
            (oracle.paired_wins, (found.probability, found.probability_low, found.probability_high)),
        ):
            values = oracle.resampled(statistic, lists, 100, seed=3, together=True)
            expected = (statistic(*lists), *oracle.interval(values, 0.9))
            assert got == pytest.approx(expected, rel=1e-12, abs=1e-12)
        assert found.num_pairs == num_seeds


def test_pairs_of_the_same_seed_are_never_split():
    # Seeds differ much, but x is always 1 ahead of y: unpaired, the interval would be wide.
    y = np.array([0.0, 100.0, 7.0, -50.0])
    found = paired_difference(y + 1, y)
    assert (found.mean, found.low, found.high) == pytest.approx((1, 1, 1), rel=1e-12)
    assert (found.probability, found.probability_low, found.probability_high) == (1, 1, 1)
    assert probability_of_improvement(y + 1, y) < 0.7


def test_scores_are_divided_by_the_scale_of_their_task():
    assert normalize([[1, 10], [2, -30]], [2, 10]).tolist() == [[0.5, 1], [1, -3]]
    assert normalize([3, 6], [3]).tolist() == [[1], [2]]
