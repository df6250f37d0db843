"""Noise of a block: what policies explore with, or the random actions before learning starts.

White noise comes from (seed, block). Correlated random actions come in sequences of about a thousand steps, each from
(seed, number of the sequence), which are cut into blocks. So no generator has a state that must be saved.
"""

import math

import numpy as np
from jaxtyping import Float32, Float64

from qpensieve.learning.streams import Purpose, generator
from qpensieve.types import Behaviour

SEQUENCE = 1000
"""Steps of a sequence, up to whole blocks: an episode of most domains, and 20 blocks of the default length."""


class LaneNoise:
    """Noise of the lanes of some agents, block by block.

    Lanes of one seed have the same draws: each agent behaves as if it were alone.

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
        self._acting, self._block = behaviour.acting, block
        self._correlated = CorrelatedActions(behaviour, block)

    def draw(self, number: int, is_random: bool) -> Float32[np.ndarray, "lane K c"]:
        """Return the noise of block `number`: random actions, or the policies' exploration noise."""
        drawn = {lane: self._draw(*lane, number, is_random) for lane in set(self._lanes)}
        return np.stack([drawn[lane] for lane in self._lanes])

    def _draw(self, seed: int, is_white: bool, number: int, is_random: bool) -> Float32[np.ndarray, "K c"]:
        if not is_random:
            return self._acting.draw_noise(generator(seed, Purpose.NOISE, number), self._block)
        if is_white:
            return self._acting.draw_actions(generator(seed, Purpose.RANDOM_ACTION, number), self._block)
        return self._correlated.draw(seed, number)


class CorrelatedActions:
    """Random actions that are correlated in time. The newest sequence of each seed is kept to save time only."""

    def __init__(self, behaviour: Behaviour, block: int):
        self._acting, self._block, self._correlation = behaviour.acting, block, behaviour.random_correlation
        self._num_blocks = max(1, SEQUENCE // block)
        self._newest: dict[int, tuple[int, Float32[np.ndarray, "num c"]]] = {}

    def draw(self, seed: int, number: int) -> Float32[np.ndarray, "K c"]:
        """Return the actions of block `number`."""
        which, place = divmod(number, self._num_blocks)
        kept = self._newest.get(seed)
        if kept is None or kept[0] != which:
            kept = self._newest[seed] = (which, self._sequence(seed, which))
        return kept[1][place * self._block : (place + 1) * self._block]

    def _sequence(self, seed: int, which: int) -> Float32[np.ndarray, "num c"]:
        assert self._correlation is not None
        assert not self._acting.is_discrete, "the run's settings were not checked"
        size = (self._num_blocks * self._block, self._acting.action_size)
        white = generator(seed, Purpose.RANDOM_SEQUENCE, which).standard_normal(size)
        return uniform(ar1(white, self._correlation)).astype(np.float32)


def ar1(white: Float64[np.ndarray, "num c"], correlation: float) -> Float64[np.ndarray, "num c"]:
    """x_t = rho x_(t-1) + sqrt(1 - rho^2) e_t from white noise e, with x_0 = e_0: standard normal at every step."""
    x = white * math.sqrt(1.0 - correlation**2)
    x[0] = white[0]
    # After the turn with `lag`, x_t holds rho^j e_(t-j) for all j below 2 lag: ten turns instead of a thousand steps.
    lag = 1
    while lag < len(x):
        x[lag:] += correlation**lag * x[:-lag]
        lag *= 2
    return x


def uniform(x: Float64[np.ndarray, "num c"]) -> Float64[np.ndarray, "num c"]:
    """Standard normal numbers -> numbers uniform in [-1, 1], by the distribution function (deviation D32)."""
    return np.array([math.erf(value) for value in (x.ravel() / math.sqrt(2.0)).tolist()]).reshape(x.shape)
