"""The Q replay buffer: a ring of past twin critics, kept as one critic whose leaves lead with the snapshot axis."""

from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from qpensieve.learning.nets import Critic


class Snapshots(eqx.Module):
    """Ring of past critics, first in first out."""

    critics: Critic
    """Leaves lead with [k, 2]."""
    filled: Bool[Array, " k"]
    cursor: Int[Array, ""]


def empty(twins: Critic, num_snapshots: int) -> Snapshots:
    """A ring with no critic in it yet; its shapes are those of `twins`."""
    critics = jax.tree.map(lambda leaf: jnp.zeros((num_snapshots, *leaf.shape), leaf.dtype), twins)
    return Snapshots(critics, jnp.zeros(num_snapshots, bool), jnp.zeros((), jnp.int32))


def push(ring: Snapshots, twins: Critic) -> Snapshots:
    """Put `twins` in the place of the oldest snapshot."""
    put = lambda slots, leaf: slots.at[ring.cursor].set(leaf)
    return replace(
        ring,
        critics=jax.tree.map(put, ring.critics, twins),
        filled=ring.filled.at[ring.cursor].set(True),
        cursor=(ring.cursor + 1) % ring.filled.size,
    )


def push_spread(ring: Snapshots, twins: Critic) -> Snapshots:
    """Put `twins` into slot j at every 2^(j+1)-th push, so that ages grow geometrically; `cursor` counts pushes."""
    count = ring.cursor + 1
    is_due = count % 2 ** (jnp.arange(ring.filled.size) + 1) == 0
    put = lambda slots, leaf: jnp.where(is_due.reshape(-1, *[1] * leaf.ndim), leaf[None], slots)
    return replace(ring, critics=jax.tree.map(put, ring.critics, twins), filled=ring.filled | is_due, cursor=count)


def push_if(
    due: Bool[Array, ""], ring: Snapshots, twins: Critic, put: Callable[[Snapshots, Critic], Snapshots] = push
) -> Snapshots:
    """`put` if `due`, else the ring as it is; an empty ring (no slots) stays empty."""
    if ring.filled.size == 0:
        return ring
    return jax.tree.map(lambda new, old: jnp.where(due, new, old), put(ring, twins), ring)


def draw_one(ring: Snapshots, chance: Float[Array, ""]) -> Snapshots:
    """One of the filled snapshots, as a ring of one slot; a uniform number from 0 to 1 says which."""
    num = jnp.sum(ring.filled)
    place = jnp.minimum((chance * num).astype(jnp.int32), num - 1)
    slot = jnp.argmax(jnp.cumsum(ring.filled) > place)
    pick = lambda leaf: jax.lax.dynamic_index_in_dim(leaf, slot)
    return Snapshots(jax.tree.map(pick, ring.critics), pick(ring.filled), ring.cursor)


def with_current(ring: Snapshots, twins: Critic) -> tuple[Critic, Bool[Array, " k1"]]:
    """All candidates of (11): the snapshots, and the current critic last; and which of them exist."""
    critics = jax.tree.map(lambda slots, leaf: jnp.concatenate([slots, leaf[None]]), ring.critics, twins)
    return critics, jnp.concatenate([ring.filled, jnp.ones(1, bool)])
