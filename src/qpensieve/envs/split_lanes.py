"""Lanes of one simulator spread over processes: the same numbers as in one process, bit for bit.

This helps LunarLander, because Box2D holds Python's lock while it steps, and foreign environments that are slow: a step
takes about 0.1 ms more than in one process.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float64, Int, Int64, Shaped

from qpensieve.envs.base import SIMULATOR_PREFIX
from qpensieve.envs.history import (
    ACTIONS,
    LENGTHS,
    OBSERVATIONS,
    History,
    episode_seeds,
    replay,
    warn_if_different,
)
from qpensieve.envs.simulator import Index, State, Streams
from qpensieve.remote import LocalObject, RemoteObject, RemoteObjects
from qpensieve.types import EnvSpec


@runtime_checkable
class StartedSimulator(Protocol):
    """A simulator whose episodes start from given seeds."""

    @property
    def spec(self) -> EnvSpec: ...

    def start(self, lanes: Int[np.ndarray, " lanes"], seeds: Int[np.ndarray, " lanes"]) -> None: ...

    def advance(
        self, lanes: Index, actions: Float64[np.ndarray, "lanes act"]
    ) -> tuple[Float64[np.ndarray, "lanes d"], Bool[np.ndarray, " lanes"], Bool[np.ndarray, " lanes"] | None]: ...

    def observe(self, lanes: Index) -> Float64[np.ndarray, "lanes obs"]: ...

    def render(self, lane: int) -> np.ndarray: ...

    def close(self) -> None: ...


class _Part:
    """Some lanes of a simulator. Each answer holds all that a step needs, which saves round trips."""

    def __init__(self, make: Callable[..., StartedSimulator], arguments: Sequence[Any]):
        self._simulator = make(*arguments)
        self.render, self.close = self._simulator.render, self._simulator.close

    def spec(self) -> EnvSpec:
        return self._simulator.spec

    def start(
        self, lanes: Int[np.ndarray, " lanes"], seeds: Int[np.ndarray, " lanes"]
    ) -> Float64[np.ndarray, "lanes obs"]:
        """Start an episode in each of `lanes`; returns their observations."""
        self._simulator.start(lanes, seeds)
        return self._simulator.observe(lanes)

    def advance(
        self, lanes: Int[np.ndarray, " lanes"], actions: Float64[np.ndarray, "lanes act"]
    ) -> Float64[np.ndarray, "lanes columns"]:
        """Step the lanes; returns observation, reward, terminated and truncated side by side."""
        reward, terminated, truncated = self._simulator.advance(lanes, actions)
        obs = self._simulator.observe(lanes)
        width = obs.shape[1] + reward.shape[1]
        table = np.empty((len(lanes), width + 2))  # np.column_stack takes three times as long
        table[:, : obs.shape[1]], table[:, obs.shape[1] : width] = obs, reward
        table[:, width], table[:, width + 1] = terminated, False if truncated is None else truncated
        return table


MakePart = Callable[[int, int], tuple[Callable[..., StartedSimulator], Sequence[Any]]]
"""(number of lanes, number of the first) -> what makes their simulator, and its arguments; both can be pickled."""


class SplitSimulator:
    """A simulator whose lanes are split over processes.

    After an error, lanes continue once a saved state is restored. After Ctrl-C within a step, or where a process was
    lost, that takes new lanes. `state` still returns the state before the step that failed.

    Args:
        name: Name of the environment in errors.
        num_lanes: Number of lanes.
        num_parts: Number of parts; at most one per lane.
        make: What makes a part.
        first_lane: Number of the first lane in errors.
        is_first_here: Whether this process steps the first part itself.
        is_compared: Whether observations are saved too, and compared with those of a replay.
    """

    def __init__(  # noqa: PLR0913 (two callers; each argument has a name)
        self,
        name: str,
        num_lanes: int,
        num_parts: int,
        make: MakePart,
        first_lane: int = 0,
        is_first_here: bool = False,
        is_compared: bool = True,
    ):
        self._name, self._first_lane, self._is_compared = name, first_lane, is_compared
        self._edges = np.linspace(0, num_lanes, min(num_parts, num_lanes) + 1).astype(np.int64)
        self.num_parts = len(self._edges) - 1
        parts = [(make(end - first, first_lane + first), first, end) for first, end in pairwise(self._edges.tolist())]
        here = 1 if is_first_here else 0
        self._parts = RemoteObjects(
            RemoteObject(self._title(first, end), _Part, made) for made, first, end in parts[here:]
        )
        try:
            # The other processes start meanwhile.
            self._parts.members[:0] = [LocalObject(_Part(*made)) for made, _, _ in parts[:here]]
            self.spec: EnvSpec = self._parts.call("spec", {0: ()})[0]
        except BaseException:
            self.close()
            raise
        self._numbers = np.arange(num_lanes)
        self._all = self._split(self._numbers)
        self._history = History(num_lanes, self.spec.action_size)
        self._obs = np.full((num_lanes, self.spec.obs_size), np.nan)

    def _title(self, first: int, end: int) -> str:
        return f"{self._name}: the process that steps lanes {self._first_lane + first} to {self._first_lane + end - 1}"

    @property
    def processes(self) -> list[RemoteObject]:
        """The other processes that step lanes."""
        return [part for part in self._parts.members if isinstance(part, RemoteObject)]

    def reset(self, lanes: Int[np.ndarray, " lanes"], streams: Streams) -> None:
        self.start(lanes, episode_seeds(lanes, streams))

    def start(self, lanes: Int[np.ndarray, " lanes"], seeds: Int[np.ndarray, " lanes"]) -> None:
        """Start an episode in each of `lanes`, from the seed given."""
        for rows, obs in self._call("start", self._split(lanes), seeds):
            self._obs[lanes[rows]] = obs
        for lane, seed in zip(lanes.tolist(), seeds.tolist(), strict=True):
            self._history.start(lane, seed)

    def advance(
        self, lanes: Index, actions: Float64[np.ndarray, "lanes act"]
    ) -> tuple[Float64[np.ndarray, "lanes d"], Bool[np.ndarray, " lanes"], Bool[np.ndarray, " lanes"]]:
        numbers = self._numbers[lanes]
        columns = self.spec.obs_size + self.spec.num_objectives
        table = np.empty((len(numbers), columns + 2))
        shares = self._all if len(numbers) == len(self._numbers) else self._split(numbers)
        for rows, part in self._call("advance", shares, actions):
            table[rows] = part
        self._obs[numbers] = table[:, : self.spec.obs_size]
        self._history.append(numbers, actions)
        return table[:, self.spec.obs_size : columns].copy(), table[:, columns] > 0, table[:, columns + 1] > 0

    def observe(self, lanes: Index) -> Float64[np.ndarray, "lanes obs"]:
        return self._obs[lanes].copy()

    def state(self) -> State:
        """The same arrays as those of the simulator in one process; each can continue what the other saved."""
        return self._history.state() | ({OBSERVATIONS: self._obs.copy()} if self._is_compared else {})

    def restore(self, state: State) -> None:
        """Play the saved episodes again, up to where they were."""
        replay(state, self.start, self.advance)
        if self._is_compared:
            warn_if_different(self._name, self._first_lane, state[OBSERVATIONS], self._obs)

    def render(self, lane: int) -> np.ndarray:
        part = int(np.searchsorted(self._edges, lane, side="right")) - 1
        return self._parts.call("render", {part: (lane - int(self._edges[part]),)})[part]

    def close(self) -> None:
        self._parts.close()

    def _split(self, lanes: Int[np.ndarray, " lanes"]) -> "list[_Share]":
        """The parts that have some of `lanes`: their numbers, the rows in `lanes`, and the lanes as they count them."""
        order = np.argsort(lanes, kind="stable")
        bounds = np.searchsorted(lanes[order], self._edges).tolist()
        is_sorted = bool((order[:-1] < order[1:]).all())
        return [
            _Share(part, slice(first, end) if is_sorted else order[first:end], lanes[order[first:end]] - start)
            for part, (start, (first, end)) in enumerate(zip(self._edges, pairwise(bounds), strict=False))
            if end > first
        ]

    def _call(
        self, method: str, shares: "list[_Share]", values: Shaped[np.ndarray, "lanes *rest"]
    ) -> list[tuple[slice | np.ndarray, np.ndarray]]:
        """Call a method of some parts, each with its rows of `values`; returns the rows and results of each."""
        results = self._parts.call(method, {share.part: (share.lanes, values[share.rows]) for share in shares})
        return [(share.rows, results[share.part]) for share in shares]


class _Share(NamedTuple):
    """The share of a part in some lanes."""

    part: int
    rows: slice | np.ndarray
    lanes: np.ndarray


def join_states(states: Sequence[State]) -> State:
    """The state of all lanes, from the states of consecutive parts of them."""
    first = states[0]
    return {
        name: value if value.ndim == 0 else np.concatenate([state[name] for state in states])
        for name, value in first.items()
    }


def split_state(state: State, edges: Int64[np.ndarray, " parts_and_one"]) -> list[State]:
    """The states of the lanes from each edge to the next."""
    bounds = dict.fromkeys(state, edges)
    if SIMULATOR_PREFIX + LENGTHS in state:
        steps_before = np.concatenate([[0], np.cumsum(state[SIMULATOR_PREFIX + LENGTHS])])
        bounds[SIMULATOR_PREFIX + ACTIONS] = steps_before[edges]
    return [
        {name: value if value.ndim == 0 else value[slice(*ends[name])] for name, value in state.items()}
        for ends in ({name: bound[part : part + 2] for name, bound in bounds.items()} for part in range(len(edges) - 1))
    ]
