"""Running mean and spread of observations, folded into the first layer of a network.

A network of observations in units of their spread is a network of observations as they are, with another first layer.
So learning sees the former, and acting, saving and deploying need to know nothing of it.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from qpensieve.learning.nets import QHead

LEAST_SPREAD = 0.01
"""Observations that hardly change are not blown up by more than 1 / this."""


class Scale(eqx.Module):
    """Mean of all observations seen, of their squares, and of how many batches."""

    mean: Float[Array, " obs"]
    square: Float[Array, " obs"]
    count: Float[Array, ""]

    @property
    def spread(self) -> Float[Array | np.ndarray, "*agents obs"]:
        """Standard deviation."""
        variance = (self.square - self.mean**2).clip(0.0)
        return (variance**0.5).clip(LEAST_SPREAD)


def start_scale(obs_size: int) -> Scale:
    """Mean 0 and spread 1, until something was seen."""
    return Scale(jnp.zeros(obs_size), jnp.ones(obs_size), jnp.zeros(()))


def see(scale: Scale, s: Float[Array, "b obs"]) -> Scale:
    """The scale after one more batch; every batch weighs the same."""
    count = scale.count + 1.0
    mean = scale.mean + (jnp.mean(s, axis=0) - scale.mean) / count
    square = scale.square + (jnp.mean(jnp.square(s), axis=0) - scale.square) / count
    return Scale(mean, square, count)


def folded(scale: Scale | None, net: QHead) -> QHead:
    """The network of plain observations that equals `net` of those in units of the scale; also of stacked agents.

    Of NumPy's arrays it is made by NumPy: policies are read from a file without a device.
    """
    if scale is None:
        return net
    xp = np if isinstance(scale.mean, np.ndarray) else jnp
    first, size = net.layers[0], scale.mean.shape[-1]
    of_obs = first.weight[..., :size, :] / scale.spread[..., None]
    weight = xp.concatenate([of_obs, first.weight[..., size:, :]], axis=-2)
    bias = first.bias - xp.einsum("...i,...io->...o", scale.mean, of_obs)
    where = lambda net: (net.layers[0].weight, net.layers[0].bias)
    return eqx.tree_at(where, net, (weight, bias))
