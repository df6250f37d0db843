"""Pictures of MuJoCo models, drawn in NumPy, and the search for an OpenGL platform that works.

Servers often have no OpenGL library, so pictures do not need one. MuJoCo's own renderer is used if the environment
variable MUJOCO_GL names a platform (egl, osmesa, glfw).
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float64, UInt8

from qpensieve.errors import EnvError

SIZE = 480
"""Height and width of a picture, pixels."""
VIEW_METRES = 4.0
"""Height and width of the part of the world that a picture shows, metres."""
ELEVATION = np.deg2rad(12.0)
_SIN, _COS = np.sin(ELEVATION), np.cos(ELEVATION)
RIGHT, UP, AWAY = np.array([[1.0, 0.0, 0.0], [0.0, _SIN, _COS], [0.0, _COS, -_SIN]])
"""Unit vectors to the right, up and away from a camera that looks along +y and a little down."""
CAPSULE, SPHERE = mujoco.mjtGeom.mjGEOM_CAPSULE, mujoco.mjtGeom.mjGEOM_SPHERE
SKY, TILE_LIGHT, TILE_DARK = np.array([[214, 226, 240], [178, 190, 204], [158, 172, 190]], np.float64)

VARIABLE = "MUJOCO_GL"
SECONDS = 30.0
"""Longest wait for a platform; a platform that works starts faster, even on a busy machine."""
TRY = """
import importlib, sys
import mujoco
context = importlib.import_module(f"mujoco.{sys.argv[1]}").GLContext(8, 8)
context.make_current()
mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), mujoco.mjtFontScale.mjFONTSCALE_100)
"""
"""Program that tries a platform. It may hang or crash, so it runs in its own process."""
MISSING = (
    "MuJoCo finds no OpenGL: there is no display that works, nor EGL or OSMesa; install one of them "
    "(Debian: apt install libegl1, or libosmesa6)"
)

Image = UInt8[np.ndarray, "height width 3"]


def draw_model(model: mujoco.MjModel, state: Float64[np.ndarray, " state"], state_spec: int) -> Image:
    """Draw `model` in `state` from the side; the camera follows the robot."""
    data = mujoco.MjData(model)
    mujoco.mj_setState(model, data, state, state_spec)
    mujoco.mj_forward(model, data)
    renderer = _opengl_renderer(model)
    return _draw_plainly(model, data) if renderer is None else _draw_with_opengl(renderer, data)


@lru_cache(maxsize=4)
def _opengl_renderer(model: mujoco.MjModel) -> Any | None:
    """Return MuJoCo's renderer if MUJOCO_GL is set, else None: without a platform MuJoCo could abort the process."""
    return mujoco.Renderer(model, SIZE, SIZE) if os.environ.get(VARIABLE) else None


def _draw_with_opengl(renderer: Any, data: mujoco.MjData) -> Image:
    camera = mujoco.MjvCamera()
    camera.azimuth, camera.elevation, camera.distance = 90.0, -np.rad2deg(ELEVATION), VIEW_METRES
    camera.lookat[:] = data.subtree_com[1]
    renderer.update_scene(data, camera)
    return renderer.render().copy()


def _draw_plainly(model: mujoco.MjModel, data: mujoco.MjData) -> Image:
    focus = np.array([data.subtree_com[1, 0], data.subtree_com[1, 1], 0.8])
    across, upward = _pixel_grid()
    picture = _floor(focus, across, upward)
    depth = np.where(np.isin(model.geom_type, [CAPSULE, SPHERE]), (data.geom_xpos - focus) @ AWAY, -np.inf)
    for geom in np.argsort(-depth):
        if np.isneginf(depth[geom]):
            continue
        radius = model.geom_size[geom, 0]
        half = model.geom_size[geom, 1] if model.geom_type[geom] == CAPSULE else 0.0
        axis = data.geom_xmat[geom].reshape(3, 3)[:, 2] * half
        ends = [(data.geom_xpos[geom] + sign * axis - focus) @ np.stack([RIGHT, UP], axis=1) for sign in (-1, 1)]
        box = _around(ends, radius)
        distance = _distance_to_segment(across[box], upward[box], ends[0], ends[1])
        inside = distance < radius
        shade = 0.55 + 0.45 * np.sqrt(np.maximum(0.0, 1.0 - (distance[inside] / radius) ** 2))
        picture[box][inside] = shade[:, None] * model.geom_rgba[geom, :3] * 255.0
    return np.clip(picture, 0, 255).astype(np.uint8)


def _around(ends: list[Float64[np.ndarray, "2"]], radius: float) -> tuple[slice, slice]:
    """Return the rows and columns of the pixels that may lie within a radius of a segment."""
    low, high = np.minimum(*ends) - radius, np.maximum(*ends) + radius
    pixel = lambda metres: int(np.clip(np.floor((metres / VIEW_METRES + 0.5) * SIZE), -1, SIZE))
    columns = slice(max(0, pixel(low[0])), pixel(high[0]) + 1)
    return slice(max(0, pixel(-high[1])), pixel(-low[1]) + 1), columns


@cache
def _pixel_grid() -> tuple[Float64[np.ndarray, "h w"], Float64[np.ndarray, "h w"]]:
    span = (np.arange(SIZE) + 0.5) / SIZE * VIEW_METRES - VIEW_METRES / 2
    across, upward = np.meshgrid(span, -span)
    return across, upward


def _floor(
    focus: Float64[np.ndarray, "3"], across: Float64[np.ndarray, "h w"], upward: Float64[np.ndarray, "h w"]
) -> Float64[np.ndarray, "h w 3"]:
    """Draw checkered ground where the line of sight meets z = 0 near the robot, and sky elsewhere."""
    along = (focus[2] + upward * UP[2]) / -AWAY[2]
    x = focus[0] + across
    y = focus[1] + upward * UP[1] + along * AWAY[1]
    tiles = (np.floor(x) + np.floor(y)).astype(np.int64) % 2
    picture = np.where(tiles[..., None] == 0, TILE_LIGHT, TILE_DARK)
    picture[along > VIEW_METRES * 1.2] = SKY
    return picture


def _distance_to_segment(
    across: Float64[np.ndarray, "h w"],
    upward: Float64[np.ndarray, "h w"],
    start: Float64[np.ndarray, "2"],
    end: Float64[np.ndarray, "2"],
) -> Float64[np.ndarray, "h w"]:
    direction = end - start
    length = max(float(direction @ direction), 1e-12)
    position = ((across - start[0]) * direction[0] + (upward - start[1]) * direction[1]) / length
    position = np.clip(position, 0.0, 1.0)
    return np.hypot(across - start[0] - position * direction[0], upward - start[1] - position * direction[1])


@contextmanager
def working_platform() -> Iterator[None]:
    """On Linux, set MUJOCO_GL to a platform that works within the block, unless the user has set it.

    Without a display, the platform that Gymnasium chooses would hang the process.

    Raises:
        EnvError: No platform works.
    """
    if sys.platform != "linux" or os.environ.get(VARIABLE):
        yield
        return
    has_display = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    found = find_platform(("glfw", "egl", "osmesa") if has_display else ("egl", "osmesa"))
    if found is None:
        raise EnvError(MISSING)
    os.environ[VARIABLE] = found
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)


@cache
def find_platform(names: tuple[str, ...]) -> str | None:
    """Return the first platform that works on this machine; None if no platform works."""
    return next(filter(_works, names), None)


def _works(name: str) -> bool:
    words = [sys.executable, "-c", TRY, name]
    try:
        done = subprocess.run(
            words, env=os.environ | {VARIABLE: name}, capture_output=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
