"""Deep Sea Treasure: the map, the rules of both versions, the exact front, and which treasures were found."""

from dataclasses import replace

import numpy as np
import pytest

from qpensieve.envs import DISCRETE, DOMAINS, LaneOptions, Lanes, get_domain, make_lanes
from qpensieve.envs.deep_sea import (
    CELLS,
    DEPTHS,
    FRONT,
    VALUES,
    GridBoatSimulator,
    find,
    find_treasures,
    share_found,
)
from qpensieve.metrics import hypervolume, non_dominated
from qpensieve.metrics.references import reference_point
from qpensieve.preferences import sac_preferences, test_table
from qpensieve.theory.treasure import STEPS, deep_sea_treasure, treasure_returns
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


def _sail(*actions: tuple[float, float], lanes_seed: int = 0):
    lanes = make_lanes("DST2d", 1, lanes_seed, LaneOptions(dtype=np.float64))
    lanes.reset()
    return [lanes.step(np.array([a])) for a in actions]


def test_the_front_and_its_steps_are_those_that_a_search_finds():
    found = oracle.fewest_steps()
    assert {value: found[value] for value in MIN_STEPS} == MIN_STEPS
    assert found[-10.0] == 3
    np.testing.assert_array_equal(FRONT.points, oracle.exact_front())
    with pytest.raises((AssertionError, ValueError)):
        oracle.fewest_steps(lattice=1)  # too coarse for the narrow passages


def test_ceilings_of_utility_and_hypervolume():
    ceilings = FRONT.ceilings(test_table(2), reference_point("DST2d"))
    assert ceilings.utility == pytest.approx(7.757, abs=5e-4)
    assert ceilings.best_single == pytest.approx(6.18, abs=5e-3)
    assert ceilings.hypervolume == pytest.approx(1055.0, abs=1e-9)
    assert FRONT.ceilings(sac_preferences(), reference_point("DST2d")).utility == pytest.approx(7.739, abs=5e-4)
    assert hypervolume(FRONT.points, np.array([-10.0, -50.0])) == pytest.approx(1535.0)


def test_the_front_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        FRONT.points[0] = 7.0


def test_every_front_point_is_sailed_by_the_environment():
    # Treasures are reached by steering straight for the centre, then the search's own number of steps.
    for column, (row, value) in enumerate(zip(DEPTHS, VALUES, strict=True)):
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
            touched = find(target[None])[0]
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
    near_corner = centres + 0.49
    np.testing.assert_array_equal(find(near_corner), np.where(expected < 0, expected, 0.0))


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
    assert find(np.array([position]))[0] == found


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


# The grid


def _sail_grid(actions: list[int], options: LaneOptions = LaneOptions()) -> tuple[Lanes, list[Step]]:  # noqa: B008
    lanes = make_lanes("DeepSeaTreasure", 1, 0, options)
    np.testing.assert_array_equal(lanes.reset(), [[0.0, 0.0]])
    return lanes, [lanes.step([[a]]) for a in actions]


def _straight_to(column: int) -> list[int]:
    return [RIGHT] * column + [DOWN] * DEPTHS[column]


def _step_from_everywhere() -> tuple[np.ndarray, np.ndarray, Step]:
    """Every action in every state, one lane each: states, actions, what came of it."""
    states, actions = (axis.ravel() for axis in np.indices((len(WATER_CELLS), 4)))
    lanes = make_lanes("DeepSeaTreasure", len(states), 0, LaneOptions(dtype=np.float64, autoreset=False))
    lanes.reset()
    lanes.simulator.restore({"position": np.array(WATER_CELLS, np.float64)[states]})
    np.testing.assert_array_equal(lanes.simulator.observe(slice(None)), np.array(WATER_CELLS)[states])
    return states, actions, lanes.step(actions)


def test_every_action_in_every_state_does_what_the_momdp_says():
    momdp = deep_sea_treasure()
    assert momdp.num_states == len(WATER_CELLS)
    states, actions, step = _step_from_everywhere()
    row = momdp.p_next[states, actions]
    np.testing.assert_array_equal(step.reward, momdp.r[states, actions])
    np.testing.assert_array_equal(step.terminated, row.sum(axis=1) == 0)
    assert not step.truncated.any()
    goes_on = ~step.terminated
    np.testing.assert_array_equal(step.last_obs[goes_on], (row @ np.array(WATER_CELLS))[goes_on])


def test_every_action_in_every_state_does_what_the_map_says():
    states, actions, step = _step_from_everywhere()
    for lane, (state, action) in enumerate(zip(states, actions, strict=True)):
        here = WATER_CELLS[state]
        target = (here[0] + SHIFTS[action][0], here[1] + SHIFTS[action][1])
        word = WORDS[target[0]][target[1]] if min(target) >= 0 and max(target) <= 10 else "#"
        is_treasure = word not in ".#"
        assert step.terminated[lane] == is_treasure
        assert step.reward[lane].tolist() == [float(word) if is_treasure else 0.0, -1.0]
        assert step.last_obs[lane].tolist() == list(here if word == "#" else target)


@pytest.mark.parametrize(
    ("column", "value", "steps"),
    list(zip(range(10), (0.7, 8.2, 11.5, 14.0, 15.1, 16.1, 19.6, 20.3, 22.4, 23.7), STEPS, strict=True)),
)
def test_a_straight_route_ends_on_the_treasure(column: int, value: float, steps: int):
    assert steps == (1, 3, 5, 7, 8, 9, 13, 14, 17, 19)[column]
    _, route = _sail_grid(_straight_to(column))
    assert [bool(step.terminated[0]) for step in route] == [False] * (steps - 1) + [True]
    assert not any(step.truncated[0] for step in route)
    np.testing.assert_allclose(np.sum([step.reward[0] for step in route], axis=0), [value, -steps])
    np.testing.assert_array_equal(route[-1].last_obs, [[DEPTHS[column], column]])
    np.testing.assert_array_equal(route[-1].obs, [[0.0, 0.0]])


def test_returns_are_those_of_the_formula_and_their_hypervolume_that_of_the_facts():
    routes = [np.array([step.reward[0] for step in _sail_grid(_straight_to(column))[1]]) for column in range(10)]
    plain = np.array([route.sum(axis=0) for route in routes])
    np.testing.assert_allclose(plain, np.stack([VALUES, -np.array(STEPS)], axis=1), rtol=1e-12)
    assert hypervolume(plain, reference_point("DeepSeaTreasure")) == pytest.approx(994.3, abs=1e-9)
    assert hypervolume(plain, [0.0, -25.0]) == pytest.approx(401.8, abs=1e-9)
    discounted = np.array([0.99 ** np.arange(len(route)) @ route for route in routes])
    np.testing.assert_allclose(discounted, treasure_returns(0.99), rtol=1e-12)
    assert hypervolume(discounted, reference_point("DeepSeaTreasure")) == pytest.approx(854.85, abs=5e-3)


@pytest.mark.parametrize(
    ("route", "action"),
    [
        ([], UP),
        ([], LEFT),
        ([RIGHT] * 10, RIGHT),
        ([RIGHT] * 10 + [DOWN] * 10, DOWN),
        ([RIGHT] * 6 + [DOWN] * 5, LEFT),  # rock
    ],
)
def test_a_move_against_an_edge_or_a_rock_costs_its_step_and_stays(route: list[int], action: int):
    _, steps = _sail_grid([*route, action, action])
    here = [[route.count(DOWN), route.count(RIGHT)]]
    for step in steps[-2:]:
        np.testing.assert_array_equal(step.obs, here)
        assert step.reward.tolist() == [[0.0, -1.0]]
        assert not step.done[0]


def test_the_time_limit_cuts_at_exactly_a_hundred_steps():
    _, steps = _sail_grid([UP] * 101)
    assert [t for t, step in enumerate(steps, start=1) if step.truncated[0]] == [100]
    assert not any(step.terminated[0] for step in steps)


def test_a_treasure_reached_on_the_last_step_is_a_termination():
    lanes = Lanes(GridBoatSimulator(replace(get_domain("DeepSeaTreasure").spec, max_steps=1), 1), 1, seed=0)
    lanes.reset()
    step = lanes.step([DOWN])
    assert (step.terminated[0], step.truncated[0]) == (True, False)


def test_lanes_move_apart_and_one_that_ended_rests_on_its_treasure():
    lanes = make_lanes("DeepSeaTreasure", 3, 0, LaneOptions(autoreset=False))
    lanes.reset()
    assert lanes.step([DOWN, RIGHT, UP]).terminated.tolist() == [True, False, False]
    step = lanes.step([RIGHT, RIGHT, RIGHT])
    assert step.obs.tolist() == [[1, 0], [0, 2], [0, 1]]
    assert step.reward.tolist() == [[0, 0], [0, -1], [0, -1]]
    assert lanes.reset([0]).tolist() == [[0, 0], [0, 2], [0, 1]]
    assert lanes.step([RIGHT, RIGHT, DOWN]).obs.tolist() == [[0, 1], [0, 3], [1, 1]]


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(4, 1), (4,)])
def test_indices_may_be_of_any_number_type_with_or_without_their_axis(dtype: type, shape: tuple[int, ...]):
    lanes = make_lanes("DeepSeaTreasure", 4, seed=0)
    lanes.reset()
    actions = np.array([UP, DOWN, LEFT, RIGHT], dtype).reshape(shape)
    step = lanes.step(actions)
    assert step.last_obs.tolist() == [[0, 0], [1, 0], [0, 0], [0, 1]]
    np.testing.assert_array_equal(step.reward[:, 0], [0.0, 0.7, 0.0, 0.0])


@pytest.mark.parametrize("wrong", [4, -1, 0.5, 2.999, -1e-9, np.nan, np.inf, -np.inf])
def test_what_is_no_index_is_refused_with_lane_and_value_and_moves_nothing(wrong: float):
    lanes = make_lanes("DeepSeaTreasure", 3, 0, LaneOptions(first_lane=10))
    lanes.reset()
    lanes.step([RIGHT] * 3)
    before = lanes.obs
    message = rf"DeepSeaTreasure: action must be .* from 0 to 3, got {float(wrong)} in lane 12 at step 2 of episode 0"
    for actions in ([[RIGHT], [RIGHT], [float(wrong)]], [RIGHT, RIGHT, float(wrong)]):
        with pytest.raises(ValueError, match=message):
            lanes.step(actions)
    np.testing.assert_array_equal(lanes.obs, before)
    np.testing.assert_array_equal(lanes.elapsed, 1)


def test_a_wrong_index_is_shown_as_it_was_given():
    lanes = make_lanes("DeepSeaTreasure", 1, seed=0)
    lanes.reset()
    with pytest.raises(ValueError, match="got 4 in lane 0"):
        lanes.step([4])


@pytest.mark.parametrize("shape", [(3, 4), (1, 3), (3, 1, 1), (2,), (2, 1), ()])
def test_indices_in_another_shape_are_refused(shape: tuple[int, ...]):
    lanes = make_lanes("DeepSeaTreasure", 3, seed=0)
    lanes.reset()
    with pytest.raises(ValueError, match=r"actions must have shape \(3, 1\) or \(3,\), one index per lane, got \("):
        lanes.step(np.zeros(shape))


@pytest.mark.parametrize("actions", [["1", "2"], [True, False]])
def test_words_and_masks_are_no_indices(actions: list):
    lanes = make_lanes("DeepSeaTreasure", 2, seed=0)
    lanes.reset()
    with pytest.raises(ValueError, match=r"actions must be indices, got type"):
        lanes.step(np.array(actions))


def test_observations_and_rewards_may_be_written_to():
    lanes, steps = _sail_grid([RIGHT])
    lanes.simulator.observe(slice(None))[:] = 7.0
    steps[0].reward[:] = 7.0
    lanes.reset()
    step = lanes.step([RIGHT])
    assert (step.obs.tolist(), step.reward.tolist()) == ([[0, 1]], [[0, -1]])


def _colour(picture: np.ndarray, row: int, column: int, offset: int = 20) -> list[int]:
    return picture[40 * row + offset, 40 * column + offset].tolist()


def test_the_picture_shows_water_rock_treasures_and_the_boat():
    lanes, _ = _sail_grid([RIGHT, RIGHT])
    picture = lanes.render()
    assert (picture.shape, picture.dtype) == ((440, 440, 3), np.uint8)
    red, grey, blue = [200, 30, 30], [105, 105, 105], [70, 130, 180]
    assert _colour(picture, 0, 2) == red
    assert _colour(picture, 0, 2, offset=3) == blue
    for i, words in enumerate(WORDS):
        for j, word in enumerate(words):
            if (i, j) != (0, 2):
                colour = _colour(picture, i, j)
                assert colour == {"#": grey, ".": blue}.get(word, colour)
                assert (colour[0] > colour[1] > colour[2]) == (word not in ".#")  # gold
    brightness = [_colour(picture, DEPTHS[j], j)[0] for j in range(10)]
    assert brightness == sorted(set(brightness))


def test_the_picture_of_a_boat_at_rest_shows_it_on_its_treasure():
    lanes, _ = _sail_grid([DOWN], LaneOptions(autoreset=False))
    assert _colour(lanes.render(), 1, 0) == [200, 30, 30]
    assert _colour(lanes.render(), 0, 0) == [70, 130, 180]


# Which treasures were found


def test_treasures_are_found_per_seed_by_value_and_by_share_of_the_front():
    returns = np.zeros((3, 2, 2, 2))
    # 14.0 is a treasure but not on the front; 23.7 comes back from float32; 8.3 and a rock are no treasures.
    returns[0, :, :, 0] = [[14.0, 0.7], [np.float32(23.7), 23.7]]
    returns[1, :, :, 0] = [[8.3, -10.0], [0.0, 0.0]]
    returns[2, 0, :, 0] = [8.2 + 9e-4, 8.2 - 2e-3]
    found = find_treasures(returns)
    assert found == (frozenset({14.0, 0.7, 23.7}), frozenset(), frozenset({8.2}))
    np.testing.assert_allclose(share_found(found, DOMAINS["DST2d"].front_treasures), [2 / 8, 0, 1 / 8])


def test_all_treasures_of_the_front_are_a_share_of_one():
    assert DOMAINS["DST2d"].exact is not None
    points = DOMAINS["DST2d"].exact.points
    assert share_found(find_treasures(points[None, :, None]), DOMAINS["DST2d"].front_treasures) == pytest.approx([1.0])
    assert DOMAINS["DST2d"].front_treasures == tuple(points[:, 0])


def test_both_seas_have_the_same_treasures():
    assert DISCRETE["DeepSeaTreasure"].treasures == DOMAINS["DST2d"].treasures == VALUES
    assert DISCRETE["DeepSeaTreasure"].front_treasures == ()
