"""Guards against values that run away: bounded targets, shortened gradients, a rising temperature, fewer snapshots."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

LONGEST_GRADIENT = 3.0
"""Longest gradient of the critics, in multiples of the running median of its length."""
TEMPERATURE_GAIN = 3.0
"""Guards multiply the policy's temperature by exp(this x missing entropy per component), at most by exp(this)."""
PUSH_LOSS = 2.0
"""Largest loss of the critics at which a snapshot is taken, in multiples of its running median."""
SNAPSHOT_MARGIN = 0.05
"""Most that a candidate may exceed the critic's own value under lam, as a share of the batch's mean absolute value."""
MEDIAN_RATE = 0.002
"""Step of the logarithm of a running median at every update. The median forgets within about a thousand updates."""
RECENT_RATE = 0.02
"""Weight of the newest loss in the mean of recent losses, which covers about fifty updates."""
ENTROPY_BELOW = 1.0
"""The entropy per component is expected to be at most this far below its target."""


class RewardRange(eqx.Module):
    """The smallest and the largest reward of each objective so far, and 0, the reward after the end of an episode."""

    low: Float[Array, " d"]
    high: Float[Array, " d"]


def start_reward_range(num_objectives: int) -> RewardRange:
    """Return the range before any reward. Its two arrays must not share memory, because the loop donates every leaf."""
    return RewardRange(jnp.zeros(num_objectives), jnp.zeros(num_objectives))


def with_rewards(before: RewardRange, r: Float[Array, "b d"]) -> RewardRange:
    """Return the range with the rewards of a batch included."""
    return RewardRange(jnp.minimum(before.low, r.min(axis=0)), jnp.maximum(before.high, r.max(axis=0)))


def bounded(
    y: Float[Array, "b d"],
    rewards: RewardRange,
    discount: float,
    alpha: Float[Array, " b"],
    entropies: tuple[float, float],
) -> Float[Array, "b d"]:
    """Clip targets to the discounted sums that rewards in the range can reach, with a bonus at every step.

    The bonus is `alpha` times the lowest and the highest entropy in `entropies`.
    """
    horizon = 1.0 / (1.0 - discount)
    least, most = (alpha * entropy for entropy in entropies)
    low = horizon * (rewards.low[None] + least[:, None])
    high = horizon * (rewards.high[None] + most[:, None])
    return jnp.clip(y, low, high)


def entropy_range(target: float, action_size: int) -> tuple[float, float]:
    """Return the lowest and the highest entropy that a policy with this target per component is expected to have.

    A component in [-1, 1] has an entropy of at most log 2.
    """
    return action_size * (target - ENTROPY_BELOW), action_size * math.log(2.0)


class MedianLength(NamedTuple):
    """State of `clip_by_median`: the logarithm of the running median of the gradient's length; 0 at the start."""

    median: Float[Array, ""]


def clip_by_median(most: float) -> optax.GradientTransformation:
    """Shorten gradients that are longer than `most` times the running median of their lengths."""

    def update(
        updates: optax.Updates, state: optax.OptState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, MedianLength]:
        del params
        assert isinstance(state, MedianLength)
        factor, median = shorten(optax.tree.norm(updates), state.median, most)
        return jax.tree.map(lambda leaf: factor * leaf, updates), MedianLength(median)

    return optax.GradientTransformation(lambda params: MedianLength(jnp.zeros(())), update)


def shorten(
    length: Float[Array, ""], before: Float[Array, ""], most: float
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the factor for a gradient of this length, and the logarithm of the median that includes the length."""
    log = jnp.log(jnp.maximum(length, 1e-12))
    # The first gradient (of any length) is the first median: it may be far from length 1.
    median = jnp.where(before == 0.0, log, before + MEDIAN_RATE * jnp.sign(log - before))
    median = jnp.where(length > 0, median, before)
    return jnp.where(length > 0, jnp.exp(jnp.minimum(0.0, median + jnp.log(most) - log)), 1.0), median


def temperature_rise(
    mean_logp: Float[Array, "*seed"], entropy_target: Array | float, action_size: int
) -> Float[Array, "*seed"]:
    """Return how much guards raise the logarithm of the temperature while entropy is below its target.

    They raise it by `TEMPERATURE_GAIN` for each unit of entropy that a component of the action misses; at most one unit
    counts. `entropy_target` is for the whole action.
    """
    missing = (entropy_target + mean_logp) / action_size
    return TEMPERATURE_GAIN * jnp.clip(jax.lax.stop_gradient(missing), 0.0, 1.0)


class LossTrack(eqx.Module):
    """The running median of the critics' loss and the mean of recent losses, as logarithms."""

    median: Float[Array, ""]
    recent: Float[Array, ""]


def start_loss_track() -> LossTrack:
    """Return the track before any loss."""
    return LossTrack(jnp.zeros(()), jnp.zeros(()))


def with_loss(track: LossTrack, loss: Float[Array, ""]) -> LossTrack:
    """Return the track after another update with this loss. The first loss starts median and mean."""
    log = jnp.log(jnp.maximum(loss, 1e-12))
    is_first = (track.median == 0.0) & (track.recent == 0.0)
    recent = jnp.where(is_first, log, track.recent + RECENT_RATE * (log - track.recent))
    return LossTrack(jnp.where(is_first, log, track.median + MEDIAN_RATE * jnp.sign(log - track.median)), recent)


def is_usual(track: LossTrack) -> Bool[Array, ""]:
    """Return whether the geometric mean of recent losses is at most `PUSH_LOSS` times their running median.

    Only then is a snapshot taken.
    """
    return track.recent <= track.median + jnp.log(PUSH_LOSS)
