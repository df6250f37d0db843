"""Guards of values: bounds from rewards by hand, and a median that outliers do not move."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from qpensieve.learning import guards
from tests.algos.problem import once

RANGE = guards.entropy_range(-1.0, 2)


def test_targets_stay_within_what_rewards_and_entropy_can_add_up_to():
    r = jnp.array([[-1.0, 3.0], [2.0, 5.0]])
    rewards = guards.with_rewards(guards.with_rewards(guards.start_reward_range(2), r), 0.5 * r)
    np.testing.assert_array_equal(rewards.low, [-1.0, 0.0])  # an episode may end, and 0 follows
    np.testing.assert_array_equal(rewards.high, [2.0, 5.0])
    y = jnp.array([[1e6, 1e6], [-1e6, -1e6], [3.0, 4.0]])
    alpha = jnp.array([0.0, 0.0, 0.5])
    np.testing.assert_allclose(guards.bounded(y, rewards, 0.9, alpha, RANGE), [[20, 50], [-10, 0], [3, 4]], rtol=1e-5)
    warm = guards.bounded(y, rewards, 0.9, jnp.full(3, 0.5), RANGE)
    bonus = 10 * 0.5 * 2
    np.testing.assert_allclose(warm[0], [20 + bonus * np.log(2), 50 + bonus * np.log(2)], rtol=1e-5)
    np.testing.assert_allclose(warm[1], [-10 - 2 * bonus, -2 * bonus], rtol=1e-5)


def _after(losses: np.ndarray) -> guards.LossTrack:
    step = lambda track, loss: (guards.with_loss(track, loss), None)
    return once(lambda losses: jax.lax.scan(step, guards.start_loss_track(), losses)[0])(
        jnp.asarray(losses, jnp.float32)
    )


def test_the_running_median_finds_the_median_and_a_burst_is_not_usual():
    losses = np.exp(np.random.default_rng(0).normal(3.0, 0.5, 6000))
    usual = _after(losses)
    assert abs(float(usual.median) - 3.0) < 0.1
    assert guards.is_usual(usual)
    burst = _after(np.concatenate([losses, np.full(100, 7 * np.exp(3.0))]))
    assert float(burst.median) - float(usual.median) < 0.21  # a hundred steps of .002, however large the loss
    assert not guards.is_usual(burst)
    assert guards.is_usual(_after(np.concatenate([losses, np.full(100, 1e4), losses[:400]])))


def test_gradients_are_shortened_to_a_multiple_of_their_median():
    clip: Any = guards.clip_by_median(3.0)
    gradient = {"w": jnp.array([3.0, 0.0]), "b": jnp.array(4.0)}  # of length 5
    short, state = clip.update(gradient, clip.init(gradient))
    np.testing.assert_array_equal(short["w"], gradient["w"])
    still, same = clip.update(jax.tree.map(jnp.zeros_like, gradient), clip.init(gradient))
    assert float(same.median) == 0.0  # nothing to learn from
    assert float(still["b"]) == 0.0
    np.testing.assert_allclose(state.median, np.log(5.0), rtol=1e-6)
    longer = jax.tree.map(lambda leaf: 10 * leaf, gradient)
    short, state = clip.update(longer, state)
    np.testing.assert_allclose(state.median, np.log(5.0) + 0.002, rtol=1e-6)
    np.testing.assert_allclose(short["b"], 0.8 * 3 * 5 * np.exp(0.002), rtol=1e-5)
