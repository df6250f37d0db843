"""First parameters of all members of a population, drawn on the host, and their updates, one call of the device."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int32, Key

from qpensieve.compiler import KEPT_PROGRAMS
from qpensieve.learning.agents import flatten, over_agents
from qpensieve.learning.streams import Purpose, generator
from qpensieve.population import ppo
from qpensieve.population.ppo import PpoConfig
from qpensieve.population.rollout import Place, Rollouts
from qpensieve.types import EnvSpec, Info


@dataclass(frozen=True, eq=False)
class Aims:
    """The `ppo.Aim` of every member."""

    lam: Float32[np.ndarray, "n d"]
    scale: Float32[np.ndarray, "n d"]
    learning_rate: Float32[np.ndarray, " n"]


@dataclass(frozen=True)
class Learner:
    """Functions of a run; every leaf leads with the axis of members.

    Attributes:
        init: First state.
        update: (state, rollouts, aims, iteration) -> state, what to log: all epochs of all members.
        flat: State -> flat actors.
    """

    init: Callable[[], ppo.State]
    update: Callable[[ppo.State, Rollouts, Aims, int], tuple[ppo.State, dict[str, Float[Array, " n"]]]]
    flat: Callable[[ppo.State], Float[Array, "n parameters"]]


@lru_cache(maxsize=KEPT_PROGRAMS)
def make_learner(cfg: PpoConfig, spec: EnvSpec, places: tuple[Place, ...]) -> Learner:
    """The learner of members that train at `places`; the same object for the same arguments, compiled once."""
    seeds, tasks = jnp.array([p.seed for p in places]), jnp.array([p.task for p in places])

    def init() -> ppo.State:
        streams = [generator(place.seed, Purpose.FIRST_PARAMETERS, place.task) for place in places]
        states = [ppo.init(cfg, spec, stream) for stream in streams]
        return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *states)

    def update_one(args: Any) -> tuple[ppo.State, Info]:
        state, rollout, aim, *place = args
        return ppo.update(cfg, state, ppo.Rollout(**rollout), ppo.Aim(**aim), member_key(*place))

    def update(state: ppo.State, rollouts: Any, aims: Any, iteration: Array) -> tuple[ppo.State, Any]:
        numbers = jnp.full(len(seeds), iteration)
        return over_agents(update_one, (state, rollouts, aims, seeds, tasks, numbers))

    jitted_update = jax.jit(update)
    return Learner(
        init=init,
        update=lambda state, rollouts, aims, i: jitted_update(state, vars(rollouts), vars(aims), np.int32(i)),
        flat=jax.jit(lambda state: jax.vmap(flatten)(state.actor)),
    )


def member_key(seed: Any, task: Any, number: Int32[Array, ""] | int) -> Key[Array, ""]:
    """The key of one iteration of a member, from its place and the iteration's number."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), task), number)
