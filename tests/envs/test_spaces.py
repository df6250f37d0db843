"""What is known of foreign environments, and which of them are refused."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, MultiBinary, MultiDiscrete

from qpensieve.envs.gym_lanes import MO_OBJECTIVES, describe
from qpensieve.types import ActionBox, EnvSpec, Indices
from tests.envs import foreign


def changed(name: str, value: Any) -> gymnasium.Env:
    """A `PointMass` with another attribute."""
    env = foreign.PointMass()
    setattr(env, name, value)
    return env


def test_the_description_comes_from_spaces_and_metadata():
    box = ActionBox((foreign.LOW,) * 2, (foreign.HIGH,) * 2, (2,), "float32")
    names, reference = ("x", "y"), (-10.0, -20.0)
    expected = EnvSpec("mine", 4, 2, names, reference, max_steps=None, action_box=box, obs_shape=(2, 2))
    assert describe(foreign.PointMass(), "mine") == expected


def test_without_a_reward_space_one_step_counts_the_objectives():
    spec = describe(foreign.NoRewardSpace(), "mine")
    assert (spec.objectives, spec.reference) == (("objective 1", "objective 2", "objective 3"), None)
    with pytest.raises(ValueError, match="mine: the reward must be a vector, got a scalar"):
        describe(foreign.ScalarReward(), "mine")


@pytest.mark.filterwarnings(
    "ignore:.*out of date:DeprecationWarning", "ignore:.*precision lowered by casting:UserWarning"
)
def test_robots_of_mo_gymnasium_have_a_name_for_each_objective():
    for needed in ("mo_gymnasium", "imageio"):
        pytest.importorskip(needed, reason="pip install 'qpensieve[mo]'")
    seen = set()
    for gym_id in [known for known in gymnasium.registry if known.startswith(tuple(MO_OBJECTIVES))]:
        env = gymnasium.make(gym_id, disable_env_checker=True)
        names, value = MO_OBJECTIVES["-".join(gym_id.split("-")[:2])]
        (d,) = env.get_wrapper_attr("reward_space").shape
        spec = describe(env, "mine")
        assert (spec.objectives, spec.reference) == (names[:d], None if value is None else (value,) * d), gym_id
        assert d == len(names) - ("cost_objective" in gymnasium.spec(gym_id).kwargs), gym_id
        seen.add(names)
        env.close()
    assert len(seen) == len({names for names, _ in MO_OBJECTIVES.values()})


SPACE, BOX = "action_space", "mine: action space must be a continuous Box .*, or Discrete, got "


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("reward_space", Box(-1.0, 1.0, ()), "mine: the reward must be a vector, got a scalar.*mo-gymnasium"),
        (SPACE, MultiDiscrete([3, 3]), f"{BOX}MultiDiscrete"),
        (SPACE, Box(-1.0, 1.0, (0,)), rf"{BOX}Box\(.*no numbers"),
        (SPACE, Box(np.array([-1.0, -1.0]), np.array([1.0, np.inf]), dtype=np.float64), r"space.high\[1\] = inf"),
        ("observation_space", Box(0, 255, (100, 100, 3), np.uint8), r"20,000 numbers, got 30,000 .*\(100, 100, 3\)"),
        ("observation_space", Dict({"position": Box(-1.0, 1.0, (2,))}), r"observation space must be .*, got Dict\("),
        *(("metadata", {"objectives": n}, "2 different names") for n in (("one",), ("x", "x"), "xy", ("x", "y", "z"))),
        *(("objectives", n, "2 different names, got") for n in (["one"], ["x", "x"], "xy", [1, 2])),
        ("metadata", {"reference_point": (0, 0, 0)}, r"reference_point'\] must be 2 finite numbers, got"),
        ("metadata", {"reference_point": (0.0, float("nan"))}, r"must be 2 finite numbers, got \(0.0, nan\)"),
    ],
)
def test_unusable_environments_are_refused_with_a_reason(name: str, value: Any, message: str):
    with pytest.raises(ValueError, match=message):
        describe(changed(name, value), "mine")


def test_indices_may_be_actions_and_observations_from_any_first_one():
    spec = describe(foreign.Corridor(), "mine")
    assert (spec.num_actions, spec.first_action, spec.action_size, spec.action_box) == (2, 1, 1, None)
    assert spec.native_actions(np.array([[0.0], [1.0]])).tolist() == [1, 2]
    assert (spec.obs_size, spec.obs_shape, spec.obs_indices) == (5, (), Indices((5,), (1,)))
    rows, is_single = spec.rows(3)
    assert (is_single, rows.tolist()) == (True, [[0, 0, 1, 0, 0]])
    rows, is_single = spec.rows([5, 1, 1, 1, 1])  # as many as an observation has values: still a batch
    assert not is_single
    np.testing.assert_array_equal(rows, np.eye(5)[[4, 0, 0, 0, 0]])
    for wrong in (0, 6, 2.5):
        with pytest.raises(ValueError, match=r"entry 0 from 1 to 5; got"):
            spec.rows(wrong)


def test_several_indices_lie_side_by_side_and_bits_are_numbers():
    spec = describe(changed("observation_space", MultiDiscrete([2, 3], start=[0, -1])), "mine")
    assert (spec.obs_size, spec.obs_shape) == (5, (2,))
    rows, is_single = spec.rows([1, -1])
    assert (is_single, rows.tolist()) == (True, [[0, 1, 1, 0, 0]])
    with pytest.raises(ValueError, match=r"entry 1 from -1 to 1; got"):
        spec.rows([0, 2])
    bits = describe(changed("observation_space", MultiBinary((2, 3))), "mine")
    assert (bits.obs_size, bits.obs_shape, bits.obs_indices) == (6, (2, 3), None)
