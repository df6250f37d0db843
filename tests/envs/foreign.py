"""Tiny environments as a stranger might write them: good ones, and ones with each kind of fault."""

import random
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

LOW, HIGH = -2.0, 4.0
EPISODE = 7
"""Steps until an episode of `PointMass` is cut."""
FAULT_STEP = 3


class PointMass(gymnasium.Env):
    """A point pushed in the plane; the rewards are its two coordinates. Ends beyond x = 9, is cut after `EPISODE`."""

    def __init__(self, render_mode: str | None = None):
        self.render_mode = render_mode
        self.metadata = {"objectives": ("x", "y"), "reference_point": (-10, -20)}
        self.observation_space = Box(-np.inf, np.inf, (2, 2))
        self.action_space = Box(LOW, HIGH, (2,), np.float32)
        self.reward_space = Box(-np.inf, np.inf, (2,))
        self.last_action: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.position, self.velocity, self.time = self.np_random.normal(size=2), np.zeros(2), 0
        return self._obs(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict]:
        assert self.action_space.contains(action), f"{action!r} is outside {self.action_space}"
        self.last_action, self.time = action, self.time + 1
        self.velocity = 0.9 * self.velocity + 0.3 * np.asarray(action, np.float64)
        self.position = self.position + self.velocity
        return self._obs(), self.reward(), bool(self.position[0] > 9.0), self.time >= EPISODE, {}

    def reward(self) -> Any:
        return self.position.copy()

    def render(self) -> Any:
        return np.full((4, 5, 3), self.time, np.uint8)

    def _obs(self) -> np.ndarray:
        return np.stack([self.position, self.velocity])


class NoRewardSpace(PointMass):
    """Its number of objectives shows only in a step."""

    def __init__(self):
        super().__init__()
        self.metadata = {}
        del self.reward_space

    def reward(self) -> Any:
        return [*self.position, -1.0]


class Noisy(PointMass):
    """Draws from its own generator in every step."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict]:
        self.position = self.position + self.np_random.normal(size=2)
        return super().step(action)


class Unseeded(PointMass):
    """Draws from a generator that no seed reaches, so its episodes cannot be played again."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict]:
        self.position = self.position + random.random()
        return super().step(action)


class ScalarReward(NoRewardSpace):
    def reward(self) -> Any:
        return 1.0


class Raising(PointMass):
    """Divides by zero at step `FAULT_STEP`, where its episode began left of 0."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict]:
        result = super().step(action)
        return (result[0], 1 / 0, *result[2:]) if self.time == FAULT_STEP and self.starts_left else result

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        obs, info = super().reset(seed=seed, options=options)
        self.starts_left = bool(obs[0, 0] < 0)
        return obs, info


class OneNumber(PointMass):
    """Its actions are arrays without axes; Gymnasium warns of what is no array."""

    def __init__(self):
        super().__init__()
        self.action_space = Box(LOW, HIGH, (), np.float32)
        del self.reward_space  # a trial step counts the objectives


class Corridor(gymnasium.Env):
    """Five rooms in a row, 1 to 5; action 1 goes left, 2 right, and each pays one objective. Ends in the last rooms."""

    def __init__(self):
        self.metadata = {"objectives": ("right", "left")}
        self.observation_space, self.action_space = Discrete(5, start=1), Discrete(2, start=1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict]:
        super().reset(seed=seed)
        self.room = 3
        return self.room, {}

    def step(self, action: int) -> tuple[int, np.ndarray, bool, bool, dict]:
        assert self.action_space.contains(action), f"{action!r} is outside {self.action_space}"
        way = 1 if action == 2 else -1
        self.room += way
        return self.room, np.array([way, -way]), self.room in (1, 5), False, {}


class Endless(PointMass):
    """Never ends, and has no limit of its own; a step costs 1 in either objective."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict]:
        obs, _, _, _, info = super().step(action)
        return obs, np.array([-1.0, -1.0]), False, False, info


class FailingReset(PointMass):
    """Can be made, but not reset."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        raise OSError("the simulator's licence has run out")


class Drawable(PointMass):
    def __init__(self):
        super().__init__(render_mode="rgb_array")


def make_point_mass() -> gymnasium.Env:
    return PointMass()


NOT_CALLABLE = 3

gymnasium.register("QpensieveForeign-v1", entry_point="tests.envs.foreign:PointMass", max_episode_steps=4)
