"""The ten Gymnasium ids: the checker, MO-Gymnasium's wrappers, and that they are one lane of the same definition."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from qpensieve.envs import DOMAINS, get_domain, make_lanes
from qpensieve.envs.as_gymnasium import LaneEnv
from qpensieve.envs.deep_sea import FRONT
from qpensieve.metrics import non_dominated

IDS = [domain.gym_id for domain in DOMAINS.values()]


@pytest.mark.parametrize("gym_id", IDS)
def test_gymnasiums_checker_complains_of_nothing_but_the_vector_reward(gym_id: str):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(gymnasium.make(gym_id, render_mode="rgb_array").unwrapped)
    messages = [str(w.message) for w in caught]
    about_rewards = [m for m in messages if "reward returned by `step()` must be a float" in m]
    about_bounds = [m for m in messages if "infinity. This is probably too" in m]
    assert about_rewards
    assert len(messages) == len(about_rewards) + len(about_bounds), messages


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_shell_is_lane_zero(domain: str):
    env, lanes = gymnasium.make(get_domain(domain).gym_id), make_lanes(domain, 2, seed=21)
    first = lanes.reset()
    obs, _ = env.reset(seed=21)
    np.testing.assert_array_equal(obs, first[0])
    generator = np.random.default_rng(0)
    for _ in range(70):
        actions = generator.uniform(-1, 1, (2, lanes.spec.action_size)).astype(np.float32)
        step = lanes.step(actions)
        obs, reward, terminated, truncated, _ = env.step(actions[0])
        np.testing.assert_array_equal(obs, step.last_obs[0])
        np.testing.assert_array_equal(np.asarray(reward), step.reward[0].astype(np.float32))
        assert env.unwrapped.reward_space.contains(reward)  # pyright: ignore
        assert (terminated, truncated) == (step.terminated[0], step.truncated[0])
        if terminated or truncated:
            obs, _ = env.reset()
            np.testing.assert_array_equal(obs, step.obs[0])
    env.close()


@pytest.mark.parametrize("domain", DOMAINS)
def test_spec_metadata_and_spaces_are_those_of_the_domain(domain: str):
    row = get_domain(domain)
    env = gymnasium.make(row.gym_id)
    assert env.spec is not None
    for metadata in (env.metadata, env.spec.metadata, gymnasium.spec(row.gym_id).metadata):  # pyright: ignore
        assert metadata["objectives"] == row.objectives
        assert metadata["reference_point"] == row.spec.reference
    assert env.metadata["render_fps"] == row.render_fps
    again = gymnasium.make(env.spec)
    assert again.spec is not None
    assert env.spec.max_episode_steps == again.spec.max_episode_steps == row.max_steps
    low, high = (0.0, 11.0) if domain == "DST2d" else (-np.inf, np.inf)
    assert (env.observation_space.low == low).all()  # pyright: ignore
    assert (env.observation_space.high == high).all()  # pyright: ignore


@pytest.mark.parametrize("gym_id", ["qpensieve/DST2d-v0", "qpensieve/Hopper3d-v0"])
def test_mo_gymnasiums_wrappers_work(gym_id: str):
    wrappers = pytest.importorskip("mo_gymnasium.wrappers.wrappers")
    plain = gymnasium.make(gym_id)
    d = plain.unwrapped.reward_space.shape[0]  # pyright: ignore
    weight = np.arange(1.0, d + 1)
    env = wrappers.LinearReward(gymnasium.make(gym_id), weight=weight)
    recorded = wrappers.MORecordEpisodeStatistics(gymnasium.make(gym_id, max_episode_steps=60), gamma=1.0)
    for e in (plain, env, recorded):
        e.reset(seed=4)
    plain.action_space.seed(0)
    total = np.zeros(d)
    for _ in range(60):
        action = plain.action_space.sample()
        vector, scalar = plain.step(action)[1], env.step(action)[1]
        assert scalar == pytest.approx(float(np.asarray(vector) @ weight), rel=1e-5)
        _, _, terminated, truncated, info = recorded.step(action)
        total += np.asarray(vector)
        if terminated or truncated:
            np.testing.assert_allclose(info["episode"]["r"], total, rtol=1e-4, atol=1e-4)
            return
    pytest.fail("60 steps did not end the episode")


@pytest.mark.parametrize("gym_id", IDS)
def test_pictures_show_the_state(gym_id: str):
    env = gymnasium.make(gym_id, render_mode="rgb_array")
    env.reset(seed=0)
    first = np.asarray(env.render())
    assert (first.dtype, first.ndim, first.shape[2]) == (np.uint8, 3, 3)
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 3
    for _ in range(3):
        env.step(np.full(env.action_space.shape, 0.9, np.float32))  # pyright: ignore
    assert not np.array_equal(first, np.asarray(env.render()))


def test_a_seed_is_followed_by_other_episodes_and_starts_again_when_given_again():
    env = gymnasium.make("qpensieve/Hopper2d-v0")
    first, second = env.reset(seed=5)[0], env.reset()[0]
    np.testing.assert_array_equal(env.reset(seed=5)[0], first)
    np.testing.assert_array_equal(env.reset()[0], second)
    with pytest.raises(ValueError, match="'rgb_array' or None"):
        LaneEnv("DST2d", render_mode="ansi")
    with pytest.raises(ValueError, match=r"DeepSeaTreasure is not a Gymnasium environment"):
        LaneEnv("DeepSeaTreasure")
    unseeded = [gymnasium.make("qpensieve/Hopper2d-v0").reset()[0] for _ in range(2)]
    assert len(np.unique([first, second, *unseeded], axis=0)) == 4


@pytest.mark.parametrize("domain", ["DST2d", "LunarLander5d", "Hopper3d", "Ant3d"])
def test_a_vector_environment_steps_single_environments_with_consecutive_seeds(domain: str):
    gym_id, num, limit = get_domain(domain).gym_id, 3, 9
    vector = gymnasium.make_vec(gym_id, num, max_episode_steps=limit, render_mode="rgb_array")
    singles = [gymnasium.make(gym_id, max_episode_steps=limit) for _ in range(num)]
    vector.action_space.seed(0)
    obs, ended = vector.reset(seed=21)[0], [False] * num
    np.testing.assert_array_equal(obs, [env.reset(seed=21 + i)[0] for i, env in enumerate(singles)])
    for _ in range(3 * limit):
        actions = vector.action_space.sample()
        found = [
            (env.reset()[0], np.zeros(vector.reward_dim), False, False) if is_over else env.step(action)[:4]  # pyright: ignore
            for env, action, is_over in zip(singles, actions, ended, strict=True)  # pyright: ignore
        ]
        obs, reward, terminated, truncated, infos = vector.step(actions)
        wanted = [np.array(column) for column in zip(*found, strict=True)]
        wanted[3] &= ~wanted[2]  # Gymnasium's time limit also truncates an episode that terminates on its last step
        for ours, theirs in zip((obs, reward, terminated, truncated), wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        ended = terminated | truncated
        assert vector.observation_space.contains(obs)
        assert infos == {}
    assert len(vector.render() or ()) == num
    vector.close()


def test_a_vector_environment_follows_gymnasiums_conventions():
    vector = gymnasium.make_vec(gymnasium.make("qpensieve/DST2d-v0").spec, num_envs=2)  # pyright: ignore
    assert vector.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.NEXT_STEP
    assert vector.metadata["objectives"] == ("treasure", "time")
    assert (vector.reward_space.shape, vector.action_space.shape) == ((2,), (2, 2))  # pyright: ignore
    with pytest.raises(RuntimeError, match="call reset"):
        vector.step(np.zeros((2, 2), np.float32))
    wrapped = pytest.importorskip("mo_gymnasium.wrappers.vector").MORecordEpisodeStatistics(vector)
    wrapped.reset(seed=0)
    right, down = np.array([[0.0, 1.0], [0.75, 0.25]], np.float32)
    ends = [wrapped.step(np.array([down, right]))[4] for _ in range(5)]
    returns = [info["episode"]["r"][0].tolist() for info in ends if info]
    assert returns == [pytest.approx([0.7, -2.0])] * len(returns)
    assert len(returns) == 2


@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.5])
def test_the_front_of_dst2d_is_known_for_every_discount(gamma: float):
    env = gymnasium.make("qpensieve/DST2d-v0").unwrapped
    front = np.array(env.pareto_front(gamma))  # pyright: ignore[reportAttributeAccessIssue]
    ends = [(value * gamma ** (-time - 1), -sum(gamma**t for t in range(int(-time)))) for value, time in FRONT.points]
    np.testing.assert_allclose(front, non_dominated(ends))
    assert len(front) == {1.0: 8, 0.9: 4, 0.5: 2}[gamma]
    assert not hasattr(gymnasium.make("qpensieve/Hopper2d-v0").unwrapped, "pareto_front")
    with pytest.raises(ValueError, match=r"gamma must be above 0 and at most 1, got 1\.5"):
        env.pareto_front(1.5)  # pyright: ignore[reportAttributeAccessIssue]
