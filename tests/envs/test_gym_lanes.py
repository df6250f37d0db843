import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qpensieve.envs.base import Lanes
from qpensieve.envs.gym_lanes import GymSimulator, make_simulator
from qpensieve.envs.simulator import LaneOptions, State
from qpensieve.envs.sources import EnvSource
from qpensieve.errors import EnvError
from qpensieve.types import ActionBox, Step
from tests.envs import foreign

NUM_LANES = 5
NUM_STEPS = 20
EXACT = LaneOptions(dtype=np.float64)


def make_lanes(source: EnvSource, num_lanes: int = NUM_LANES, seed: int = 3, options: LaneOptions = EXACT) -> Lanes:
    return Lanes(make_simulator(source, num_lanes), num_lanes, seed, options)


def draw_actions(num_steps: int = NUM_STEPS, num_lanes: int = NUM_LANES, size: int = 2) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1.2, 1.2, (num_steps, num_lanes, size))


def run(lanes: Lanes, actions: np.ndarray) -> list[Step]:
    return [lanes.step(a) for a in actions]


def assert_steps_equal(some: list[Step], others: list[Step], lanes: slice | list[int] = slice(None)) -> None:
    for one, other in zip(some, others, strict=True):
        for field in ("obs", "reward", "terminated", "truncated", "last_obs"):
            np.testing.assert_array_equal(getattr(one, field)[lanes], getattr(other, field))


def assert_states_equal(one: State, other: State) -> None:
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


# What a factory must do


def test_a_factory_must_give_new_environments():
    env = foreign.PointMass()
    with pytest.raises(EnvError, match="same environment twice"):  # so that a run is saved where an evaluation sees it
        GymSimulator(lambda: env, 2, "mine")


def test_a_factory_must_give_gymnasium_environments():
    with pytest.raises(ValueError, match=r"returned a int, not a gymnasium\.Env"):
        GymSimulator(lambda: 3, 2, "mine")  # pyright: ignore[reportArgumentType]


# Stepping


def test_minus_one_zero_and_one_are_low_middle_and_high():
    simulator = GymSimulator(foreign.PointMass, 3, "mine")
    lanes = Lanes(simulator, 3, seed=0)
    lanes.reset()
    lanes.step(np.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]]))
    last = [env.unwrapped.last_action for env in simulator._envs]  # pyright: ignore[reportAttributeAccessIssue]
    assert [a.dtype for a in last] == [np.float32] * 3
    np.testing.assert_array_equal(last, [[-2.0, -2.0], [1.0, 1.0], [4.0, 4.0]])


def test_rescaled_actions_keep_the_shape_of_the_box_and_never_leave_it():
    low, high = -0.1, 0.3
    assert low + (high - low) > high  # so plain arithmetic would leave it
    box = ActionBox((low,) * 6, (high,) * 6, (2, 3), "float64")
    points = box.rescale(np.array([[-1.0] * 6, [1.0] * 6]))
    np.testing.assert_array_equal(points, [np.full((2, 3), low), np.full((2, 3), high)])


def test_observations_may_be_kept():
    simulator = GymSimulator(foreign.PointMass, 2, "mine")
    simulator.start(np.arange(2), np.arange(2))
    kept = simulator.observe(slice(None))
    before = kept.copy()
    simulator.advance(slice(None), np.ones((2, 2)))
    np.testing.assert_array_equal(kept, before)


@pytest.mark.parametrize("source", [foreign.PointMass, foreign.NoRewardSpace, foreign.Noisy, "QpensieveForeign-v1"])
@pytest.mark.parametrize("i", [0, 2])
def test_lane_i_of_n_is_lane_i_alone(source: EnvSource, i: int):
    lanes, actions = make_lanes(source, 3, seed=9), draw_actions(num_lanes=3, size=2)
    alone = Lanes(make_simulator(source, 1), 1, 9, replace(EXACT, first_lane=i))
    lanes.reset()
    alone.reset()
    assert_steps_equal(run(lanes, actions), run(alone, actions[:, [i]]), lanes=[i])


def test_observations_are_those_of_the_environment_itself():
    lanes, env = make_lanes(foreign.Noisy, 1), foreign.Noisy()
    first = lanes.reset()
    seed = int(lanes.simulator.state()["episode_seeds"][0])
    np.testing.assert_array_equal(first[0], env.reset(seed=seed)[0].ravel())
    for a in draw_actions(5, 1):
        step = lanes.step(a)
        obs, reward, *_ = env.step((1.0 + 3.0 * np.clip(a[0], -1, 1)).astype(np.float32))
        np.testing.assert_array_equal(step.last_obs[0], obs.ravel())
        np.testing.assert_array_equal(step.reward[0], reward)


def test_the_environments_own_cut_is_a_truncation():
    lanes = make_lanes("QpensieveForeign-v1", 2)
    lanes.reset()
    steps = run(lanes, np.full((4, 2, 2), -0.4))
    assert [bool(s.truncated.all()) for s in steps] == [False, False, False, True]
    assert not any(s.terminated.any() for s in steps)


def test_an_end_that_coincides_with_the_cut_is_a_termination():
    lanes = make_lanes("QpensieveForeign-v1", 1)
    lanes.reset()
    steps = run(lanes, np.ones((8, 1, 2)))
    ends = [s for s in steps if s.done.any()]
    assert ends
    assert all(s.terminated.all() and not s.truncated.any() for s in ends)


def test_saved_lanes_continue_as_if_never_stopped():
    actions = draw_actions()
    whole, first, second = (make_lanes(foreign.Noisy) for _ in range(3))
    whole.reset()
    first.reset()
    run(first, actions[:12])
    second.restore(first.state())
    assert_states_equal(second.state(), first.state())
    assert_steps_equal(run(whole, actions)[12:], run(second, actions[12:]))


def test_restoring_an_environment_that_ignores_its_seed_warns():
    lanes = make_lanes(foreign.Unseeded)
    lanes.reset()
    run(lanes, draw_actions(2))
    with pytest.warns(UserWarning, match="not deterministic given its seed and actions"):
        make_lanes(foreign.Unseeded).restore(lanes.state())


# Faults while running


def test_an_error_in_the_environment_names_it_with_lane_and_step():
    lanes = make_lanes(foreign.Raising)
    lane = int(np.argmax(lanes.reset()[:, 0] < 0))
    where = f"Raising: .* failed in lane {lane} at step 3 of its episode: ZeroDivisionError"
    with pytest.raises(RuntimeError, match=where) as caught:
        run(lanes, np.zeros((3, NUM_LANES, 2)))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_error_in_the_environment_names_its_file_and_line():
    (line,) = [i for i, text in enumerate(Path(foreign.__file__).read_text().splitlines(), 1) if "1 / 0" in text]
    lanes = make_lanes(foreign.Raising)
    lanes.reset()
    with pytest.raises(EnvError, match=rf"by zero \({re.escape(foreign.__file__)}, line {line}, in step\)$"):
        run(lanes, np.zeros((3, NUM_LANES, 2)))


def test_what_a_library_raises_names_the_line_that_called_it():
    def fail(**_: Any) -> None:
        np.linalg.inv(np.zeros((2, 3)))

    simulator = GymSimulator(foreign.PointMass, 1, "mine")
    simulator._envs[0].reset = fail  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(EnvError, match=rf"LinAlgError: .* \({re.escape(__file__)}, line \d+, in fail\)$"):
        simulator.start(np.array([0]), np.array([4]))


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("step", (0, 0, False, {}), r"step\(\) must return 5 values \(observation, reward, .* info\), got 4 values$"),
        ("reset", np.zeros((2, 2)), r"reset\(\) must return 2 values \(observation, info\), got a ndarray$"),
    ],
)
def test_an_environment_of_an_old_gym_is_told_what_to_return(method: str, given: Any, message: str):
    start = partial(GymSimulator.start, lanes=np.array([0]), seeds=np.array([4]))
    simulator = GymSimulator(foreign.PointMass, 1, "old")
    start(simulator)
    setattr(simulator._envs[0], method, lambda *_, **__: given)
    ask = {"step": lambda: simulator.advance(slice(None), np.zeros((1, 2))), "reset": lambda: start(simulator)}
    with pytest.raises(EnvError, match=message):
        ask[method]()


def test_an_error_in_reset_names_lane_and_seed():
    def fail() -> None:
        raise KeyError("map 7")

    simulator = GymSimulator(foreign.PointMass, 2, "mine", first_lane=10)
    simulator._envs[1].reset = lambda **_: fail()  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(RuntimeError, match=r"mine: .* lane 11 at reset with seed 5: KeyError: 'map 7'"):
        simulator.start(np.array([0, 1]), np.array([4, 5]))


def test_a_reward_of_the_wrong_shape_names_lane_and_step():
    lanes = make_lanes(foreign.WrongReward)
    lanes.reset()
    shapes = r"lane 0 at step 3 of its episode: ValueError: reward must have shape \(2,\), got \(3,\)$"  # ours: no line
    with pytest.raises(RuntimeError, match=shapes):
        run(lanes, np.zeros((3, NUM_LANES, 2)))


def test_a_reward_that_is_not_a_number_names_lane_and_step():
    lanes = make_lanes(foreign.NanReward)
    lanes.reset()
    with pytest.raises(FloatingPointError, match=r"NanReward: reward\[1\] is nan in lane 0 at step 5 of episode 0"):
        run(lanes, np.full((5, NUM_LANES, 2), -0.4))


def test_drawing_needs_an_environment_that_draws():
    lanes = make_lanes(foreign.Drawable, 1)
    lanes.reset()
    assert lanes.render(0).shape == (4, 5, 3)
    with pytest.raises(
        RuntimeError, match='render_mode=None; use a factory that makes it with render_mode="rgb_array"'
    ):
        make_lanes(foreign.PointMass, 1).render(0)


# MO-Gymnasium


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")
@pytest.mark.parametrize(
    ("name", "objectives", "needs"),
    [("mo-mountaincarcontinuous-v0", 2, "mo_gymnasium"), ("mo-hopper-v5", 3, "imageio")],
)
def test_environments_of_mo_gymnasium_run_and_continue(name: str, objectives: int, needs: str):
    pytest.importorskip("mo_gymnasium")
    pytest.importorskip(needs, reason="Gymnasium's MuJoCo environments import it")
    lanes, other = make_lanes(name, 2), make_lanes(name, 2)
    assert lanes.spec.num_objectives == objectives
    actions = draw_actions(num_lanes=2, size=lanes.spec.action_size)
    lanes.reset()
    run(lanes, actions[:10])
    other.restore(lanes.state())
    assert_steps_equal(run(lanes, actions[10:]), run(other, actions[10:]))


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")
@pytest.mark.parametrize(
    ("name", "num_actions", "objectives"),
    [("deep-sea-treasure-v0", 4, 2), ("minecart-v0", 6, 3), ("four-room-v0", 4, 3), ("mo-mountaincar-v0", 3, 3)],
)
def test_discrete_environments_of_mo_gymnasium_run_and_continue(name: str, num_actions: int, objectives: int):
    pytest.importorskip("mo_gymnasium", reason="pip install 'qpensieve[mo]'")
    lanes, other = make_lanes(name, 2), make_lanes(name, 2)
    assert (lanes.spec.num_actions, lanes.spec.num_objectives) == (num_actions, objectives)
    actions = np.random.default_rng(0).integers(num_actions, size=(20, 2, 1)).astype(np.float64)
    lanes.reset()
    run(lanes, actions[:10])
    other.restore(lanes.state())
    assert_steps_equal(run(lanes, actions[10:]), run(other, actions[10:]))


def test_an_environment_that_cannot_be_closed_is_named_and_the_others_are_closed():
    closed = []

    class Stuck(foreign.PointMass):
        def close(self) -> None:
            closed.append(self)
            raise OSError("the window is gone")

    simulator = GymSimulator(Stuck, 3, "stuck")
    with pytest.raises(EnvError, match=r"^stuck: the environment failed when it was closed: OSError: the window"):
        simulator.close()
    assert len(closed) == 3
    simulator.close()
