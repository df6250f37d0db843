"""Simulators whose inner state cannot be read: a lane is saved as seed and actions, which `restore` plays again.

This is exact if the environment is deterministic given seed and actions, and takes as long as the episodes did.
`Lanes.restore` warns if a lane does not end at its saved observation.
"""

from abc import ABC, abstractmethod

import numpy as np
from jaxtyping import Bool, Float64, Int

from qpensieve.envs.simulator import Index, State, Streams
from qpensieve.types import EnvSpec

FIRST_CAPACITY = 64
"""Steps of an episode that have space at first. The space doubles when a lane needs more."""
SEEDS, LENGTHS, ACTIONS = "episode_seeds", "episode_lengths", "episode_actions"
"""Names in a saved state. The actions of all lanes are joined, lane after lane."""
SEED_BITS = 0x7FFFFFFF
"""Seeds have at most 31 bits: some environments pass them to generators that accept no more."""


class ReplayedSimulator(ABC):
    """n lanes that are saved by their seeds and actions. After a failed step, `state` is the state before it.

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
        """Start an episode with its seed in each of `lanes`; return the observations."""

    @abstractmethod
    def play(
        self, lanes: Int[np.ndarray, " lanes"], actions: Float64[np.ndarray, "lanes act"]
    ) -> Float64[np.ndarray, "lanes columns"]:
        """Step the lanes; return observation, reward, terminated and truncated as the columns of one array."""

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
        """Start an episode with its seed in each of `lanes`, and remember the seeds."""
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
        except IndexError:  # the longest episode so far; a check before each step would cost 3 us
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
