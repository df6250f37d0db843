"""Lanes of one simulator spread over processes: the same numbers as in one process, bit for bit.

This helps LunarLander, because Box2D holds Python's lock while it steps, and foreign environments that are slow: a step
takes about 0.1 ms more than in one process.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Float64, Int, Int64, Shaped

from qpensieve.envs.base import SIMULATOR_PREFIX
from qpensieve.envs.replayed import ACTIONS, LENGTHS, ReplayedSimulator
from qpensieve.envs.simulator import State
from qpensieve.remote import RemoteObject, RemoteObjects
from qpensieve.types import EnvSpec

MakePart = Callable[[int, int], tuple[Callable[..., ReplayedSimulator], Sequence[object]]]
"""(number of lanes, number of the first) -> what makes their simulator, and its arguments; both can be pickled."""


class SplitSimulator(ReplayedSimulator):
    """A simulator whose lanes are split over processes.

    After an error, lanes continue once a saved state is restored. After Ctrl-C within a step, or where a process was
    lost, that takes new lanes.

    Args:
        name: Name of the environment in errors.
        num_lanes: Number of lanes.
        num_parts: Number of parts; at most one per lane.
        make: What makes a part.
        first_lane: Number of the first lane in errors.
    """

    def __init__(self, name: str, num_lanes: int, num_parts: int, make: MakePart, first_lane: int = 0):
        self._edges = np.linspace(0, num_lanes, min(num_parts, num_lanes) + 1).astype(np.int64)
        title = lambda first, end: (
            f"{name}: the process that steps lanes {first_lane + first} to {first_lane + end - 1}"
        )
        self._parts = RemoteObjects(
            RemoteObject(title(first, end), *make(end - first, first_lane + first))
            for first, end in pairwise(self._edges.tolist())
        )
        try:
            spec: EnvSpec = self._parts.call("get_spec", {0: ()})[0]
        except BaseException:
            self.close()
            raise
        super().__init__(name, spec, num_lanes, first_lane)

    @property
    def processes(self) -> list[RemoteObject]:
        """The processes that step lanes."""
        return self._parts.members

    def begin(
        self, lanes: Int[np.ndarray, " lanes"], seeds: Int[np.ndarray, " lanes"]
    ) -> Float64[np.ndarray, "lanes obs"]:
        return self._call("begin", lanes, seeds, self.spec.obs_size)

    def play(
        self, lanes: Int[np.ndarray, " lanes"], actions: Float64[np.ndarray, "lanes act"]
    ) -> Float64[np.ndarray, "lanes columns"]:
        return self._call("play", lanes, actions, self.spec.obs_size + self.spec.num_objectives + 2)

    def render(self, lane: int) -> np.ndarray:
        part = int(np.searchsorted(self._edges, lane, side="right")) - 1
        return self._parts.call("render", {part: (lane - int(self._edges[part]),)})[part]

    def close(self) -> None:
        self._parts.close()

    def _call(
        self, method: str, lanes: Int[np.ndarray, " lanes"], values: Shaped[np.ndarray, "lanes *rest"], width: int
    ) -> Float64[np.ndarray, "lanes width"]:
        """Call a method of the parts that have some of `lanes`, each with its rows of `values`; returns all rows."""
        owners = np.searchsorted(self._edges, lanes, side="right") - 1
        rows = {part: np.flatnonzero(owners == part) for part in np.unique(owners).tolist()}
        given = {part: (lanes[own] - self._edges[part], values[own]) for part, own in rows.items()}
        table = np.empty((len(lanes), width))
        for part, result in self._parts.call(method, given).items():
            table[rows[part]] = result
        return table


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
