"""The fast improvement value against the plain one: same value, same gradient, same winner."""

from functools import cache, partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.plain import batch_value
from qpensieve.learning import improvement
from qpensieve.learning.improvement import Choice, Winner, best_value, best_value_of_any
from qpensieve.learning.nets import Critic
from qpensieve.learning.sampling import sample_preferences
from tests.algos.problem import OPTIMISED, once
from tests.oracles.mosac import scores, twins_of
from tests.rounding import assert_same_to_rounding

OBS, ACT, D, HIDDEN, BATCH = 5, 3, 3, 16, 12


@cache
def _problem(num_critics: int, num_prefs: int, per_sample: bool, seed: int = 0, num_blocks: int = 0):
    make = jax.vmap(jax.vmap(lambda key: Critic(OBS, ACT, D, HIDDEN, num_blocks, key=key)))
    c = BATCH if per_sample else 1

    def draw(key: Any) -> Any:
        keys = jax.random.split(key, 4)
        critics = make(jax.random.split(keys[0], (num_critics, 2)))
        prefs = sample_preferences(keys[1], num_prefs * c, D).reshape(num_prefs, c, D)
        return critics, prefs, jax.random.normal(keys[2], (BATCH, OBS)), jax.random.normal(keys[3], (BATCH, ACT))

    return once(draw)(jax.random.key(seed))


def _check_against_the_plain_form(problem: Any, filled: Any, options: Any = None) -> None:
    critics, prefs, s, a = problem
    weights = jnp.arange(1.0, BATCH + 1)

    def of(form: Any) -> Any:
        def total(a: Any) -> Any:
            value = form(a)
            return jnp.sum(weights * value), value

        gradient, value = jax.jit(jax.grad(total, has_aux=True), compiler_options=options)(a)
        return value, gradient

    value, gradient = of(lambda a: best_value(critics, Choice(filled), prefs, s, a)[0])
    assert_same_to_rounding((value, gradient), of(lambda a: batch_value(critics, filled, prefs, s, a)))
    assert np.abs(gradient).min() > 0


@pytest.mark.parametrize("tile", [1, 4, 5, 64])
def test_rows_in_tiles_pass_through_their_own_network(tile: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(improvement, "TILE", tile)
    generator = np.random.default_rng(tile)
    x, weights = (generator.normal(size=size).astype(np.float32) for size in ((BATCH, 6), (4, 5, 6)))
    for net in (generator.choice([0, 2, 3], BATCH), np.full(BATCH, 3), np.arange(BATCH) % 4):
        through = once(improvement._in_tiles)(x, weights, jnp.asarray(net, jnp.int32))
        expected = np.stack([weights[n] @ row for n, row in zip(net, x, strict=True)])
        np.testing.assert_allclose(through, expected, rtol=1e-5, atol=1e-5)


CASES = [(5, 5, False), (5, 5, True), (1, 1, False), (1, 4, True), (3, 1, False)]


@pytest.mark.parametrize(("num_critics", "num_prefs", "per_sample"), CASES)
@pytest.mark.parametrize("form", ["cpu", "accelerator"])
def test_fast_and_plain_form_agree_in_value_and_gradient(num_critics, num_prefs, per_sample, form, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu" if form == "cpu" else "gpu")
    filled = jnp.ones(num_critics, bool)
    _check_against_the_plain_form(_problem(num_critics, num_prefs, per_sample), filled)


@pytest.mark.parametrize("num_blocks", [0, 1])
def test_compiled_as_users_do_fast_and_plain_form_agree(num_blocks: int):
    problem = _problem(3, 4, per_sample=False, num_blocks=num_blocks)
    _check_against_the_plain_form(problem, jnp.ones(3, bool), OPTIMISED)


@pytest.mark.parametrize(("num_critics", "num_prefs", "per_sample"), CASES)
@pytest.mark.parametrize("form", ["cpu", "accelerator"])
def test_of_residual_critics_too_value_and_gradient_are_those_of_the_plain_form(
    num_critics, num_prefs, per_sample, form, monkeypatch
):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu" if form == "cpu" else "gpu")
    problem = _problem(num_critics, num_prefs, per_sample, num_blocks=2)
    filled = jnp.arange(num_critics) != 1  # of one critic this is that one
    _check_against_the_plain_form(problem, filled)


@pytest.mark.parametrize("per_sample", [False, True])
@pytest.mark.parametrize("over_critics", ["max", "median"])
@pytest.mark.parametrize("margin", [None, 0.1])
def test_of_plain_critics_the_form_for_any_network_is_the_fast_one(per_sample, over_critics, margin):
    """The same values, gradients and winners under every rule of the choice."""
    critics, prefs, s, a = _problem(4, 5, per_sample)
    filled = jnp.array([True, False, True, True])
    choice = Choice(filled, over_critics, margin)
    weights = jnp.arange(1.0, BATCH + 1)

    def climbed(form: Any) -> Any:
        def total(a: Any) -> Any:
            value, winner = form(critics, choice, prefs, s, a)
            return jnp.sum(weights * value), (value, winner)

        return once(jax.grad(total, has_aux=True))(a)

    (gradient, (value, winner)), (other, (other_value, other_winner)) = climbed(best_value_of_any), climbed(best_value)
    np.testing.assert_allclose(value, other_value, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradient, other, rtol=1e-4, atol=1e-5)
    grid = _grid(critics, prefs, s, a)
    for one in (winner, other_winner):
        np.testing.assert_allclose(_at(grid, one), value, rtol=1e-4, atol=1e-5)


def test_of_residual_critics_only_the_action_receives_a_gradient():
    critics, prefs, s, a = _problem(2, 3, per_sample=False, num_blocks=1)
    total = lambda critics, prefs, s: jnp.sum(best_value(critics, Choice(jnp.ones(2, bool)), prefs, s, a)[0])
    for gradient in once(jax.grad(total, argnums=(0, 1, 2)))(critics, prefs, s):
        assert all(not np.any(leaf) for leaf in jax.tree.leaves(gradient))


def test_the_winner_is_the_argmax_of_the_grid():
    critics, prefs, s, a = _problem(4, 5, per_sample=False)
    _, winner = jax.jit(lambda a: best_value(critics, Choice(jnp.ones(4, bool)), prefs, s, a))(a)
    grid = _grid(critics, prefs, s, a)
    np.testing.assert_allclose(_at(grid, winner), grid.min(axis=1).max(axis=(0, 1)), rtol=1e-4, atol=1e-5)


def test_critics_that_do_not_exist_are_never_picked():
    critics, prefs, s, a = _problem(4, 5, per_sample=True)
    filled = jnp.array([False, True, False, True])
    value, winner = jax.jit(lambda a: best_value(critics, Choice(filled), prefs, s, a))(a)
    assert set(np.asarray(winner.critic)) <= {1, 3}
    assert_same_to_rounding(value, batch_value(critics, filled, prefs, s, a))


def test_one_more_candidate_never_lowers_the_value():
    critics, prefs, s, a = _problem(5, 5, per_sample=False, seed=3)
    value = once(lambda filled: best_value(critics, Choice(filled), prefs, s, a)[0])
    values = [value(jnp.arange(5) >= 4 - k) for k in range(5)]
    for fewer, more in pairwise(values):
        assert (np.asarray(more) >= np.asarray(fewer)).all()
    assert (np.asarray(values[-1]) > np.asarray(values[0])).any()


def test_only_the_action_receives_a_gradient():
    critics, prefs, s, a = _problem(2, 3, per_sample=False)
    total = lambda critics, prefs, s: jnp.sum(best_value(critics, Choice(jnp.ones(2, bool)), prefs, s, a)[0])
    for gradient in once(jax.grad(total, argnums=(0, 1, 2)))(critics, prefs, s):
        assert all(not np.any(leaf) for leaf in jax.tree.leaves(gradient))


def _grid(critics: Any, prefs: Any, s: Any, a: Any) -> np.ndarray:
    """Values [critic, twin, preference, sample] by the loops."""
    every = np.broadcast_to(np.asarray(prefs, np.float64), (prefs.shape[0], BATCH, prefs.shape[2]))
    twins = [twins_of(critics, k) for k in range(jax.tree.leaves(critics)[0].shape[0])]
    rows = [
        scores(twins, every[:, i], np.asarray(s[i], np.float64), np.asarray(a[i], np.float64)) for i in range(BATCH)
    ]
    return np.stack(rows, axis=-1)


def _scores(critics: Any, prefs: Any, s: Any, a: Any) -> np.ndarray:
    """Values [critic, preference, sample] of the smaller twin, by the loops."""
    return _grid(critics, prefs, s, a).min(axis=1)


def _at(grid: np.ndarray, winner: Winner) -> np.ndarray:
    """The value of every sample's winner: where two are equal to rounding, either may win."""
    return grid[winner.critic, winner.twin, winner.preference, np.arange(BATCH)]


@pytest.mark.parametrize("num_filled", [1, 2, 3, 4])
def test_the_median_critic_is_the_lower_median_of_those_that_exist(num_filled: int):
    critics, prefs, s, a = _problem(4, 3, False)
    filled = jnp.arange(4) < num_filled
    value, winner = once(lambda f: best_value(critics, Choice(f, "median"), prefs, s, a))(filled)
    grid = _grid(critics, prefs, s, a)
    best = grid.min(axis=1).max(axis=1)[:num_filled]
    expected = np.sort(best, axis=0)[(num_filled - 1) // 2]
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(_at(grid, winner), expected, rtol=1e-4, atol=1e-5)


def test_no_candidate_beyond_the_margin_is_climbed():
    critics, prefs, s, a = _problem(3, 4, True)
    every = _scores(critics, prefs, s, a)
    own, margin = every[2, 0], 0.5
    cap = own + margin * np.abs(own).mean()
    climb = lambda a, margin: best_value(critics, Choice(jnp.ones(3, bool), margin=margin), prefs, s, a)
    value, winner = once(partial(climb, margin=margin))(a)
    is_own = (np.arange(3)[:, None] == 2) & (np.arange(4) == 0)
    allowed = np.where((every <= cap) | is_own[..., None], every, -np.inf)
    np.testing.assert_allclose(value, allowed.max(axis=(0, 1)), rtol=1e-4, atol=1e-5)
    won = allowed[winner.critic, winner.preference, np.arange(BATCH)]
    np.testing.assert_allclose(won, value, rtol=1e-4, atol=1e-5)
    beyond = every.max(axis=(0, 1)) > cap
    assert 0 < beyond.sum() < BATCH
    unlimited = once(partial(climb, margin=None))(a)[0]
    np.testing.assert_array_equal(np.asarray(unlimited) > np.asarray(value) + 1e-4, beyond)
    # The own value counts even with a margin that no value keeps.
    value, winner = once(partial(climb, margin=-10.0))(a)
    np.testing.assert_allclose(value, own, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(np.stack([winner.critic, winner.preference]), [[2] * BATCH, [0] * BATCH])
