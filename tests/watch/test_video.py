"""Films: what is on them, and that their file is there whole or not at all."""

import os
import sys
from errno import ENOSPC
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from qpensieve import cli
from qpensieve.train.evaluate import evaluate
from qpensieve.train.saved import SavedPolicies
from qpensieve.watch import film
from qpensieve.watch.commands import Film, script_of
from tests.watch.conftest import make_run

SMALL = ("--preference", "1,0", "--steps", "2", "--width", "80", "--quiet")
"""A film that takes little time."""


def fail(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    with pytest.raises(SystemExit) as exit_:
        cli.main([*map(str, words)])
    assert exit_.value.code == 1
    return capsys.readouterr().err


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_gif_has_a_panel_for_each_preference_and_moves(sea: Path, tmp_path: Path, capsys):
    out = tmp_path / "sea.gif"
    shown, sizes = "--preference 0.7,0.3 --preference 0.2,0.8 --steps 3", "--fps 30 --width 80"
    cli.main(["video", str(sea), *shown.split(), *sizes.split(), "--out", str(out)])
    assert capsys.readouterr().out == f"{out}\n"
    with Image.open(out) as gif:
        assert gif.size == (2 * 80 + film.GAP, 80 + film.caption_height(2))
        num = getattr(gif, "n_frames", 1)
        assert num == 4  # the start, and three steps at five a second; equal frames are one
        assert sum(gif.seek(i) or gif.info["duration"] for i in range(num)) == pytest.approx(19 / 30 * 1000, abs=10)
        last = np.asarray(gif.convert("RGB"))
        gif.seek(0)
        assert (np.asarray(gif.convert("RGB")) != last).any()


def test_the_captions_count_what_an_evaluation_counts(hopper: Path, monkeypatch: pytest.MonkeyPatch):
    script = script_of(SavedPolicies(hopper), Film(("0.7,0.3",), seed=1, at=1000, seconds=20.0, width=80))
    panel = film.Panel(script, script.preferences[0])
    panel.play_to(1000.0)
    assert panel.world.is_over
    written: list[str] = []
    monkeypatch.setattr(ImageDraw.ImageDraw, "text", lambda pen, place, text, *_, **how: written.append(text))
    panel.draw()
    panel.world.close()
    act = lambda obs, lam: script.policy.act(1, obs[0], lam[0])[None]
    returns = evaluate("Hopper2d", [1], act, script.preferences, 1)[0, 0, 0]
    assert [text for text in written if text in ("over", "forward", "control", "0.70", "0.30")] == (
        ["over", "forward", "0.70", "control", "0.30"]
    )
    assert [film.format_number(value, 3) for value in returns] == [written[5], written[8]]


def test_a_film_ends_with_its_last_episode(hopper: Path):
    script = script_of(SavedPolicies(hopper), Film(("1,0",), seconds=60.0, width=80))
    num, some = film.survey(script)
    assert len(list(film.play(script, ()))) == num < 60 * script.fps
    assert len(some) >= 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--preference", "0.7,0.4"), "sum to 1"),
        (("--preference", "x"), "separated by commas"),
        (("--seed", "9"), "seed must be one of 0, 1, got 9"),
        (("--at", "7"), "kept: 1000, 2000; got 7"),
        (("--fps", "0"), "fps must be from 0.1 to 60, got 0"),
        (("--seconds", "-1"), "seconds must be from 0.2 to 600, got -1"),
        (("--steps", "0"), "steps must be from 1 to 3000, got 0"),
        (("--out", "film.avi"), "must end in .gif or .mp4, got film.avi"),
        (("--out", "nowhere/film.gif"), "the folder of nowhere/film.gif is not there"),
    ],
)
def test_wishes_that_cannot_be_are_named(words: tuple[str, ...], said: str, sea: Path, empty: Path, capsys):
    assert said in fail(capsys, "video", sea, *words)
    assert list(empty.iterdir()) == []


def test_without_ffmpeg_one_is_told_what_to_do(sea: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert "pip install 'qpensieve[mp4]', or write a .gif" in fail(capsys, "video", sea, "--out", tmp_path / "a.mp4")


class Encoder:
    """Stands for imageio-ffmpeg: writes a line for each frame."""

    def __init__(self, fails_at: int = 99, lost: int = 0):
        self.frames: list[np.ndarray] = []
        self.fails_at, self.lost = fails_at, lost

    def write_frames(self, path: str, size: tuple[int, int], **how: Any) -> Any:
        with open(path, "w") as file:
            file.write(f"{size} {how['fps']:g}\n")
            while True:
                frame = yield
                if len(self.frames) == self.fails_at:
                    raise OSError("the disk is full")
                self.frames.append(frame)
                file.write("frame\n")

    def count_frames_and_secs(self, path: str) -> tuple[int, float]:
        if self.lost == len(self.frames):
            raise RuntimeError("a page of what ffmpeg said")
        return len(self.frames) - self.lost, 1.0


def test_an_mp4_gets_even_sizes_and_all_frames(sea: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    encoder, out = Encoder(), tmp_path / "sea.mp4"
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", encoder)
    cli.main(["video", str(sea), *SMALL, "--width", "81", "--out", str(out)])
    height = (81 + film.caption_height(2)) // 2 * 2
    assert out.read_text() == f"(80, {height}) 5\nframe\nframe\nframe\n"
    assert {frame.shape for frame in encoder.frames} == {(height, 80, 3)}


def refuse(file: int) -> None:
    raise OSError(ENOSPC, "the disk is full")


@pytest.mark.parametrize("name", ["film.mp4", "film.gif"])
def test_a_film_that_fails_leaves_nothing(
    name: str, sea: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", Encoder(fails_at=1))
    if name.endswith("gif"):
        monkeypatch.setattr(os, "fsync", refuse)
    assert "the disk is full" in fail(capsys, "video", sea, *SMALL, "--out", tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_an_mp4_that_lost_frames_is_not_kept(sea: Path, empty: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", Encoder(lost=3))
    assert "0 of 3 frames arrived; is the disk full?" in fail(capsys, "video", sea, *SMALL, "--out", "film.mp4")
    assert list(empty.iterdir()) == []


def test_a_gif_that_would_fill_the_memory_is_refused(sea: Path, empty: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(film, "MOST_GIF_PIXELS", 1e4)
    said = fail(capsys, "video", sea, *SMALL)
    assert "a GIF of 3 frames of 80 x" in said
    assert "fps must be at most 50 for a GIF, got 60" in fail(capsys, "video", sea, "--fps", "60", "--quiet")
    assert list(empty.iterdir()) == []


def test_an_environment_without_pictures_is_named(tmp_path: Path, capsys):
    run = make_run(tmp_path / "blind", "tests.watch.foreign:Blind", steps=(1000,))
    words = ["--trust", "--steps", "1", "--out", tmp_path / "blind.gif", "--quiet"]
    assert "cannot be drawn" in fail(capsys, "video", run, *words)
