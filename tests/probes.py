"""Tiny environments with known answers, to test an algorithm in seconds.

They are Gymnasium environments, used as `module:factory` in place of a domain: `tests.probes:one_step`.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Float

LIMIT = 5
"""Steps until `TimeLimit` cuts an episode."""

LIMIT_REWARD = (1.0, 0.5)
"""What every step of `TimeLimit` pays."""

WALK_LENGTH, WALK_LIMIT = 8, 3
"""Steps from the start of a `Walk` to its end, and steps until it is cut."""


class OneStep(gymnasium.Env[np.ndarray, np.ndarray]):
    """One action a in [-1, 1], then the end; r = (-(a - 1)^2, -(a + 1)^2).

    For the preference lam the best action is lam_1 - lam_2, so the whole front is known.
    """

    metadata: dict[str, Any] = {"objectives": ("near 1", "near -1"), "reference_point": (-4.5, -4.5)}  # noqa: RUF012

    def __init__(self):
        self.observation_space = Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = Box(-1.0, 1.0, (1,), np.float32)
        self.reward_space = Box(-4.0, 0.0, (2,), np.float32)
        self._is_running = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, " obs"], dict[str, Any]]:
        super().reset(seed=seed)
        self._is_running = True
        return np.zeros(1, np.float32), {}

    def step(  # pyright: ignore[reportIncompatibleMethodOverride]  # the reward is a vector
        self, action: Float[np.ndarray, " act"]
    ) -> tuple[Float[np.ndarray, " obs"], Float[np.ndarray, " d"], bool, bool, dict[str, Any]]:
        if not self._is_running:
            raise RuntimeError("one_step: the episode is over (or never began); call reset() first")
        self._is_running = False
        a = float(action[0])
        return np.zeros(1, np.float32), np.array([-((a - 1.0) ** 2), -((a + 1.0) ** 2)], np.float32), True, False, {}


class TimeLimit(gymnasium.Env[np.ndarray, np.ndarray]):
    """Pays `LIMIT_REWARD` for every action and never terminates; episodes are cut after `LIMIT` steps.

    The observation does not show the cut. So Q = r / (1 - gamma), up to the entropy, if time limits bootstrap; it would
    be r / (1 - gamma (1 - 1 / LIMIT)) if they counted as ends.
    """

    metadata: dict[str, Any] = {"objectives": ("one", "half"), "reference_point": (0.0, 0.0)}  # noqa: RUF012

    def __init__(self):
        self.observation_space = Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = Box(-1.0, 1.0, (1,), np.float32)
        self.reward_space = Box(0.0, 1.0, (2,), np.float32)
        self._left = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, " obs"], dict[str, Any]]:
        super().reset(seed=seed)
        self._left = LIMIT
        return np.zeros(1, np.float32), {}

    def step(  # pyright: ignore[reportIncompatibleMethodOverride]  # the reward is a vector
        self, action: Float[np.ndarray, " act"]
    ) -> tuple[Float[np.ndarray, " obs"], Float[np.ndarray, " d"], bool, bool, dict[str, Any]]:
        if self._left == 0:
            raise RuntimeError("time_limit: the episode is over (or never began); call reset() first")
        self._left -= 1
        return np.zeros(1, np.float32), np.array(LIMIT_REWARD, np.float32), False, self._left == 0, {}


class Walk(gymnasium.Env[np.ndarray, np.ndarray]):
    """Pays (1, a) for action a in [-1, 1] and goes one step on, to a real end or for ever; cut after `WALK_LIMIT`.

    Episodes start anywhere. They may be stepped on beyond the cut, which comes before most ends. So the soft values of
    a policy that does not look at the position are known: sums of the same terms, as many as there are steps left.

    Args:
        length: Position of the end, and the unit of the observed position; None: there is no end, and nothing moves.
    """

    metadata: dict[str, Any] = {"objectives": ("steps", "right"), "reference_point": (0.0, -10.0)}  # noqa: RUF012

    def __init__(self, length: int | None):
        self.observation_space = Box(0.0, 1.0, (1,), np.float32)
        self.action_space = Box(-1.0, 1.0, (1,), np.float32)
        self.reward_space = Box(-1.0, 1.0, (2,), np.float32)
        self._length, self._position, self._elapsed = length, 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, " obs"], dict[str, Any]]:
        super().reset(seed=seed)
        self._position = 0 if self._length is None else int(self.np_random.integers(self._length))
        self._elapsed = 0
        return self._observe(), {}

    def step(  # pyright: ignore[reportIncompatibleMethodOverride]  # the reward is a vector
        self, action: Float[np.ndarray, " act"]
    ) -> tuple[Float[np.ndarray, " obs"], Float[np.ndarray, " d"], bool, bool, dict[str, Any]]:
        self._elapsed += 1
        self._position += self._length is not None
        is_over = self._position == self._length
        reward = np.array([1.0, float(action[0])], np.float32)
        return self._observe(), reward, is_over, not is_over and self._elapsed >= WALK_LIMIT, {}

    def _observe(self) -> Float[np.ndarray, " obs"]:
        return np.array([self._position / (self._length or 1)], np.float32)


def one_step() -> gymnasium.Env[np.ndarray, np.ndarray]:
    """A new `OneStep`: the best action is lam_1 - lam_2."""
    return OneStep()


def time_limit() -> gymnasium.Env[np.ndarray, np.ndarray]:
    """A new `TimeLimit`: Q must be r / (1 - gamma)."""
    return TimeLimit()


def walk() -> gymnasium.Env[np.ndarray, np.ndarray]:
    """A new `Walk` to the end: Q sums up to `WALK_LENGTH` steps."""
    return Walk(WALK_LENGTH)


def endless_walk() -> gymnasium.Env[np.ndarray, np.ndarray]:
    """A new `Walk` without an end: Q sums all steps."""
    return Walk(None)
