"""Seed and actions of the running episodes: the saved form of simulators whose inner state cannot be read out."""

from array import array
from collections.abc import Callable

import numpy as np
from jaxtyping import Float64, Int

from qpensieve.envs.base import State


class History:
    """Per lane: the seed its episode started from and every action since."""

    def __init__(self, num_lanes: int, action_size: int):
        self._action_size = action_size
        self._seeds = np.zeros(num_lanes, np.int64)
        self._actions = [array("d") for _ in range(num_lanes)]

    def start(self, lane: int, seed: int) -> None:
        self._seeds[lane] = seed
        self._actions[lane] = array("d")

    def append(self, lane: int, action: list[float]) -> None:
        self._actions[lane].extend(action)

    def length(self, lane: int) -> int:
        return len(self._actions[lane]) // self._action_size

    def state(self) -> State:
        lengths = np.array([self.length(lane) for lane in range(len(self._actions))], np.int64)
        actions = np.concatenate([np.frombuffer(a, np.float64) if a else np.empty(0) for a in self._actions])
        return {
            "episode_seeds": self._seeds.copy(),
            "episode_lengths": lengths,
            "episode_actions": actions.reshape(-1, self._action_size),
        }


def replay(
    state: State,
    start: Callable[[int, int], None],
    advance: Callable[[Int[np.ndarray, " lanes"], Float64[np.ndarray, "lanes act"]], object],
) -> None:
    """Bring lanes to a saved state: `start(lane, seed)` each, then `advance` them through their actions together."""
    lengths, actions = state["episode_lengths"], state["episode_actions"]
    for lane, seed in enumerate(state["episode_seeds"]):
        start(lane, int(seed))
    first = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    for t in range(int(lengths.max(initial=0))):
        lanes = np.flatnonzero(lengths > t)
        advance(lanes, actions[first[lanes] + t])
