"""Deep Sea Treasure: its rules, and the exact front that comes out of the search."""

import numpy as np
import pytest

from qpensieve.envs import LaneOptions, dst, make_lanes
from qpensieve.envs.exact import ExactFront
from qpensieve.envs.treasures import TREASURES
from qpensieve.metrics import hypervolume, non_dominated
from qpensieve.metrics.references import reference_point
from qpensieve.preferences import sac_preferences, test_table

EXACT = ExactFront(dst.exact_front)
FRONT = [(0.7, -2), (8.2, -3), (11.5, -4), (15.1, -5), (16.1, -6), (20.3, -8), (22.4, -10), (23.7, -11)]
MIN_STEPS = {0.7: 2, 8.2: 3, 11.5: 4, 14.0: 5, 15.1: 5, 16.1: 6, 19.6: 8, 20.3: 8, 22.4: 10, 23.7: 11}


def _sail(*actions: tuple[float, float], lanes_seed: int = 0):
    lanes = make_lanes("DST2d", 1, lanes_seed, LaneOptions(dtype=np.float64))
    lanes.reset()
    return [lanes.step(np.array([a])) for a in actions]


def test_the_search_finds_the_fewest_steps_to_every_treasure():
    found = {o.value: o.steps for o in dst.best_outcomes()}
    assert {value: found[value] for value in MIN_STEPS} == MIN_STEPS
    assert found[dst.ROCK] == 3


def test_the_search_gives_the_known_front():
    np.testing.assert_allclose(dst.exact_front(), FRONT)


def test_ceilings_of_utility_and_hypervolume_come_out_of_the_search():
    ceilings = EXACT.ceilings(test_table(2), reference_point("DST2d"))
    assert ceilings.utility == pytest.approx(7.757, abs=5e-4)
    assert ceilings.best_single == pytest.approx(6.18, abs=5e-3)
    assert ceilings.hypervolume == pytest.approx(1055.0, abs=1e-9)
    assert EXACT.ceilings(sac_preferences(), reference_point("DST2d")).utility == pytest.approx(7.739, abs=5e-4)
    assert hypervolume(dst.exact_front(), np.array([-10.0, -50.0])) == pytest.approx(1535.0)


def test_a_passage_too_narrow_for_the_lattice_raises_instead_of_lying(monkeypatch):
    monkeypatch.setattr(dst, "LATTICE", 1)
    with pytest.raises((AssertionError, ValueError)):
        dst.best_outcomes()


def test_every_front_point_is_sailed_by_the_environment():
    # Treasures are reached by steering straight for the centre, then the search's own number of steps.
    for (row, column), value in TREASURES.items():
        steps = MIN_STEPS[value]
        lanes = make_lanes("DST2d", 1, 0, LaneOptions(dtype=np.float64))
        path = _path_to(np.array([row + 0.5, column + 0.5]), steps)
        lanes.reset()
        returns = np.zeros(2)
        for t, action in enumerate(path):
            step = lanes.step(action[None])
            returns += step.reward[0]
            assert bool(step.terminated[0]) == (t == steps - 1)
        np.testing.assert_allclose(returns, [value, -steps])


def _path_to(centre: np.ndarray, steps: int) -> np.ndarray:
    """Some path of `steps` moves found by trying: random lattice walks backwards in time would do, a DFS is plainer."""
    moves = np.array([(a, b) for a in (1, 0.5, 0, -0.5, -1) for b in (1, 0.5, 0, -0.5, -1)])

    def search(position: np.ndarray, left: int) -> list[np.ndarray] | None:
        for move in moves:
            target = position + move
            if (target < 0).any() or (np.abs(centre - target) > left - 1 + 0.5).any():
                continue
            touched = dst.find(target[None])[0]
            if touched and left == 1 and ((centre - target) ** 2).sum() < 0.25:
                return [move]
            rest = None if touched or left == 1 else search(target, left - 1)
            if rest is not None:
                return [move, *rest]
        return None

    path = search(np.zeros(2), steps)
    assert path is not None
    return np.array(path)


def test_random_play_never_beats_the_front():
    lanes = make_lanes("DST2d", 256, seed=0)
    lanes.reset()
    generator = np.random.default_rng(0)
    returns, ended = np.zeros((256, 2)), []
    bias = generator.uniform(-0.3, 1, (256, 2))
    for _ in range(400):
        step = lanes.step(np.clip(bias + generator.normal(0, 0.4, (256, 2)), -3, 3))
        returns += step.reward
        ended.extend(returns[step.done])
        returns[step.done] = 0
    together = np.concatenate([dst.exact_front(), np.array(ended)])
    assert len(ended) > 1000
    assert {tuple(p) for p in non_dominated(together)} == {tuple(p) for p in dst.exact_front()}


# Written down from the facts, not from the code: # is rock, a number a treasure; rows downwards, columns rightwards.
MAP = """
.    .    .    .    .    .    .    .    .    .    .
0.7  .    .    .    .    .    .    .    .    .    .
#    8.2  .    .    .    .    .    .    .    .    .
#    #    11.5 .    .    .    .    .    .    .    .
#    #    #    14.0 15.1 16.1 .    .    .    .    .
#    #    #    #    #    #    .    .    .    .    .
#    #    #    #    #    #    .    .    .    .    .
#    #    #    #    #    #    19.6 20.3 .    .    .
#    #    #    #    #    #    #    #    .    .    .
#    #    #    #    #    #    #    #    22.4 .    .
#    #    #    #    #    #    #    #    #    23.7 .
"""


def test_the_whole_map_is_that_of_the_facts():
    signs = {".": "0", "#": "-10"}
    expected = np.array([[float(signs.get(word, word)) for word in row.split()] for row in MAP.strip().split("\n")])
    assert expected.shape == (11, 11)
    centres = np.stack(np.meshgrid(np.arange(11) + 0.5, np.arange(11) + 0.5, indexing="ij"), axis=-1)
    np.testing.assert_array_equal(dst.find(centres.reshape(-1, 2)).reshape(11, 11), expected)
    # Near a corner of its cell a rock is still hit, a treasure is not.
    near_corner = (centres + 0.49).reshape(-1, 2)
    np.testing.assert_array_equal(dst.find(near_corner).reshape(11, 11), np.where(expected < 0, expected, 0.0))


def test_the_far_walls_can_be_touched_and_not_passed():
    along_columns = _sail(*[(0.0, 1.0)] * 11, (0.0, 0.25), (0.25, 0.25))
    positions = [tuple(step.obs[0]) for step in along_columns]
    assert positions[9:] == [(0.0, 10.0), (0.0, 11.0), (0.0, 11.0), (0.25, 11.0)]
    along_rows = _sail(*[(0.0, 1.0)] * 10, (0.0, 0.5), *[(1.0, 0.0)] * 11, (0.25, -0.25))
    assert [tuple(step.obs[0]) for step in along_rows[-3:]] == [(10.0, 10.5), (11.0, 10.5), (11.0, 10.25)]


def test_the_near_walls_can_be_touched_from_within():
    steps = _sail((0.5, 0.5), (-0.5, -0.5), (-0.125, -0.125))
    assert [tuple(step.obs[0]) for step in steps] == [(0.5, 0.5), (0.0, 0.0), (0.0, 0.0)]


def test_a_move_off_the_sea_is_ignored_in_that_axis_alone():
    (step,) = _sail((-0.5, 0.25))
    np.testing.assert_array_equal(step.obs[0], [0.0, 0.25])


def test_actions_are_clipped_so_a_boat_cannot_jump():
    (step,) = _sail((9.0, 9.0))
    np.testing.assert_array_equal(step.obs[0], [1.0, 1.0])


@pytest.mark.parametrize(
    ("position", "found"),
    [
        ((1.5, 0.5), 0.7),
        ((1.1, 0.1), 0.0),  # in the treasure's cell, outside its disc
        ((1.5, 0.999), 0.7),
        ((1.5, 1.0), 0.0),
        ((2.1, 0.1), -10.0),  # rocks are square
        ((2.0, 0.5), 0.0),  # on the edge of a rock
        ((4.5, 3.5), 14.0),
        ((10.5, 9.5), 23.7),
        ((10.5, 10.5), 0.0),
        ((11.0, 11.0), 0.0),
        ((0.0, 0.0), 0.0),
        ((8.5, 7.5), -10.0),
        ((6.5, 6.5), 0.0),
    ],
)
def test_treasures_are_round_and_rocks_are_square(position: tuple[float, float], found: float):
    assert dst.find(np.array([position]))[0] == found


def test_a_rock_ends_the_episode_and_costs_ten():
    steps = _sail((1.0, 0.0), (1.0, 0.0), (0.5, 0.5))
    np.testing.assert_array_equal(steps[-1].reward[0], [-10.0, -1.0])
    assert steps[-1].terminated[0]


def test_fifty_idle_steps_are_a_truncation():
    steps = _sail(*[(0.0, 0.0)] * 50)
    assert not any(s.done[0] for s in steps[:-1])
    assert steps[-1].truncated[0]
    assert not steps[-1].terminated[0]
    np.testing.assert_array_equal(np.sum([s.reward[0] for s in steps], axis=0), [0.0, -50.0])
