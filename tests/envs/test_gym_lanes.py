"""Foreign environments as lanes: the same numbers as the environment itself, saving, and readable faults."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qpensieve.envs.base import Lanes
from qpensieve.envs.gym_lanes import GymSimulator, make_simulator
from qpensieve.envs.simulator import LaneOptions
from qpensieve.envs.sources import EnvSource
from qpensieve.errors import EnvError
from qpensieve.types import ActionBox
from tests.envs import foreign
from tests.envs.test_lanes import assert_equal_steps, play

NUM_LANES = 5
EXACT = LaneOptions(dtype=np.float64)


def started(source: EnvSource, num_lanes: int = NUM_LANES, seed: int = 3, options: LaneOptions = EXACT) -> Lanes:
    lanes = Lanes(make_simulator(source, num_lanes), num_lanes, seed, options)
    lanes.reset()
    return lanes


def draw_actions(num_steps: int = 20, num_lanes: int = NUM_LANES, size: int = 2) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1.2, 1.2, (num_steps, num_lanes, size))


def test_a_factory_must_give_new_gymnasium_environments():
    env = foreign.PointMass()
    with pytest.raises(EnvError, match="same environment twice"):  # so that a run is saved where an evaluation sees it
        GymSimulator(lambda: env, 2, "mine")
    with pytest.raises(ValueError, match=r"returned a int, not a gymnasium\.Env"):
        GymSimulator(lambda: 3, 2, "mine")  # pyright: ignore[reportArgumentType]


def test_minus_one_zero_and_one_are_low_middle_and_high():
    made: list[foreign.PointMass] = []
    lanes = started(lambda: made.append(foreign.PointMass()) or made[-1], 3)
    lanes.step(np.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]]))
    last = [env.last_action for env in made]
    assert [a.dtype for a in last] == [np.float32] * 3
    np.testing.assert_array_equal(last, [[-2.0, -2.0], [1.0, 1.0], [4.0, 4.0]])
    assert -0.1 + (0.3 - -0.1) > 0.3  # so plain arithmetic would leave the box
    points = ActionBox((-0.1,) * 6, (0.3,) * 6, (2, 3), "float64").rescale(np.array([[-1.0] * 6, [1.0] * 6]))
    np.testing.assert_array_equal(points, [np.full((2, 3), -0.1), np.full((2, 3), 0.3)])


def test_observations_are_those_of_the_environment_itself():
    lanes, env = started(foreign.Noisy, 1), foreign.Noisy()
    seed = int(lanes.simulator.state()["episode_seeds"][0])
    np.testing.assert_array_equal(lanes.obs[0], env.reset(seed=seed)[0].ravel())
    for a in draw_actions(5, 1):
        step = lanes.step(a)
        obs, reward, *_ = env.step((1.0 + 3.0 * np.clip(a[0], -1, 1)).astype(np.float32))
        np.testing.assert_array_equal(step.last_obs[0], obs.ravel())
        np.testing.assert_array_equal(step.reward[0], reward)


def test_the_environments_own_cut_is_a_truncation_and_an_end_that_coincides_a_termination():
    steps = play(started("QpensieveForeign-v1", 2), np.full((4, 2, 2), -0.4))
    assert [bool(s.truncated.all()) for s in steps] == [False, False, False, True]
    assert not any(s.terminated.any() for s in steps)
    ends = [s for s in play(started("QpensieveForeign-v1", 1), np.ones((8, 1, 2))) if s.done.any()]
    assert ends
    assert all(s.terminated.all() and not s.truncated.any() for s in ends)


def test_restoring_an_environment_that_ignores_its_seed_warns():
    lanes = started(foreign.Unseeded)
    play(lanes, draw_actions(2))
    with pytest.warns(UserWarning, match="not deterministic given its seed and actions"):
        started(foreign.Unseeded).restore(lanes.state())


# Faults while running


def test_an_error_in_the_environment_names_it_with_lane_step_file_and_line():
    (line,) = [i for i, text in enumerate(Path(foreign.__file__).read_text().splitlines(), 1) if "1 / 0" in text]
    lanes = started(foreign.Raising)
    lane = int(np.argmax(lanes.obs[:, 0] < 0))
    play(lanes, np.zeros((2, NUM_LANES, 2)))
    before = lanes.state()
    where = rf"failed in lane {lane} at step 3 of its episode: ZeroDivisionError: .* by zero"
    file = rf" \({re.escape(foreign.__file__)}, line {line}, in step\)$"
    with pytest.raises(EnvError, match=f"Raising: .* {where}{file}") as caught:
        lanes.step(np.zeros((NUM_LANES, 2)))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    for name, value in lanes.state().items():  # still that before the step that failed
        np.testing.assert_array_equal(value, before[name], err_msg=name)


class Odd(foreign.PointMass):
    """Does something else in a method, where `odd` names it."""

    odd: tuple[str, Any] = ("", None)

    def reset(self, **named: Any) -> Any:
        return self.odd[1]() if self.odd[0] == "reset" else super().reset(**named)

    def step(self, action: np.ndarray) -> Any:
        return self.odd[1]() if self.odd[0] == "step" else super().step(action)


def invert() -> None:
    np.linalg.inv(np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("method", "does", "message"),
    [
        ("step", lambda: (0, 0, False, {}), r"step\(\) must return 5 values \(observation, .* info\), got 4 values$"),
        (
            "step",
            lambda: (np.zeros((2, 2)), np.zeros(3), False, False, {}),
            r"reward must have shape \(2,\), got \(3,\)$",
        ),
        ("reset", lambda: np.zeros((2, 2)), r"reset\(\) must return 2 values \(observation, info\), got a ndarray$"),
        ("reset", lambda: {}["map 7"], "reset with seed 5: KeyError: 'map 7'"),
        ("reset", invert, rf"LinAlgError: .* \({re.escape(__file__)}, line \d+, in invert\)$"),  # who called NumPy
    ],
)
def test_what_goes_wrong_in_a_method_is_told_with_its_lane(
    method: str, does: Any, message: str, monkeypatch: pytest.MonkeyPatch
):
    simulator = GymSimulator(Odd, 2, "mine", first_lane=10)
    start = partial(simulator.start, np.array([1]), np.array([5]))
    start()
    monkeypatch.setattr(Odd, "odd", (method, does))
    call = start if method == "reset" else partial(simulator.advance, np.array([1]), np.zeros((1, 2)))
    with pytest.raises(EnvError, match=f"^mine: .* lane 11 at .*{message}"):
        call()


def test_drawing_needs_an_environment_that_draws():
    assert started(foreign.Drawable, 1).render(0).shape == (4, 5, 3)
    with pytest.raises(RuntimeError, match="render_mode=None"):
        started(foreign.PointMass, 1).render(0)


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")
@pytest.mark.parametrize(
    ("name", "num_actions", "objectives"),
    [
        ("mo-hopper-v5", None, 3),
        ("four-room-v0", 4, 3),
    ],
)
def test_environments_of_mo_gymnasium_run_and_continue(name: str, num_actions: int | None, objectives: int):
    for needed in ("mo_gymnasium", "imageio"):  # Gymnasium's MuJoCo environments import the second
        pytest.importorskip(needed, reason="pip install 'qpensieve[mo]'")
    lanes, other = started(name, 2), started(name, 2)
    assert (lanes.spec.num_actions, lanes.spec.num_objectives) == (num_actions, objectives)
    actions = draw_actions(20, 2, lanes.spec.action_size)
    if num_actions is not None:
        actions = np.random.default_rng(0).integers(num_actions, size=(20, 2, 1)).astype(np.float64)
    play(lanes, actions[:10])
    other.restore(lanes.state())
    for one, again in zip(play(lanes, actions[10:]), play(other, actions[10:]), strict=True):
        assert_equal_steps(one, again)


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
