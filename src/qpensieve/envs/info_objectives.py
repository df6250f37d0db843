"""Objectives of an environment with a single reward: numbers that its steps put into `info`.

The name of such an environment ends with its objectives: `HalfCheetah-v5+reward_forward+reward_ctrl`. So every command
makes the same environment from the name in a run folder.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from qpensieve.errors import UserError

MARK = "+"
"""Separates the name of the environment and its objectives."""


def joined(name: str, objectives: Sequence[str]) -> str:
    """Return the name of an environment with these objectives; without objectives the name itself.

    Raises:
        ValueError: There are fewer than two different objectives, or one cannot be part of a name.
    """
    if not objectives:
        return name
    given = (objectives,) if isinstance(objectives, str) else tuple(objectives)
    if any(not each or MARK in each for each in given) or not 2 <= len(given) == len(set(given)):
        raise UserError(f"objectives must be at least two different names without {MARK!r}, got {', '.join(given)}")
    return MARK.join((name, *given))


def parts(name: str) -> tuple[str, tuple[str, ...]]:
    """Return the name of the environment itself, and its objectives; no objectives if the name has none."""
    base, *objectives = name.split(MARK)
    return base, tuple(objectives)


def numbers(info: Mapping[str, Any]) -> list[str]:
    """Return the names of the numbers in `info`."""
    return [name for name, value in info.items() if np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biuf"]


class InfoObjectives(gymnasium.Wrapper):
    """An environment whose reward is a vector of numbers in `info`.

    If the reward is a vector already, it stays, and `objectives` are the names of its entries.
    """

    def __init__(self, env: gymnasium.Env, objectives: tuple[str, ...]):
        super().__init__(env)
        self.objectives = objectives

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if np.asarray(reward).ndim == 0:
            there = numbers(info)
            if missing := [name for name in self.objectives if name not in there]:
                known = f"choose from {', '.join(there)}" if there else "there is no number in it"
                raise UserError(f"objectives must be numbers in the info of a step, got {', '.join(missing)}: {known}")
            reward = np.array([info[name] for name in self.objectives], np.float64)
        return obs, reward, terminated, truncated, info
