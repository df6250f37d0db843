"""How networks lie in memory for kernels: padded to powers of two, states and actions in fixed columns.

Padding is zero and stays zero: no value and no gradient reaches it. A policy has the columns of a critic, (s, a, lam),
with zero weights for the action; its mean and log standard deviation stand in the columns of the action, so that what a
policy puts out is what a critic takes in.
"""

from collections.abc import Sequence
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
        wide = lambda leaf: _spread(leaf, range(self.hidden), padded(self.hidden), -1)
        merge = lambda leaf, rank: leaf.reshape(-1, *leaf.shape[leaf.ndim - rank :])
        w1, w2, w3 = (merge(layer.weight, 2) for layer in (net.first, net.second, net.last))
        b1, b2, b3 = (merge(layer.bias, 1)[:, None] for layer in (net.first, net.second, net.last))
        return Packed(
            wide(_spread(w1, self.inputs, self.columns, 1)),
            wide(b1),
            wide(_spread(w2, range(self.hidden), padded(self.hidden), 1)),
            wide(b2),
            wide(_spread(jnp.swapaxes(w3, 1, 2), self.outputs, self.rows, 1)),
            _spread(b3, self.outputs, self.rows, 2),
        )

    def unpack(self, packed: Packed, like: Any) -> Any:
        """The inverse of `pack`, in the shapes of `like`."""
        h = self.hidden
        leaves = [
            _collect(packed.w1[:, :, :h], self.inputs, 1),
            packed.b1[:, 0, :h],
            packed.w2[:, :h, :h],
            packed.b2[:, 0, :h],
            jnp.swapaxes(_collect(packed.w3[:, :, :h], self.outputs, 1), 1, 2),
            _collect(packed.b3[:, 0], self.outputs, 1),
        ]
        old, structure = jax.tree.flatten(like)
        return jax.tree.unflatten(structure, [new.reshape(leaf.shape) for new, leaf in zip(leaves, old, strict=True)])


def _runs(places: Sequence[int]) -> list[tuple[int, int]]:
    """Places that follow each other without a gap, as (first, number)."""
    runs: list[tuple[int, int]] = []
    for place in places:
        first, num = runs[-1] if runs else (place, 0)
        runs[-1:] = [(first, num + 1)] if place == first + num else [*runs[-1:], (place, 1)]
    return runs


def _spread(array: Any, places: Sequence[int], size: int, axis: int) -> Any:
    """The array with its entries along an axis at increasing places, and zeros between them.

    By concatenation: a scatter would be a kernel of its own for every leaf, and there are sixty.
    """
    zeros = lambda num: jnp.zeros_like(array, shape=(*array.shape[:axis], num, *array.shape[axis:][1:]))
    parts, end, taken = [], 0, 0
    for first, num in _runs(places):
        parts += [zeros(first - end), jax.lax.slice_in_dim(array, taken, taken + num, axis=axis)]
        end, taken = first + num, taken + num
    return jnp.concatenate([part for part in [*parts, zeros(size - end)] if part.shape[axis]], axis)


def _collect(array: Any, places: Sequence[int], axis: int) -> Any:
    """The entries at these places along an axis."""
    parts = [jax.lax.slice_in_dim(array, first, first + num, axis=axis) for first, num in _runs(places)]
    return jnp.concatenate(parts, axis)


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
