"""What every domain's lanes promise: independence, resets, the time limit, readable errors (test_saving.py: saving)."""

from dataclasses import replace

import numpy as np
import pytest

from qpensieve.envs import DOMAINS, LaneOptions, Lanes, get_domain, make_lanes
from qpensieve.envs.base import _lane_streams
from qpensieve.envs.deep_sea import BoatSimulator
from qpensieve.envs.registry import DISCRETE
from qpensieve.types import Step

STEPS, MORE_STEPS = 130, 300
"""In so many steps random actions end episodes of every domain but HalfCheetah2d; of the dear ones in more."""
ALL = [*DOMAINS, *DISCRETE]
DEAR = ("LunarLander5d", "Ant2d", "Ant3d")
"""As LunarLander4d and HalfCheetah2d in what is tested, but slower to step."""


def _play(lanes: Lanes, actions: np.ndarray) -> list[Step]:
    return [lanes.step(a) for a in actions]


def _actions(domain: str, num_steps: int, num_lanes: int) -> np.ndarray:
    generator, spec = np.random.default_rng(7), get_domain(domain).spec
    shape = (num_steps, num_lanes, spec.action_size)
    if spec.num_actions is not None:
        return generator.integers(spec.num_actions, size=shape).astype(np.float32)
    return generator.uniform(-1, 1, shape).astype(np.float32)


def _assert_equal_steps(a: Step, b: Step) -> None:
    for name in ("obs", "reward", "terminated", "truncated", "last_obs"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


@pytest.mark.parametrize(
    "domain", [pytest.param(name, marks=pytest.mark.slow) if name in DEAR else name for name in ALL]
)
def test_a_lane_is_the_same_alone_and_among_64(domain: str):
    actions = _actions(domain, MORE_STEPS if domain in DEAR else STEPS, 64)
    together = make_lanes(domain, 64, seed=11)
    first = together.reset()
    many = _play(together, actions)
    ends = 0
    for lane in (0, 1, 37, 63):
        alone = make_lanes(domain, 1, 11, LaneOptions(first_lane=lane))
        np.testing.assert_array_equal(alone.reset()[0], first[lane])
        for t, step in enumerate(_play(alone, actions[:, lane : lane + 1])):
            _assert_equal_steps(step, _only(many[t], lane))
            ends += bool(step.done[0])
    assert ends > 0 or domain == "HalfCheetah2d"


def _only(step: Step, lane: int) -> Step:
    rows = slice(lane, lane + 1)
    return Step(step.obs[rows], step.reward[rows], step.terminated[rows], step.truncated[rows], step.last_obs[rows])


def test_one_seed_per_lane_equals_lane_zero_of_that_seed():
    actions = _actions("Hopper2d", 60, 1)
    both = make_lanes("Hopper2d", 2, seed=[8, 5])
    both.reset()
    steps = _play(both, np.repeat(actions, 2, axis=1))
    for lane, seed in enumerate((8, 5)):
        alone = make_lanes("Hopper2d", 1, seed=seed)
        alone.reset()
        for t, step in enumerate(_play(alone, actions)):
            _assert_equal_steps(step, _only(steps[t], lane))


def test_lanes_and_episodes_start_differently():
    lanes = make_lanes("Hopper2d", 3, seed=0)
    first, second = lanes.reset(), lanes.reset()
    assert len(np.unique(np.concatenate([first, second]), axis=0)) == 6
    assert not np.array_equal(make_lanes("Hopper2d", 3, seed=1).reset(), first)


def test_last_obs_is_where_the_episode_ended_and_obs_where_the_next_begins():
    lanes = make_lanes("Hopper2d", 8, seed=0)
    lanes.reset()
    for actions in _actions("Hopper2d", 100, 8):
        step = lanes.step(actions)
        moved_on = (step.obs != step.last_obs).any(axis=1)
        np.testing.assert_array_equal(moved_on, step.done)
        assert (np.abs(step.obs[step.done, 1:]) <= 5.1e-3).all()
        np.testing.assert_array_equal(lanes.obs, step.obs)


def test_the_time_limit_truncates_at_exactly_a_thousand_steps():
    lanes = make_lanes("HalfCheetah2d", 1, seed=0)
    lanes.reset()
    steps = _play(lanes, np.zeros((1001, 1, 6)))
    assert [t for t, s in enumerate(steps, start=1) if s.truncated[0]] == [1000]
    assert not any(s.terminated[0] for s in steps)


def test_reaching_the_goal_on_the_last_step_is_a_termination():
    spec = replace(get_domain("DST2d").spec, max_steps=2)
    lanes = Lanes(BoatSimulator(spec, 1), 1, seed=0)
    lanes.reset()
    lanes.step(np.array([[1.0, 0.5]]))
    step = lanes.step(np.array([[0.5, 0.0]]))
    assert step.terminated[0]
    assert not step.truncated[0]


@pytest.mark.parametrize("domain", ["Hopper2d", "LunarLander4d", "DST2d", "DeepSeaTreasure"])
def test_without_autoreset_a_lane_that_ended_rests(domain: str):
    options = LaneOptions(autoreset=False)
    lanes, moving = make_lanes(domain, 16, 3, options), make_lanes(domain, 16, 3)
    lanes.reset()
    moving.reset()
    ended = np.zeros(16, bool)
    for actions in _actions(domain, 120, 16):
        before = lanes.obs
        step, free = lanes.step(actions), moving.step(actions)
        np.testing.assert_array_equal(step.obs[ended], before[ended])
        assert (step.reward[ended] == 0).all()
        assert not step.done[ended].any()
        # Until its episode ends a lane does what it would do with automatic resets.
        np.testing.assert_array_equal(step.reward[~ended], free.reward[~ended])
        np.testing.assert_array_equal(step.last_obs[~ended], free.last_obs[~ended])
        ended |= step.done
        np.testing.assert_array_equal(lanes.running, ~ended)
    assert ended.any()


@pytest.mark.parametrize("autoreset", [True, False])
def test_stepping_before_reset_says_so(autoreset: bool):
    lanes = make_lanes("DST2d", 2, 0, LaneOptions(autoreset=autoreset))
    with pytest.raises(RuntimeError, match="call reset"):
        lanes.step(np.zeros((2, 2)))
    with pytest.raises(RuntimeError, match="call reset"):
        _ = lanes.obs
    lanes.reset([1])
    with pytest.raises(RuntimeError, match="call reset"):
        lanes.step(np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        ([1, 2, 3], r"seed must be one number or one per lane \(2\), got 3"),
        (-4, "seeds must not be negative, got -4"),
        ([0, 2**63], r"seeds must be below 2\*\*63, got 9223372036854775808"),
        (2**70, r"seeds must be below 2\*\*63"),
        (0.5, "a seed must be a whole number, got 0.5"),
        (np.array([0.0, 1.0]), r"a seed must be a whole number, got np.float64\(0.0\)"),
        (None, "a seed must be a whole number, got None"),
        (True, "a seed must be a whole number, got True"),
        ("12", "a seed must be a whole number, got '12'"),
    ],
)
def test_a_seed_is_a_whole_number_of_63_bits(seed: object, message: str):
    # Not through make_lanes: in the tests its annotations already refuse some of these, in other words.
    with pytest.raises(ValueError, match=message):
        _lane_streams(seed, 2, first_lane=0)


@pytest.mark.parametrize("seed", [2**63 - 1, [0, 2**63 - 1], np.array([3, 4], np.uint8), np.int32(7)])
def test_every_seed_of_63_bits_is_kept(seed: int | list[int]):
    np.testing.assert_array_equal(_lane_streams(seed, 2, first_lane=0)[0], np.broadcast_to(np.array(seed), 2))


def test_wrong_action_shape_is_named():
    lanes = make_lanes("Hopper2d", 2, seed=0)
    lanes.reset()
    with pytest.raises(ValueError, match=r"Hopper2d: actions must have shape \(2, 3\) \(lanes, action\), got \(2, 4\)"):
        lanes.step(np.zeros((2, 4)))


def test_a_bad_action_names_lane_and_step():
    lanes = make_lanes("Hopper2d", 3, seed=0)
    lanes.reset()
    lanes.step(np.zeros((3, 3)))
    actions = np.zeros((3, 3))
    actions[2, 1] = np.nan
    with pytest.raises(FloatingPointError, match=r"Hopper2d: action\[1\] is nan in lane 2 at step 2 of episode 0"):
        lanes.step(actions)


class Broken(BoatSimulator):
    """From the first step on, lane 2 shows `obs` and pays `reward` where these are given."""

    def __init__(self, num_lanes: int, reward: list[float] | None = None, obs: list[float] | None = None):
        super().__init__(get_domain("DST2d").spec, num_lanes)
        self._bad = {"reward": reward, "obs": obs}

    def advance(self, lanes, actions):
        reward, terminated, cut = super().advance(lanes, actions)
        return self._spoil("reward", lanes, reward), terminated, cut

    def observe(self, lanes):
        obs = super().observe(lanes)
        return self._spoil("obs", lanes, obs) if obs.any() else obs

    def _spoil(self, name, lanes, values):
        if self._bad[name] is not None:
            values[np.arange(len(self._position))[lanes] == 2] = self._bad[name]
        return values


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"reward": [np.inf, -1.0]}, r"reward\[0\] is inf"),
        ({"reward": [0.0, np.nan]}, r"reward\[1\] is nan"),
        ({"reward": [np.inf, -np.inf]}, r"reward\[0\] is inf"),  # their sum is not a number
        ({"reward": [0.0, -1e39]}, r"reward\[1\] is -1e\+39 \(more than float32 holds\)"),  # rows are float32
        ({"obs": [0.5, np.nan]}, r"observation\[1\] is nan"),
        ({"obs": [0.5, 1e39]}, r"observation\[1\] is inf"),  # finite until it is cast to float32
    ],
)
def test_a_bad_reward_or_observation_names_lane_and_step(fault: dict[str, list[float]], message: str):
    lanes = Lanes(Broken(3, **fault), 3, seed=0)
    lanes.reset()
    with pytest.raises(FloatingPointError, match=rf"DST2d: {message} in lane 2 at step 1 of episode 0"):
        lanes.step(np.full((3, 2), 0.5))


def test_huge_finite_numbers_are_no_fault():
    lanes = Lanes(Broken(4, reward=[1e308, 1e308], obs=[1e39, 0.0]), 4, 0, LaneOptions(dtype=np.float64))
    lanes.reset()
    step = lanes.step(np.full((4, 2), 0.5))
    np.testing.assert_array_equal(step.reward[2], 1e308)
    assert step.obs[2, 0] == 1e39


def test_a_fault_names_the_right_lane_among_resting_ones_and_counts_from_the_first_lane():
    lanes = Lanes(Broken(4, reward=[np.nan, 0.0]), 4, 0, LaneOptions(autoreset=False, first_lane=10))
    lanes.reset()
    lanes.simulator._bad["reward"] = None  # pyright: ignore[reportAttributeAccessIssue]
    lanes.step(np.array([[1.0, 0.5], [0.0, 0.0], [0.0, 0.0], [1.0, 0.5]]))
    assert lanes.step(np.array([[0.5, 0.0], [0.0, 0.0], [0.0, 0.0], [0.5, 0.0]])).terminated.tolist() == [1, 0, 0, 1]
    lanes.simulator._bad["reward"] = [np.nan, 0.0]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(FloatingPointError, match=r"reward\[0\] is nan in lane 12 at step 3 of episode 0"):
        lanes.step(np.zeros((4, 2)))


def test_obs_and_last_obs_can_be_written_to_apart():
    lanes = make_lanes("Hopper2d", 2, seed=0)
    lanes.reset()
    step = lanes.step(np.zeros((2, 3)))
    assert not step.done.any()
    before = lanes.obs
    step.obs[:] = 7.0
    np.testing.assert_array_equal(step.last_obs, before)
    np.testing.assert_array_equal(lanes.obs, before)


def test_actions_may_be_lists():
    plain, listed = make_lanes("DST2d", 2, 0), make_lanes("DST2d", 2, 0)
    plain.reset()
    listed.reset()
    _assert_equal_steps(plain.step(np.array([[1.0, 0.0], [0.0, 1.0]])), listed.step([[1, 0], [0, 1]]))


@pytest.mark.parametrize("chosen", [[3, 1], np.array([1, 3], np.uint8), [False, True, False, True]])
def test_reset_takes_lane_numbers_or_a_mask(chosen):
    lanes = make_lanes("Hopper2d", 4, seed=0)
    first = lanes.reset()
    again = lanes.reset(chosen)
    np.testing.assert_array_equal((again != first).any(axis=1), [False, True, False, True])
    np.testing.assert_array_equal(lanes.episodes, [0, 1, 0, 1])
    np.testing.assert_array_equal(lanes.reset([]), again)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([True, False], r"a mask of lanes must have shape \(4,\), got \(2,\)"),
        ([0.0, 1.0], "lane numbers or a mask"),
        ([[0, 1]], "lane numbers or a mask"),
        ([0, 4], r"lane numbers must be from 0 to 3, got \[0, 4\]"),
        ([-1], "lane numbers must be from 0 to 3"),
    ],
)
def test_reset_refuses_what_names_no_lanes(chosen: list, message: str):
    lanes = make_lanes("DST2d", 4, seed=0)
    lanes.reset()
    with pytest.raises(ValueError, match=message):
        lanes.reset(chosen)
    np.testing.assert_array_equal(lanes.episodes, 0)
