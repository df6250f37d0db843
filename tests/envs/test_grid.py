"""Deep Sea Treasure on its grid: the MOMDP's moves, the known front, indices in place of continuous actions."""

from dataclasses import replace

import numpy as np
import pytest

from qpensieve.envs import LaneOptions, Lanes, get_domain, make_lanes
from qpensieve.envs.grid import GridSimulator, lay_out
from qpensieve.envs.treasures import DEPTHS, VALUES
from qpensieve.metrics import hypervolume
from qpensieve.metrics.references import reference_point
from qpensieve.theory.treasure import STEPS, deep_sea_treasure, treasure_returns
from qpensieve.types import Step
from tests.envs.test_dst import MAP

UP, DOWN, LEFT, RIGHT = range(4)
SHIFTS = {UP: (-1, 0), DOWN: (1, 0), LEFT: (0, -1), RIGHT: (0, 1)}
WORDS = [row.split() for row in MAP.strip().split("\n")]
"""The map of the facts: rock #, water a dot, or a treasure's value."""
WATER_CELLS = [(i, j) for i in range(11) for j in range(11) if WORDS[i][j] == "."]
"""In the order in which the MOMDP numbers its states."""


def _sail(actions: list[int], options: LaneOptions = LaneOptions()) -> tuple[Lanes, list[Step]]:  # noqa: B008
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
    lanes.simulator.restore({"place": states})
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
    _, route = _sail(_straight_to(column))
    assert [bool(step.terminated[0]) for step in route] == [False] * (steps - 1) + [True]
    assert not any(step.truncated[0] for step in route)
    np.testing.assert_allclose(np.sum([step.reward[0] for step in route], axis=0), [value, -steps])
    np.testing.assert_array_equal(route[-1].last_obs, [[DEPTHS[column], column]])
    np.testing.assert_array_equal(route[-1].obs, [[0.0, 0.0]])


def test_returns_are_those_of_the_formula_and_their_hypervolume_that_of_the_facts():
    routes = [np.array([step.reward[0] for step in _sail(_straight_to(column))[1]]) for column in range(10)]
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
    _, steps = _sail([*route, action, action])
    here = [[route.count(DOWN), route.count(RIGHT)]]
    for step in steps[-2:]:
        np.testing.assert_array_equal(step.obs, here)
        assert step.reward.tolist() == [[0.0, -1.0]]
        assert not step.done[0]


def test_the_time_limit_cuts_at_exactly_a_hundred_steps():
    _, steps = _sail([UP] * 101)
    assert [t for t, step in enumerate(steps, start=1) if step.truncated[0]] == [100]
    assert not any(step.terminated[0] for step in steps)


def test_a_treasure_reached_on_the_last_step_is_a_termination():
    lanes = Lanes(GridSimulator(replace(get_domain("DeepSeaTreasure").spec, max_steps=1), 1), 1, seed=0)
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
    lanes, steps = _sail([RIGHT])
    lanes.simulator.observe(slice(None))[:] = 7.0
    steps[0].reward[:] = 7.0
    lanes.reset()
    step = lanes.step([RIGHT])
    assert (step.obs.tolist(), step.reward.tolist()) == ([[0, 1]], [[0, -1]])


def test_states_are_numbered_row_by_row_and_treasures_come_after_them():
    grid = lay_out()
    assert grid.cells[: grid.num_states].tolist() == [[float(i), float(j)] for i, j in WATER_CELLS]
    assert grid.cells[grid.num_states :].tolist() == [[float(depth), float(i)] for i, depth in enumerate(DEPTHS)]
    assert grid.start == 0


def _colour(picture: np.ndarray, row: int, column: int, offset: int = 20) -> list[int]:
    return picture[40 * row + offset, 40 * column + offset].tolist()


def test_the_picture_shows_water_rock_treasures_and_the_boat():
    lanes, _ = _sail([RIGHT, RIGHT])
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
    lanes, _ = _sail([DOWN], LaneOptions(autoreset=False))
    assert _colour(lanes.render(), 1, 0) == [200, 30, 30]
    assert _colour(lanes.render(), 0, 0) == [70, 130, 180]
