"""First parameters of all members of a population, drawn on the host, and their updates, one call of the device."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int32, Key

from qpensieve.compiler import KEPT_PROGRAMS, options_of_updates
from qpensieve.learning.interface import Info
from qpensieve.learning.losses import flatten, over_agents
from qpensieve.learning.streams import Purpose, generator
from qpensieve.population import ppo
from qpensieve.population.ppo import PpoConfig
from qpensieve.population.rollout import Place, Rollouts
from qpensieve.types import EnvSpec


@dataclass(frozen=True, eq=False)
class Goals:
    """The `ppo.Goal` of every member."""

    lam: Float32[np.ndarray, "n d"]
    scale: Float32[np.ndarray, "n d"]
    learning_rate: Float32[np.ndarray, " n"]


@dataclass(frozen=True)
class Learner:
    """Functions of a run; every leaf leads with the axis of members.

    Attributes:
        init: First state.
        update: (state, rollouts, goals, iteration) -> state, what to log: all epochs of all members.
        flat: State -> flat actors.
    """

    init: Callable[[], ppo.State]
    update: Callable[[ppo.State, Rollouts, Goals, int], tuple[ppo.State, dict[str, Float[Array, " n"]]]]
    flat: Callable[[ppo.State], Float[Array, "n parameters"]]


def make_learner(cfg: PpoConfig, spec: EnvSpec, places: tuple[Place, ...]) -> Learner:
    """The learner of members that train at `places`; its update is compiled once for all seeds."""
    numbers = np.array([(place.seed, place.task) for place in places], np.int32).T
    update = _jitted_update(cfg)

    def init() -> ppo.State:
        streams = [generator(place.seed, Purpose.FIRST_PARAMETERS, place.task) for place in places]
        states = [ppo.init(cfg, spec, stream) for stream in streams]
        return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *states)

    return Learner(
        init=init,
        update=lambda state, rollouts, goals, i: update(state, vars(rollouts), vars(goals), numbers, np.int32(i)),
        flat=_flat,
    )


@lru_cache(maxsize=KEPT_PROGRAMS)
def _jitted_update(cfg: PpoConfig) -> Callable[..., tuple[ppo.State, Any]]:
    """The update of members anywhere: their seeds and tasks are inputs."""

    def update_one(args: Any) -> tuple[ppo.State, Info]:
        state, rollout, goal, *place = args
        return ppo.update(cfg, state, ppo.Rollout(**rollout), ppo.Goal(**goal), member_key(*place))

    def update(state: ppo.State, rollouts: Any, goals: Any, numbers: Any, iteration: Array) -> tuple[ppo.State, Any]:
        seeds, tasks = numbers
        return over_agents(update_one, (state, rollouts, goals, seeds, tasks, jnp.full(len(seeds), iteration)))

    return jax.jit(update, compiler_options=options_of_updates())


@jax.jit
def _flat(state: ppo.State) -> Float[Array, "n parameters"]:
    return jax.vmap(flatten)(state.actor)


def member_key(seed: Any, task: Any, number: Int32[Array, ""] | int) -> Key[Array, ""]:
    """The key of one iteration of a member, from its place and the iteration's number."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), task), number)
