"""The device side of training: replays and agents of all seeds, one donated call per block.

Every leaf leads with the agent axis. Most algorithms have one agent per seed. Algorithms for fixed preferences have
one agent per seed and preference, seed by seed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int, Key

from qpensieve.errors import UserError
from qpensieve.learning.interface import (
    PEAK,
    Algorithm,
    Hints,
    Info,
    Infos,
    PrioritizedLearning,
    Transition,
    UniformLearning,
)
from qpensieve.learning.losses import flatten, over_agents
from qpensieve.machine import KEPT_PROGRAMS, options_of_updates, options_to_run_once
from qpensieve.replay import priorities, ring
from qpensieve.replay.layout import RowLayout
from qpensieve.replay.priorities import Priorities
from qpensieve.replay.ring import Replay

S = TypeVar("S")
Inputs = TypeVar("Inputs")
NEW_TRANSITIONS = 2**31 - 1
"""Folded into an agent's key for the priorities of new transitions, in place of the number of an update."""
DIAGNOSTICS = 2**31 - 2
"""Folded into an agent's key for diagnostics between blocks."""
ALSO_PEAK = "critic_loss"
"""Name of the value of which a block logs both the mean and the largest."""


class TrainState(eqx.Module):
    """Everything on the device."""

    agent: Any
    replay: Any
    """A `Replay` or `PrioritizedReplay`; leaves lead with agents x lanes."""
    key: Key[Array, " agent"]
    """The agent's key; the key of update i is folded from it and i, so it never changes."""
    num_updates: Int[Array, " agent"]


class Block(eqx.Module):
    """Input from the host: rows of every lane. With priorities also their slots, and hints for the updates."""

    rows: Float[Array, "lane K width"]
    slots: Int[Array, "agent K"] | None = None
    hints: Hints | None = None

    @property
    def chosen(self) -> tuple[Int[Array, "agent K"], Hints]:
        """Slots and hints, which blocks have for methods with priorities."""
        assert self.slots is not None
        assert self.hints is not None
        return self.slots, self.hints


Flat = Float[Array, "agent parameters"]


@dataclass(frozen=True)
class Learner:
    """Jitted functions that train the agents of a run.

    Attributes:
        init: Seeds -> first state.
        write: (state, block) -> state, without learning.
        learn: (state, block) -> state, flat actors [agent, parameters], values to log [agent], after all updates.
        free: (state, slots [agent, F]) -> state that no longer samples those slots (replays with priorities only).
        flat_actors: State -> flat actors.
        place: State -> the same state on the devices that learn.
    """

    init: Callable[[Int[Array, " seed"]], TrainState]
    write: Callable[[TrainState, Block], TrainState]
    learn: Callable[[TrainState, Block], tuple[TrainState, Flat, Infos]]
    free: Callable[[TrainState, Int[Array, "agent F"]], TrainState]
    flat_actors: Callable[[TrainState], Flat]
    place: Callable[[TrainState], TrainState] = lambda state: state


@lru_cache(maxsize=KEPT_PROGRAMS)
def make_learner(algorithm: Algorithm[object], layout: RowLayout, capacity: int, updates_per_step: int = 1) -> Learner:
    """Return the learner of an algorithm. Equal arguments give the same object, which is compiled once in a process.

    Args:
        algorithm: The algorithm.
        layout: Layout of a row of the replay.
        capacity: Rows of each lane's replay.
        updates_per_step: Updates for each row of a block; must be 1 with priorities.
    """
    learning = algorithm.learning
    if isinstance(learning, UniformLearning):
        updates = _UniformUpdates(algorithm, learning, layout, updates_per_step)
    else:
        if updates_per_step != 1:
            raise UserError(f"updates_per_step must be 1 for methods with priorities, got {updates_per_step}")
        updates = _PrioritizedUpdates(algorithm, learning, layout)
    flat_actors = lambda state: jax.vmap(flatten)(algorithm.actor(state.agent))

    def learn(state: TrainState, block: Block) -> tuple[TrainState, Flat, Infos]:
        new, info = updates.learn(updates.insert(state, block), block)
        new = replace(new, num_updates=state.num_updates + updates_per_step * block.rows.shape[1])
        return new, flat_actors(new), info

    return Learner(
        init=jax.jit(partial(_init, algorithm, layout, capacity), compiler_options=options_to_run_once()),
        write=jax.jit(updates.insert, donate_argnums=0),
        learn=jax.jit(learn, donate_argnums=0, compiler_options=options_of_updates()),
        free=jax.jit(_free, donate_argnums=0),
        flat_actors=jax.jit(flat_actors),
    )


def _init(algorithm: Algorithm[object], layout: RowLayout, capacity: int, seeds: Int[Array, " seed"]) -> TrainState:
    own = algorithm.preferences
    # Agents that serve all preferences ignore the one they start with.
    lams = jnp.zeros((1, layout.num_objectives)) if own is None else jnp.asarray(own, jnp.float32)
    agents = jnp.repeat(seeds, len(lams))
    keys = jax.vmap(jax.random.split)(jax.vmap(jax.random.key)(agents))
    states = jax.vmap(algorithm.init)(keys[:, 0], jnp.tile(lams, (len(seeds), 1)))
    buffer = ring.empty_lanes(algorithm.learning, layout, capacity, len(agents) * algorithm.num_lanes)
    return TrainState(states, buffer, keys[:, 1], jnp.zeros(agents.shape, jnp.int32))


@dataclass(frozen=True, eq=False)
class _UniformUpdates:
    """Writes blocks into a uniform replay and makes the updates of a block."""

    algorithm: Algorithm[object]
    learning: UniformLearning[object]
    layout: RowLayout
    updates_per_step: int

    def insert(self, state: TrainState, block: Block) -> TrainState:
        return replace(state, replay=jax.vmap(ring.add)(state.replay, block.rows))

    def learn(self, state: TrainState, block: Block) -> tuple[TrainState, Infos]:
        num = self.updates_per_step * block.rows.shape[1]
        # All batches and draws of the block at once: inside the loop they would be many more small kernels.
        draw = partial(self._draw, state.replay, num)

        def of_agent(args: tuple[object, Array, Array, Array]) -> tuple[object, Info]:
            agent, key, first, number = args
            given = draw(key, first, number)
            agent, info = _scan(lambda agent, given: self.learning.update(agent, *given), agent, given)
            if self.algorithm.inspect is not None:
                last_batches = jax.tree.map(lambda leaf: leaf[-1], given[0])
                key_diagnostics = jax.random.fold_in(jax.random.fold_in(jax.random.clone(key), DIAGNOSTICS), first)
                info |= self.algorithm.inspect(agent, last_batches, key_diagnostics)
            return self.algorithm.end_block(agent, first + num), info

        numbers = jnp.arange(len(state.num_updates))
        agent, info = over_agents(of_agent, (state.agent, state.key, state.num_updates, numbers))
        return replace(state, agent=agent), info

    def _draw(
        self, buffer: Replay, num: int, key: Array, first: Array, number: Array
    ) -> tuple[tuple[Transition, ...], object]:
        """Return batches and draws of `num` updates of one agent from the `first` on, [num, ...]."""
        lanes, size = self.algorithm.num_lanes, self.algorithm.batch_size

        def of_update(update: Int[Array, ""]) -> tuple[tuple[Transition, ...], object]:
            key_batch, key_update = jax.random.split(jax.random.fold_in(key, update))
            # Lanes draw with the same key: each learner samples as it would alone.
            key_of = lambda: jax.random.clone(key_batch)
            rows = [ring.sample(buffer, number * lanes + i, key_of(), size) for i in range(lanes)]
            batches = tuple(Transition(*self.layout.unpack(of_lane)) for of_lane in rows)
            return batches, self.learning.draw(batches, key_update, update)

        return jax.vmap(of_update)(first + jnp.arange(num, dtype=jnp.int32))


@dataclass(frozen=True, eq=False)
class _PrioritizedUpdates:
    """Writes blocks into a replay with priorities and makes the updates of a block."""

    algorithm: Algorithm[object]
    learning: PrioritizedLearning[object]
    layout: RowLayout

    def insert(self, state: TrainState, block: Block) -> TrainState:
        """Write the rows with their first priorities into the slots that the host chose."""
        buffer, slots, hints = state.replay, *block.chosen

        def priorities_with(args: tuple[Array, Array, Priorities, Array, object, Array, Hints]) -> Priorities:
            key, written, tree, slots, agent, rows, hints = args
            key_new = jax.random.fold_in(jax.random.fold_in(jax.random.clone(key), NEW_TRANSITIONS), written)
            values = self.learning.priority(agent, Transition(*self.layout.unpack(rows)), hints, key_new)
            return priorities.set_at(tree, slots, values)

        given = (state.key, buffer.written, buffer.priorities, slots, state.agent, block.rows, hints)
        trees = over_agents(priorities_with, given)
        return replace(state, replay=jax.vmap(ring.put)(buffer, block.rows, slots, trees))

    def learn(self, state: TrainState, block: Block) -> tuple[TrainState, Infos]:
        buffer, capacity, slots, hints = state.replay, state.replay.rows.shape[1], *block.chosen

        def of_agent(
            args: tuple[object, Priorities, Array, Array, Array, Array, Hints],
        ) -> tuple[tuple[object, Priorities], Info]:
            agent, tree, key, first, number, slots, hints = args

            def body(
                carry: tuple[object, Priorities], given: tuple[Array, Array, Hints]
            ) -> tuple[tuple[object, Priorities], Info]:
                (agent, tree), (update, slot, hint) = carry, given
                key_batch, key_update = jax.random.split(jax.random.fold_in(key, update))
                chosen = priorities.sample(tree, key_batch, self.algorithm.batch_size)
                if self.learning.forces_newest:
                    chosen = chosen.at[0].set(jnp.where(slot < capacity, slot, chosen[0]))
                batch = Transition(*self.layout.unpack(buffer.rows[number, chosen]))
                agent, info, values = self.learning.update(agent, batch, hint, key_update)
                return (agent, tree if values is None else priorities.set_at(tree, chosen, values)), info

            numbers = first + jnp.arange(block.rows.shape[1], dtype=jnp.int32)
            (agent, tree), info = _scan(body, (agent, tree), (numbers, slots, hints))
            return (self.algorithm.end_block(agent, numbers[-1] + 1), tree), info

        agents = jnp.arange(len(state.num_updates))
        given = (state.agent, buffer.priorities, state.key, state.num_updates, agents, slots, hints)
        (agent, tree), info = over_agents(of_agent, given)
        return replace(state, agent=agent, replay=replace(buffer, priorities=tree)), info


def _scan(body: Callable[[S, Inputs], tuple[S, Info]], state: S, given: Inputs) -> tuple[S, Info]:
    """Run all updates of a block; return the mean of logged values, and the largest of peaks and of the loss.

    The carry holds one vector with the sums of logged values. If the scan stacked them, XLA could not make one CUDA
    graph of the whole loop.
    """
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), given)
    logged = sorted(jax.eval_shape(body, state, one)[1])
    names = [name for name in logged if not name.endswith(PEAK)]
    peaks = [name for name in logged if name.endswith(PEAK) or name == ALSO_PEAK]
    none = jnp.concatenate([jnp.zeros(len(names)), jnp.full(len(peaks), -jnp.inf)])

    def add(carry: tuple[S, Array], given: Inputs) -> tuple[tuple[S, Array], None]:
        state, sums = carry
        state, info = body(state, given)
        new = jnp.stack([info[name] for name in names + peaks])
        return (state, jnp.where(jnp.isinf(none), jnp.maximum(sums, new), sums + new)), None

    (state, sums), _ = jax.lax.scan(add, (state, none), given)
    num, most = len(jax.tree.leaves(given)[0]), sums[len(names) :]
    largest = {name.removesuffix(PEAK) + PEAK: most[i] for i, name in enumerate(peaks)}
    return state, {name: sums[i] / num for i, name in enumerate(names)} | largest


def _free(state: TrainState, slots: Int[Array, "agent F"]) -> TrainState:
    return replace(state, replay=jax.vmap(ring.free)(state.replay, slots))


def spread(learner: Learner, num_agents: int) -> Learner:
    """Return the learner with its agents spread over the CPU devices; the same learner with one device, or on a GPU.

    Matrix products of an update are too small for several cores: two cores need 1.3 times the work of one. So each
    agent is updated by one core, on one of several CPU devices, which exchange nothing. Results of different numbers of
    devices agree to rounding, because the compiled programs differ.
    """
    devices = jax.local_devices()
    num = max(n for n in range(1, len(devices) + 1) if num_agents % n == 0)
    if devices[0].platform != "cpu" or num == 1:
        return learner
    return _split(learner, tuple(devices[:num]))


@lru_cache(maxsize=KEPT_PROGRAMS)
def _split(learner: Learner, devices: tuple[Any, ...]) -> Learner:
    mesh = Mesh(np.array(devices), ("agent",))
    split = NamedSharding(mesh, P("agent"))

    def each(function: Callable[..., Any]) -> Callable[..., Any]:
        parts = jax.shard_map(function, mesh=mesh, in_specs=P("agent"), out_specs=P("agent"), check_vma=False)
        return jax.jit(parts, donate_argnums=0)

    return Learner(
        init=lambda seeds: jax.device_put(learner.init(seeds), split),
        write=each(learner.write),
        learn=each(learner.learn),
        free=each(learner.free),
        flat_actors=learner.flat_actors,
        place=lambda state: jax.device_put(state, split),
    )
