"""An environment of your own with two objectives, and one policy for every trade-off between them."""

import argparse
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

import qpensieve


class Cart(gymnasium.Env):
    """A cart on a line that should get far and spend little; 25 steps."""

    def __init__(self):
        self.metadata = {"objectives": ("distance", "effort"), "reference_point": (-50.0, -100.0)}
        self.observation_space = Box(-np.inf, np.inf, (2,))
        self.action_space = Box(-2.0, 2.0, (1,))
        self.reward_space = Box(-np.inf, np.inf, (2,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.speed, self.time = float(self.np_random.uniform(-0.1, 0.1)), 0
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict]:
        push = float(action[0])
        self.speed = 0.9 * self.speed + 0.1 * push
        self.time += 1
        reward = np.array([self.speed, -(push**2)])  # one number for each objective, both to be maximised
        return self._observe(), reward, False, self.time >= 25, {}  # the clock runs out: truncated, not terminated

    def _observe(self) -> np.ndarray:
        return np.array([self.speed, self.time / 25], np.float32)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=10_000, help="environment steps")


def main() -> None:
    args = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))  # so that the name below can be imported
    agent = qpensieve.QPensieve("own_environment:Cart", seeds=1, preset="quick")
    agent.learn(args.steps)

    preferences = qpensieve.preferences.spaced_grid(5)
    means = agent.returns(preferences, episodes=4).mean(axis=(0, 2))
    for lam, (distance, effort) in zip(preferences, means, strict=True):
        print(f"preference {lam}: distance {distance:.2f}, effort {effort:.2f}")


if __name__ == "__main__":
    main()
