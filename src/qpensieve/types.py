"""Shared data types and the axis legend.

Axes, everywhere in this order: `seed`, `n` lanes, `b` batch, `k` snapshots, `2` twins, `m` preferences,
`p` test preferences, `e` episodes, and last always `d` objectives.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Float64, Int, Key, Shaped

from qpensieve.preferences import Sampler

FloatArray = Float[np.ndarray, "..."]
BoolArray = Bool[np.ndarray, "..."]
IntArray = Int[np.ndarray, "..."]


@dataclass(frozen=True)
class ActionBox:
    """The bounded box of actions of a foreign environment; here actions lie in [-1, 1] and are flat.

    Attributes:
        low: Lowest number of each entry.
        high: Highest number of each entry.
        shape: Shape of an action.
        dtype: Name of its type.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    shape: tuple[int, ...]
    dtype: str = "float32"

    def rescale(self, actions: Float[np.ndarray, "n act"]) -> Float[np.ndarray, "n ..."]:
        """Actions in [-1, 1] as points of the box: -1 is its low, 0 its middle, 1 its high; in its dtype and shape."""
        low, high = np.array(self.low), np.array(self.high)
        points = low + (np.asarray(actions, np.float64) + 1.0) / 2.0 * (high - low)
        # Rounding may pass a bound by one unit in the last place, and some environments refuse that.
        return np.clip(points, low, high).astype(self.dtype).reshape(-1, *self.shape)


@dataclass(frozen=True)
class EnvSpec:
    """What algorithms and reports may know about an environment.

    Attributes:
        id: Domain name such as `Hopper2d`, or the id of a foreign Gymnasium environment.
        obs_size: Length of an observation.
        action_size: Length of an action; to algorithms and lanes actions lie in [-1, 1].
        objectives: One name per objective, in reward order.
        reference: Reference point of the hypervolume, or None if no one has set one.
        max_steps: Time limit in environment steps, or None if the environment keeps its own.
        num_actions: Discrete environments: an action is one number, an index below this. None: actions are continuous.
        action_box: The actions that the environment itself takes; None: those in [-1, 1] as they are.
        obs_shape: Shape of the environment's own observation; None: flat, as algorithms and lanes see it.
    """

    id: str
    obs_size: int
    action_size: int
    objectives: tuple[str, ...]
    reference: tuple[float, ...] | None
    max_steps: int | None
    num_actions: int | None = None
    action_box: ActionBox | None = None
    obs_shape: tuple[int, ...] | None = None

    @property
    def num_objectives(self) -> int:
        return len(self.objectives)

    def native_actions(self, actions: Float[np.ndarray, "n act"]) -> Shaped[np.ndarray, "n ..."]:
        """Actions of an algorithm as the environment's own `step` takes them: in its box, or integer indices [n]."""
        if self.num_actions is not None:
            return actions[:, 0].astype(np.int64)
        return actions if self.action_box is None else self.action_box.rescale(actions)


@dataclass(frozen=True)
class Step:
    """What one step of n lanes returns.

    Attributes:
        obs: Observation to act on next; if an episode ended, the first of the next episode.
        reward: Reward vector of the step.
        terminated: True if the episode really ended: nothing follows, do not bootstrap.
        truncated: True if only the time limit cut it: bootstrap from `last_obs`.
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
"""Name -> value that an update reports; averaged over a block before it is logged."""
Infos = dict[str, Float[Array, " agent"]]
"""The same of every agent."""


Parameters = Float32[np.ndarray, "n parameters"]
"""Flat actors of n agents, a row each."""
Observed = Float32[np.ndarray, "n rows obs"]
Asked = Float32[np.ndarray, "n rows d"]
"""The preference that each row asks for."""
Noise = Float32[np.ndarray, "n rows c"]
Stored = Float32[np.ndarray, "n rows a"]
"""Actions as the replay stores them."""
Actions = Float32[np.ndarray, "n rows act"]
"""Actions as the environment takes them."""


@runtime_checkable
class Explorer(Protocol):
    """What a collector acts with: the policies of n agents in plain NumPy, each in its own rows."""

    def explore(self, obs: Observed, lam: Asked, noise: Noise, step: int) -> Stored:
        """Actions to learn from; rows are the lanes that an agent acts in."""
        ...


@runtime_checkable
class HostPolicy(Explorer, Protocol):
    """Everything that the policies of n agents can do on the host."""

    def sample(self, obs: Observed, lam: Asked, noise: Noise, step: int) -> Stored:
        """Sampled actions of the policy that is evaluated, for any rows."""
        ...

    def exploit(self, obs: Observed, lam: Asked) -> Actions:
        """Deterministic actions."""
        ...


@dataclass(frozen=True)
class Acting:
    """How an algorithm acts on the host, without a device.

    Attributes:
        policy: Flat actors -> policies.
        draw_noise: (generator, K) -> noise of K steps of one lane [K, c], for `explore`.
        draw_actions: (generator, K) -> K uniformly random actions [K, a], as the replay stores them.
        decode: Stored actions [..., a] -> actions of the environment [..., act].
        action_size: Number of values that the replay stores for an action.
        is_discrete: Whether the algorithm can act in an environment with discrete actions.
    """

    policy: Callable[[Parameters], HostPolicy]
    draw_noise: Callable[[np.random.Generator, int], Float32[np.ndarray, "K c"]]
    draw_actions: Callable[[np.random.Generator, int], Float32[np.ndarray, "K a"]]
    decode: Callable[[Float32[np.ndarray, "*batch a"]], Float32[np.ndarray, "*batch act"]]
    action_size: int
    is_discrete: bool = False


@dataclass(frozen=True)
class UniformLearning(Generic[S]):
    """Learning from uniform samples of the replay, which keeps the newest transitions.

    Attributes:
        update: (state, batches, chance) -> state, what to log. One gradient step; there is one batch for each lane.
        draw: (batches, key) -> chance: everything random that an update needs. Depends on no state, so that it is drawn
            for a whole block at once, before its first update. Default: the key itself.
        block: (states [agent], batches [agent, K], chance [agent, K]) -> states, means of what to log: all updates of a
            block, of all agents, in place of `update`. None: there is no such form.
    """

    update: Callable[[S, tuple[Transition, ...], Any], tuple[S, Info]]
    draw: Callable[[tuple[Transition, ...], Key[Array, ""]], Any] = lambda batches, key: key
    block: Callable[[S, tuple[Transition, ...], Any], tuple[S, Infos]] | None = None


def from_one_lane(
    update: Callable[[S, Transition, Any], tuple[S, Info]],
    draw: Callable[[Transition, Key[Array, ""]], Any] = lambda batch, key: key,
) -> UniformLearning[S]:
    """Uniform learning of an agent that acts in one lane."""
    return UniformLearning(
        lambda state, batches, chance: update(state, batches[0], chance), lambda batches, key: draw(batches[0], key)
    )


class Hints(eqx.Module):
    """What an update gets from the host in addition to the batch."""

    lam: Float[Array, "*K d"]
    """Preference of the episode that was running at the step of this update."""
    past: Float[Array, "*K m d"]
    """Preferences of random earlier episodes, as many as `PrioritizedLearning.num_past`."""


@dataclass(frozen=True)
class PrioritizedLearning(Generic[S]):
    """Learning from samples by priority.

    Attributes:
        keeps: Which transitions the replay keeps: the newest, or half the newest and half diverse episodes.
        priority: (state, new transitions [K], their hints [K], key) -> their first priorities [K].
        update: (state, batch, hints, key) -> state, what to log, new priorities [b] of the batch or None to keep them.
        forces_newest: Whether the first row of the batch of update k is the k-th transition of the block.
        num_past: How many preferences of earlier episodes `Hints.past` holds.
    """

    keeps: Literal["newest", "diverse"]
    priority: Callable[[S, Transition, Hints, Key[Array, ""]], Float[Array, " K"]]
    update: Callable[[S, Transition, Hints, Key[Array, ""]], tuple[S, Info, Float[Array, " b"] | None]]
    forces_newest: bool
    num_past: int


Learning = UniformLearning[Any] | PrioritizedLearning[Any]


@dataclass(frozen=True)
class Algorithm(Generic[S]):
    """What a training loop may know about an algorithm, for one agent; the loop adds the axis of agents.

    Attributes:
        init: (key, preference) -> first state. The preference is the agent's own; agents that serve all ignore it.
        actor: State -> the network that acts, or networks, one per lane.
        act: (actor, s, lam) -> deterministic action, as the environment takes it.
        acting: How to act and explore on the host.
        learning: How the replay is sampled, and the update that goes with it.
        batch_size: Transitions per update.
        discount: Discount factor gamma.
        sampler: Distribution of the preferences that episodes act under.
        end_block: (state, updates done) -> state. Called between blocks, for what is not done at every update.
        preferences: Preferences that have their own agent each, for every seed. None: one agent serves all.
        num_lanes: Number of environments that one agent acts in, each with its own replay.
    """

    init: Callable[[Key[Array, ""], Float[Array, " d"]], S]
    actor: Callable[[S], Any]
    act: Callable[[Any, Float[Array, " obs"], Float[Array, " d"]], Float[Array, " act"]]
    acting: Acting
    learning: UniformLearning[S] | PrioritizedLearning[S]
    batch_size: int
    discount: float
    sampler: Sampler = "uniform-sum"
    end_block: Callable[[S, Int[Array, ""]], S] = lambda state, num_updates: state
    preferences: Float64[np.ndarray, "p d"] | None = None
    num_lanes: int = 1

    @property
    def agents_per_seed(self) -> int:
        return 1 if self.preferences is None else len(self.preferences)

    @property
    def lanes_per_seed(self) -> int:
        """Environments that each seed steps."""
        return self.agents_per_seed * self.num_lanes
