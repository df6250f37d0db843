"""Interface between algorithms and the training loop. `types.py` has the types without JAX, and the axes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Float64, Int, Key

from qpensieve.preferences import Sampler
from qpensieve.types import Acting, Behaviour


class Transition(eqx.Module):
    """One step: s, a, r [d], s_next, terminated (false at a time limit)."""

    s: Float[Array, "*batch obs"]
    a: Float[Array, "*batch act"]
    r: Float[Array, "*batch d"]
    s_next: Float[Array, "*batch obs"]
    terminated: Float[Array, "*batch"]


S = TypeVar("S")
Whole = TypeVar("Whole")

Info = dict[str, Float[Array, ""]]
"""Name -> value that an update logs. A block logs their mean, or their maximum if the name ends in `PEAK`."""
Infos = dict[str, Float[Array, " agent"]]
"""Name -> value of every agent."""
PEAK = "_max"
"""End of the names of values whose maximum is logged instead of the mean."""


@dataclass(frozen=True)
class UniformLearning(Generic[S]):
    """Learning from uniform samples of the replay, which keeps the newest transitions.

    Attributes:
        update: (state, batches, draws) -> state, values to log. One gradient step, with a batch for each lane.
        draw: (batches, key, number) -> draws, all random numbers of the update with this number. They do not depend on
            the state, so the loop draws them for a whole block at once. Default: the key itself.
    """

    update: Callable[[S, tuple[Transition, ...], Any], tuple[S, Info]]
    draw: Callable[[tuple[Transition, ...], Key[Array, ""], Int[Array, ""]], Any] = lambda batches, key, number: key


def from_one_lane(
    update: Callable[[S, Transition, Any], tuple[S, Info]],
    draw: Callable[[Transition, Key[Array, ""], Int[Array, ""]], Any],
) -> UniformLearning[S]:
    """Return the uniform learning of an agent that acts in one lane."""
    return UniformLearning(
        lambda state, batches, draws: update(state, batches[0], draws),
        lambda batches, key, number: draw(batches[0], key, number),
    )


class Hints(eqx.Module):
    """Preferences for an update, from the host."""

    lam: Float[Array, "*K d"]
    """Preference of the episode at the step of this update."""
    past: Float[Array, "*K m d"]
    """Preferences of random earlier episodes; their number is `PrioritizedLearning.num_past`."""


@dataclass(frozen=True)
class PrioritizedLearning(Generic[S]):
    """Learning from samples by priority.

    Attributes:
        keeps: Transitions that the replay keeps: the newest, or half the newest and half diverse episodes.
        priority: (state, new transitions [K], their hints [K], key) -> their first priorities [K].
        update: (state, batch, hints, key) -> state, values to log, new priorities [b] of the batch or None.
        forces_newest: Whether the first row of the batch of update k is the k-th transition of the block.
        num_past: Number of preferences in `Hints.past`.
    """

    keeps: Literal["newest", "diverse"]
    priority: Callable[[S, Transition, Hints, Key[Array, ""]], Float[Array, " K"]]
    update: Callable[[S, Transition, Hints, Key[Array, ""]], tuple[S, Info, Float[Array, " b"] | None]]
    forces_newest: bool
    num_past: int


Learning = UniformLearning[object] | PrioritizedLearning[object]


@dataclass(frozen=True)
class ActionValues(Generic[S]):
    """The critics of an agent and the policy that they value, for batches. L_critic is measured with them.

    Attributes:
        values: (state, s, a, lam) -> Q(s, a; lam) of each twin; actions as the replay stores them.
        act: (state, s, lam, noise) -> actions as the replay stores them, and the bonus of each action that the
            critics' target adds to every objective: the temperature times -log pi, or 0. The noise is standard normal.
        is_sampled: Whether the policy is random.
        is_scalar: Whether the critics learn lam . r alone; they then have one objective.
    """

    values: Callable[
        [S, Float[Array, "b obs"], Float[Array, "b a"], Float[Array, "b d"]], Float[Array, "twins b objectives"]
    ]
    act: Callable[
        [S, Float[Array, "b obs"], Float[Array, "b d"], Float[Array, "b a"]],
        tuple[Float[Array, "b a"], Float[Array, " b"]],
    ]
    is_sampled: bool = True
    is_scalar: bool = False

    def of_part(self, part: Callable[[Whole], S]) -> "ActionValues[Whole]":
        """Return the values for a state that has this state as a part."""
        return ActionValues(
            lambda state, *given: self.values(part(state), *given),
            lambda state, *given: self.act(part(state), *given),
            self.is_sampled,
            self.is_scalar,
        )


@dataclass(frozen=True, eq=False)
class Algorithm(Generic[S]):
    """An algorithm for one agent. The training loop adds the axis of agents.

    Two algorithms are equal only if they are the same object, because functions cannot be compared.

    Attributes:
        init: (key, preference) -> first state. Agents that serve all preferences ignore the preference.
        actor: State -> the network that acts, or one network per lane.
        acting: How to act and explore on the host.
        learning: Sampling of the replay, and the update.
        batch_size: Transitions per update.
        discount: Discount factor gamma.
        sampler: Distribution of the preferences that episodes act under.
        end_block: (state, updates done) -> state. Called after each block, such as to take a snapshot.
        preferences: Preferences with their own agents, for every seed. None: one agent serves all.
        num_lanes: Number of environments that one agent acts in, each with its own replay.
        action_values: The critics and the policy they value. None: the error of critics cannot be measured.
        num_white_lanes: Number of lanes, the first of each agent, whose random actions are always white.
        inspect: (state, batches, key) -> diagnostics to log, once in a block. None: there are none.
    """

    init: Callable[[Key[Array, ""], Float[Array, " d"]], S]
    actor: Callable[[S], Any]
    acting: Acting
    learning: UniformLearning[S] | PrioritizedLearning[S]
    batch_size: int
    discount: float
    sampler: Sampler = "uniform-sum"
    end_block: Callable[[S, Int[Array, ""]], S] = lambda state, num_updates: state
    preferences: Float64[np.ndarray, "p d"] | None = None
    num_lanes: int = 1
    action_values: ActionValues[S] | None = None
    num_white_lanes: int = 0
    inspect: Callable[[S, tuple[Transition, ...], Key[Array, ""]], Info] | None = None

    @property
    def behaviour(self) -> Behaviour:
        """How to collect, with white random actions."""
        return Behaviour(
            self.acting,
            self.sampler,
            self.num_lanes,
            has_own_preferences=self.preferences is not None,
            num_white_lanes=self.num_white_lanes,
        )

    @property
    def agents_per_seed(self) -> int:
        return 1 if self.preferences is None else len(self.preferences)

    @property
    def lanes_per_seed(self) -> int:
        """Number of environments that each seed steps."""
        return self.agents_per_seed * self.num_lanes
