"""Exploration noise of blocks: drawn for each block alone, or cut from sequences that go on from block to block.

White noise comes from (seed, block). Noise that is correlated in time comes in sequences of about a thousand steps,
each from (seed, number of the sequence), which are cut into blocks. So no state must be saved: whoever collects a
block, in whatever order, gets its numbers.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from jaxtyping import Float32, Float64

from qpensieve.host_types import Behaviour, Colour
from qpensieve.learning.streams import Purpose, generator

SEQUENCE = 1000
"""Steps of a sequence, up to whole blocks: an episode of most domains, and 20 blocks of the default length."""

BlockNoise = Callable[[int, int], Float32[np.ndarray, "K c"]]
"""(seed, number of the block) -> noise of its steps."""


class LaneNoise:
    """What the lanes of some agents draw for their blocks.

    Lanes of one seed and one colour have the same draws: each agent behaves as if it were alone.

    Args:
        behaviour: How agents act.
        seeds: Seed of each lane, agent by agent.
        block: Steps of a block.
    """

    def __init__(self, behaviour: Behaviour, seeds: list[int], block: int):
        asked, num_white = behaviour.exploration, behaviour.num_white_lanes
        is_white = [lane % behaviour.num_lanes < num_white for lane in range(len(seeds))]
        self._lanes = list(zip(seeds, is_white, strict=True))
        self._random = {
            white: random_actions(behaviour, block, "white" if white else asked.random) for white in set(is_white)
        }
        self._acting = {
            white: acting_noise(behaviour, block, "white" if white else asked.acting) for white in set(is_white)
        }

    def draw(self, number: int, is_random: bool) -> Float32[np.ndarray, "lane K c"]:
        """The noise of block `number`: random actions, or what policies explore with."""
        sources = self._random if is_random else self._acting
        drawn = {lane: sources[lane[1]](lane[0], number) for lane in set(self._lanes)}
        return np.stack([drawn[lane] for lane in self._lanes])


def random_actions(behaviour: Behaviour, block: int, colour: Colour) -> BlockNoise:
    """Actions before learning starts: uniform, each anew or correlated in time."""
    if colour == "white":
        return lambda seed, number: behaviour.acting.draw_actions(generator(seed, Purpose.RANDOM_ACTION, number), block)
    return _Cut(behaviour, colour, Purpose.RANDOM_SEQUENCE, block, uniform)


def acting_noise(behaviour: Behaviour, block: int, colour: Colour) -> BlockNoise:
    """Noise to explore with: what the policy takes, each anew or correlated in time."""
    if colour == "white":
        return lambda seed, number: behaviour.acting.draw_noise(generator(seed, Purpose.NOISE, number), block)
    return _Cut(behaviour, colour, Purpose.NOISE_SEQUENCE, block, lambda x: x)


class _Cut:
    """Blocks of correlated sequences. The newest sequence of each seed is kept, only to save time."""

    def __init__(
        self,
        behaviour: Behaviour,
        colour: Colour,
        purpose: Purpose,
        block: int,
        squash: Callable[[Float64[np.ndarray, "num c"]], Float64[np.ndarray, "num c"]],
    ):
        assert not behaviour.acting.is_discrete, "the run's settings were not checked"
        self._colour, self._correlation = colour, behaviour.exploration.correlation
        self._purpose, self._block, self._squash = purpose, block, squash
        self._size = behaviour.acting.action_size
        self._num_blocks = max(1, SEQUENCE // block)
        self._newest: dict[int, tuple[int, Float32[np.ndarray, "num c"]]] = {}

    def __call__(self, seed: int, number: int) -> Float32[np.ndarray, "K c"]:
        which, place = divmod(number, self._num_blocks)
        kept = self._newest.get(seed)
        if kept is None or kept[0] != which:
            kept = self._newest[seed] = (which, self._draw(seed, which))
        return kept[1][place * self._block : (place + 1) * self._block]

    def _draw(self, seed: int, which: int) -> Float32[np.ndarray, "num c"]:
        white = generator(seed, self._purpose, which).standard_normal((self._num_blocks * self._block, self._size))
        correlated = pink(white) if self._colour == "pink" else ar1(white, self._correlation)
        return self._squash(correlated).astype(np.float32)


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


def pink(white: Float64[np.ndarray, "num c"]) -> Float64[np.ndarray, "num c"]:
    """White noise, filtered so that its power falls as 1 / frequency; standard normal at every step."""
    num = len(white)
    if num < 2:
        return white
    return np.fft.irfft(np.fft.rfft(white, axis=0) * _pink_gain(num)[:, None], num, axis=0)


@cache
def _pink_gain(num: int) -> Float64[np.ndarray, " frequencies"]:
    """Square roots of 1 / frequency, scaled so that the variance stays 1; the mean, of frequency 0, gets none."""
    frequencies = np.abs(np.fft.fftfreq(num))
    power = np.divide(1.0, frequencies, out=np.zeros(num), where=frequencies > 0.0)
    return np.sqrt(power / power.mean())[: num // 2 + 1]


def uniform(x: Float64[np.ndarray, "num c"]) -> Float64[np.ndarray, "num c"]:
    """Standard normal numbers -> numbers uniform in [-1, 1], by the distribution function (deviation D32)."""
    return np.array([math.erf(value) for value in (x.ravel() / math.sqrt(2.0)).tolist()]).reshape(x.shape)
