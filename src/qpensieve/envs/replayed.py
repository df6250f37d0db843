"""Simulators whose inner state cannot be read. A saved lane is its seed and its actions, which `restore` plays again.

This is exact only if an environment is deterministic given its seed and its actions. It takes as long as the episodes
did. `Lanes.restore` warns if a lane does not end at its saved observation.
"""

from abc import ABC, abstractmethod

import numpy as np
from jaxtyping import Bool, Float64, Int

from qpensieve.envs.simulator import Index, State, Streams
from qpensieve.types import EnvSpec

FIRST_CAPACITY = 64
"""Space for this many steps of an episode at first; it doubles when a lane needs more."""
SEEDS, LENGTHS, ACTIONS = "episode_seeds", "episode_lengths", "episode_actions"
"""Names in a saved state; the actions of all lanes are joined, lane after lane."""
SEED_BITS = 0x7FFFFFFF
"""Seeds have at most 31 bits: some environments pass them to generators that accept no more."""


class ReplayedSimulator(ABC):
    """n lanes that are saved by their seeds and actions. After an error, `state` is that before the failed step.

    Args:
        spec: The environment.
        num_lanes: Number of lanes.
    """

    def __init__(self, spec: EnvSpec, num_lanes: int):
        self.spec = spec
        self.numbers, self._obs = np.arange(num_lanes), np.full((num_lanes, spec.obs_size), np.nan)
        self._seeds, self._lengths = np.zeros((2, num_lanes), np.int64)
        self._actions = np.zeros((num_lanes, FIRST_CAPACITY, spec.action_size))

    @abstractmethod
    def begin(
        self, lanes: Int[np.ndarray, " lanes"], seeds: Int[np.ndarray, " lanes"]
    ) -> Float64[np.ndarray, "lanes obs"]:
        """Start an episode in each of `lanes`, from the seed given; returns their observations."""

    @abstractmethod
    def play(
        self, lanes: Int[np.ndarray, " lanes"], actions: Float64[np.ndarray, "lanes act"]
    ) -> Float64[np.ndarray, "lanes columns"]:
        """Step the lanes; returns observation, reward, terminated and truncated side by side."""

    @abstractmethod
    def render(self, lane: int) -> np.ndarray:
        """Draw a lane."""

    @abstractmethod
    def close(self) -> None:
        """Close the environments, and end processes of the lanes."""

    def get_spec(self) -> EnvSpec:
        return self.spec

    def reset(self, lanes: Int[np.ndarray, " lanes"], streams: Streams) -> None:
        words = [streams(lane).generate_state(1)[0] for lane in lanes.tolist()]
        self.start(lanes, np.array(words, np.int64) & SEED_BITS)

    def start(self, lanes: Int[np.ndarray, " lanes"], seeds: Int[np.ndarray, " lanes"]) -> None:
        """Start an episode in each of `lanes`, from the seed given."""
        self._obs[lanes] = self.begin(lanes, seeds)
        self._seeds[lanes], self._lengths[lanes] = seeds, 0

    def advance(
        self, lanes: Index, actions: Float64[np.ndarray, "lanes act"]
    ) -> tuple[Float64[np.ndarray, "lanes d"], Bool[np.ndarray, " lanes"], Bool[np.ndarray, " lanes"]]:
        numbers, size = self.numbers[lanes], self.spec.obs_size
        table = self.play(numbers, actions)
        self._obs[numbers], lengths = table[:, :size], self._lengths[numbers]
        try:
            self._actions[numbers, lengths] = actions
        except IndexError:  # an episode is longer than any before; to ask first would cost 3 us a step
            self._actions = np.concatenate([self._actions, np.zeros_like(self._actions)], axis=1)
            self._actions[numbers, lengths] = actions
        self._lengths[numbers] = lengths + 1
        return table[:, size:-2].copy(), table[:, -2] > 0.0, table[:, -1] > 0.0

    def observe(self, lanes: Index) -> Float64[np.ndarray, "lanes obs"]:
        return self._obs[lanes].copy()

    def state(self) -> State:
        used = np.arange(self._actions.shape[1]) < self._lengths[:, None]
        return {SEEDS: self._seeds.copy(), LENGTHS: self._lengths.copy(), ACTIONS: self._actions[used]}

    def restore(self, state: State) -> None:
        """Play the saved episodes again, up to their saved lengths."""
        lengths, actions = state[LENGTHS], state[ACTIONS]
        self.start(self.numbers, state[SEEDS])
        first = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        for t in range(int(lengths.max(initial=0))):
            lanes = np.flatnonzero(lengths > t)
            self.advance(lanes, actions[first[lanes] + t])
