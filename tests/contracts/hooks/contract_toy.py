"""A small environment of a user, which can kill the process at one of its steps: in training or in an evaluation."""

import atexit
import os
import signal
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

EPISODE = 6
"""Steps until an episode is cut by its time limit."""


class Toy(gymnasium.Env):
    """A point on a line; it gains by being far right and pays for its effort. It ends beyond 3."""

    steps = 0
    """Steps of all environments of this process."""

    def __init__(self):
        self.metadata = {"objectives": ("gain", "effort"), "reference_point": (-50.0, -50.0)}
        self.observation_space = Box(-np.inf, np.inf, (2,))
        self.action_space = Box(-1.0, 1.0, (1,), np.float32)
        self.reward_space = Box(-np.inf, np.inf, (2,))
        self.position, self.time = 0.0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.position, self.time = float(self.np_random.uniform(-1.0, 1.0)), 0
        return self._obs(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool, bool, dict]:
        Toy.steps += 1
        if Toy.steps == int(os.environ.get("CONTRACT_KILL_STEP", "0")):
            os.kill(os.getpid(), signal.SIGKILL)
        force = float(action[0])
        self.position, self.time = self.position + force + 0.1 * float(self.np_random.normal()), self.time + 1
        reward = np.array([self.position, -(force**2)])
        return self._obs(), reward, self.position > 3.0, self.time >= EPISODE, {}

    def _obs(self) -> np.ndarray:
        return np.array([self.position, self.time / EPISODE])


def make() -> gymnasium.Env:
    return Toy()


@atexit.register
def _tell() -> None:
    if "CONTRACT_COUNT" in os.environ:
        with open(os.environ["CONTRACT_COUNT"], "w") as file:
            file.write(str(Toy.steps))
