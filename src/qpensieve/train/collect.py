"""The host side of training: lanes = seeds, acting in NumPy, blocks of packed transitions.

Nothing here has a generator whose state would need saving: noise is derived from (seed, block), preferences from
(seed, episode).
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Float32

from qpensieve.envs.base import Lanes
from qpensieve.nets import LOG_STD_RANGE
from qpensieve.preferences import Sampler, draw_preferences
from qpensieve.types import Step

NOISE, PREFERENCE, RANDOM_ACTION = 101, 102, 103
"""Purposes of a seed's random streams."""


def generator(seed: int, purpose: int, number: int) -> np.random.Generator:
    """The generator of one purpose of one seed, for block or episode `number`."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(purpose, number))))


class HostPolicy:
    """The Gaussian policies of all seeds as plain NumPy: no device is needed to act.

    Args:
        flat: Flat actors, in the order of the module's leaves: weight and bias of three layers.
        sizes: Widths of input, hidden layer and output.
    """

    def __init__(self, flat: Float32[np.ndarray, "seed parameters"], sizes: tuple[int, int, int]):
        size_in, hidden, size_out = sizes
        self.flat, self._sizes = flat, sizes
        self._layers, start = [], 0
        for rows, columns in ((size_in, hidden), (hidden, hidden), (hidden, size_out)):
            weight = flat[:, start : start + rows * columns].reshape(-1, rows, columns)
            start += rows * columns
            self._layers.append((weight, flat[:, None, start : start + columns]))
            start += columns

    def only(self, seed: int) -> "HostPolicy":
        """The policy of one seed."""
        return HostPolicy(self.flat[seed : seed + 1], self._sizes)

    def gaussian(
        self, obs: Float32[np.ndarray, "seed rows obs"], lam: Float32[np.ndarray, "seed rows d"]
    ) -> tuple[Float32[np.ndarray, "seed rows act"], Float32[np.ndarray, "seed rows act"]]:
        """Mean and log standard deviation before the squash."""
        x = np.concatenate([obs, lam], axis=2)
        for weight, bias in self._layers[:-1]:
            x = np.maximum(x @ weight + bias, 0.0)
        weight, bias = self._layers[-1]
        mean, log_std = np.split(x @ weight + bias, 2, axis=2)
        return mean, np.clip(log_std, *LOG_STD_RANGE)

    def sample(
        self,
        obs: Float32[np.ndarray, "seed rows obs"],
        lam: Float32[np.ndarray, "seed rows d"],
        noise: Float32[np.ndarray, "seed rows act"],
    ) -> Float32[np.ndarray, "seed rows act"]:
        mean, log_std = self.gaussian(obs, lam)
        return np.tanh(mean + np.exp(log_std) * noise)


class Collector:
    """Steps one lane per seed and packs what happened into blocks for the replay."""

    def __init__(self, lanes: Lanes, seeds: list[int], block: int, sampler: Sampler):
        self.lanes, self._seeds, self._block = lanes, seeds, block
        self._sampler: Sampler = sampler
        spec = lanes.spec
        self._preferences = np.zeros((len(seeds), spec.num_objectives), np.float32)
        self._width = 2 * spec.obs_size + spec.action_size + spec.num_objectives + 1

    def start(self) -> None:
        """Begin the first episodes."""
        self.lanes.reset()
        self.refresh_preferences(range(len(self._seeds)))

    def refresh_preferences(self, lanes: Any) -> None:
        """Draw the preference of the episode that runs in each of `lanes`; it is kept until that episode ends."""
        for lane in lanes:
            stream = generator(self._seeds[lane], PREFERENCE, int(self.lanes.episodes[lane]))
            d = self.lanes.spec.num_objectives
            self._preferences[lane] = draw_preferences(stream, 1, d, self._sampler)[0]

    def collect(self, policy: HostPolicy | None, number: int) -> Float32[np.ndarray, "seed K width"]:
        """Block `number`: K steps of every lane, with `policy`, or uniformly random actions without one."""
        noise = self._draw_noise(number, is_random=policy is None)
        rows = np.empty((len(self._seeds), self._block, self._width), np.float32)
        obs = self.lanes.obs
        for k in range(self._block):
            if policy is None:
                action = noise[:, k]
            else:
                action = policy.sample(obs[:, None], self._preferences[:, None], noise[:, k : k + 1])[:, 0]
            step = self.lanes.step(action)
            _pack(rows[:, k], obs, action, step)
            self.refresh_preferences(np.flatnonzero(step.done).tolist())
            obs = step.obs
        return rows

    def _draw_noise(self, number: int, is_random: bool) -> Float32[np.ndarray, "seed K act"]:
        shape = (self._block, self.lanes.spec.action_size)
        if is_random:
            draws = [generator(seed, RANDOM_ACTION, number).uniform(-1.0, 1.0, shape) for seed in self._seeds]
        else:
            draws = [generator(seed, NOISE, number).standard_normal(shape) for seed in self._seeds]
        return np.array(draws, np.float32)


def _pack(
    rows: Float32[np.ndarray, "seed width"],
    obs: Float[np.ndarray, "seed obs"],
    action: Float[np.ndarray, "seed act"],
    step: Step,
) -> None:
    """s, a, r, s_next, terminated: the order that `replay.unpack` takes apart."""
    parts = (obs, action, step.reward, step.last_obs, step.terminated[:, None])
    start = 0
    for part in parts:
        rows[:, start : start + part.shape[1]] = part
        start += part.shape[1]
