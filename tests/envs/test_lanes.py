"""What every domain's lanes promise: independence, resets, the time limit, readable errors (test_saving.py: saving)."""

from dataclasses import replace

import numpy as np
import pytest

from qpensieve.envs import DOMAINS, LaneOptions, Lanes, get_domain, make_lanes
from qpensieve.envs.deep_sea import BoatSimulator
from qpensieve.envs.registry import DISCRETE
from qpensieve.types import Step
from tests.probes import WALK_LENGTH, WALK_LIMIT

STEPS = 130
"""In so many steps random actions end episodes of the domains that are not dear, but HalfCheetah2d."""
ALL = [*DOMAINS, *DISCRETE]
DEAR = ("LunarLander5d", "Ant2d", "Ant3d", "Hopper2d", "Hopper3d")
"""As others in what is tested but the reward vector, or slower to step."""
RESTING = LaneOptions(autoreset=False)


def play(lanes: Lanes, actions: np.ndarray) -> list[Step]:
    return [lanes.step(a) for a in actions]


def draw_actions(domain: str, num_steps: int, num_lanes: int) -> np.ndarray:
    generator, spec = np.random.default_rng(7), get_domain(domain).spec
    shape = (num_steps, num_lanes, spec.action_size)
    if spec.num_actions is not None:
        return generator.integers(spec.num_actions, size=shape).astype(np.float32)
    return generator.uniform(-1, 1, shape).astype(np.float32)


def assert_equal_steps(a: Step, b: Step) -> None:
    for name in ("obs", "reward", "terminated", "truncated", "last_obs"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def started(domain: str, num_lanes: int, seed: int = 0, options: LaneOptions = LaneOptions()) -> Lanes:
    lanes = make_lanes(domain, num_lanes, seed, options)
    lanes.reset()
    return lanes


@pytest.mark.parametrize(
    "domain", [pytest.param(name, marks=pytest.mark.slow) if name in DEAR else name for name in ALL]
)
def test_a_lane_is_the_same_alone_and_among_34(domain: str):
    actions = draw_actions(domain, 300 if domain in DEAR else STEPS, 34)
    together = make_lanes(domain, 34, seed=11)
    first, many = together.reset(), play(together, actions)
    for lane in (1, 33):
        alone = make_lanes(domain, 1, 11, LaneOptions(first_lane=lane))
        np.testing.assert_array_equal(alone.reset()[0], first[lane])
        for t, step in enumerate(play(alone, actions[:, lane : lane + 1])):
            assert_equal_steps(step, _only(many[t], lane))
    ends = sum(int(step.done.sum()) for step in many)
    assert ends > 0 or domain == "HalfCheetah2d"


def _only(step: Step, lane: int) -> Step:
    rows = slice(lane, lane + 1)
    return Step(step.obs[rows], step.reward[rows], step.terminated[rows], step.truncated[rows], step.last_obs[rows])


def test_last_obs_is_where_the_episode_ended_and_obs_where_the_next_begins():
    lanes = started("Hopper2d", 8)
    for actions in draw_actions("Hopper2d", 100, 8):
        step = lanes.step(actions)
        np.testing.assert_array_equal((step.obs != step.last_obs).any(axis=1), step.done)
        assert (np.abs(step.obs[step.done, 1:]) <= 5.1e-3).all()
        np.testing.assert_array_equal(lanes.obs, step.obs)
    still = started("Hopper2d", 2)
    step, before = still.step(np.zeros((2, 3))), still.obs
    step.obs[:] = 7.0  # they can be written to apart
    np.testing.assert_array_equal(step.last_obs, before)
    np.testing.assert_array_equal(still.obs, before)


@pytest.mark.parametrize("domain", ["DST2d", "HalfCheetah2d"])
def test_the_time_limit_cuts_at_its_step_or_not_at_all(domain: str):
    limited, unlimited = (started(domain, 2, 0, replace(RESTING, time_limit=is_on)) for is_on in (True, False))
    limit, state = limited.spec.max_steps or 0, unlimited.state()
    assert limit == {"DST2d": 50, "HalfCheetah2d": 1000}[domain]
    for lanes in (limited, unlimited):
        lanes.restore(state | {"elapsed": np.full(2, limit - 2)})
    still = np.zeros((2, limited.spec.action_size))
    for t in range(4):
        cut, gone_on = limited.step(still), unlimited.step(still)
        assert cut.truncated.all() == (t == 1)
        assert not gone_on.done.any()
        if t < 2:
            np.testing.assert_array_equal(gone_on.last_obs, cut.last_obs)
            np.testing.assert_array_equal(gone_on.reward, cut.reward)
    assert (unlimited.elapsed == limit + 2).all()


def test_a_foreign_environment_is_stepped_to_its_own_cut_or_to_its_real_end():
    limited = started("tests.probes:endless_walk", 1, 0, RESTING)
    steps = [limited.step(np.full((1, 1), 0.5)) for _ in range(WALK_LIMIT)]
    assert [bool(step.truncated[0]) for step in steps] == [False] * (WALK_LIMIT - 1) + [True]
    np.testing.assert_allclose([step.reward[0] for step in steps], [[1.0, 0.5]] * WALK_LIMIT)
    lanes = make_lanes("tests.probes:walk", 8, 0, replace(RESTING, time_limit=False))
    start, lengths = np.round(lanes.reset()[:, 0] * WALK_LENGTH), np.zeros(8)
    while lanes.running.any():
        lengths += lanes.running
        assert not lanes.step(np.zeros((8, 1))).truncated.any()
    np.testing.assert_array_equal(lengths, WALK_LENGTH - start)
    assert lengths.max() > WALK_LIMIT


@pytest.mark.parametrize("domain", ["Hopper2d", "LunarLander4d", "DST2d", "DeepSeaTreasure"])
def test_without_autoreset_a_lane_that_ended_rests(domain: str):
    lanes, moving = started(domain, 8, 3, RESTING), started(domain, 8, 3)
    ended = np.zeros(8, bool)
    for actions in draw_actions(domain, 120, 8):
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


def test_lanes_can_rest_until_their_next_reset():
    lanes = started("DST2d", 3, 0, RESTING)
    lanes.rest([1])
    step = lanes.step(np.full((3, 2), 0.5))
    np.testing.assert_array_equal(step.last_obs, [[0.5, 0.5], [0.0, 0.0], [0.5, 0.5]])
    np.testing.assert_array_equal(step.reward[:, 1], [-1.0, 0.0, -1.0])
    lanes.reset([1])
    assert lanes.running.all()
    with pytest.raises(RuntimeError, match="autoreset=False"):
        make_lanes("DST2d", 3, 0).rest([1])


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        ([1, 2, 3], r"one per lane \(2\), got 3"),
        (-4, "must not be negative, got -4"),
        ([0, 2**63], r"below 2\*\*63, got 9223372036854775808"),
        (True, "whole number, got True"),
    ],
)
def test_a_seed_is_a_whole_number_of_63_bits(seed: int | list[int], message: str):
    with pytest.raises(ValueError, match=message):
        make_lanes("DST2d", 2, seed)
    np.testing.assert_array_equal(make_lanes("DST2d", 2, [0, 2**63 - 1]).state()["seeds"], [0, 2**63 - 1])


def test_a_bad_action_names_its_shape_or_lane_and_step():
    lanes = started("Hopper2d", 3)
    with pytest.raises(ValueError, match=r"Hopper2d: actions must have shape \(3, 3\) .*, got \(3, 4\)"):
        lanes.step(np.zeros((3, 4)))
    lanes.step(np.zeros((3, 3)))
    actions = np.zeros((3, 3))
    actions[2, 1] = np.nan
    with pytest.raises(FloatingPointError, match=r"Hopper2d: action\[1\] is nan in lane 2 at step 2 of episode 0"):
        lanes.step(actions)


class Broken(BoatSimulator):
    """From the first step on, lane 2 shows `obs` and pays `reward` where these are given."""

    def __init__(self, num_lanes: int, reward: list[float] | None = None, obs: list[float] | None = None):
        super().__init__(get_domain("DST2d").spec, num_lanes)
        self.bad = {"reward": reward, "obs": obs}

    def advance(self, lanes, actions):
        reward, terminated, cut = super().advance(lanes, actions)
        return self._spoil("reward", lanes, reward), terminated, cut

    def observe(self, lanes):
        obs = super().observe(lanes)
        return self._spoil("obs", lanes, obs) if obs.any() else obs

    def _spoil(self, name, lanes, values):
        if self.bad[name] is not None:
            values[np.arange(len(self._position))[lanes] == 2] = self.bad[name]
        return values


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"reward": [np.inf, -1.0]}, r"reward\[0\] is inf"),
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


def test_a_fault_names_the_right_lane_among_resting_ones_and_counts_from_the_first_lane():
    broken = Broken(4)
    lanes = Lanes(broken, 4, 0, replace(RESTING, first_lane=10))
    lanes.reset()
    lanes.step(np.array([[1.0, 0.5], [0.0, 0.0], [0.0, 0.0], [1.0, 0.5]]))
    assert lanes.step(np.array([[0.5, 0.0], [0.0, 0.0], [0.0, 0.0], [0.5, 0.0]])).terminated.tolist() == [1, 0, 0, 1]
    broken.bad["reward"] = [np.nan, 0.0]
    with pytest.raises(FloatingPointError, match=r"reward\[0\] is nan in lane 12 at step 3 of episode 0"):
        lanes.step(np.zeros((4, 2)))


@pytest.mark.parametrize("chosen", [[3, 1], np.array([1, 3], np.uint8), [False, True, False, True]])
def test_reset_takes_lane_numbers_or_a_mask(chosen):
    lanes = make_lanes("Hopper2d", 4, seed=0)
    first, again = lanes.reset(), lanes.reset(chosen)
    np.testing.assert_array_equal((again != first).any(axis=1), [False, True, False, True])
    np.testing.assert_array_equal(lanes.episodes, [0, 1, 0, 1])
    np.testing.assert_array_equal(lanes.reset([]), again)


@pytest.mark.parametrize("chosen", [[True, False], [0.0, 1.0], [[0, 1]], [0, 4], [-1]])
def test_reset_refuses_what_names_no_lanes(chosen: list):
    lanes = started("DST2d", 4)
    with pytest.raises(ValueError, match="lane"):
        lanes.reset(chosen)
    np.testing.assert_array_equal(lanes.episodes, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [("dtype", np.int32), ("dtype", "float32"), ("first_lane", -1), ("num_threads", 0), ("num_workers", -2)],
)
def test_impossible_options_are_refused(name: str, value: object):
    options = LaneOptions()
    object.__setattr__(options, name, value)  # in the tests the annotations would refuse some of these first
    with pytest.raises(ValueError, match=f"^{name} must"):
        options.__post_init__()
