"""How fast a population collects, compared with a Python loop over Gymnasium's environments in the same run.

Both do the same work: every member normalises its observations, acts in its own few environments, keeps the running
statistics of observations and discounted returns, and normalises its rewards. The loop is what a careful user would
write: one call of a member's network for all its environments, which then step one by one.

An update of all members is timed separately, with the paper's settings. The fitness episodes of an iteration are not
timed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import lanes as bench_lanes
from benchmarks.timing import Row, interleave, seconds
from qpensieve.envs import get_domain, make_lanes
from qpensieve.errors import UserError
from qpensieve.learning.acting import num_parameters
from qpensieve.learning.losses import over_agents
from qpensieve.learning.streams import Purpose, generator
from qpensieve.machine import options_of_updates
from qpensieve.population import ppo
from qpensieve.population.members import OBS_CLIP, MemberPolicy
from qpensieve.population.ppo import FIRST_COUNT, VARIANCE_EPSILON, Learner, Place, PpoConfig, standard
from qpensieve.population.rollout import REWARD_CLIP, RolloutCollector, lane_seeds
from qpensieve.types import EnvSpec

PAPER = PpoConfig()
"""Lanes of a member, width of its networks, and what an update is timed with."""
WANTED = {"Hopper2d": 1.5, "DST2d": 5.0}
HOPPER_EFFORT = 1.5
"""Factor of Hopper2d's control cost."""


@dataclass(frozen=True)
class Settings:
    """Settings of the benchmark.

    Attributes:
        members: Policies, each with four environments.
        steps: Steps of every environment per repeat.
        repeats: Interleaved repeats; the median is shown.
        domains: Which domains.
        update: Also time an update of all members.
    """

    members: int = 5
    steps: int = 256
    repeats: int = 5
    domains: tuple[str, ...] = tuple(WANTED)
    update: bool = True


def run(settings: Settings, progress: Callable[[str], None]) -> list[Row]:
    """Return one row per domain. Steps are summed over all environments of all members."""
    unknown = set(settings.domains) - WANTED.keys()
    if unknown:
        raise UserError(f"collect has no loop for {min(unknown)}: use {', '.join(WANTED)}")
    rows = []
    for domain in settings.domains:
        progress(f"collect: {domain}")
        row = _measure(domain, settings)
        if settings.update:
            progress(f"collect: {domain}, update")
            row |= _measure_update(domain, settings, row)
        rows.append(row)
    return rows


def _measure(domain: str, settings: Settings) -> Row:
    cfg = replace(PAPER, rollout_steps=settings.steps)
    flat = actors(_init(domain, settings.members))
    loop, collect = Loop(domain, flat, cfg), make_collector(domain, flat, cfg)
    parts = [lambda: seconds(lambda: loop.collect(0)), lambda: seconds(lambda: collect(0))]
    for part in parts:  # warm up: threads, caches, first resets
        part()
    times = interleave(parts, settings.repeats)
    steps = settings.steps * settings.members * cfg.num_lanes
    return {
        "domain": domain,
        "loop steps/s": steps / median(times[0]),
        "lanes steps/s": steps / median(times[1]),
        "ratio": median(a / b for a, b in zip(*times, strict=True)),
        "wanted": WANTED[domain],
        "update ms": None,
        "ms per member": None,
        "collecting": None,
    }


def _measure_update(domain: str, settings: Settings, row: Row) -> Row:
    """Return milliseconds of an update of all members, and the share of collection in the paper's iteration."""
    update = _update_timer(domain, settings.members)
    update()  # compiles
    each = median(update() for _ in range(settings.repeats))
    collecting = PAPER.rollout_steps * PAPER.num_lanes * settings.members / row["lanes steps/s"]
    return {
        "update ms": 1e3 * each,
        "ms per member": 1e3 * each / settings.members,
        "collecting": collecting / (collecting + each),
    }


def _init(domain: str, num: int) -> ppo.State:
    return Learner(PAPER, get_domain(domain).spec, tuple(_places(num))).init()


def actors(state: ppo.State) -> np.ndarray:
    """Return the parameters of all members' policies, a row each."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state.actor)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def make_collector(domain: str, flat: np.ndarray, cfg: PpoConfig) -> Callable[[int], Any]:
    """Return a function iteration -> rollouts that uses the collector of training."""
    places = _places(len(flat))
    seeds = lane_seeds(places, cfg.num_lanes)
    collector = RolloutCollector(make_lanes(domain, len(seeds), seeds), places, cfg)
    collector.start()
    spec = collector.lanes.spec
    policy = MemberPolicy(flat, _widths(spec, cfg))
    moments = standard(len(flat), spec.obs_size + spec.num_objectives)
    return lambda iteration: collector.collect(policy, moments, iteration)


class Loop:
    """The same work as a plain loop over members and environments.

    Args:
        domain: One of `WANTED`.
        flat: Parameters of the members' policies.
        cfg: Lanes of a member, steps of an iteration, discount.
    """

    def __init__(self, domain: str, flat: np.ndarray, cfg: PpoConfig):
        places = _places(len(flat))
        self._cfg, self._places, self._spec = cfg, places, get_domain(domain).spec
        seeds = np.reshape(lane_seeds(places, cfg.num_lanes), (len(places), -1)).tolist()
        widths = _widths(self._spec, cfg)
        self._members = [
            _Member(domain, _Network(one, widths), own, cfg.discount) for one, own in zip(flat, seeds, strict=True)
        ]

    def collect(self, iteration: int) -> dict[str, np.ndarray]:
        """Return observations, actions, rewards and ends of every member, [member, step, lane, ...]."""
        shape = (self._cfg.rollout_steps, self._cfg.num_lanes, self._spec.action_size)
        draws = [
            generator(place.seed, Purpose.ROLLOUT_NOISE, place.task, iteration).standard_normal(shape, dtype=np.float32)
            for place in self._places
        ]
        met = [[] for _ in self._members]
        for k in range(self._cfg.rollout_steps):
            for rows, member, noise in zip(met, self._members, draws, strict=True):
                rows.append(member.step(noise[k]))
        names = ("obs", "action", "reward", "terminated", "truncated")
        columns = zip(*(zip(*rows, strict=True) for rows in met), strict=True)
        return {name: np.array(column) for name, column in zip(names, columns, strict=True)}


class _Member:
    """A policy with its environments and statistics."""

    def __init__(self, domain: str, network: "_Network", seeds: Sequence[int], discount: float):
        self._network, self._discount = network, discount
        self._envs = [bench_lanes.gym_env(domain) for _ in seeds]
        self._reward = REWARDS[domain]
        self._obs = np.array([env.reset(seed=seed)[0] for env, seed in zip(self._envs, seeds, strict=True)])
        d = get_domain(domain).spec.num_objectives
        self._sums = np.zeros((len(seeds), d))
        self._seen, self._returns = _Running(self._obs.shape[1]), _Running(d)
        self._seen.add(self._obs)

    def step(self, noise: np.ndarray) -> tuple[np.ndarray, ...]:
        """Step all environments; return normalised observations, actions, normalised rewards, terminated, truncated."""
        x = np.clip((self._obs - self._seen.mean) / self._seen.scale, -OBS_CLIP, OBS_CLIP).astype(np.float32)
        actions = self._network(x, noise)
        rewards, ends, obs = [], [], []
        for env, action in zip(self._envs, np.clip(actions, -1.0, 1.0), strict=True):
            new, reward, terminated, truncated, info = env.step(action)
            rewards.append(self._reward(reward, info, action))
            ends.append((terminated, truncated))
            obs.append(env.reset()[0] if terminated or truncated else new)
        self._obs = np.array(obs)
        self._sums = self._sums * self._discount + np.array(rewards)
        self._seen.add(self._obs)
        self._returns.add(self._sums)
        normalized = np.clip(np.array(rewards) / self._returns.scale, -REWARD_CLIP, REWARD_CLIP).astype(np.float32)
        terminated, truncated = np.array(ends).T
        self._sums[terminated | truncated] = 0.0
        return x, actions, normalized, terminated, truncated


class _Network:
    """A Gaussian policy with two hidden layers of tanh."""

    def __init__(self, flat: np.ndarray, widths: tuple[int, ...]):
        self._layers, start = [], 0
        for rows, columns in pairwise(widths):
            weight = flat[start : start + rows * columns].reshape(rows, columns)
            start += rows * columns
            self._layers.append((weight, flat[start : start + columns]))
            start += columns
        assert start == num_parameters(widths)
        self._std = np.exp(flat[start:])

    def __call__(self, x: np.ndarray, noise: np.ndarray) -> np.ndarray:
        for weight, bias in self._layers[:-1]:
            x = np.tanh(x @ weight + bias)
        weight, bias = self._layers[-1]
        return x @ weight + bias + self._std * noise


class _Running:
    """Mean and variance of all samples so far."""

    def __init__(self, size: int):
        self.mean, self._variance, self._count = np.zeros(size), np.ones(size), FIRST_COUNT
        self.scale = np.ones(size)

    def add(self, batch: np.ndarray) -> None:
        num = len(batch)
        mean, total = batch.mean(axis=0), self._count + num
        shift = mean - self.mean
        squares = self._variance * self._count + batch.var(axis=0) * num + shift**2 * self._count * num / total
        self.mean = self.mean + shift * num / total
        self._variance, self._count = squares / total, total
        self.scale = np.sqrt(self._variance + VARIANCE_EPSILON)


def _hopper_reward(reward: Any, info: dict[str, Any], action: np.ndarray) -> tuple[float, float]:
    """Return Hopper2d's objectives from the output of Gymnasium's Hopper."""
    del reward
    return info["x_velocity"], -HOPPER_EFFORT * float(action @ action)


REWARDS: dict[str, Callable[[Any, dict[str, Any], np.ndarray], Any]] = {
    "Hopper2d": _hopper_reward,
    "DST2d": lambda reward, info, action: reward,
}
"""Domain -> reward vector of a step of its Gymnasium environment, from reward, info and action."""


def _update_timer(domain: str, num: int) -> Callable[[], float]:
    """Return a function that updates all members on noise in one call, and returns the seconds."""
    spec, state = get_domain(domain).spec, _init(domain, num)

    def one(args: Any) -> Any:
        state, rollout, goal, seed = args
        return ppo.update(PAPER, state, ppo.Rollout(*rollout), ppo.Goal(*goal), jax.random.key(seed))

    update = jax.jit(lambda *args: over_agents(one, args), compiler_options=options_of_updates())
    d = spec.num_objectives
    goal = (jnp.full((num, d), 1 / d), jnp.ones((num, d)), jnp.full(num, PAPER.learning_rate))
    args = (state, _noise(spec, num), goal, jnp.arange(num))
    return lambda: seconds(lambda: jax.block_until_ready(update(*args)))


def _noise(spec: EnvSpec, num: int) -> tuple[jax.Array, ...]:
    """Return the fields of `ppo.Rollout` for all members, filled with noise."""
    shape, draw = (num, PAPER.rollout_steps, PAPER.num_lanes), np.random.default_rng(0).standard_normal
    floats = [draw((*shape, size), np.float32) for size in (spec.obs_size, spec.action_size, spec.num_objectives)]
    ends = [np.zeros(shape, bool)] * 2
    last = draw((num, PAPER.num_lanes, spec.obs_size), np.float32)
    return tuple(map(jnp.asarray, (*floats, *ends, last)))


def _places(num: int) -> list[Place]:
    return [Place(seed=0, task=task) for task in range(num)]


def _widths(spec: EnvSpec, cfg: PpoConfig) -> tuple[int, ...]:
    return spec.obs_size, cfg.hidden, cfg.hidden, spec.action_size
