"""Simulators that are saved by seeds and actions."""

import numpy as np

from qpensieve.envs.replayed import FIRST_CAPACITY, ReplayedSimulator
from qpensieve.types import EnvSpec


class Summing(ReplayedSimulator):
    """Observes the seed plus the sum of all actions, each weighed by its number."""

    def __init__(self, num_lanes: int):
        super().__init__(EnvSpec("summing", 1, 2, ("a", "b"), None, None), num_lanes)
        self._sums, self._steps = np.zeros((2, num_lanes))

    def begin(self, lanes: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        self._sums[lanes], self._steps[lanes] = seeds, 0
        return self._sums[lanes, None]

    def play(self, lanes: np.ndarray, actions: np.ndarray) -> np.ndarray:
        self._steps[lanes] += 1
        self._sums[lanes] += self._steps[lanes] * actions.sum(axis=1)
        return np.concatenate([self._sums[lanes, None], actions, np.zeros((len(lanes), 2))], axis=1)

    def render(self, lane: int) -> np.ndarray:
        raise NotImplementedError

    def close(self) -> None: ...


def test_long_episodes_are_kept_whole_and_played_again_in_order():
    lengths = (3 * FIRST_CAPACITY, FIRST_CAPACITY, 5)
    first, again = Summing(3), Summing(3)
    first.start(np.arange(3), np.array([7, 8, 9]))
    actions = np.random.default_rng(0).normal(size=(max(lengths), 3, 2))
    for t in range(max(lengths)):
        lanes = np.flatnonzero(np.array(lengths) > t)
        reward, terminated, truncated = first.advance(lanes, actions[t, lanes])
        np.testing.assert_array_equal(reward, actions[t, lanes])
        assert not np.any([terminated, truncated])
    state = first.state()
    np.testing.assert_array_equal(state["episode_lengths"], lengths)
    np.testing.assert_array_equal(state["episode_seeds"], [7, 8, 9])
    played = [actions[:n, i] for i, n in enumerate(lengths)]
    np.testing.assert_array_equal(state["episode_actions"], np.concatenate(played))
    again.restore(state)
    np.testing.assert_array_equal(again.observe(slice(None)), first.observe(slice(None)))
    for name, value in again.state().items():
        np.testing.assert_array_equal(value, state[name], err_msg=name)


def test_a_new_episode_forgets_the_old_one():
    simulator = Summing(2)
    simulator.start(np.arange(2), np.arange(2))
    simulator.advance(slice(None), np.ones((2, 2)))
    simulator.start(np.array([1]), np.array([4]))
    simulator.advance(np.array([1]), np.full((1, 2), 3.0))
    np.testing.assert_array_equal(simulator.state()["episode_actions"], [[1.0, 1.0], [3.0, 3.0]])
