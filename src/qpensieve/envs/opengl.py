"""OpenGL for MuJoCo environments of others: without a display, Gymnasium's choice of a platform hangs the process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from qpensieve.errors import EnvError

VARIABLE = "MUJOCO_GL"
SECONDS = 30.0
"""Longer than a platform takes to start on a busy machine."""
TRY = """
import importlib, sys
import mujoco
context = importlib.import_module(f"mujoco.{sys.argv[1]}").GLContext(8, 8)
context.make_current()
mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), mujoco.mjtFontScale.mjFONTSCALE_100)
"""
"""Fails, hangs or crashes where a platform does not work; so it is a program of its own."""
MISSING = (
    "MuJoCo finds no OpenGL: there is no display that works, nor EGL or OSMesa; install one of them "
    "(Debian: apt install libegl1, or libosmesa6)"
)


@contextmanager
def working_platform() -> Iterator[None]:
    """Name a platform that works in MUJOCO_GL, on Linux, unless the user has named one.

    Raises:
        EnvError: None works.
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
    """Return the first platform that works here."""
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
