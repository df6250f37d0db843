"""Seed and actions of the running episodes: how simulators are saved whose inner state cannot be read."""

import warnings
from collections.abc import Callable

import numpy as np
from jaxtyping import Float64, Int

from qpensieve.envs.simulator import State, Streams

FIRST_CAPACITY = 64
"""Space for this many steps of an episode at first; it doubles when a lane needs more."""

SEEDS, LENGTHS, ACTIONS = "episode_seeds", "episode_lengths", "episode_actions"
"""Names in a saved state; the actions of all lanes follow each other, as many as each has."""
OBSERVATIONS = "observations"
"""Name in a saved state of the newest observations, where a replay is compared with them."""

SEED_BITS = 0x7FFFFFFF
"""Seeds have at most 31 bits: some environments pass them to generators that accept no more."""


class History:
    """Per lane: the seed its episode started from and every action since."""

    def __init__(self, num_lanes: int, action_size: int):
        self._seeds = np.zeros(num_lanes, np.int64)
        self._actions = np.zeros((num_lanes, FIRST_CAPACITY, action_size))
        self.lengths = np.zeros(num_lanes, np.int64)
        self._room = FIRST_CAPACITY
        """Steps for which there is surely space."""

    def start(self, lane: int, seed: int) -> None:
        self._seeds[lane] = seed
        self.lengths[lane] = 0

    def append(self, lanes: Int[np.ndarray, " lanes"], actions: Float64[np.ndarray, "lanes act"]) -> None:
        if self._room == 0:
            self._make_room()
        self._room -= 1
        lengths = self.lengths[lanes]
        self._actions[lanes, lengths] = actions
        self.lengths[lanes] = lengths + 1

    def _make_room(self) -> None:
        if self.lengths.max() == self._actions.shape[1]:
            self._actions = np.concatenate([self._actions, np.zeros_like(self._actions)], axis=1)
        self._room = self._actions.shape[1] - int(self.lengths.max())

    def state(self) -> State:
        used = np.arange(self._actions.shape[1]) < self.lengths[:, None]
        return {
            SEEDS: self._seeds.copy(),
            LENGTHS: self.lengths.copy(),
            ACTIONS: self._actions[used],
        }


def episode_seeds(lanes: Int[np.ndarray, " lanes"], streams: Streams) -> Int[np.ndarray, " lanes"]:
    """One seed per lane for Gymnasium's `reset`, from the stream of the episode about to start there."""
    return np.array([streams(lane).generate_state(1)[0] & SEED_BITS for lane in lanes.tolist()], np.int64)


def replay(
    state: State,
    start: Callable[[Int[np.ndarray, " lanes"], Int[np.ndarray, " lanes"]], None],
    advance: Callable[[Int[np.ndarray, " lanes"], Float64[np.ndarray, "lanes act"]], object],
) -> None:
    """Bring lanes to a saved state: `start` them from their seeds, then `advance` them through their actions."""
    lengths, actions = state[LENGTHS], state[ACTIONS]
    start(np.arange(len(lengths)), state[SEEDS])
    first = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    for t in range(int(lengths.max(initial=0))):
        lanes = np.flatnonzero(lengths > t)
        advance(lanes, actions[first[lanes] + t])


def warn_if_different(
    name: str, first_lane: int, saved: Float64[np.ndarray, "n obs"], replayed: Float64[np.ndarray, "n obs"]
) -> None:
    """Warn if replayed lanes differ from the saved ones; NaN marks lanes that had not started."""
    differs = ((saved != replayed) & ~np.isnan(saved)).any(axis=1)
    if differs.any():
        lane = first_lane + int(np.argmax(differs))
        what = f"{name}: lane {lane} was not restored to its saved observation"
        why = "the environment is not deterministic given its seed and actions, so the run does not continue exactly"
        warnings.warn(f"{what}: {why}", stacklevel=3)
