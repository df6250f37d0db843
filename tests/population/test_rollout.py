"""Rollouts of a population against a plain loop over one member and one lane at a time; episodes of fitness."""

from itertools import pairwise

import numpy as np
import pytest

from qpensieve.envs import LaneOptions, make_lanes
from qpensieve.learning.acting import num_parameters
from qpensieve.learning.streams import Purpose, generator
from qpensieve.population.members import MemberPolicy
from qpensieve.population.ppo import Place, PpoConfig, RunningStatistics, standard
from qpensieve.population.rollout import RolloutCollector, lane_seeds

CFG = PpoConfig(num_lanes=3, rollout_steps=60, minibatches=4, hidden=8, discount=0.9)
PLACES = [Place(seed=5, task=0), Place(seed=5, task=1), Place(seed=9, task=0)]


def make(domain: str, places: list[Place] = PLACES) -> tuple[RolloutCollector, MemberPolicy, RunningStatistics]:
    seeds = lane_seeds(places, CFG.num_lanes)
    collector = RolloutCollector(make_lanes(domain, len(seeds), seeds, LaneOptions()), places, CFG)
    collector.start()
    spec = collector.lanes.spec
    widths = (spec.obs_size, 8, 8, spec.action_size)
    flats = [parameters(place, num_parameters(widths) + spec.action_size) for place in places]
    return collector, MemberPolicy(np.stack(flats), widths), standard(len(places), spec.obs_size + spec.num_objectives)


def parameters(place: Place, size: int) -> np.ndarray:
    return np.random.default_rng([place.seed, place.task]).normal(0, 0.4, size).astype(np.float32)


def plain(domain: str, place: Place) -> dict[str, np.ndarray]:
    """One member as its own lanes would be stepped by hand: statistics first, then what is normalised with them."""
    lanes = make_lanes(domain, CFG.num_lanes, lane_seeds([place], CFG.num_lanes), LaneOptions())
    spec = lanes.spec
    widths = (spec.obs_size, 8, 8, spec.action_size)
    flat = parameters(place, num_parameters(widths) + spec.action_size)
    shape = (CFG.rollout_steps, CFG.num_lanes, spec.action_size)
    noise = generator(place.seed, Purpose.ROLLOUT_NOISE, place.task, 4).standard_normal(shape, dtype=np.float32)
    seen, sums, returns = [], np.zeros((CFG.num_lanes, spec.num_objectives)), []
    rows: dict[str, list[np.ndarray]] = {name: [] for name in ("obs", "action", "reward", "terminated", "truncated")}
    obs = lanes.reset()
    seen.append(obs)
    for k in range(CFG.rollout_steps):
        x = normalized(obs, np.concatenate(seen))
        action = network(flat, widths, x) + np.exp(flat[num_parameters(widths) :]) * noise[k]
        step = lanes.step(action)
        sums = sums * CFG.discount + step.reward
        returns.append(sums.copy())
        values = [x, action, np.clip(step.reward / deviation(np.concatenate(returns)), -10, 10)]
        for name, value in zip(rows, [*values, step.terminated, step.truncated], strict=True):
            rows[name].append(value)
        sums[step.done] = 0.0
        obs = step.obs
        seen.append(obs)
    return {name: np.stack(value) for name, value in rows.items()} | {"last": normalized(obs, np.concatenate(seen))}


def deviation(samples: np.ndarray) -> np.ndarray:
    """With the standard normal that counts for 1e-4 samples."""
    n, mean = len(samples), samples.mean(axis=0)
    total = n + 1e-4
    squares = ((samples - mean) ** 2).sum(axis=0) + 1e-4 + mean**2 * n * 1e-4 / total
    return np.sqrt(squares / total + 1e-8)


def normalized(obs: np.ndarray, samples: np.ndarray) -> np.ndarray:
    mean = samples.astype(np.float64).sum(axis=0) / (len(samples) + 1e-4)
    return np.clip((obs - mean) / deviation(samples.astype(np.float64)), -10, 10)


def network(flat: np.ndarray, widths: tuple[int, ...], x: np.ndarray) -> np.ndarray:
    start = 0
    for i, (rows, columns) in enumerate(pairwise(widths)):
        weight = flat[start : start + rows * columns].reshape(rows, columns)
        bias = flat[start + rows * columns : start + (rows + 1) * columns]
        start += (rows + 1) * columns
        x = x @ weight + bias
        x = np.tanh(x) if i < 2 else x
    return x


@pytest.mark.parametrize("domain", ["DST2d", "Hopper2d"])
def test_every_member_is_as_a_plain_loop_over_its_own_lanes(domain: str):
    collector, policy, moments = make(domain)
    rollout = collector.collect(policy, moments, iteration=4)
    for i, place in enumerate(PLACES):
        expected = plain(domain, place)
        # The physics doubles small differences of the network's rounding; a few steps are enough to tell an error.
        steps = CFG.rollout_steps if domain == "DST2d" else 12
        for name in ("obs", "action", "reward"):
            ours = np.asarray(getattr(rollout, name))[i, :steps]
            np.testing.assert_allclose(ours, expected[name][:steps], rtol=2e-3, atol=2e-3, err_msg=name)
        for name in ("terminated", "truncated"):
            np.testing.assert_array_equal(np.asarray(getattr(rollout, name))[i, :steps], expected[name][:steps])
        if domain == "DST2d":
            np.testing.assert_allclose(rollout.last_obs[i], expected["last"], rtol=2e-3, atol=2e-3)
    assert np.asarray(rollout.terminated).any() or domain == "DST2d"
    assert np.asarray(rollout.truncated).any() or domain == "Hopper2d"


def test_noise_differs_between_members_iterations_and_seeds():
    collector, _, _ = make("DST2d")
    draws = [collector.draw_noise(i)[:, n] for i in range(2) for n in range(3)]
    assert len({draw.tobytes() for draw in draws}) == 6


def test_episodes_of_fitness_differ_between_seeds_tasks_iterations_and_episodes():
    places = tuple(Place(seed, task) for seed in range(2) for task in range(3))
    seeds = [seed for number in range(3) for seed in lane_seeds(places, 3, Purpose.FITNESS, number)]
    assert len(set(seeds)) == len(seeds) == 54
