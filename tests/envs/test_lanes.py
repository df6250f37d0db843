"""What every domain's lanes promise: independence, exact saving, resets, the time limit, readable errors."""

from dataclasses import replace

import numpy as np
import pytest

from qpensieve.envs import DOMAINS, LaneOptions, Lanes, get_domain, make_lanes
from qpensieve.envs.dst import DstSimulator
from qpensieve.types import Step

STEPS = 300
ALL = list(DOMAINS)


def _play(lanes: Lanes, actions: np.ndarray) -> list[Step]:
    return [lanes.step(a) for a in actions]


def _actions(domain: str, num_steps: int, num_lanes: int) -> np.ndarray:
    generator = np.random.default_rng(7)
    return generator.uniform(-1, 1, (num_steps, num_lanes, get_domain(domain).action_size)).astype(np.float32)


def _assert_equal_steps(a: Step, b: Step) -> None:
    for name in ("obs", "reward", "terminated", "truncated", "last_obs"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


@pytest.mark.parametrize("domain", ALL)
def test_a_lane_is_the_same_alone_and_among_64(domain: str):
    actions = _actions(domain, STEPS, 64)
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


@pytest.mark.parametrize("domain", ALL)
def test_save_restore_continue_equals_never_stopping(domain: str):
    actions = _actions(domain, STEPS, 3)
    lanes = make_lanes(domain, 3, seed=2)
    lanes.reset()
    _play(lanes, actions[:137])
    saved = lanes.state()
    straight_on = _play(lanes, actions[137:])
    other = make_lanes(domain, 3, seed=99)
    other.reset()
    _play(other, actions[:20])
    other.restore(saved)
    np.testing.assert_array_equal(other.obs, saved["obs"])
    for a, b in zip(straight_on, _play(other, actions[137:]), strict=True):
        _assert_equal_steps(a, b)
    end, resumed_end = lanes.state(), other.state()
    assert end.keys() == resumed_end.keys()
    for name, value in end.items():
        np.testing.assert_array_equal(value, resumed_end[name], err_msg=name)


def test_a_saved_state_is_not_changed_by_playing_on():
    lanes = make_lanes("Hopper2d", 2, seed=0)
    lanes.reset()
    saved = lanes.state()
    copies = {name: value.copy() for name, value in saved.items()}
    _play(lanes, _actions("Hopper2d", 30, 2))
    for name, value in copies.items():
        np.testing.assert_array_equal(saved[name], value, err_msg=name)


def test_contact_forces_are_saved_too():
    options = LaneOptions(contact_forces=True)
    lanes, other = make_lanes("Ant2d", 2, 0, options), make_lanes("Ant2d", 2, 1, options)
    lanes.reset()
    _play(lanes, _actions("Ant2d", 40, 2))
    other.restore(lanes.state())
    np.testing.assert_array_equal(other.simulator.observe(slice(None)), lanes.simulator.observe(slice(None)))


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
    lanes = Lanes(DstSimulator(spec, 1), 1, seed=0)
    lanes.reset()
    lanes.step(np.array([[1.0, 0.5]]))
    step = lanes.step(np.array([[0.5, 0.0]]))
    assert step.terminated[0]
    assert not step.truncated[0]


@pytest.mark.parametrize("domain", ["Hopper2d", "LunarLander4d", "DST2d"])
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


def test_stepping_before_reset_says_so():
    lanes = make_lanes("DST2d", 2, seed=0)
    with pytest.raises(RuntimeError, match="call reset"):
        lanes.step(np.zeros((2, 2)))
    with pytest.raises(RuntimeError, match="call reset"):
        _ = lanes.obs


@pytest.mark.parametrize(
    ("name", "near"), [("Hoper2d", "Hopper2d"), ("halfcheetah2d", "HalfCheetah2d"), ("DST", "DST2d")]
)
def test_an_unknown_domain_names_the_nearest(name: str, near: str):
    with pytest.raises(ValueError, match=f"unknown domain '{name}'.*did you mean.*{near}"):
        make_lanes(name, 1, 0)


def test_bad_arguments_say_what_would_be_right():
    with pytest.raises(ValueError, match="num_lanes must be at least 1, got 0"):
        make_lanes("DST2d", 0, 0)
    with pytest.raises(ValueError, match="got 3 seeds for 2 lanes"):
        make_lanes("DST2d", 2, [1, 2, 3])
    with pytest.raises(ValueError, match="seeds must not be negative, got -4"):
        make_lanes("DST2d", 2, -4)
    with pytest.raises(ValueError, match="num_workers is for foreign environments"):
        make_lanes("DST2d", 2, 0, LaneOptions(num_workers=2))


def test_wrong_action_shape_is_named():
    lanes = make_lanes("Hopper2d", 2, seed=0)
    lanes.reset()
    with pytest.raises(ValueError, match=r"Hopper2d: actions have shape \(2, 4\), expected \(2, 3\)"):
        lanes.step(np.zeros((2, 4)))


def test_a_bad_action_names_lane_and_step():
    lanes = make_lanes("Hopper2d", 3, seed=0)
    lanes.reset()
    lanes.step(np.zeros((3, 3)))
    actions = np.zeros((3, 3))
    actions[2, 1] = np.nan
    with pytest.raises(FloatingPointError, match=r"Hopper2d: action\[1\] is nan in lane 2 at step 1 of episode 0"):
        lanes.step(actions)


@pytest.mark.parametrize(("what", "value"), [("reward", np.inf), ("observation", np.nan)])
def test_a_bad_reward_or_observation_names_lane_and_step(what: str, value: float):
    class Broken(DstSimulator):
        def advance(self, lanes, actions):
            reward, terminated, cut = super().advance(lanes, actions)
            if what == "reward":
                reward[1, 0] = value
            return reward, terminated, cut

        def observe(self, lanes):
            obs = super().observe(lanes)
            if what == "observation" and obs.any():
                obs[1, 0] = value
            return obs

    lanes = Lanes(Broken(get_domain("DST2d").spec, 2), 2, seed=0)
    lanes.reset()
    with pytest.raises(FloatingPointError, match=rf"DST2d: {what}\[0\] is {value} in lane 1 at step 1 of episode 0"):
        lanes.step(np.full((2, 2), 0.5))


def test_a_state_of_other_lanes_is_refused():
    saved = make_lanes("Hopper2d", 2, seed=0).state()
    with pytest.raises(
        ValueError, match="lane state holds 2 lanes with observations of 11 numbers, but DST2d here has 3"
    ):
        make_lanes("DST2d", 3, seed=0).restore(saved)
    with pytest.raises(ValueError, match="format version 99"):
        make_lanes("Hopper2d", 2, seed=0).restore(saved | {"version": np.array(99)})
