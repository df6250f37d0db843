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
from qpensieve.learning.improvement import Eligible, Winner, best_value
from qpensieve.learning.losses import sample_preferences
from qpensieve.learning.nets import Critic
from tests.algos.problem import OPTIMISED, once
from tests.oracles.mosac import scores, twins_of
from tests.rounding import assert_same_to_rounding

OBS, ACT, D, HIDDEN, BATCH = 5, 3, 3, 16, 12


@cache
def _problem(num_critics: int, num_prefs: int, seed: int = 0):
    make = jax.vmap(jax.vmap(lambda key: Critic(OBS, ACT, D, HIDDEN, key=key)))

    def draw(key: Any) -> Any:
        keys = jax.random.split(key, 4)
        critics = make(jax.random.split(keys[0], (num_critics, 2)))
        prefs = sample_preferences(keys[1], num_prefs, D)
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

    value, gradient = of(lambda a: best_value(critics, Eligible(filled), prefs, s, a)[0])
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


@pytest.mark.parametrize(("num_critics", "num_prefs"), [(5, 5), (1, 1), (1, 4), (3, 1)])
@pytest.mark.parametrize("form", ["cpu", "accelerator"])
def test_fast_and_plain_form_agree_in_value_and_gradient(num_critics, num_prefs, form, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu" if form == "cpu" else "gpu")
    filled = jnp.ones(num_critics, bool)
    _check_against_the_plain_form(_problem(num_critics, num_prefs), filled)


def test_compiled_as_users_do_fast_and_plain_form_agree():
    _check_against_the_plain_form(_problem(3, 4), jnp.ones(3, bool), OPTIMISED)


def test_the_winner_is_the_argmax_of_the_grid():
    critics, prefs, s, a = _problem(4, 5)
    _, winner = jax.jit(lambda a: best_value(critics, Eligible(jnp.ones(4, bool)), prefs, s, a))(a)
    grid = _grid(critics, prefs, s, a)
    np.testing.assert_allclose(_at(grid, winner), grid.min(axis=1).max(axis=(0, 1)), rtol=1e-4, atol=1e-5)


def test_critics_that_do_not_exist_are_never_picked():
    critics, prefs, s, a = _problem(4, 5)
    filled = jnp.array([False, True, False, True])
    value, winner = jax.jit(lambda a: best_value(critics, Eligible(filled), prefs, s, a))(a)
    assert set(np.asarray(winner.critic)) <= {1, 3}
    assert_same_to_rounding(value, batch_value(critics, filled, prefs, s, a))


def test_one_more_candidate_never_lowers_the_value():
    critics, prefs, s, a = _problem(5, 5, seed=3)
    value = once(lambda filled: best_value(critics, Eligible(filled), prefs, s, a)[0])
    values = [value(jnp.arange(5) >= 4 - k) for k in range(5)]
    for fewer, more in pairwise(values):
        assert (np.asarray(more) >= np.asarray(fewer)).all()
    assert (np.asarray(values[-1]) > np.asarray(values[0])).any()


def test_only_the_action_receives_a_gradient():
    critics, prefs, s, a = _problem(2, 3)
    total = lambda critics, prefs, s: jnp.sum(best_value(critics, Eligible(jnp.ones(2, bool)), prefs, s, a)[0])
    for gradient in once(jax.grad(total, argnums=(0, 1, 2)))(critics, prefs, s):
        assert all(not np.any(leaf) for leaf in jax.tree.leaves(gradient))


def _grid(critics: Any, prefs: Any, s: Any, a: Any) -> np.ndarray:
    """Values [critic, twin, preference, sample] by the loops."""
    wide = np.asarray(prefs, np.float64)
    twins = [twins_of(critics, k) for k in range(jax.tree.leaves(critics)[0].shape[0])]
    rows = [scores(twins, wide, np.asarray(s[i], np.float64), np.asarray(a[i], np.float64)) for i in range(BATCH)]
    return np.stack(rows, axis=-1)


def _scores(critics: Any, prefs: Any, s: Any, a: Any) -> np.ndarray:
    """Values [critic, preference, sample] of the smaller twin, by the loops."""
    return _grid(critics, prefs, s, a).min(axis=1)


def _at(grid: np.ndarray, winner: Winner) -> np.ndarray:
    """The value of every sample's winner: where two are equal to rounding, either may win."""
    return grid[winner.critic, winner.twin, winner.preference, np.arange(BATCH)]


def test_no_candidate_beyond_the_margin_is_climbed():
    critics, prefs, s, a = _problem(3, 4)
    every = _scores(critics, prefs, s, a)
    own, margin = every[2, 0], 0.5
    cap = own + margin * np.abs(own).mean()
    climb = lambda a, margin: best_value(critics, Eligible(jnp.ones(3, bool), margin=margin), prefs, s, a)
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
