"""Guards against values that run away: what targets may be, and when the critics are calm enough to be remembered."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

MEDIAN_RATE = 0.002
"""How far the logarithm of the running median moves at every update: it forgets in some thousand."""
RECENT_RATE = 0.02
"""Share of the newest loss in the mean of recent ones: some fifty updates."""
LONGEST_GRADIENT = 3.0
"""A gradient of the critics longer than this many times the running median of its length is shortened to that."""
TEMPERATURE_GAIN = 3.0
"""The policy's temperature is multiplied by exp(this x the missing entropy per component), at most by exp(this)."""
PUSH_LOSS = 2.0
"""No snapshot is taken while the critics' loss is above this many times its running median."""
SNAPSHOT_MARGIN = 0.05
"""A candidate may exceed the critic's own value under lam by this share of the batch's mean size of values."""
ENTROPY_BELOW = 1.0
"""How far below its target no policy's entropy is expected to stay, per component of an action."""


class RewardRange(eqx.Module):
    """The smallest and the largest reward seen of each objective, and 0, what follows the end of an episode."""

    low: Float[Array, " d"]
    high: Float[Array, " d"]


def no_rewards(num_objectives: int) -> RewardRange:
    """The range before any reward was seen; two arrays: the loop donates every leaf."""
    return RewardRange(jnp.zeros(num_objectives), jnp.zeros(num_objectives))


def seen(before: RewardRange, r: Float[Array, "b d"]) -> RewardRange:
    """The range that includes the rewards of a batch."""
    return RewardRange(jnp.minimum(before.low, r.min(axis=0)), jnp.maximum(before.high, r.max(axis=0)))


def bounded(
    y: Float[Array, "b d"],
    rewards: RewardRange,
    discount: float,
    alpha: Float[Array, " b"],
    entropies: tuple[float, float],
) -> Float[Array, "b d"]:
    """Targets within what these rewards and the bonus for `entropies`, at every step, could add up to."""
    horizon = 1.0 / (1.0 - discount)
    least, most = (alpha * entropy for entropy in entropies)
    low = horizon * (rewards.low[None] + least[:, None])
    high = horizon * (rewards.high[None] + most[:, None])
    return jnp.clip(y, low, high)


def entropy_range(target: float, action_size: int) -> tuple[float, float]:
    """The entropies between which a policy stays whose `target` is per component of an action.

    A component in [-1, 1] has an entropy of at most log 2.
    """
    return action_size * (target - ENTROPY_BELOW), action_size * math.log(2.0)


class Lengths(NamedTuple):
    """What clipping remembers: the logarithm of the running median of the gradient's length; 0 at the start."""

    median: Float[Array, ""]


def clip_by_median(most: float) -> optax.GradientTransformation:
    """Shorten gradients that are longer than `most` times the running median of their lengths."""

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Lengths]:
        del params
        shorter, median = shorten(optax.tree.norm(updates), state.median, most)
        return jax.tree.map(lambda leaf: shorter * leaf, updates), Lengths(median)

    return optax.GradientTransformation(lambda params: Lengths(jnp.zeros(())), update)


def shorten(
    length: Float[Array, ""], before: Float[Array, ""], most: float
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """What a gradient of this length is multiplied by, and the logarithm of the median with it."""
    log = jnp.log(jnp.maximum(length, 1e-12))
    # The first gradient (of any length) is the first median: it may be far from length 1.
    median = jnp.where(before == 0.0, log, before + MEDIAN_RATE * jnp.sign(log - before))
    median = jnp.where(length > 0, median, before)
    return jnp.where(length > 0, jnp.exp(jnp.minimum(0.0, median + jnp.log(most) - log)), 1.0), median


def raised(mean_logp: Float[Array, "*seed"], aim: Any, gain: float, action_size: int) -> Float[Array, "*seed"]:
    """What is added to the log temperature of a policy whose entropy is below its target.

    `gain` for every unit per component of an action that it lacks, and never more than for one. `aim` is the target for
    the whole action.
    """
    lack = (aim + mean_logp) / action_size
    return gain * jnp.clip(jax.lax.stop_gradient(lack), 0.0, 1.0)


class Calm(eqx.Module):
    """How large the critics' loss is, beside its running median; both as logarithms of the loss."""

    median: Float[Array, ""]
    recent: Float[Array, ""]


def no_losses() -> Calm:
    return Calm(jnp.zeros(()), jnp.zeros(()))


def with_loss(calm: Calm, loss: Float[Array, ""]) -> Calm:
    """After another update with this loss, which the first begins with; the median moves by a fixed step."""
    log = jnp.log(jnp.maximum(loss, 1e-12))
    is_first = (calm.median == 0.0) & (calm.recent == 0.0)
    recent = jnp.where(is_first, log, calm.recent + RECENT_RATE * (log - calm.recent))
    return Calm(jnp.where(is_first, log, calm.median + MEDIAN_RATE * jnp.sign(log - calm.median)), recent)


def is_calm(calm: Calm, most: float) -> Bool[Array, ""]:
    """Whether the recent loss is at most so many times its running median."""
    return calm.recent <= calm.median + jnp.log(most)
