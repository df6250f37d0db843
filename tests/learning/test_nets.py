"""Networks: what they compute, how they start, and that they are pytrees of arrays alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qpensieve.learning.nets import (
    LOG_STD_RANGE,
    Critic,
    GaussianActor,
    Linear,
    Mlp,
    OrthogonalLinear,
    TanhMlp,
)
from tests.algos.problem import random_like

OBS, ACT, D, HIDDEN = 5, 3, 2, 32


def _mlp() -> Mlp:
    return random_like(Mlp(4, HIDDEN, 3, key=jax.random.key(0)), seed=0)


def test_weights_start_xavier_uniform_and_biases_at_zero():
    layer = Linear(200, 100, key=jax.random.key(0))
    bound = np.sqrt(6 / 300)
    assert layer.weight.shape == (200, 100)
    assert np.abs(layer.weight).max() <= bound
    assert np.abs(layer.weight).max() > 0.99 * bound
    assert np.std(layer.weight) == pytest.approx(bound / np.sqrt(3), rel=0.02)
    assert abs(np.mean(layer.weight)) < 0.02 * bound
    np.testing.assert_array_equal(layer.bias, np.zeros(100))


@pytest.mark.parametrize("size_out", [2, 40])
def test_a_layer_takes_a_batch_and_its_gradients_are_those_of_matrix_products(size_out: int):
    layer = random_like(Linear(OBS, size_out, key=jax.random.key(0)), seed=0)
    generator = np.random.default_rng(1)
    x, by_out = (generator.normal(size=(7, size)).astype(np.float32) for size in (OBS, size_out))
    out, back = jax.vjp(lambda layer, x: layer(x), layer, x)
    of_layer, of_input = back(jnp.asarray(by_out))
    weight = np.asarray(layer.weight)
    np.testing.assert_allclose(out, x @ weight + np.asarray(layer.bias), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(of_layer.weight, x.T @ by_out, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(of_layer.bias, by_out.sum(axis=0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(of_input, by_out @ weight.T, rtol=1e-5, atol=1e-5)


def test_the_network_has_two_hidden_layers_with_relu():
    net = _mlp()
    x = np.random.default_rng(0).normal(size=4).astype(np.float32)
    first = np.maximum(x @ net.first.weight + net.first.bias, 0)
    second = np.maximum(first @ net.second.weight + net.second.bias, 0)
    expected = second @ net.last.weight + net.last.bias
    assert (first == 0).any()
    assert (second == 0).any()
    np.testing.assert_allclose(net(jnp.asarray(x)), expected, rtol=1e-5)


def test_the_critic_reads_state_action_and_preference_in_this_order():
    critic = Critic(OBS, ACT, D, HIDDEN, key=jax.random.key(0))
    s, a, lam = jnp.arange(5.0), jnp.array([0.1, -0.2, 0.3]), jnp.array([0.25, 0.75])
    q = critic(s, a, lam)
    assert q.shape == (D,)
    np.testing.assert_allclose(q, critic.net(jnp.array([0, 1, 2, 3, 4, 0.1, -0.2, 0.3, 0.25, 0.75])), rtol=1e-6)


def test_the_policy_gives_mean_and_clipped_log_standard_deviation():
    actor = GaussianActor(OBS, ACT, D, HIDDEN, key=jax.random.key(0))
    s, lam = jnp.arange(5.0), jnp.array([0.25, 0.75])
    raw = actor.net(jnp.array([0, 1, 2, 3, 4, 0.25, 0.75]))
    mean, log_std = actor(s, lam)
    np.testing.assert_allclose(mean, raw[:ACT], rtol=1e-6)
    np.testing.assert_allclose(log_std, np.clip(raw[ACT:], *LOG_STD_RANGE), rtol=1e-6)
    far_mean, far_log_std = actor(1e4 * s, lam)
    assert (np.abs(far_mean) > 20).any()
    assert set(np.asarray(far_log_std).tolist()) <= {-20.0, 2.0}


@pytest.mark.parametrize(("size_in", "size_out"), [(11, 64), (64, 64), (64, 3)])
def test_orthogonal_layers_stretch_every_direction_by_their_gain(size_in: int, size_out: int):
    layer = OrthogonalLinear(size_in, size_out, 1.7, stream=np.random.default_rng(0))
    assert layer.weight.shape == (size_in, size_out)
    stretches = np.linalg.svd(np.asarray(layer.weight), compute_uv=False)
    np.testing.assert_allclose(stretches, np.full(min(size_in, size_out), 1.7), rtol=1e-5)
    np.testing.assert_array_equal(layer.bias, np.zeros(size_out))


def test_orthogonal_matrices_are_drawn_from_all_alike():
    """Haar's distribution: no entry leans to a side, entries have variance 1 / n, half are reflections.

    QR alone gives most diagonals one sign. 500 draws: means within 5 standard errors.
    """
    stream = np.random.default_rng(0)
    for n in (1, 4):
        drawn = np.stack([np.asarray(OrthogonalLinear(n, n, 1.0, stream=stream).weight) for _ in range(500)])
        np.testing.assert_allclose(drawn.mean(axis=0), np.zeros((n, n)), atol=5 / np.sqrt(500 * n))
        np.testing.assert_allclose(np.square(drawn).mean(axis=0), np.full((n, n), 1 / n), atol=5 / np.sqrt(500) / n)
        assert abs(np.linalg.det(drawn).mean()) < 5 / np.sqrt(500)


def test_the_tanh_network_has_two_hidden_layers_and_a_last_one_without_bounds():
    net = random_like(TanhMlp(4, HIDDEN, 3, 1.0, stream=np.random.default_rng(0)), seed=0)
    x = 3 * np.random.default_rng(1).normal(size=4).astype(np.float32)
    first = np.tanh(x @ net.first.weight + net.first.bias)
    second = np.tanh(first @ net.second.weight + net.second.bias)
    expected = second @ net.last.weight + net.last.bias
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(net(jnp.asarray(x)), expected, rtol=1e-5)
    leaves = jax.tree.leaves(net)
    assert [leaf.shape for leaf in leaves] == [(4, HIDDEN), (HIDDEN,), (HIDDEN, HIDDEN), (HIDDEN,), (HIDDEN, 3), (3,)]
