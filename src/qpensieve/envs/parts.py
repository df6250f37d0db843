"""States of lanes cut into those of parts of the lanes, and put together again."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64

from qpensieve.envs.base import SIMULATOR_PREFIX
from qpensieve.envs.history import ACTIONS, LENGTHS
from qpensieve.envs.simulator import State


def join_states(states: Sequence[State]) -> State:
    """The state of all lanes, from those of consecutive parts."""
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
