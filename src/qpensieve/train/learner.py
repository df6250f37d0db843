"""The device side of training: replays and agents of all seeds, one donated call per block.

Every leaf leads with the agent axis. Most algorithms have one agent per seed; those that learn for fixed preferences
have one per seed and preference, seed by seed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from qpensieve.learning.agents import flatten, over_agents
from qpensieve.replay import priorities
from qpensieve.replay import ring as replay
from qpensieve.replay.ring import PrioritizedReplay, Replay
from qpensieve.types import Algorithm, EnvSpec, Hints, Info

NEW_TRANSITIONS = 2**31 - 1
"""Folded into an agent's key, in place of an update's number, for what concerns a block's new transitions."""


class TrainState(eqx.Module):
    """Everything on the device."""

    agent: Any
    replay: Replay | PrioritizedReplay
    """Leads with agents x lanes."""
    key: Key[Array, " agent"]
    """The agent's key; the key of update i is folded from it and i, so it never changes."""
    num_updates: Int[Array, " agent"]


class Block(eqx.Module):
    """What the host hands over: rows of every lane; with a memory also where they go, and hints for the updates."""

    rows: Float[Array, "lane K width"]
    slots: Int[Array, "agent K"] | None = None
    hints: Hints | None = None


Flat = Float[Array, "agent parameters"]
Infos = dict[str, Float[Array, " agent"]]


@dataclass(frozen=True)
class Learner:
    """Jitted functions of a run.

    Attributes:
        init: Seeds -> first state.
        write: (state, block) -> state, without learning.
        learn: (state, block) -> state, flat actors [agent, parameters], what to log [agent]: K updates.
        free: (state, slots [agent, F]) -> state that no longer samples those slots (memories only).
        act: (state, obs [agent, rows, obs], lam [agent, rows, d]) -> deterministic actions.
        flat_actors: State -> flat actors.
    """

    init: Callable[[Int[Array, " seed"]], TrainState]
    write: Callable[[TrainState, Block], TrainState]
    learn: Callable[[TrainState, Block], tuple[TrainState, Flat, Infos]]
    free: Callable[[TrainState, Int[Array, "agent F"]], TrainState]
    act: Callable[..., Float[Array, "agent rows act"]]
    flat_actors: Callable[[TrainState], Flat]


def make_learner(algorithm: Algorithm[Any], spec: EnvSpec, batch_size: int, capacity: int) -> Learner:
    """The learner of an algorithm.

    Args:
        algorithm: What to learn with.
        spec: The environment, with the action as the replay stores it.
        batch_size: Transitions per update.
        capacity: Rows of each lane's replay.
    """
    flat_actors = lambda state: jax.vmap(flatten)(algorithm.actor(state.agent))
    insert = _insert if algorithm.memory is None else _insert_by_priority
    learn_all = _learn if algorithm.memory is None else _learn_by_priority

    def learn(state: TrainState, block: Block) -> tuple[TrainState, Flat, Infos]:
        inserted = insert(algorithm, spec, state, block)
        new, info = learn_all(algorithm, spec, batch_size, inserted, block)
        new = replace(new, num_updates=state.num_updates + block.rows.shape[1])
        return new, flat_actors(new), info

    return Learner(
        init=jax.jit(lambda seeds: _init(algorithm, spec, capacity, seeds)),
        write=jax.jit(lambda state, block: insert(algorithm, spec, state, block), donate_argnums=0),
        learn=jax.jit(learn, donate_argnums=0),
        free=jax.jit(_free, donate_argnums=0),
        act=jax.jit(lambda state, obs, lam: _act(algorithm, state, obs, lam)),
        flat_actors=jax.jit(flat_actors),
    )


def _init(algorithm: Algorithm[Any], spec: EnvSpec, capacity: int, seeds: Int[Array, " seed"]) -> TrainState:
    lams = None if algorithm.preferences is None else jnp.asarray(algorithm.preferences, jnp.float32)
    seeds = seeds if lams is None else jnp.repeat(seeds, len(lams))
    keys = jax.vmap(jax.random.split)(jax.vmap(jax.random.key)(seeds))
    own = () if lams is None else (jnp.tile(lams, (len(seeds) // len(lams), 1)),)
    agents = jax.vmap(algorithm.init)(keys[:, 0], *own)
    empty = replay.empty if algorithm.memory is None else replay.empty_prioritized
    buffer = jax.vmap(lambda _: empty(spec, capacity))(jnp.arange(len(seeds) * algorithm.num_lanes))
    return TrainState(agents, buffer, keys[:, 1], jnp.zeros(seeds.shape, jnp.int32))


def _insert(algorithm: Algorithm[Any], spec: EnvSpec, state: TrainState, block: Block) -> TrainState:
    del algorithm, spec
    return replace(state, replay=jax.vmap(replay.add)(state.replay, block.rows))  # pyright: ignore[reportArgumentType]


def _insert_by_priority(algorithm: Algorithm[Any], spec: EnvSpec, state: TrainState, block: Block) -> TrainState:
    """Write the rows where the host says, each with the priority that it has before anything is learned from it."""
    memory, buffer = algorithm.memory, state.replay

    def priority_of(args: Any) -> Float[Array, " K"]:
        agent, key, written, rows, hints = args
        key_new = jax.random.fold_in(jax.random.fold_in(key, NEW_TRANSITIONS), written)
        return memory.priority(agent, replay.unpack(spec, rows), hints, key_new)  # pyright: ignore

    values = over_agents(priority_of, (state.agent, state.key, buffer.written, block.rows, block.hints))
    assert isinstance(buffer, PrioritizedReplay)
    assert block.slots is not None
    return replace(state, replay=jax.vmap(replay.put)(buffer, block.rows, block.slots, values))


def _learn(
    algorithm: Algorithm[Any], spec: EnvSpec, batch_size: int, state: TrainState, block: Block
) -> tuple[TrainState, Infos]:
    """K updates of every agent on uniform samples of its replays; info is the mean over the updates."""
    lanes, buffer = algorithm.num_lanes, state.replay
    assert isinstance(buffer, Replay)

    def of_agent(args: Any) -> tuple[Any, Info]:
        agent, key, first, number = args

        def body(agent: Any, update: Int[Array, ""]) -> tuple[Any, Info]:
            key_batch, key_update = jax.random.split(jax.random.fold_in(key, update))
            # Lanes draw with the same key: each learner samples as it would if it were alone.
            batches = tuple(
                replay.unpack(spec, replay.sample(buffer, number * lanes + i, jax.random.clone(key_batch), batch_size))
                for i in range(lanes)
            )
            return algorithm.update(agent, batches[0] if lanes == 1 else batches, key_update)

        numbers = first + jnp.arange(block.rows.shape[1], dtype=jnp.int32)
        agent, info = jax.lax.scan(body, agent, numbers)
        return algorithm.end_block(agent, numbers[-1] + 1), jax.tree.map(lambda x: jnp.mean(x, axis=0), info)

    agents = jnp.arange(len(state.num_updates))
    agent, info = over_agents(of_agent, (state.agent, state.key, state.num_updates, agents))
    return replace(state, agent=agent), info


def _learn_by_priority(
    algorithm: Algorithm[Any], spec: EnvSpec, batch_size: int, state: TrainState, block: Block
) -> tuple[TrainState, Infos]:
    """The same on samples by priority, which an update may change."""
    memory, rows = algorithm.memory, state.replay.rows
    capacity = rows.shape[1]
    assert memory is not None

    def of_agent(args: Any) -> tuple[Any, Info]:
        agent, tree, key, first, number, slots, hints = args

        def body(carry: Any, given: Any) -> tuple[Any, Info]:
            (agent, tree), (update, slot, hint) = carry, given
            key_batch, key_update = jax.random.split(jax.random.fold_in(key, update))
            chosen = priorities.sample(tree, key_batch, batch_size)
            if memory.forces_newest:
                chosen = chosen.at[0].set(jnp.where(slot < capacity, slot, chosen[0]))
            batch = replay.unpack(spec, rows[number, chosen])
            agent, info, values = memory.update(agent, batch, hint, key_update)
            return (agent, tree if values is None else priorities.set_at(tree, chosen, values)), info

        numbers = first + jnp.arange(block.rows.shape[1], dtype=jnp.int32)
        (agent, tree), info = jax.lax.scan(body, (agent, tree), (numbers, slots, hints))
        agent = algorithm.end_block(agent, numbers[-1] + 1)
        return (agent, tree), jax.tree.map(lambda x: jnp.mean(x, axis=0), info)

    agents, buffer = jnp.arange(len(state.num_updates)), state.replay
    given = (state.agent, buffer.priorities, state.key, state.num_updates, agents, block.slots, block.hints)  # pyright: ignore
    (agent, tree), info = over_agents(of_agent, given)
    return replace(state, agent=agent, replay=replace(buffer, priorities=tree)), info


def _free(state: TrainState, slots: Int[Array, "agent F"]) -> TrainState:
    tree = jax.vmap(lambda tree, s: priorities.set_at(tree, s, jnp.zeros(s.shape)))(state.replay.priorities, slots)  # pyright: ignore
    return replace(state, replay=replace(state.replay, priorities=tree))


def _act(
    algorithm: Algorithm[Any],
    state: TrainState,
    obs: Float[Array, "agent rows obs"],
    lam: Float[Array, "agent rows d"],
) -> Float[Array, "agent rows act"]:
    one_agent = jax.vmap(algorithm.act, in_axes=(None, 0, 0))
    return jax.vmap(one_agent)(algorithm.actor(state.agent), obs, lam)
