"""Replay on the device: packed transitions, one row each, so that a sample is a single gather.

Uniform samples come from a ring that looks after itself. With priorities the host says which row goes where.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from qpensieve.replay import priorities
from qpensieve.replay.priorities import Priorities
from qpensieve.types import EnvSpec, Transition


class Replay(eqx.Module):
    """Ring of packed transitions."""

    rows: Float[Array, "*seed capacity width"]
    written: Int[Array, "*seed"]
    """How many transitions were ever written."""


class PrioritizedReplay(eqx.Module):
    """Packed transitions in slots, and how likely each slot is to be sampled; 0 where a slot is empty."""

    rows: Float[Array, "*seed capacity width"]
    written: Int[Array, "*seed"]
    """How many transitions were ever written."""
    priorities: Priorities


def row_width(spec: EnvSpec) -> int:
    return 2 * spec.obs_size + spec.action_size + spec.num_objectives + 1


def empty(spec: EnvSpec, capacity: int) -> Replay:
    return Replay(jnp.zeros((capacity, row_width(spec))), jnp.zeros((), jnp.int32))


def empty_prioritized(spec: EnvSpec, capacity: int) -> PrioritizedReplay:
    ring = empty(spec, capacity)
    return PrioritizedReplay(ring.rows, ring.written, priorities.empty(capacity))


def put(
    replay: PrioritizedReplay, block: Float[Array, "K width"], slots: Int[Array, " K"], values: Float[Array, " K"]
) -> PrioritizedReplay:
    """Write a block into `slots` with priorities `values`; a slot out of range means that its row is already gone."""
    return PrioritizedReplay(
        replay.rows.at[slots].set(block, mode="drop"),
        replay.written + block.shape[0],
        priorities.set_at(replay.priorities, slots, values),
    )


def add(replay: Replay, block: Float[Array, "K width"]) -> Replay:
    """Write a block over the oldest rows. The capacity is a multiple of the block, so a block never wraps around."""
    start = replay.written % replay.rows.shape[0]
    rows = jax.lax.dynamic_update_slice(replay.rows, block, (start, jnp.zeros_like(start)))
    return replace(replay, rows=rows, written=replay.written + block.shape[0])


def sample(replay: Replay, seed: Int[Array, ""], key: Key[Array, ""], num: int) -> Float[Array, "b width"]:
    """`num` rows, uniformly with replacement among those written, of one seed of a stacked replay [seed, ...]."""
    filled = jnp.minimum(replay.written[seed], replay.rows.shape[1])
    return replay.rows[seed, jax.random.randint(key, (num,), 0, filled)]


def unpack(spec: EnvSpec, rows: Float[Array, "*batch width"]) -> Transition:
    """Columns of packed rows: s, a, r, s_next, terminated."""
    sizes = [spec.obs_size, spec.action_size, spec.num_objectives, spec.obs_size]
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    s, a, r, s_next, terminated = jnp.split(rows, ends, axis=-1)
    return Transition(s, a, r, s_next, terminated[..., 0])
