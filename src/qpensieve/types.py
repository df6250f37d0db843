"""Shared data types and the axis legend.

Axes, everywhere in this order: `seed`, `n` lanes, `b` batch, `k` snapshots, `2` twins, `m` preferences,
`p` test preferences, `e` episodes, and last always `d` objectives.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

FloatArray = Float[np.ndarray, "..."]
BoolArray = Bool[np.ndarray, "..."]
IntArray = Int[np.ndarray, "..."]


@dataclass(frozen=True)
class EnvSpec:
    """What an algorithm and a report may know of an environment.

    Attributes:
        id: Domain name such as `Hopper2d`, or the id of a foreign Gymnasium environment.
        obs_size: Length of an observation.
        action_size: Length of an action; actions lie in [-1, 1].
        objectives: One name per objective, in reward order.
        reference: Reference point of the hypervolume, or None where no one has set one.
        max_steps: Time limit in environment steps, or None where the environment keeps its own.
    """

    id: str
    obs_size: int
    action_size: int
    objectives: tuple[str, ...]
    reference: tuple[float, ...] | None
    max_steps: int | None

    @property
    def num_objectives(self) -> int:
        return len(self.objectives)


@dataclass(frozen=True)
class Step:
    """What one step of n lanes gives back.

    Attributes:
        obs: Observation to act on next; where an episode ended, already the next episode's first.
        reward: Reward vector of the step.
        terminated: True where the episode truly ended: nothing follows, do not bootstrap.
        truncated: True where only the time limit cut it: bootstrap from `last_obs`.
        last_obs: Observation reached by this step, before any reset. It is the `s_next` of a transition.
    """

    obs: Float[np.ndarray, "n obs"]
    reward: Float[np.ndarray, "n d"]
    terminated: Bool[np.ndarray, " n"]
    truncated: Bool[np.ndarray, " n"]
    last_obs: Float[np.ndarray, "n obs"]

    @property
    def done(self) -> Bool[np.ndarray, " n"]:
        return self.terminated | self.truncated


S = TypeVar("S")

Info = dict[str, Float[Array, ""]]
"""What an update reports, by name; averaged over a block before it is logged."""


@dataclass(frozen=True)
class Algorithm(Generic[S]):
    """What a training loop may know of an algorithm, for one seed; seeds are an axis the loop adds.

    Attributes:
        init: Key -> first state.
        actor: State -> the network that acts.
        update: (state, batch, key) -> state, what to log. One gradient step.
        end_block: (state, updates done) -> state. Called between blocks of updates, for what is due only now and then.
    """

    init: Callable[[Key[Array, ""]], S]
    actor: Callable[[S], Any]
    update: Callable[[S, Any, Key[Array, ""]], tuple[S, Info]]
    end_block: Callable[[S, Int[Array, ""]], S]
