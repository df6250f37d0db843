"""Lanes of one simulator spread over processes, with the same bits as in one process.

This helps LunarLander, because Box2D holds Python's lock while it steps, and slow foreign environments. A step takes
about 0.1 ms more than in one process.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float64, Int, Int64, Shaped

from qpensieve.envs.base import SIMULATOR_PREFIX
from qpensieve.envs.replayed import ACTIONS, LENGTHS, ReplayedSimulator
from qpensieve.envs.simulator import State
from qpensieve.remote import RemoteObject, RemoteObjects
from qpensieve.types import EnvSpec

MakePart = Callable[[int, int], tuple[Callable[..., ReplayedSimulator], Sequence[object]]]
"""(number of lanes, number of the first) -> a function that makes their simulator, and its arguments; all can be
pickled."""


class SplitSimulator(ReplayedSimulator):
    """A simulator whose lanes are split over processes.

    After an error, lanes continue from a restored state. After Ctrl-C within a step, or a lost process, new lanes must
    be made.

    Args:
        name: Name of the environment in errors.
        num_lanes: Number of lanes.
        num_parts: Number of parts; at most one per lane.
        make: Makes a part.
        first_lane: Number of the first lane in errors.
        is_first_here: Whether this process steps the first part.
    """

    def __init__(  # noqa: PLR0913 (two callers; each argument has a name)
        self,
        name: str,
        num_lanes: int,
        num_parts: int,
        make: MakePart,
        first_lane: int = 0,
        is_first_here: bool = False,
    ):
        self._edges = np.linspace(0, num_lanes, min(num_parts, num_lanes) + 1).astype(np.int64)
        self._num_here, self._here = int(is_first_here), list[ReplayedSimulator]()
        title = lambda first, end: (
            f"{name}: the process that steps lanes {first_lane + first} to {first_lane + end - 1}"
        )
        parts = [(first, end, make(end - first, first_lane + first)) for first, end in pairwise(self._edges.tolist())]
        self._parts = RemoteObjects(
            RemoteObject(title(first, end), *made) for first, end, made in parts[self._num_here :]
        )
        try:  # the other processes start meanwhile
            self._here += [made(*arguments) for _, _, (made, arguments) in parts[: self._num_here]]
            spec: EnvSpec = self._here[0].spec if self._here else self._parts.call("get_spec", {0: ()})[0]
        except BaseException:
            self.close()
            raise
        super().__init__(spec, num_lanes)
        self._all = self._split(np.arange(num_lanes))

    @property
    def processes(self) -> list[RemoteObject]:
        """The other processes that step lanes."""
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
        return self._ask("render", {part: (lane - int(self._edges[part]),)})[part]

    def close(self) -> None:
        self._parts.close()
        for part in self._here:
            part.close()

    def _call(
        self, method: str, lanes: Int[np.ndarray, " lanes"], values: Shaped[np.ndarray, "lanes *rest"], width: int
    ) -> Float64[np.ndarray, "lanes width"]:
        """Call a method of each part that has some of `lanes`, with its rows of `values`; return the rows of all."""
        shares = self._all if np.array_equal(lanes, self.numbers) else self._split(lanes)
        table = np.empty((len(lanes), width))
        given = {part: (own, values[rows]) for part, (rows, own) in shares.items()}
        for part, result in self._ask(method, given).items():
            table[shares[part][0]] = result
        return table

    def _ask(self, method: str, given: dict[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Call a method of some parts, each with its own arguments. The part of this process works last."""
        num, results, errors = self._num_here, dict[int, Any](), list[Exception]()
        self._parts.send(method, {part - num: own for part, own in given.items() if part >= num})
        with self._parts.killed_halfway():
            for part in (part for part in given if part < num):
                try:
                    results[part] = getattr(self._here[part], method)(*given[part])
                except Exception as error:  # raised below, after the answers of the other parts
                    errors.append(error)
        results |= {number + num: result for number, result in self._parts.receive().items()}
        if errors:
            raise errors[0]
        return results

    def _split(self, lanes: Int[np.ndarray, " lanes"]) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Group `lanes` by the part that owns them: part -> positions in `lanes`, numbers within the part."""
        owners = np.searchsorted(self._edges, lanes, side="right") - 1
        rows = {part: np.flatnonzero(owners == part) for part in np.unique(owners).tolist()}
        return {part: (own, lanes[own] - self._edges[part]) for part, own in rows.items()}


def join_states(states: Sequence[State]) -> State:
    """Join the states of consecutive parts of the lanes to the state of all."""
    first = states[0]
    return {
        name: value if value.ndim == 0 else np.concatenate([state[name] for state in states])
        for name, value in first.items()
    }


def split_state(state: State, edges: Int64[np.ndarray, " parts_and_one"]) -> list[State]:
    """Split the state of all lanes into states of the lanes from each edge to the next."""
    bounds = dict.fromkeys(state, edges)
    if SIMULATOR_PREFIX + LENGTHS in state:
        steps_before = np.concatenate([[0], np.cumsum(state[SIMULATOR_PREFIX + LENGTHS])])
        bounds[SIMULATOR_PREFIX + ACTIONS] = steps_before[edges]
    return [
        {name: value if value.ndim == 0 else value[slice(*ends[name])] for name, value in state.items()}
        for ends in ({name: bound[part : part + 2] for name, bound in bounds.items()} for part in range(len(edges) - 1))
    ]
