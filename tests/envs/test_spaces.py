"""What is known of foreign environments, and which of them are refused."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import MultiBinary, MultiDiscrete

from qpensieve.envs import make_lanes
from qpensieve.envs.spaces import describe
from qpensieve.types import ActionBox, EnvSpec, Indices
from tests.envs import foreign


def test_the_description_comes_from_spaces_and_metadata():
    box = ActionBox((foreign.LOW,) * 2, (foreign.HIGH,) * 2, (2,), "float32")
    names, reference = ("x", "y"), (-10.0, -20.0)
    expected = EnvSpec("mine", 4, 2, names, reference, max_steps=None, action_box=box, obs_shape=(2, 2))
    assert describe(foreign.PointMass(), "mine") == expected


def test_without_a_reward_space_one_step_counts_the_objectives():
    spec = describe(foreign.NoRewardSpace(), "mine")
    assert spec.objectives == ("objective 1", "objective 2", "objective 3")
    assert spec.reference is None


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (foreign.ScalarReward, r"mine: the reward must be a vector, got a scalar.*np.array of d numbers.*mo-gymnasium"),
        (foreign.ScalarRewardSpace, r"mine: the reward must be a vector, got a scalar.*np.array of d.*mo-gymnasium"),
        (foreign.JointActions, r"action space must be a continuous Box .*, or Discrete, got MultiDiscrete"),
        (
            foreign.Pictures,
            r"mine: an observation must have at most 20,000 numbers, got 30,000 .*\(100, 100, 3\).*images",
        ),
        (foreign.IntegerBox, r"action space must be a continuous Box .*, got Box\(.*int64\)"),
        (foreign.DictActions, r"mine: action space must be a continuous Box .*, got Dict\("),
        (foreign.NoActions, r"mine: action space must be a continuous Box .*, got Box\(.*, which holds no numbers"),
        (
            foreign.UnboundedActions,
            r"must be a continuous Box with finite bounds, or Discrete, got action_space.high\[1\] = inf",
        ),
        (foreign.DictObservations, r"observation space must be a Box, Discrete, .*, got Dict\(.*FlattenObservation"),
        (foreign.WrongReference, r"reference_point'\] must have 2 numbers, got 3"),
    ],
)
def test_unusable_environments_are_refused_with_a_reason(env: type[gymnasium.Env], message: str):
    with pytest.raises(ValueError, match=message):
        describe(env(), "mine")


@pytest.mark.parametrize("names", [("one",), ("x", "x"), "xy", ("x", "y", "z")])
def test_names_of_objectives_that_do_not_fit_are_refused(names: object):
    env = foreign.PointMass()
    env.metadata = {"objectives": names}
    with pytest.raises(ValueError, match=r"mine: metadata\['objectives'\] must be 2 different names, got "):
        describe(env, "mine")


def test_a_reference_point_must_be_finite():
    env = foreign.PointMass()
    env.metadata = {"reference_point": (0.0, float("nan"))}
    with pytest.raises(ValueError, match=r"mine: metadata\['reference_point'\] must be finite, got \(0.0, nan\)"):
        describe(env, "mine")


# Whole numbers


def test_actions_may_be_indices_from_any_first_one():
    spec = describe(foreign.Corridor(), "mine")
    assert (spec.num_actions, spec.first_action, spec.action_size, spec.action_box) == (2, 1, 1, None)
    assert spec.native_actions(np.array([[0.0], [1.0]])).tolist() == [1, 2]


def test_an_index_that_is_observed_becomes_one_number_per_value():
    spec = describe(foreign.Corridor(), "mine")
    assert (spec.obs_size, spec.obs_shape, spec.obs_indices) == (5, (), Indices((5,), (1,)))
    rows, is_single = spec.rows(3)
    assert is_single
    assert rows.tolist() == [[0, 0, 1, 0, 0]]
    rows, is_single = spec.rows([5, 1, 1, 1, 1])  # as many as an observation has values: still a batch
    assert not is_single
    np.testing.assert_array_equal(rows, np.eye(5)[[4, 0, 0, 0, 0]])
    for wrong in (0, 6, 2.5):
        with pytest.raises(ValueError, match=r"entry 0 from 1 to 5; got"):
            spec.rows(wrong)


def test_several_indices_lie_side_by_side():
    env = foreign.PointMass()
    env.observation_space = MultiDiscrete([2, 3], start=[0, -1])  # pyright: ignore[reportAttributeAccessIssue]
    spec = describe(env, "mine")
    assert (spec.obs_size, spec.obs_shape) == (5, (2,))
    assert spec.rows([[1, -1], [0, 1]])[0].tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]
    assert spec.rows([1, 0])[1]
    with pytest.raises(ValueError, match=r"entry 1 from -1 to 1; got 2"):
        spec.rows([0, 2])


def test_bits_are_numbers_as_they_are():
    env = foreign.PointMass()
    env.observation_space = MultiBinary((2, 3))  # pyright: ignore[reportAttributeAccessIssue]
    spec = describe(env, "mine")
    assert (spec.obs_size, spec.obs_shape, spec.obs_indices) == (6, (2, 3), None)


def test_lanes_see_and_do_what_the_environment_does():
    lanes = make_lanes(foreign.Corridor, 2, seed=0)
    np.testing.assert_array_equal(lanes.reset(), np.eye(5)[[2, 2]])
    step = lanes.step(np.array([[0.0], [1.0]]))
    np.testing.assert_array_equal(step.last_obs, np.eye(5)[[1, 3]])
    np.testing.assert_array_equal(step.reward, [[-1.0, 1.0], [1.0, -1.0]])
    assert lanes.step(np.array([[0.0], [1.0]])).terminated.all()
