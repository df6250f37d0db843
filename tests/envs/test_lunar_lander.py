"""LunarLander lanes in lockstep with Gymnasium's environment."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest

pytest.importorskip("qpensieve.envs.lunar_lander", exc_type=ImportError)
from gymnasium.envs.box2d.lunar_lander import heuristic

from qpensieve.envs import LaneOptions, Lanes, get_domain, make_lanes
from qpensieve.envs.lunar_lander import LunarLanderSimulator

POLICIES = ("random", "pilot", "idle")


def _act(policy: str, env: gymnasium.Env, obs: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    if policy == "random":
        return generator.uniform(-1.5, 1.5, 2)
    return np.asarray(heuristic(env, obs)) if policy == "pilot" else np.zeros(2)


@pytest.mark.parametrize("domain", ["LunarLander4d", "LunarLander5d"])
@pytest.mark.parametrize("policy", POLICIES)
def test_an_episode_equals_gymnasiums_from_the_same_seed(domain: str, policy: str):
    lanes = make_lanes(domain, 3, seed=5, options=LaneOptions(autoreset=False))
    ours = lanes.reset()
    seeds = lanes.state()["simulator/episode_seeds"]
    envs = [gymnasium.make("LunarLander-v3", continuous=True, max_episode_steps=2000) for _ in seeds]
    theirs = [env.reset(seed=int(seed))[0] for env, seed in zip(envs, seeds, strict=True)]
    np.testing.assert_array_equal(ours, theirs)
    generator = np.random.default_rng(1)
    results = []
    while lanes.running.any():
        running = lanes.running.copy()
        actions = np.stack([_act(policy, env, obs, generator) for env, obs in zip(envs, theirs, strict=True)])
        step = lanes.step(actions)
        for lane in np.flatnonzero(running):
            theirs[lane], scalar, terminated, truncated, _ = envs[lane].step(actions[lane])
            np.testing.assert_array_equal(step.last_obs[lane], theirs[lane])
            assert (step.terminated[lane], step.truncated[lane]) == (terminated, truncated)
            shaping, result, main, side = step.reward[lane, :4]
            expected = result if terminated else shaping + 0.3 * main + 0.03 * side
            assert scalar == pytest.approx(expected, abs=1e-9)
            assert (step.reward[lane, 4:] == -1).all()
            if terminated:
                results.append(result)
            else:
                assert result == (-100 if truncated else 0)
    assert len(results) == 3
    assert (100.0 in results) == (policy == "pilot")


@pytest.mark.parametrize(
    ("action", "main", "side"),
    [((-0.2, 0.4), 0.0, 0.0), ((0.5, -0.6), 0.75, 0.6), ((1.0, 1.0), 1.0, 1.0), ((0.0, 0.5), 0.0, 0.0)],
)
def test_powers_are_those_the_engines_applied(action: tuple[float, float], main: float, side: float):
    lanes = make_lanes("LunarLander4d", 1, seed=0)
    lanes.reset()
    costs = lanes.step(np.array([action])).reward[0, 2:]
    np.testing.assert_allclose(costs, [-main, -side])
    assert not np.signbit(costs[costs == 0]).any()


def test_running_out_of_time_costs_a_hundred_and_is_a_truncation():
    spec = replace(get_domain("LunarLander4d").spec, max_steps=5)
    lanes = Lanes(LunarLanderSimulator(spec, 2), 2, seed=0)
    lanes.reset()
    for t in range(1, 6):
        step = lanes.step(np.zeros((2, 2)))
        np.testing.assert_array_equal(step.reward[:, 1], -100.0 if t == 5 else 0.0)
        np.testing.assert_array_equal(step.truncated, t == 5)
        assert not step.terminated.any()
