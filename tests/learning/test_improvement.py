"""The fast improvement value against the plain one: same value, same gradient, same winner."""

from functools import cache
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qpensieve.bench.plain import batch_value
from qpensieve.learning.improvement import best_value
from qpensieve.learning.nets import Critic
from qpensieve.learning.sampling import sample_preferences
from tests.algos.problem import once
from tests.oracles.mosac import scores, twins_of

OBS, ACT, HIDDEN, BATCH = 5, 3, 16, 12


@cache
def _problem(num_critics: int, num_prefs: int, per_sample: bool, d: int = 3, seed: int = 0):
    make = jax.vmap(jax.vmap(lambda key: Critic(OBS, ACT, d, HIDDEN, key=key)))
    c = BATCH if per_sample else 1

    def draw(key: Any) -> Any:
        keys = jax.random.split(key, 4)
        critics = make(jax.random.split(keys[0], (num_critics, 2)))
        prefs = sample_preferences(keys[1], num_prefs * c, d).reshape(num_prefs, c, d)
        return critics, prefs, jax.random.normal(keys[2], (BATCH, OBS)), jax.random.normal(keys[3], (BATCH, ACT))

    return once(draw)(jax.random.key(seed))


CASES = [(5, 5, False), (5, 5, True), (1, 1, False), (1, 4, True), (3, 1, False)]


@pytest.mark.parametrize(("num_critics", "num_prefs", "per_sample"), CASES)
@pytest.mark.parametrize("form", ["cpu", "accelerator"])
def test_fast_and_plain_form_agree_in_value_and_gradient(num_critics, num_prefs, per_sample, form, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu" if form == "cpu" else "gpu")
    critics, prefs, s, a = _problem(num_critics, num_prefs, per_sample)
    filled = jnp.ones(num_critics, bool)
    weights = jnp.arange(1.0, BATCH + 1)
    fast = lambda a: jnp.sum(weights * best_value(critics, filled, prefs, s, a)[0])
    plain = lambda a: jnp.sum(weights * batch_value(critics, filled, prefs, s, a))
    value, gradient = jax.jit(jax.value_and_grad(fast))(a)
    expected, expected_gradient = jax.jit(jax.value_and_grad(plain))(a)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5, atol=1e-5)
    assert np.abs(gradient).min() > 0


def test_the_winner_is_the_argmax_of_the_grid():
    critics, prefs, s, a = _problem(4, 5, per_sample=False)
    _, winner = jax.jit(best_value)(critics, jnp.ones(4, bool), prefs, s, a)
    twins = [twins_of(critics, k) for k in range(4)]
    for i in range(BATCH):
        grid = scores(twins, np.asarray(prefs[:, 0]), np.asarray(s[i]), np.asarray(a[i]))
        smaller = grid.min(axis=1)
        k, m = np.unravel_index(smaller.argmax(), smaller.shape)
        assert (winner.critic[i], winner.preference[i]) == (k, m)
        assert winner.twin[i] == grid[k, :, m].argmin()


@pytest.mark.optimized
def test_critics_that_do_not_exist_are_never_picked():
    critics, prefs, s, a = _problem(4, 5, per_sample=True)
    filled = jnp.array([False, True, False, True])
    value, winner = jax.jit(best_value)(critics, filled, prefs, s, a)
    assert set(np.asarray(winner.critic)) <= {1, 3}
    np.testing.assert_allclose(value, batch_value(critics, filled, prefs, s, a), rtol=1e-5)


def test_one_more_candidate_never_lowers_the_value():
    critics, prefs, s, a = _problem(5, 5, per_sample=False, seed=3)
    values = [best_value(critics, jnp.arange(5) >= 4 - k, prefs, s, a)[0] for k in range(5)]
    for fewer, more in pairwise(values):
        assert (np.asarray(more) >= np.asarray(fewer)).all()
    assert (np.asarray(values[-1]) > np.asarray(values[0])).any()


def test_only_the_action_receives_a_gradient():
    critics, prefs, s, a = _problem(2, 3, per_sample=False)
    total = lambda critics, prefs, s: jnp.sum(best_value(critics, jnp.ones(2, bool), prefs, s, a)[0])
    for gradient in jax.grad(total, argnums=(0, 1, 2))(critics, prefs, s):
        assert all(not np.any(leaf) for leaf in jax.tree.leaves(gradient))
