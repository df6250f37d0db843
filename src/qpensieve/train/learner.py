"""The device side of training: replay and agents of all seeds, one donated call per block."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from qpensieve import replay
from qpensieve.replay import Replay, Transition
from qpensieve.types import Algorithm, EnvSpec, Info

T = TypeVar("T")


class TrainState(eqx.Module):
    """Everything on the device; every leaf leads with the seed axis."""

    agent: Any
    replay: Replay
    key: Key[Array, " seed"]
    """The run's key; the key of update i is folded from it and i, so it never changes."""
    num_updates: Int[Array, " seed"]


@dataclass(frozen=True)
class Learner:
    """Jitted functions of a run.

    Attributes:
        init: Seeds -> first state.
        write: (state, rows [seed, K, width]) -> state, without learning.
        learn: (state, rows) -> state, flat actors [seed, parameters], what to log [seed]: K updates.
        act: (state, obs [seed, rows, obs], lam [seed, rows, d]) -> deterministic actions.
        flat_actors: State -> flat actors.
    """

    init: Callable[[Int[Array, " seed"]], TrainState]
    write: Callable[[TrainState, Float[Array, "seed K width"]], TrainState]
    learn: Callable[..., tuple[TrainState, Float[Array, "seed parameters"], dict[str, Float[Array, " seed"]]]]
    act: Callable[..., Float[Array, "seed rows act"]]
    flat_actors: Callable[[TrainState], Float[Array, "seed parameters"]]


def make_learner(algorithm: Algorithm[Any], spec: EnvSpec, batch_size: int, capacity: int) -> Learner:
    flat_actors = lambda state: jax.vmap(_flatten)(algorithm.actor(state.agent))

    def learn(state: TrainState, rows: Float[Array, "seed K width"]):
        buffer = jax.vmap(replay.add)(state.replay, rows)
        num_updates = state.num_updates + rows.shape[1]
        num_seeds, block = rows.shape[:2]

        def of_seed(args: Any) -> tuple[Any, Info]:
            agent, key, first, seed = args
            sample = lambda key: replay.unpack(spec, replay.sample(buffer, seed, key, batch_size))
            return _updates(algorithm, sample, agent, key, first + jnp.arange(block, dtype=jnp.int32))

        agent, info = over_seeds(of_seed, (state.agent, state.key, state.num_updates, jnp.arange(num_seeds)))
        new = TrainState(agent, buffer, state.key, num_updates)
        return new, flat_actors(new), info

    def write(state: TrainState, rows: Float[Array, "seed K width"]) -> TrainState:
        return TrainState(state.agent, jax.vmap(replay.add)(state.replay, rows), state.key, state.num_updates)

    return Learner(
        init=jax.jit(lambda seeds: _init(algorithm, spec, capacity, seeds)),
        write=jax.jit(write, donate_argnums=0),
        learn=jax.jit(learn, donate_argnums=0),
        act=jax.jit(lambda state, obs, lam: _act(algorithm.actor(state.agent), obs, lam)),
        flat_actors=jax.jit(flat_actors),
    )


def over_seeds(function: Callable[[Any], T], args: Any) -> T:
    """Apply to every seed: at once on an accelerator, one after the other on the CPU.

    There that is faster, and a seed's numbers cannot depend on which others run beside it.
    """
    return jax.lax.map(function, args) if jax.default_backend() == "cpu" else jax.vmap(function)(args)


def _init(algorithm: Algorithm[Any], spec: EnvSpec, capacity: int, seeds: Int[Array, " seed"]) -> TrainState:
    keys = jax.vmap(jax.random.split)(jax.vmap(jax.random.key)(seeds))
    buffer = jax.vmap(lambda _: replay.empty(spec, capacity))(seeds)
    return TrainState(jax.vmap(algorithm.init)(keys[:, 0]), buffer, keys[:, 1], jnp.zeros(seeds.shape, jnp.int32))


def _updates(
    algorithm: Algorithm[Any],
    sample: Callable[[Key[Array, ""]], Transition],
    agent: Any,
    key: Key[Array, ""],
    numbers: Int[Array, " K"],
) -> tuple[Any, Info]:
    """The updates `numbers` of one seed, then what is due at the end of a block; info is the mean over the updates."""

    def body(agent: Any, number: Int[Array, ""]) -> tuple[Any, Info]:
        key_batch, key_update = jax.random.split(jax.random.fold_in(key, number))
        return algorithm.update(agent, sample(key_batch), key_update)

    agent, info = jax.lax.scan(body, agent, numbers)
    return algorithm.end_block(agent, numbers[-1] + 1), jax.tree.map(lambda x: jnp.mean(x, axis=0), info)


def _act(
    actors: Any, obs: Float[Array, "seed rows obs"], lam: Float[Array, "seed rows d"]
) -> Float[Array, "seed rows act"]:
    one_seed = jax.vmap(lambda actor, s, pref: jnp.tanh(actor(s, pref)[0]), in_axes=(None, 0, 0))
    return jax.vmap(one_seed)(actors, obs, lam)


def _flatten(actor: Any) -> Float[Array, " parameters"]:
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(actor)])
