"""Replay on the device: packed transitions, one row each, so that a sample is a single gather.

Uniform samples come from a ring that manages itself. With priorities, the host chooses the slot of every row.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from qpensieve.learning.interface import Learning, UniformLearning
from qpensieve.replay import priorities
from qpensieve.replay.layout import RowLayout
from qpensieve.replay.priorities import Priorities


class Replay(eqx.Module):
    """Ring of packed transitions."""

    rows: Float[Array, "*lane capacity width"]
    written: Int[Array, "*lane"]
    """Number of transitions written so far, overwritten ones included."""


class PrioritizedReplay(eqx.Module):
    """Packed transitions in slots, and the priority of each slot; 0 if a slot is empty."""

    rows: Float[Array, "*lane capacity width"]
    written: Int[Array, "*lane"]
    """Number of transitions written so far, dropped ones included."""
    priorities: Priorities


AnyReplay = Replay | PrioritizedReplay


def empty(layout: RowLayout, capacity: int) -> Replay:
    return Replay(jnp.zeros((capacity, layout.width)), jnp.zeros((), jnp.int32))


def empty_lanes(learning: Learning, layout: RowLayout, capacity: int, num_lanes: int) -> AnyReplay:
    """Return stacked empty replays of several lanes, with priorities if the learning needs them."""

    def make(_: Array) -> AnyReplay:
        ring = empty(layout, capacity)
        if isinstance(learning, UniformLearning):
            return ring
        return PrioritizedReplay(ring.rows, ring.written, priorities.empty(capacity))

    return jax.vmap(make)(jnp.arange(num_lanes))


def put(
    replay: PrioritizedReplay, block: Float[Array, "K width"], slots: Int[Array, " K"], tree: Priorities
) -> PrioritizedReplay:
    """Write a block into `slots`, with the priorities `tree`; rows with a slot out of range are dropped."""
    return PrioritizedReplay(
        replay.rows.at[slots].set(block, mode="drop"),
        replay.written + block.shape[0],
        tree,
    )


def free(replay: PrioritizedReplay, slots: Int[Array, " F"]) -> PrioritizedReplay:
    """Return the replay that no longer samples `slots`; slots out of range are ignored."""
    return replace(replay, priorities=priorities.set_at(replay.priorities, slots, jnp.zeros(slots.shape)))


def add(replay: Replay, block: Float[Array, "K width"]) -> Replay:
    """Write a block over the oldest rows. The capacity is a multiple of the block, so a block never wraps around."""
    start = replay.written % replay.rows.shape[0]
    rows = jax.lax.dynamic_update_slice(replay.rows, block, (start, jnp.zeros_like(start)))
    return replace(replay, rows=rows, written=replay.written + block.shape[0])


def sample(replay: Replay, lane: Int[Array, ""], key: Key[Array, ""], num: int) -> Float[Array, "b width"]:
    """Draw `num` written rows, uniformly with replacement, of one lane of a stacked replay [lane, ...]."""
    filled = jnp.minimum(replay.written[lane], replay.rows.shape[1])
    # Behind a barrier: XLA would put the draw into the gather, and draw once for every number of a row.
    return replay.rows[lane, jax.lax.optimization_barrier(jax.random.randint(key, (num,), 0, filled))]
