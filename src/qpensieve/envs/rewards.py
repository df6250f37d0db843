"""Reward vectors of the MuJoCo domains: one small function per id, over arrays of lanes.

Every function takes the same `Motion` and returns [n, d]. Factors and the order of objectives are those of the authors'
code (deviation D1: for HalfCheetah2d the paper prints another control-cost factor than the code).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

HOPPER_START_HEIGHT = 1.25
"""z0 of Hopper3d: the height of hopper.xml's initial pose, metres."""


class Motion(NamedTuple):
    """What a control step did, in each lane. A named tuple: it is made at every step.

    Attributes:
        vx: Mean forward velocity over the control step, (x_after - x_before) / dt.
        z: Height of the torso after the step.
        action: Action as applied, clipped to [-1, 1].
    """

    vx: Float64[np.ndarray, " n"]
    z: Float64[np.ndarray, " n"]
    action: Float64[np.ndarray, "n act"]


RewardFunction = Callable[[Motion], Float64[np.ndarray, "n d"]]


def half_cheetah_2d(motion: Motion) -> Float64[np.ndarray, "n 2"]:
    return _columns(1.1 * motion.vx, -0.7 * _effort(motion.action))


def hopper_2d(motion: Motion) -> Float64[np.ndarray, "n 2"]:
    return _columns(motion.vx, -1.5 * _effort(motion.action))


def hopper_3d(motion: Motion) -> Float64[np.ndarray, "n 3"]:
    return _columns(motion.vx, 15.0 * (motion.z - HOPPER_START_HEIGHT), -1.5 * _effort(motion.action))


def hopper_5d(motion: Motion) -> Float64[np.ndarray, "n 5"]:
    """The cost of each joint is an objective; the healthy objective pays 1 on every step, also on the last one."""
    cost = -1.5 * np.square(motion.action)
    return _columns(motion.vx, cost[:, 0], cost[:, 1], cost[:, 2], np.ones_like(motion.vx))


def ant_2d(motion: Motion) -> Float64[np.ndarray, "n 2"]:
    return _columns(motion.vx, -0.5 * _effort(motion.action))


def ant_3d(motion: Motion) -> Float64[np.ndarray, "n 3"]:
    """The healthy objective pays 1 on every step, also on the last one."""
    return _columns(motion.vx, np.ones_like(motion.vx), -0.5 * _effort(motion.action))


def walker_2d(motion: Motion) -> Float64[np.ndarray, "n 2"]:
    return _columns(motion.vx, -_effort(motion.action))


def _effort(action: Float64[np.ndarray, "n act"]) -> Float64[np.ndarray, " n"]:
    return np.add.reduce(np.square(action), axis=1)  # what sum does, without its detours


def _columns(*values: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, "n d"]:
    reward = np.empty((values[0].size, len(values)))
    for i, value in enumerate(values):
        reward[:, i] = value
    reward += 0.0  # no effort costs 0, not -0
    return reward
