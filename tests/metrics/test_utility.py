"""Tests of UT, ED and their companions against hand-computed numbers."""

import jax.numpy as jnp
import numpy as np
import pytest

from qpensieve import preferences
from qpensieve.metrics import (
    best_single,
    episodic_dominance,
    expected_utility,
    preference_correlation,
    utility,
)

TABLE = [[1.0, 0.0], [0.5, 0.5], [0.25, 0.75]]
RETURNS = [[4.0, -9.0], [2.0, 6.0], [8.0, 4.0]]  # scalarised: 4, 4, 5
NAN = float("nan")


def of_two_runs(function):
    """A function of (returns, preferences) from one of a pair of runs."""
    return lambda returns, table: function(returns, returns, table)


def test_utility_is_the_mean_scalarised_return():
    value = utility(RETURNS, TABLE)
    assert value == pytest.approx(13 / 3, rel=1e-12)
    assert type(value) is float


def test_utility_keeps_the_leading_axes():
    runs = np.array(RETURNS) * np.arange(6).reshape(2, 3, 1, 1)
    np.testing.assert_allclose(utility(jnp.array(runs), TABLE), 13 / 3 * np.arange(6).reshape(2, 3), rtol=1e-12)


def test_dominance_counts_strictly_greater_scalarised_returns_only():
    # Scalarised 4, 4, 5 against 3 (less), 4 (a tie of other vectors), 6 (greater).
    other = [[3.0, 9.0], [8.0, 0.0], [0.0, 8.0]]
    value = episodic_dominance(RETURNS, other, TABLE)
    assert value == pytest.approx(1 / 3, rel=1e-12)
    assert type(value) is float
    assert episodic_dominance(other, RETURNS, TABLE) == pytest.approx(1 / 3, rel=1e-12)
    runs = np.array([RETURNS, RETURNS])
    np.testing.assert_array_equal(episodic_dominance(runs, [runs[0] - 1, runs[0] + 1], TABLE), [1, 0])


def test_dominance_refuses_runs_of_different_shapes():
    with pytest.raises(ValueError, match=r"same shape, got \(3, 2\) and \(1, 3, 2\)"):
        episodic_dominance(RETURNS, [RETURNS], TABLE)
    with pytest.raises(ValueError, match=r"other must have one row per preference \(3\), got 2"):
        episodic_dominance(RETURNS, RETURNS[:2], TABLE)


def test_expected_utility_picks_the_best_point_per_preference():
    # (4, 0) is best for the first, (0, 6) for the others: 4, 3, 4.5.
    assert expected_utility([[4, 0], [0, 6]], TABLE) == pytest.approx(11.5 / 3, rel=1e-12)
    with pytest.raises(ValueError, match=r"points must be finite, row 0 is \[nan, 1.0\]"):
        expected_utility([[NAN, 1]], TABLE)


def test_best_single_uses_one_row_under_every_preference():
    by_hand = max(utility([row] * 3, TABLE) for row in RETURNS)
    assert best_single(RETURNS, TABLE) == pytest.approx(by_hand, rel=1e-12)
    assert by_hand == pytest.approx((8 + 6 + 5) / 3, rel=1e-12)


def test_best_single_of_episodes_is_measured_on_those_that_did_not_choose_it():
    """Even episodes have a mean of 4 in row 0 and 1 in row 1, odd ones 0 and 2; three and two of them."""
    lam, row = [[1.0, 0.0], [0.0, 1.0]], np.array([[2.0, 0.0, 6.0, 0.0, 4.0], [1.0, 2.0, 1.0, 2.0, 1.0]])
    returns = np.stack([row, row], axis=-1)
    assert best_single(returns, lam) == pytest.approx((0.0 + 1.0) / 2)
    assert best_single(returns.mean(axis=1), lam) == pytest.approx(12 / 5)


def test_best_single_is_not_raised_by_luck():
    """A hundred rows that are the same but for noise have the UT of one row."""
    rng, lam = np.random.default_rng(0), np.stack([np.linspace(0, 1, 100), np.linspace(1, 0, 100)], axis=1)
    returns = rng.normal(size=(100, 10, 2))
    assert best_single(returns.mean(axis=1), lam) > 0.4
    assert abs(best_single(returns, lam)) < 0.25


def test_correlation_is_one_where_return_rises_with_preference_whatever_its_shape():
    table = preferences.spaced_grid(11)
    returns = np.stack([np.exp(9 * table[:, 0]), -(table[:, 1] ** 3)], axis=1)
    np.testing.assert_allclose(preference_correlation(returns, table), [1, -1], rtol=1e-12)


def test_correlation_shares_ranks_between_ties():
    # Ranks of lam 1, 2, 3, 4 and of returns 1.5, 1.5, 3, 4: covariance 4.5, squares 5 and 4.5.
    table = preferences.spaced_grid(4)
    expected = 4.5 / np.sqrt(5 * 4.5)
    np.testing.assert_allclose(
        preference_correlation([[1, 1], [1, 1], [5, 5], [7, 7]], table), [expected, -expected], rtol=1e-12
    )


def test_correlation_with_a_constant_is_zero():
    table = [[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]
    np.testing.assert_array_equal(preference_correlation([[1, 3, 2], [2, 3, 5]], table), [0, 0, 1])
    np.testing.assert_array_equal(preference_correlation([[1, 2]], [[0.5, 0.5]]), [0, 0])


@pytest.mark.parametrize("function", [utility, of_two_runs(episodic_dominance), preference_correlation])
@pytest.mark.parametrize(
    ("returns", "table", "message"),
    [
        ([1.0, 2.0], TABLE, r"returns must be an array \[..., num_preferences, num_objectives\], got shape \(2,\)"),
        (RETURNS[:2], TABLE, r"returns must have one row per preference \(3\), got 2"),
        ([*RETURNS[:2], [NAN, 0]], TABLE, r"returns must be finite, the entry at \(2, 0\) is nan"),
        (RETURNS, TABLE[0], r"preferences must be a table .*, got shape \(2,\)"),
        (np.empty((0, 2)), np.empty((0, 2)), r"preferences must be a table .*, got shape \(0, 2\)"),
        (RETURNS, [*TABLE[:2], [0.5, 0.6]], "preference must sum to 1, got 1.1 at row 2"),
        (RETURNS, [[0.2, 0.3, 0.5]] * 3, "preference must have 2 entries, one per objective, got 3"),
    ],
)
def test_wrong_arguments_are_refused_with_what_is_wrong(function, returns, table, message):
    with pytest.raises(ValueError, match=message):
        function(returns, table)
