"""The record of seeds and actions that saved LunarLander and foreign lanes are played again from."""

import numpy as np

from qpensieve.envs.history import FIRST_CAPACITY, History, replay


def test_long_episodes_are_kept_whole_and_played_again_in_order():
    lengths = (3 * FIRST_CAPACITY, FIRST_CAPACITY, 5)
    history = History(3, 2)
    for lane, seed in enumerate((7, 8, 9)):
        history.start(lane, seed)
    actions = np.random.default_rng(0).normal(size=(max(lengths), 3, 2))
    for t in range(max(lengths)):
        lanes = np.flatnonzero(np.array(lengths) > t)
        history.append(lanes, actions[t, lanes])
    state = history.state()
    np.testing.assert_array_equal(state["episode_lengths"], lengths)
    np.testing.assert_array_equal(state["episode_seeds"], [7, 8, 9])
    np.testing.assert_array_equal(
        state["episode_actions"], np.concatenate([actions[:n, i] for i, n in enumerate(lengths)])
    )

    again = History(3, 2)

    def start(lanes: np.ndarray, seeds: np.ndarray) -> None:
        for lane, seed in zip(lanes.tolist(), seeds.tolist(), strict=True):
            again.start(lane, seed)

    replay(state, start, again.append)
    for name, value in again.state().items():
        np.testing.assert_array_equal(value, state[name], err_msg=name)


def test_a_new_episode_forgets_the_old_one():
    history = History(2, 1)
    history.append(np.array([0, 1]), np.ones((2, 1)))
    history.start(1, 4)
    history.append(np.array([1]), np.full((1, 1), 3.0))
    np.testing.assert_array_equal(history.state()["episode_actions"], [[1.0], [3.0]])
