"""Settings on trial (results/recipe/plan-trials.txt): cost of an end, averaged policy, normalised observations."""

from functools import partial

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from qpensieve.learning.acting import GaussianPolicy, Plain, continuous_acting
from qpensieve.learning.nets import GaussianActor
from qpensieve.types import Acting, Actions, EnvSpec, Noise, Observations, Parameters, Preferences, StoredActions

SMALLEST_VARIANCE = 1e-4
"""Added to the variance of observations."""


def with_end_cost(
    y: Float[Array, "b d"], terminated: Float[Array, " b"], discount: float, cost: float
) -> Float[Array, "b d"]:
    """Subtract the cost of an end, in mean sizes of the batch's targets of each objective, from the next value."""
    size = jnp.mean(jnp.abs(y), axis=0)
    return y - discount * cost * terminated[:, None] * size[None]


class ObservationRange(eqx.Module):
    """Number, mean and summed squared deviation of the observations in all batches so far."""

    num: Float[Array, ""]
    mean: Float[Array, " obs"]
    squares: Float[Array, " obs"]


def start_observation_range(size: int) -> ObservationRange:
    """Return the range before any observation: mean 0, variance 1."""
    return ObservationRange(jnp.full((), 1e-3), jnp.zeros(size), jnp.full(size, 1e-3))


def with_observations(before: ObservationRange, s: Float[Array, "b obs"]) -> ObservationRange:
    """Return the range with the observations of a batch included."""
    num = before.num + len(s)
    mean = jnp.mean(s, axis=0)
    apart = mean - before.mean
    between = jnp.square(apart) * before.num * len(s) / num
    inside = jnp.sum(jnp.square(s - mean[None]), axis=0)
    return ObservationRange(num, before.mean + apart * len(s) / num, before.squares + inside + between)


def deviation(seen: ObservationRange) -> Float[Array, " obs"]:
    """Return the standard deviation of each entry, never 0."""
    return jnp.sqrt(seen.squares / seen.num + SMALLEST_VARIANCE)


def normalized(seen: ObservationRange | None, s: Float[Array, "b obs"]) -> Float[Array, "b obs"]:
    """Return observations with mean 0 and deviation 1; as they are without a range."""
    return s if seen is None else (s - seen.mean[None]) / deviation(seen)[None]


def for_raw(seen: ObservationRange | None, actor: GaussianActor) -> GaussianActor:
    """Return the policy of raw observations that acts as `actor` does on normalised ones."""
    if seen is None:
        return actor
    first, size = actor.net.first, len(seen.mean)
    of_obs = first.weight[:size] / deviation(seen)[:, None]
    weight = first.weight.at[:size].set(of_obs)
    return eqx.tree_at(
        lambda one: (one.net.first.weight, one.net.first.bias), actor, (weight, first.bias - seen.mean @ of_obs)
    )


class AveragedPolicy:
    """The newest policy explores; its exponential average acts in evaluations and is exported."""

    def __init__(self, flat: Parameters, widths: tuple[int, ...]):
        half = flat.shape[1] // 2
        self._newest = GaussianPolicy(flat[:, :half], widths, is_conditioned=True)
        self._average = GaussianPolicy(flat[:, half:], widths, is_conditioned=True)

    def explore(self, obs: Observations, lam: Preferences, noise: Noise, step: int) -> StoredActions:
        return self._newest.explore(obs, lam, noise, step)

    def sample(self, obs: Observations, lam: Preferences, noise: Noise, step: int) -> StoredActions:
        return self._average.sample(obs, lam, noise, step)

    def exploit(self, obs: Observations, lam: Preferences) -> Actions:
        return self._average.exploit(obs, lam)

    def plain(self, step: int) -> Plain:
        return self._average.plain(step)


def averaged_acting(spec: EnvSpec, hidden: int) -> Acting:
    """Describe how SAC with an averaged policy acts."""
    widths = (spec.obs_size + spec.num_objectives, hidden, hidden, 2 * spec.action_size)
    return continuous_acting(spec, partial(AveragedPolicy, widths=widths))
