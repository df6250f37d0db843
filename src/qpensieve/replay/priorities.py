"""Priorities on the device: a wide sum tree that draws slots in proportion to their priorities.

A node has 128 children, so a million slots are three levels: few, large operations, where a binary tree would be twenty
rounds of tiny ones. A parent is always summed anew from its children and never adjusted by a difference, so rounding
does not pile up. The functions are for one agent; agents are an axis the caller adds.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

RADIX = 128
SMALLEST, LARGEST = 1e-30, 1e30
"""Priorities below the first count as 0, above the second as the second: no sum underflows or overflows."""

_BLOCK = 16
"""A search of a node's children goes over blocks of this many first: 8 and 16 comparisons in place of 128."""


class Priorities(eqx.Module):
    """Priorities of `capacity` slots and the sums over them."""

    levels: tuple[Float[Array, "..."], ...]
    """Leaves first, each level [groups, 128] with zeros behind its end; entry i of a level is the sum of group i of the
    level below. The last level is a single group."""
    capacity: Int[Array, "..."]


def empty(capacity: int) -> Priorities:
    """All priorities 0."""
    num_groups = [-(-capacity // RADIX)]
    while num_groups[-1] > 1:
        num_groups.append(-(-num_groups[-1] // RADIX))
    return Priorities(tuple(jnp.zeros((num, RADIX)) for num in num_groups), jnp.asarray(capacity, jnp.int32))


def total(tree: Priorities) -> Float[Array, ""]:
    return jnp.sum(tree.levels[-1])


def get_at(tree: Priorities, slots: Int[Array, " b"]) -> Float[Array, " b"]:
    """Priorities of `slots`; 0 for one out of range."""
    inside = _inside(tree, slots)
    return tree.levels[0].at[inside // RADIX, inside % RADIX].get(mode="fill", fill_value=0.0)


def set_at(tree: Priorities, slots: Int[Array, " b"], values: Float[Array, " b"]) -> Priorities:
    """Give each slot its value; slots out of range are dropped. Of several values for one slot any one may win.

    A value that is negative or not a number counts as 0.
    """
    inside = _inside(tree, slots)
    # Also takes NaN to 0: one bad priority must not poison every sum above it.
    sums = jnp.where(values >= SMALLEST, jnp.minimum(values, LARGEST), 0.0)
    levels = []
    for level in tree.levels:
        groups = inside // RADIX
        level = level.at[groups, inside % RADIX].set(sums, mode="drop")
        levels.append(level)
        # Twins in `inside` write the same sum of the finished group, so the order of writes does not matter.
        inside, sums = groups, jnp.sum(level.at[groups].get(mode="fill", fill_value=0.0), axis=1)
    return replace(tree, levels=tuple(levels))


def sample(tree: Priorities, key: Key[Array, ""], num: int) -> Int[Array, " b"]:
    """`num` slots, each in proportion to its priority: one draw in each of `num` equal parts of the mass, in order.

    A slot of priority 0 is never drawn, unless all are 0: then every draw is slot 0.
    """
    share = (jnp.arange(num, dtype=jnp.float32) + jax.random.uniform(key, (num,))) / num
    return jax.vmap(_descend, in_axes=(None, 0))(tree.levels, share * total(tree))


def _inside(tree: Priorities, slots: Int[Array, " b"]) -> Int[Array, " b"]:
    """The slots; those out of range, negative ones too, far enough out to be dropped at every level."""
    beyond = jnp.iinfo(jnp.int32).max
    return jnp.where((slots >= 0) & (slots < tree.capacity), slots.astype(jnp.int32), beyond)


def _descend(levels: tuple[Float[Array, "_ 128"], ...], mass: Float[Array, ""]) -> Int[Array, ""]:
    """The slot at which the running sum of the priorities passes `mass`."""
    node = jnp.zeros((), jnp.int32)
    for level in reversed(levels):
        blocks = level[node].reshape(RADIX // _BLOCK, _BLOCK)
        block, mass = _pick(jnp.sum(blocks, axis=1), mass)
        child, mass = _pick(blocks[block], mass)
        node = (node * RADIX + block * _BLOCK + child).astype(jnp.int32)
    return node


def _pick(parts: Float[Array, " c"], mass: Float[Array, ""]) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """The last positive part that begins at or below `mass`, and the mass left over inside it.

    The first positive part begins at exactly 0, so there is one; and a mass that rounding has put beyond the end falls
    into the last positive part.
    """
    place = jnp.arange(parts.size)
    is_before = (place[:, None] < place[None, :]).astype(parts.dtype)
    # A small product beats a running sum, on the CPU by half. Full precision: a GPU would round its inputs to 10 bits.
    begins = jnp.dot(parts, is_before, precision="highest")
    picked = jnp.max(jnp.where((parts > 0) & (begins <= mass), place, 0))
    return picked, mass - begins[picked]
