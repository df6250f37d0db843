"""Deep Sea Treasure: the map, the rules of both versions, the exact front, and which treasures were found."""

from dataclasses import replace

import numpy as np
import pytest

from qpensieve.envs import DISCRETE, DOMAINS, LaneOptions, Lanes, get_domain, make_lanes
from qpensieve.envs.deep_sea import CELLS, DEPTHS, FRONT, VALUES, GridBoatSimulator, find, find_treasures, share_found
from qpensieve.metrics import hypervolume, non_dominated
from qpensieve.metrics.references import reference_point
from qpensieve.preferences import sac_preferences, test_table
from qpensieve.theory.momdp import deep_sea_treasure
from qpensieve.types import Step
from tests.oracles import deep_sea as oracle

MIN_STEPS = {0.7: 2, 8.2: 3, 11.5: 4, 14.0: 5, 15.1: 5, 16.1: 6, 19.6: 8, 20.3: 8, 22.4: 10, 23.7: 11}
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
WORDS = [row.split() for row in MAP.strip().split("\n")]
WATER_CELLS = [(i, j) for i in range(11) for j in range(11) if WORDS[i][j] == "."]
"""In the order in which the MOMDP numbers its states."""
UP, DOWN, LEFT, RIGHT = range(4)
SHIFTS = {UP: (-1, 0), DOWN: (1, 0), LEFT: (0, -1), RIGHT: (0, 1)}


def _sail(*actions: tuple[float, float]) -> list[Step]:
    lanes = make_lanes("DST2d", 1, 0, LaneOptions(dtype=np.float64))
    lanes.reset()
    return [lanes.step(np.array([a])) for a in actions]


def test_the_front_and_its_steps_are_those_that_a_search_finds():
    found = oracle.fewest_steps()
    assert {value: found[value] for value in MIN_STEPS} == MIN_STEPS
    assert found[-10.0] == 3
    np.testing.assert_array_equal(FRONT.points, oracle.exact_front())
    with pytest.raises((AssertionError, ValueError)):
        oracle.fewest_steps(lattice=1)  # too coarse for the narrow passages
    with pytest.raises(ValueError, match="read-only"):
        FRONT.points[0] = 7.0


def test_ceilings_of_utility_and_hypervolume():
    ceilings = FRONT.ceilings(test_table(2), reference_point("DST2d"))
    assert ceilings.utility == pytest.approx(7.757, abs=5e-4)
    assert ceilings.best_single == pytest.approx(6.18, abs=5e-3)
    assert ceilings.hypervolume == pytest.approx(1055.0, abs=1e-9)
    assert FRONT.ceilings(sac_preferences(), reference_point("DST2d")).utility == pytest.approx(7.739, abs=5e-4)
    assert hypervolume(FRONT.points, np.array([-10.0, -50.0])) == pytest.approx(1535.0)


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
    together = np.concatenate([FRONT.points, np.array(ended)])
    assert len(ended) > 1000
    assert {tuple(p) for p in non_dominated(together)} == {tuple(p) for p in FRONT.points}


def test_the_whole_map_is_that_of_the_facts():
    signs = {".": "0", "#": "-10"}
    expected = np.array([[float(signs.get(word, word)) for word in row] for row in WORDS])
    np.testing.assert_array_equal(CELLS, expected)
    centres = np.stack(np.meshgrid(np.arange(11) + 0.5, np.arange(11) + 0.5, indexing="ij"), axis=-1)
    np.testing.assert_array_equal(find(centres), expected)
    # Near a corner of its cell a rock is still hit, a treasure is not.
    np.testing.assert_array_equal(find(centres + 0.49), np.where(expected < 0, expected, 0.0))


def test_edges_of_treasures_and_rocks():
    # The first two: a disc's edge; then the edge of a rock, and corners of the sea.
    places = [(1.5, 0.999), (1.5, 1.0), (2.0, 0.5), (11.0, 11.0), (0.0, 0.0)]
    assert find(np.array(places)).tolist() == [0.7, 0.0, 0.0, 0.0, 0.0]


def test_walls_can_be_touched_and_not_passed_and_stop_one_axis_alone():
    along_columns = [tuple(s.obs[0]) for s in _sail(*[(0.0, 1.0)] * 11, (0.0, 0.25), (0.25, 0.25))]
    assert along_columns[9:] == [(0.0, 10.0), (0.0, 11.0), (0.0, 11.0), (0.25, 11.0)]
    along_rows = _sail(*[(0.0, 1.0)] * 10, (0.0, 0.5), *[(1.0, 0.0)] * 11, (0.25, -0.25))
    assert [tuple(step.obs[0]) for step in along_rows[-3:]] == [(10.0, 10.5), (11.0, 10.5), (11.0, 10.25)]
    near = _sail((0.5, 0.5), (-0.5, -0.5), (-0.125, -0.125), (-0.5, 0.25), (9.0, 9.0))  # the last is clipped
    assert [tuple(s.obs[0]) for s in near] == [(0.5, 0.5), (0.0, 0.0), (0.0, 0.0), (0.0, 0.25), (1.0, 1.25)]


def test_a_rock_ends_the_episode_and_fifty_idle_steps_cut_it():
    rock = _sail((1.0, 0.0), (1.0, 0.0), (0.5, 0.5))[-1]
    assert (rock.reward.tolist(), rock.terminated[0]) == ([[-10.0, -1.0]], True)
    steps = _sail(*[(0.0, 0.0)] * 50)
    assert not any(s.done[0] for s in steps[:-1])
    assert (steps[-1].truncated[0], steps[-1].terminated[0]) == (True, False)
    np.testing.assert_array_equal(np.sum([s.reward[0] for s in steps], axis=0), [0.0, -50.0])


# The grid


def _sail_grid(actions: list[int], options: LaneOptions = LaneOptions()) -> tuple[Lanes, list[Step]]:
    lanes = make_lanes("DeepSeaTreasure", 1, 0, options)
    np.testing.assert_array_equal(lanes.reset(), [[0.0, 0.0]])
    return lanes, [lanes.step([[a]]) for a in actions]


def test_every_action_in_every_state_does_what_the_map_and_the_momdp_say():
    states, actions = (axis.ravel() for axis in np.indices((len(WATER_CELLS), 4)))
    lanes = make_lanes("DeepSeaTreasure", len(states), 0, LaneOptions(dtype=np.float64, autoreset=False))
    lanes.reset()
    lanes.simulator.restore({"position": np.array(WATER_CELLS, np.float64)[states]})
    step = lanes.step(actions)
    for lane, (state, action) in enumerate(zip(states.tolist(), actions.tolist(), strict=True)):
        here = WATER_CELLS[state]
        target = (here[0] + SHIFTS[action][0], here[1] + SHIFTS[action][1])
        word = WORDS[target[0]][target[1]] if min(target) >= 0 and max(target) <= 10 else "#"
        is_treasure = word not in ".#"
        assert step.terminated[lane] == is_treasure
        assert step.reward[lane].tolist() == [float(word) if is_treasure else 0.0, -1.0]
        assert step.last_obs[lane].tolist() == list(here if word == "#" else target)
    momdp = deep_sea_treasure()
    assert momdp.num_states == len(WATER_CELLS)
    row = momdp.p_next[states, actions]
    np.testing.assert_array_equal(step.reward, momdp.r[states, actions])
    np.testing.assert_array_equal(step.terminated, row.sum(axis=1) == 0)
    assert not step.truncated.any()
    np.testing.assert_array_equal(step.last_obs[~step.terminated], (row @ np.array(WATER_CELLS))[~step.terminated])


def test_straight_routes_have_the_returns_of_the_formula_and_the_hypervolume_of_the_facts():
    routes = [_sail_grid([RIGHT] * column + [DOWN] * DEPTHS[column])[1] for column in range(10)]
    assert tuple(map(len, routes)) == oracle.GRID_STEPS == (1, 3, 5, 7, 8, 9, 13, 14, 17, 19)
    for column, route in enumerate(routes):
        assert [bool(step.terminated[0]) for step in route] == [False] * (len(route) - 1) + [True]
        assert (route[-1].last_obs.tolist(), route[-1].obs.tolist()) == ([[DEPTHS[column], column]], [[0, 0]])
    rewards = [np.array([step.reward[0] for step in route]) for route in routes]
    plain = np.array([route.sum(axis=0) for route in rewards])
    np.testing.assert_allclose(plain, np.stack([VALUES, -np.array(oracle.GRID_STEPS)], axis=1), rtol=1e-12)
    assert hypervolume(plain, reference_point("DeepSeaTreasure")) == pytest.approx(994.3, abs=1e-9)
    assert hypervolume(plain, [0.0, -25.0]) == pytest.approx(401.8, abs=1e-9)
    discounted = np.array([0.99 ** np.arange(len(route)) @ route for route in rewards])
    np.testing.assert_allclose(discounted, oracle.grid_returns(0.99), rtol=1e-12)
    assert hypervolume(discounted, reference_point("DeepSeaTreasure")) == pytest.approx(854.85, abs=5e-3)


def test_the_time_limit_cuts_at_exactly_a_hundred_steps_and_a_treasure_there_is_an_end():
    _, steps = _sail_grid([UP] * 101)
    assert [t for t, step in enumerate(steps, start=1) if step.truncated[0]] == [100]
    assert not any(step.terminated[0] for step in steps)
    lanes = Lanes(GridBoatSimulator(replace(get_domain("DeepSeaTreasure").spec, max_steps=1), 1), 1, seed=0)
    lanes.reset()
    step = lanes.step([DOWN])
    assert (step.terminated[0], step.truncated[0]) == (True, False)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        *([[[3], [3], [wrong]], rf"got {wrong} in lane 12 at step 2"] for wrong in (-1.0, 0.5, np.nan)),
        ([3, 3, 4], "got 4 in lane 12 at step 2 of episode 0"),
        *((np.zeros(shape), r"must have shape \(3, 1\) or \(3,\)") for shape in ((3, 4), (2,))),
        (np.array([True, False, True]), "must be indices, got type"),
    ],
)
def test_what_is_no_index_is_refused_and_moves_nothing(actions: list | np.ndarray, message: str):
    lanes = make_lanes("DeepSeaTreasure", 3, 0, LaneOptions(first_lane=10))
    lanes.reset()
    lanes.step(np.full((3, 1), RIGHT, np.uint8))
    before = lanes.obs
    with pytest.raises(ValueError, match=f"^DeepSeaTreasure: action.*{message}"):
        lanes.step(actions)
    np.testing.assert_array_equal(lanes.obs, before)
    np.testing.assert_array_equal(lanes.elapsed, 1)


def test_treasures_are_found_per_seed_by_value_and_by_share_of_the_front():
    returns = np.zeros((3, 2, 2, 2))
    # 14.0 is a treasure but not on the front; 23.7 comes back from float32; 8.3 and a rock are no treasures.
    returns[0, :, :, 0] = [[14.0, 0.7], [np.float32(23.7), 23.7]]
    returns[1, :, :, 0] = [[8.3, -10.0], [0.0, 0.0]]
    returns[2, 0, :, 0] = [8.2 + 9e-4, 8.2 - 2e-3]
    found, front = find_treasures(returns), DOMAINS["DST2d"].front_treasures
    assert found == (frozenset({14.0, 0.7, 23.7}), frozenset(), frozenset({8.2}))
    np.testing.assert_allclose(share_found(found, front), [2 / 8, 0, 1 / 8])
    assert share_found(find_treasures(FRONT.points[None, :, None]), front) == pytest.approx([1.0])
    assert front == tuple(FRONT.points[:, 0])
    assert DISCRETE["DeepSeaTreasure"].treasures == DOMAINS["DST2d"].treasures == VALUES
    assert DISCRETE["DeepSeaTreasure"].front_treasures == ()
