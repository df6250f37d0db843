"""The Q replay buffer: a ring of past twin critics, stored as one critic whose leaves lead with the snapshot axis."""

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
    """Return a ring with `num_snapshots` empty slots, each shaped like `twins`."""
    critics = jax.tree.map(lambda leaf: jnp.zeros((num_snapshots, *leaf.shape), leaf.dtype), twins)
    return Snapshots(critics, jnp.zeros(num_snapshots, bool), jnp.zeros((), jnp.int32))


def push(ring: Snapshots, twins: Critic) -> Snapshots:
    """Replace the oldest snapshot by `twins`."""
    put = lambda slots, leaf: slots.at[ring.cursor].set(leaf)
    return replace(
        ring,
        critics=jax.tree.map(put, ring.critics, twins),
        filled=ring.filled.at[ring.cursor].set(True),
        cursor=(ring.cursor + 1) % ring.filled.size,
    )


def push_if(due: Bool[Array, ""], ring: Snapshots, twins: Critic) -> Snapshots:
    """Push `twins` if `due`, else return the ring unchanged. A ring without slots never changes."""
    if ring.filled.size == 0:
        return ring
    return jax.tree.map(lambda new, old: jnp.where(due, new, old), push(ring, twins), ring)


def pick(ring: Snapshots, order: Float[Array, " k"], num: int) -> Snapshots:
    """Return the `num` snapshots with the largest numbers in `order` (from 0 to 1); empty slots are picked last."""
    _, slots = jax.lax.top_k(jnp.where(ring.filled, order, -1.0), num)
    critics, filled = jax.tree.map(lambda leaf: leaf[slots], (ring.critics, ring.filled))
    return Snapshots(critics, filled, ring.cursor)


def with_current(ring: Snapshots, twins: Critic) -> tuple[Critic, Bool[Array, " k1"]]:
    """Return all candidates of (11), with the current critic last, and whether each exists."""
    critics = jax.tree.map(lambda slots, leaf: jnp.concatenate([slots, leaf[None]]), ring.critics, twins)
    return critics, jnp.concatenate([ring.filled, jnp.ones(1, bool)])
