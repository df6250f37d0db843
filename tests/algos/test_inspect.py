"""A look at the networks: bins of preferences, and each figure against loops or by hand."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qpensieve.algos import mosac
from qpensieve.learning.interface import Transition
from tests.algos.problem import BATCH, SAC, SPEC, once, sac_state, transitions


@pytest.mark.parametrize("d", [2, 3, 5])
def test_preferences_are_spread_over_the_bins_of_the_first_objective(d: int):
    lam = np.asarray(once(lambda key: mosac.spread_preferences(key, 500, d))(jax.random.key(0)))
    np.testing.assert_allclose(lam.sum(axis=1), 1.0, rtol=1e-5)
    assert (lam >= 0).all()
    np.testing.assert_array_equal(np.floor(lam[:, 0] * 5), np.arange(500) % 5)
    assert 0.45 < lam[:, 0].mean() < 0.55
    if d > 2:  # the rest is shared evenly in the mean
        np.testing.assert_allclose(lam[:, 1:].mean(axis=0), (1 - lam[:, 0].mean()) / (d - 1), rtol=0.15)


def test_means_by_bin_peaks_and_shares_by_hand():
    values = jnp.arange(12.0)
    assert {name: float(v) for name, v in mosac.by_bin("q", values).items()} == {
        "q_bin_1": 5.0,
        "q_bin_2": 6.0,
        "q_bin_3": 4.5,
        "q_bin_4": 5.5,
        "q_bin_5": 6.5,
    }
    seen = mosac.of_critics({"w": jnp.array([3.0]), "b": jnp.array([4.0])}, jnp.array([[1.0, -2.0], [3.0, 4.0]]))
    assert {name: float(v) for name, v in seen.items()} == {
        "critic_gradient_max": 5.0,
        "td_error_1": 2.0,
        "td_error_2": 3.0,
    }
    assert float(mosac.saturation(jnp.array([[0.995, -0.5], [-1.0, 0.98]]))["saturation"]) == 0.5


def test_a_look_is_that_of_the_parts_it_is_made_of():
    state, batch = sac_state(0), transitions(1)
    seen = once(partial(mosac.inspect, SAC))(state, batch, jax.random.key(5))
    key_lam, key_next, key_now = jax.random.split(jax.random.key(5), 3)
    lam = mosac.spread_preferences(key_lam, BATCH, 3)
    noise = lambda key: jax.random.normal(key, (BATCH, SPEC.action_size))
    y = mosac.soft_target(SAC, state, batch, lam, noise(key_next))
    errors = np.abs(np.asarray(mosac.twin_values(state.critic, batch.s, batch.a, lam)[0] - y))
    np.testing.assert_allclose([seen[f"td_error_{i}"] for i in (1, 2, 3)], errors.mean(axis=0), rtol=1e-4)
    a, logp = mosac.sample_actions(state.actor, batch.s, lam, noise(key_now))
    q = np.asarray(mosac.twin_values(state.critic, batch.s, a, lam))
    smaller = (q * np.asarray(lam)).sum(axis=-1).min(axis=0)
    np.testing.assert_allclose(seen["q_bin_2"], smaller[1::5].mean(), rtol=1e-4)
    np.testing.assert_allclose(seen["entropy_bin_5"], -np.asarray(logp)[4::5].mean(), rtol=1e-4)
    loss = lambda critic: mosac.critic_loss(critic, batch, lam, y)[0]
    squares = [float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(jax.grad(loss)(state.critic))]
    np.testing.assert_allclose(seen["critic_gradient_max"], np.sqrt(sum(squares)), rtol=1e-4)


def test_a_batch_smaller_than_the_number_of_bins_fills_them_all():
    few = jax.tree.map(lambda leaf: leaf[:2], transitions(1))
    assert isinstance(few, Transition)
    seen = once(partial(mosac.inspect, SAC))(sac_state(0), few, jax.random.key(5))
    assert all(np.isfinite(value) for value in seen.values())
