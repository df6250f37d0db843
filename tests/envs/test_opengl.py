"""Which OpenGL platform draws MuJoCo environments of others, with and without a display."""

import os
import sys
from collections.abc import Iterator

import pytest

from qpensieve.envs import draw
from qpensieve.errors import EnvError


@pytest.fixture
def working(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The platforms that work; there is no display, and the user has named no platform."""
    found: set[str] = set()
    draw.find_platform.cache_clear()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(draw, "_works", found.__contains__)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", draw.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    yield found
    draw.find_platform.cache_clear()


def chosen() -> str | None:
    with draw.working_platform():
        return os.environ.get(draw.VARIABLE)


@pytest.mark.parametrize(
    ("works", "display", "expected"),
    [
        ({"glfw", "egl", "osmesa"}, "", "egl"),
        ({"osmesa"}, "", "osmesa"),
        ({"glfw", "egl"}, ":0", "glfw"),
        ({"egl"}, ":0", "egl"),
    ],
    ids=["EGL first", "OSMesa else", "a window with a display", "a display that does not answer"],
)
def test_the_first_platform_that_works_is_named_while_it_draws(
    works: set[str], display: str, expected: str, working: set[str], monkeypatch: pytest.MonkeyPatch
):
    working |= works
    monkeypatch.setenv("DISPLAY", display)
    assert chosen() == expected
    assert draw.VARIABLE not in os.environ


def test_without_any_platform_the_error_says_what_to_install(working: set[str]):
    with pytest.raises(EnvError, match=r"nor EGL or OSMesa; install one of them \(Debian: apt install libegl1"):
        chosen()
    assert draw.VARIABLE not in os.environ


def test_a_platform_that_the_user_names_stays(working: set[str], monkeypatch: pytest.MonkeyPatch):
    working.add("egl")
    monkeypatch.setenv(draw.VARIABLE, "osmesa")
    assert chosen() == "osmesa"
    assert os.environ[draw.VARIABLE] == "osmesa"


@pytest.mark.parametrize(
    ("program", "works"), [("pass", True), ("raise OSError", False), ("import time; time.sleep(60)", False)]
)
def test_a_platform_is_tried_in_a_program_of_its_own(program: str, works: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(draw, "TRY", program)
    monkeypatch.setattr(draw, "SECONDS", 20.0 if works else 1.0)
    assert draw._works("egl") == works
