"""Pieces of the losses: squashed Gaussian against its density, scalarisation, twins, target networks, optimiser."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from qpensieve.learning.losses import between_twins, flatten, gradient_step, polyak, squash

GAUSSIANS = [(0.0, 0.0), (0.7, -1.0), (-1.2, 0.4), (0.3, -2.5)]
"""Means and log standard deviations."""

squash_many = jax.jit(jax.vmap(squash))


def _log_density(a: np.ndarray, mean: float, log_std: float) -> np.ndarray:
    """What `squash` says of the action a in (-1, 1)."""
    noise = (np.arctanh(a) - mean) / np.exp(log_std)
    full = lambda value: jnp.full((len(a), 1), value, jnp.float32)
    actions, logp = squash_many(full(mean), full(log_std), jnp.asarray(noise[:, None], jnp.float32))
    np.testing.assert_allclose(actions[:, 0], a, atol=1e-5)
    return np.asarray(logp, np.float64)


@pytest.mark.parametrize(("mean", "log_std"), GAUSSIANS)
def test_the_log_probability_is_that_of_the_change_of_variables(mean: float, log_std: float):
    a = np.linspace(-0.95, 0.95, 39)
    std = np.exp(log_std)
    log_normal = -0.5 * ((np.arctanh(a) - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
    expected = log_normal - np.log(1 - a**2)
    np.testing.assert_allclose(_log_density(a, mean, log_std), expected, rtol=1e-4, atol=1e-4)


def test_several_actions_add_their_log_probabilities():
    mean, log_std, noise = (jnp.asarray(row) for row in np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32))
    a, logp = squash(mean, log_std, noise)
    each_a, each_logp = squash_many(mean[:, None], log_std[:, None], noise[:, None])
    np.testing.assert_allclose(a, each_a[:, 0], rtol=1e-6)
    assert logp.shape == ()
    assert float(logp) == pytest.approx(float(jnp.sum(each_logp)), rel=1e-5)


@pytest.mark.parametrize("u", [-20.0, -9.0, 9.0, 20.0])
def test_far_out_the_log_probability_stays_exact_and_its_gradient_finite(u: float):
    """There float32 says 1 - tanh(u)^2 = 0; the log-determinant is log 4 - 2 |u| up to rounding."""
    one = jnp.ones(1)
    logp_of = lambda mean: squash(mean, 0.0 * one, 0.5 * one)[1]
    logp, slope = jax.jit(jax.value_and_grad(logp_of))((u - 0.5) * one)
    log_det = np.log(4.0) - 2 * abs(u) - 2 * np.log1p(np.exp(-2 * abs(u)))
    expected = -0.5 * 0.25 - 0.5 * np.log(2 * np.pi) - log_det
    assert float(logp) == pytest.approx(expected, rel=1e-6)
    assert float(slope[0]) == pytest.approx(2.0 * np.tanh(u), rel=1e-5)


@pytest.mark.parametrize(
    ("lam", "pessimism", "expected"),
    [
        ([0.9, 0.1], 1.0, [1.0, 9.0]),
        ([0.1, 0.9], 1.0, [5.0, 2.0]),
        ([0.5, 0.5], 1.0, [5.0, 2.0]),
        ([0.9, 0.1], 0.75, [2.0, 7.25]),
        ([0.1, 0.9], 0.75, [4.0, 3.75]),
    ],
)
def test_the_smaller_twin_is_chosen_by_lam_and_taken_whole_or_in_part(lam, pessimism: float, expected: list[float]):
    q = np.array([[1.0, 9.0], [5.0, 2.0]], np.float32)
    for twins in (q, q[::-1]):
        mixed = between_twins(jnp.array(lam), jnp.array(twins), pessimism)
        np.testing.assert_allclose(mixed, expected, rtol=1e-6)


def test_polyak_moves_a_share_of_the_way():
    target, online = {"a": jnp.array([1.0, 2.0])}, {"a": jnp.array([5.0, -2.0])}
    np.testing.assert_allclose(polyak(target, online, 0.25)["a"], [2.0, 1.0])
    np.testing.assert_array_equal(polyak(target, online, 0.0)["a"], target["a"])
    np.testing.assert_array_equal(polyak(target, online, 1.0)["a"], online["a"])


def test_a_gradient_step_goes_down_and_hands_out_what_came_before_it():
    loss = lambda x: (jnp.sum(x**2), "aux")
    x = jnp.array([1.0, -3.0])
    optimizer = optax.sgd(0.1)
    new, _, value, aux = gradient_step(optimizer, loss, x, optimizer.init(x))
    np.testing.assert_allclose(new, [0.8, -2.4], rtol=1e-6)
    assert (float(value), aux) == (10.0, "aux")


def test_leaves_lie_one_after_the_other_in_the_order_of_the_tree():
    tree = (jnp.arange(4.0).reshape(2, 2), {"bias": jnp.array([7.0])})
    np.testing.assert_array_equal(flatten(tree), [0, 1, 2, 3, 7])
