"""Priorities on the device: a wide sum tree that draws slots in proportion to their priorities.

A node has 128 children, so a million slots are three levels: a few large operations, while a binary tree would need
twenty rounds of tiny ones. A parent is always summed from its children, never adjusted by a difference, so rounding
errors do not accumulate. The functions are for one agent; the caller adds the axis of agents.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

RADIX = 128
SMALLEST, LARGEST = 1e-30, 1e30
"""Smaller priorities become 0 and larger ones LARGEST, so that no sum underflows or overflows."""

_BLOCK = 16
"""Children of a node are searched in blocks of this size: 8 and 16 comparisons in place of 128."""


class Priorities(eqx.Module):
    """Priorities of `capacity` slots and the sums over them."""

    levels: tuple[Float[Array, "..."], ...]
    """Leaves first, each level [groups, 128], padded with zeros; entry i of a level is the sum of group i of the level
    below. The last level is a single group."""
    capacity: Int[Array, "..."]


def empty(capacity: int) -> Priorities:
    """Return priorities that are all 0."""
    num_groups = [-(-capacity // RADIX)]
    while num_groups[-1] > 1:
        num_groups.append(-(-num_groups[-1] // RADIX))
    return Priorities(tuple(jnp.zeros((num, RADIX)) for num in num_groups), jnp.asarray(capacity, jnp.int32))


def total(tree: Priorities) -> Float[Array, ""]:
    return jnp.sum(tree.levels[-1])


def set_at(tree: Priorities, slots: Int[Array, " b"], values: Float[Array, " b"]) -> Priorities:
    """Set the priority of each slot; slots out of range are ignored. If a slot occurs twice, either value may be set.

    A value that is negative or NaN counts as 0.
    """
    inside = _inside(tree, slots)
    # Also turns NaN into 0: one bad priority must not spoil every sum above it.
    sums = jnp.where(values >= SMALLEST, jnp.minimum(values, LARGEST), 0.0)
    levels = []
    for level in tree.levels:
        groups = inside // RADIX
        level = level.at[groups, inside % RADIX].set(sums, mode="drop")
        levels.append(level)
        # Equal entries of `inside` write the same sum of the finished group, so the order of writes does not matter.
        inside, sums = groups, jnp.sum(level.at[groups].get(mode="fill", fill_value=0.0), axis=1)
    return replace(tree, levels=tuple(levels))


def sample(tree: Priorities, key: Key[Array, ""], num: int) -> Int[Array, " b"]:
    """Draw `num` slots in proportion to their priorities: one in each of `num` equal parts of the mass, in order.

    A slot of priority 0 is never drawn. If all priorities are 0, every draw is slot 0.
    """
    share = (jnp.arange(num, dtype=jnp.float32) + jax.random.uniform(key, (num,))) / num
    return jax.vmap(_descend, in_axes=(None, 0))(tree.levels, share * total(tree))


def _inside(tree: Priorities, slots: Int[Array, " b"]) -> Int[Array, " b"]:
    """Make slots out of range (also negative ones) so large that every level ignores them."""
    beyond = jnp.iinfo(jnp.int32).max
    return jnp.where((slots >= 0) & (slots < tree.capacity), slots.astype(jnp.int32), beyond)


def _descend(levels: tuple[Float[Array, "_ 128"], ...], mass: Float[Array, ""]) -> Int[Array, ""]:
    """Return the slot at which the running sum of the priorities passes `mass`."""
    node = jnp.zeros((), jnp.int32)
    for level in reversed(levels):
        blocks = level[node].reshape(RADIX // _BLOCK, _BLOCK)
        block, mass = _pick(jnp.sum(blocks, axis=1), mass)
        child, mass = _pick(blocks[block], mass)
        node = (node * RADIX + block * _BLOCK + child).astype(jnp.int32)
    return node


def _pick(parts: Float[Array, " c"], mass: Float[Array, ""]) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """Return the last positive part that begins at or below `mass`, and the mass left over inside it.

    The first positive part begins at exactly 0, so there is always one. If rounding has put the mass beyond the end,
    the result is the last positive part.
    """
    place = jnp.arange(parts.size)
    is_before = (place[:, None] < place[None, :]).astype(parts.dtype)
    # A small product is faster than a running sum, on the CPU by half. Full precision: a GPU would round to 10 bits.
    begins = jnp.dot(parts, is_before, precision="highest")
    picked = jnp.max(jnp.where((parts > 0) & (begins <= mass), place, 0))
    return picked, mass - begins[picked]
