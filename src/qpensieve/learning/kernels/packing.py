"""How networks lie in memory for kernels: padded to powers of two, states and actions in fixed columns.

Padding is zero and stays zero: no value and no gradient reaches it. A policy has the columns of a critic, (s, a, lam),
with zero weights for the action; its mean and log standard deviation stand in the columns of the action, so that what a
policy puts out is what a critic takes in.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from qpensieve.learning.nets import Mlp


@dataclass(frozen=True)
class Sizes:
    """Sizes of a problem.

    Attributes:
        obs: Numbers of an observation.
        act: Numbers of an action.
        d: Number of objectives.
        hidden: Width of hidden layers.
        batch: Rows of a batch.
        snapshots: Number of past critics.
        preferences: Number of preferences offered to the policy.
    """

    obs: int
    act: int
    d: int
    hidden: int
    batch: int
    snapshots: int
    preferences: int

    @property
    def columns(self) -> int:
        """Columns of an input (s, a, lam), padded."""
        return padded(self.obs + self.act + self.d)

    @property
    def values(self) -> int:
        """Rows of a critic's answer, padded."""
        return padded(self.d)

    @property
    def width(self) -> int:
        """Width of hidden layers, padded."""
        return padded(self.hidden)


def padded(size: int) -> int:
    """The next power of two, 16 or more: the smallest that matrix units take."""
    return max(16, 1 << (size - 1).bit_length())


class Packed(eqx.Module):
    """Networks [n, ...]; the last layer lies with its outputs as rows."""

    w1: Float[Array, "n columns width"]
    b1: Float[Array, "n 1 width"]
    w2: Float[Array, "n width width"]
    b2: Float[Array, "n 1 width"]
    w3: Float[Array, "n out width"]
    b3: Float[Array, "n 1 out"]


@dataclass(frozen=True)
class Layout:
    """Where the inputs and outputs of a network go.

    Attributes:
        inputs: Column of each input.
        columns: Columns in all.
        outputs: Row of each output.
        rows: Rows in all.
        hidden: Width of hidden layers.
    """

    inputs: tuple[int, ...]
    columns: int
    outputs: tuple[int, ...]
    rows: int
    hidden: int

    def pack(self, net: Mlp) -> Packed:
        """Networks with leaves [..., in, out], leading axes merged."""
        h, width = self.hidden, padded(self.hidden)
        inputs, outputs = jnp.array(self.inputs), jnp.array(self.outputs)
        merge = lambda leaf, rank: leaf.reshape(-1, *leaf.shape[leaf.ndim - rank :])
        w1, w2, w3 = (merge(layer.weight, 2) for layer in (net.first, net.second, net.last))
        b1, b2, b3 = (merge(layer.bias, 1)[:, None] for layer in (net.first, net.second, net.last))
        n = len(w1)
        return Packed(
            jnp.zeros((n, self.columns, width)).at[:, inputs, :h].set(w1),
            jnp.zeros((n, 1, width)).at[:, :, :h].set(b1),
            jnp.zeros((n, width, width)).at[:, :h, :h].set(w2),
            jnp.zeros((n, 1, width)).at[:, :, :h].set(b2),
            jnp.zeros((n, self.rows, width)).at[:, outputs, :h].set(jnp.swapaxes(w3, 1, 2)),
            jnp.zeros((n, 1, self.rows)).at[:, :, outputs].set(b3),
        )

    def unpack(self, packed: Packed, like: Any) -> Any:
        """The inverse of `pack`, in the shapes of `like`."""
        h, inputs, outputs = self.hidden, jnp.array(self.inputs), jnp.array(self.outputs)
        leaves = [
            packed.w1[:, inputs, :h],
            packed.b1[:, 0, :h],
            packed.w2[:, :h, :h],
            packed.b2[:, 0, :h],
            jnp.swapaxes(packed.w3[:, outputs, :h], 1, 2),
            packed.b3[:, 0, outputs],
        ]
        old, structure = jax.tree.flatten(like)
        return jax.tree.unflatten(structure, [new.reshape(leaf.shape) for new, leaf in zip(leaves, old, strict=True)])


def critic_layout(sizes: Sizes) -> Layout:
    inputs = tuple(range(sizes.obs + sizes.act + sizes.d))
    return Layout(inputs, sizes.columns, tuple(range(sizes.d)), sizes.values, sizes.hidden)


def actor_layout(sizes: Sizes) -> Layout:
    """Rows of the last layer: first the mean, then the log standard deviation, both in the columns of the action."""
    first_lam = sizes.obs + sizes.act
    inputs = (*range(sizes.obs), *range(first_lam, first_lam + sizes.d))
    action = range(sizes.obs, first_lam)
    outputs = (*action, *(sizes.columns + i for i in action))
    return Layout(inputs, sizes.columns, outputs, 2 * sizes.columns, sizes.hidden)
