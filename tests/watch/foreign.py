"""Environments of someone else."""

import ctypes
import importlib
import os
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box


class Blind(gymnasium.Env):
    """Two objectives, twenty steps, no pictures."""

    def __init__(self):
        self.metadata = {"objectives": ("far", "cheap"), "render_fps": 50, "render_modes": ["rgb_array"]}
        self.observation_space = Box(-np.inf, np.inf, (1,))
        self.action_space = Box(-1.0, 1.0, (1,))
        self.reward_space = Box(-np.inf, np.inf, (2,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict]:
        self.time += 1
        return np.ones(1, np.float32), np.array([1.0, -float(abs(action[0]))]), False, self.time >= 20, {}


class Fragile(Blind):
    """Draws itself, and fails once in the middle of an episode."""

    has_failed = False

    def __init__(self, render_mode: str | None = None):
        super().__init__()
        self.render_mode = render_mode

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict]:
        if self.time == 5 and not Fragile.has_failed:
            Fragile.has_failed = True
            raise OSError("it broke")
        return super().step(action)

    def render(self) -> np.ndarray:  # pyright: ignore[reportIncompatibleMethodOverride]
        return np.full((4, 6, 3), 12 * self.time, np.uint8)


class Hanging(Fragile):
    """Draws its first picture, and then never comes back and never lets another thread of Python run."""

    pictures = 0

    def render(self) -> np.ndarray:
        if Hanging.pictures:
            ctypes.PyDLL(None).sleep(600)
        Hanging.pictures += 1
        return super().render()


class HangingRobot(Hanging):
    """Hangs after MuJoCo has drawn its first picture with OpenGL."""

    mujoco_renderer = None

    def render(self) -> np.ndarray:  # pyright: ignore[reportIncompatibleMethodOverride]
        import mujoco

        context = importlib.import_module(f"mujoco.{os.environ['MUJOCO_GL']}").GLContext(8, 8)
        context.make_current()
        mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), mujoco.mjtFontScale.mjFONTSCALE_100)
        return super().render()


class Robot(Fragile):
    """An environment that Gymnasium draws with MuJoCo."""

    mujoco_renderer = None

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict]:
        return Blind.step(self, action)
