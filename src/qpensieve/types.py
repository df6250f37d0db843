"""Shared data types and the axis legend.

Axes, everywhere in this order: `seed`, `n` lanes, `b` batch, `k` snapshots, `2` twins, `m` preferences,
`p` test preferences, `e` episodes, and last always `d` objectives.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Float64, Int, Key

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
        num_actions: Discrete environments: an action is one number, an index below this. None: actions are continuous.
    """

    id: str
    obs_size: int
    action_size: int
    objectives: tuple[str, ...]
    reference: tuple[float, ...] | None
    max_steps: int | None
    num_actions: int | None = None

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


class Transition(eqx.Module):
    """One step: s, a, r [d], s_next, terminated (false at a time limit)."""

    s: Float[Array, "*batch obs"]
    a: Float[Array, "*batch act"]
    r: Float[Array, "*batch d"]
    s_next: Float[Array, "*batch obs"]
    terminated: Float[Array, "*batch"]


S = TypeVar("S")

Info = dict[str, Float[Array, ""]]
"""What an update reports, by name; averaged over a block before it is logged."""


@runtime_checkable
class HostPolicy(Protocol):
    """The policies of all agents in plain NumPy; axis n counts agents, axis l the lanes that each of them acts in."""

    def explore(
        self,
        obs: Float32[np.ndarray, "n l obs"],
        lam: Float32[np.ndarray, "n l d"],
        noise: Float32[np.ndarray, "n l c"],
        step: int,
    ) -> Float32[np.ndarray, "n l a"]:
        """Actions to learn from, in the form the replay stores."""
        ...

    def sample(
        self,
        obs: Float32[np.ndarray, "n rows obs"],
        lam: Float32[np.ndarray, "n rows d"],
        noise: Float32[np.ndarray, "n rows c"],
        step: int,
    ) -> Float32[np.ndarray, "n rows a"]:
        """The same for any rows, by the policy that is evaluated."""
        ...

    def exploit(
        self, obs: Float32[np.ndarray, "n rows obs"], lam: Float32[np.ndarray, "n rows d"]
    ) -> Float32[np.ndarray, "n rows act"]:
        """Deterministic actions, in the form the environment takes."""
        ...


@dataclass(frozen=True)
class Acting:
    """How an algorithm acts on the host, without a device.

    Attributes:
        policy: Flat actors [n, parameters] -> policies.
        draw_noise: (generator, K) -> noise of K steps of one lane [K, c], for `explore`.
        draw_actions: (generator, K) -> K uniformly random actions [K, a], as the replay stores them.
        decode: Stored actions [..., a] -> actions of the environment [..., act].
        action_size: Numbers the replay stores of an action.
        is_discrete: Whether the algorithm can act in an environment with discrete actions.
    """

    policy: Callable[[Float32[np.ndarray, "n parameters"]], HostPolicy]
    draw_noise: Callable[[np.random.Generator, int], Float32[np.ndarray, "K c"]]
    draw_actions: Callable[[np.random.Generator, int], Float32[np.ndarray, "K a"]]
    decode: Callable[[Float32[np.ndarray, "*batch a"]], Float32[np.ndarray, "*batch act"]]
    action_size: int
    is_discrete: bool = False


class Hints(eqx.Module):
    """What the host tells an update beside the batch.

    `past` is the preferences of random earlier episodes, as many as `Memory.num_past`.
    """

    lam: Float[Array, "*K d"]
    """Preference of the episode that was running at the step of this update."""
    past: Float[Array, "*K m d"]


@dataclass(frozen=True)
class Memory(Generic[S]):
    """A replay that samples by priority, and the update that goes with it.

    Attributes:
        kind: Which transitions are kept: the newest (`ring`), or half the newest and half diverse episodes.
        priority: (state, new transitions [K], their hints [K], key) -> their first priorities [K].
        update: (state, batch, hints, key) -> state, what to log, new priorities [b] of the batch or None to keep them.
        forces_newest: Update k of a block has the block's k-th transition in its batch, as the first row.
        num_past: How many preferences of earlier episodes `Hints.past` holds.
    """

    kind: Literal["ring", "diverse"]
    priority: Callable[[S, Any, Hints, Key[Array, ""]], Float[Array, " K"]]
    update: Callable[[S, Any, Hints, Key[Array, ""]], tuple[S, Info, Float[Array, " b"] | None]]
    forces_newest: bool
    num_past: int


def _no_update(state: Any, batch: Any, key: Any) -> tuple[Any, Info]:
    raise NotImplementedError("this algorithm learns through its memory")


@dataclass(frozen=True)
class Algorithm(Generic[S]):
    """What a training loop may know of an algorithm, for one agent; agents are an axis the loop adds.

    Attributes:
        init: Key -> first state; where the algorithm has `preferences`, (key, the agent's own preference) -> state.
        actor: State -> the network that acts, or networks, one per lane.
        act: (actor, s, lam) -> deterministic action, as the environment takes it.
        acting: The same and exploration, on the host.
        update: (state, batch, key) -> state, what to log. One gradient step, on a uniform sample of the replay; with
            several lanes a tuple of batches, one of each. Not used where there is a `memory`.
        end_block: (state, updates done) -> state. Called between blocks of updates, for what is due only now and then.
        preferences: Preferences that each have an agent of their own, for every seed; None: one agent serves all.
        num_lanes: Environments that one agent acts in, each with its own replay.
        memory: A replay that samples by priority, in place of the uniform one.
    """

    init: Callable[..., S]
    actor: Callable[[S], Any]
    act: Callable[[Any, Float[Array, " obs"], Float[Array, " d"]], Float[Array, " act"]]
    acting: Acting
    update: Callable[[S, Any, Key[Array, ""]], tuple[S, Info]] = _no_update
    end_block: Callable[[S, Int[Array, ""]], S] = lambda state, num_updates: state
    preferences: Float64[np.ndarray, "p d"] | None = None
    num_lanes: int = 1
    memory: Memory[S] | None = None
