"""Random streams on the host, each derived from a seed, a purpose and numbers, and the noise of blocks.

No generator has a state that must be saved, and no stream depends on another. Correlated random actions come in
sequences of about a thousand steps, which are cut into blocks.
"""

import math
from enum import IntEnum
from functools import lru_cache

import numpy as np
from jaxtyping import Float32, Float64

from qpensieve.types import Behaviour


class Purpose(IntEnum):
    """Purpose of a stream. The numbers decide the results of runs, so they never change."""

    NOISE = 101
    """Exploration, by block."""
    PREFERENCE = 102
    """Preference of an episode, by episode."""
    RANDOM_ACTION = 103
    """Uniformly random actions before learning starts, by block."""
    EVALUATION = 104
    """Lanes of an evaluation, by row of the preference table and episode."""
    PAST = 105
    """Choice of earlier preferences for a transition, by block."""
    CRITIC = 106
    """Measurement of L_critic, by draw, seed, row of the preferences and pair."""
    RANDOM_SEQUENCE = 108
    """Random actions before learning starts that are correlated in time, by sequence. (107 is retired.)"""
    CALIBRATION = 109
    """Lanes of a calibration, by row of the preference table and episode."""
    ROLLOUT_NOISE = 201
    """Exploration of a population's member, by task and iteration."""
    ROLLOUT_LANE = 202
    """Lanes that a member trains in, by task and lane."""
    FITNESS = 203
    """Lanes that measure a member, by task, iteration and episode."""
    CANDIDATES = 204
    """Preferences to try for the next generation, by generation."""
    FIRST_PARAMETERS = 205
    """Networks that a member starts with, by task."""


def generator(seed: int, purpose: Purpose, *numbers: int) -> np.random.Generator:
    """Return the generator of a seed for one purpose and the numbers of a lane, block or episode."""
    return np.random.Generator(np.random.PCG64(_sequence(seed, purpose, *numbers)))


def derived_seed(seed: int, purpose: Purpose, *numbers: int) -> int:
    """Return an integer seed for one purpose, for lanes, which take no generator."""
    return int(_sequence(seed, purpose, *numbers).generate_state(1)[0])


def _sequence(seed: int, purpose: Purpose, *numbers: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(int(purpose), *numbers))


SEQUENCE = 1000
"""Steps of a sequence, up to whole blocks: an episode of most domains, and 20 blocks of the default length."""
KEPT_SEQUENCES = 512
"""Sequences that stay in memory, for their later blocks; about 16 MB."""


class LaneNoise:
    """Noise of the lanes of some agents, block by block.

    Lanes of one seed have the same draws, so an agent does not depend on the agents that train with it.

    Args:
        behaviour: How agents act.
        seeds: Seed of each lane, agent by agent.
        block: Steps of a block.
    """

    def __init__(self, behaviour: Behaviour, seeds: list[int], block: int):
        is_white = lambda lane: (
            behaviour.random_correlation is None or (lane % behaviour.num_lanes < behaviour.num_white_lanes)
        )
        self._lanes = [(seed, is_white(lane)) for lane, seed in enumerate(seeds)]
        self._behaviour, self._acting, self._block = behaviour, behaviour.acting, block

    def draw(self, number: int, is_random: bool) -> Float32[np.ndarray, "lane K c"]:
        """Return the noise of block `number`: random actions, or the policies' exploration noise."""
        drawn = {lane: self._draw(*lane, number, is_random) for lane in set(self._lanes)}
        return np.stack([drawn[lane] for lane in self._lanes])

    def _draw(self, seed: int, is_white: bool, number: int, is_random: bool) -> Float32[np.ndarray, "K c"]:
        if not is_random:
            return self._acting.draw_noise(generator(seed, Purpose.NOISE, number), self._block)
        if is_white:
            return self._acting.draw_actions(generator(seed, Purpose.RANDOM_ACTION, number), self._block)
        return correlated_actions(self._behaviour, seed, number, self._block)


def correlated_actions(behaviour: Behaviour, seed: int, number: int, block: int) -> Float32[np.ndarray, "K c"]:
    """Return the random actions of block `number`, correlated in time: a part of a longer sequence."""
    assert behaviour.random_correlation is not None
    assert not behaviour.acting.is_discrete, "the run's settings were not checked"
    num_blocks = max(1, SEQUENCE // block)
    which, place = divmod(number, num_blocks)
    size = (num_blocks * block, behaviour.acting.action_size)
    return _correlated_sequence(behaviour.random_correlation, size, seed, which)[place * block : (place + 1) * block]


@lru_cache(maxsize=KEPT_SEQUENCES)
def _correlated_sequence(
    correlation: float, size: tuple[int, int], seed: int, which: int
) -> Float32[np.ndarray, "num c"]:
    white = generator(seed, Purpose.RANDOM_SEQUENCE, which).standard_normal(size)
    return uniform(ar1(white, correlation)).astype(np.float32)


def ar1(white: Float64[np.ndarray, "num c"], correlation: float) -> Float64[np.ndarray, "num c"]:
    """Return x_t = rho x_(t-1) + sqrt(1 - rho^2) e_t, x_0 = e_0, for white noise e: standard normal at every step."""
    x = white * math.sqrt(1.0 - correlation**2)
    x[0] = white[0]
    # After the turn with `lag`, x_t holds rho^j e_(t-j) for all j below 2 lag: ten turns instead of a thousand steps.
    lag = 1
    while lag < len(x):
        x[lag:] += correlation**lag * x[:-lag]
        lag *= 2
    return x


def uniform(x: Float64[np.ndarray, "num c"]) -> Float64[np.ndarray, "num c"]:
    """Map standard normal numbers to numbers uniform in [-1, 1], by the distribution function (deviation D32)."""
    return np.array([math.erf(value) for value in (x.ravel() / math.sqrt(2.0)).tolist()]).reshape(x.shape)
