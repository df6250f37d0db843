"""Episodes as a film: one panel for each preference, side by side from the same start, with the returns so far.

A film is a GIF through Pillow or an MP4 through imageio-ffmpeg. Its file is written whole or not at all.
"""

import importlib
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64
from PIL import Image, ImageDraw, ImageFont

from qpensieve.console import Progress, Workload, format_number
from qpensieve.envs.base import MAX_EVAL_STEPS
from qpensieve.errors import EnvError, MissingFileError, MissingPackageError, UserError, UserFileError, file_errors
from qpensieve.records.files import TEMPORARY, write_file
from qpensieve.train.session import Predictor
from qpensieve.watch.world import World

FONT_SIZE, LINE, MARGIN = 13, 20, 8
"""Sizes of the captions, pixels."""
PAPER, INK, FAINT, BAR, TRACK = "#ffffff", "#1d2430", "#6a7484", "#2f6fb4", "#e3e8ef"
GAP = 6
"""Pixels between two panels."""
SIDE_VIEW = (0.19, 0.89)
"""Part of the height of a picture of a robot, seen from the side, that is kept: the rest is sky, and floor."""
PALETTE_FRAMES = 8
"""Number of frames, spread over a film, whose colours make its palette."""
NUM_COLOURS = 96
"""Colours of a GIF; more make it larger and no better."""
MOST_GIF_FPS, MOST_GIF_PIXELS = 50.0, 1e9
"""Limits of a GIF: browsers show no more frames a second, and all its pixels are in memory, a byte each."""
ENDINGS = (".gif", ".mp4")


@dataclass(frozen=True, eq=False)
class Script:
    """The settings of a film.

    Attributes:
        domain: Where.
        policy: Who acts.
        row: Place of the seed among those of the run.
        seed: Whose first episode is played.
        preferences: One panel each.
        seconds: Length in real time; shorter where all episodes end before.
        fps: Frames of a second.
        width: Pixels of a panel.
        most_steps: Where an episode that does not end is cut.
    """

    domain: str
    policy: Predictor
    row: int
    seed: int
    preferences: Float64[np.ndarray, "p d"]
    seconds: float
    fps: float
    width: int
    most_steps: int = MAX_EVAL_STEPS

    @property
    def num_frames(self) -> int:
        """Number of frames if no episode ends before."""
        return max(1, round(self.seconds * self.fps)) + 1


class Panel:
    """The world of one preference, and its picture with a caption."""

    def __init__(self, script: Script, lam: Float64[np.ndarray, " d"]):
        self._script, self._lam = script, lam
        self.world = World(script.domain, script.most_steps)
        self.world.begin(script.seed, 0)
        self._act = partial(script.policy.act, script.row, lam=lam.astype(np.float32)[None])

    def play_to(self, t: float) -> None:
        """Act until a time of the film, or to the episode's end."""
        world = self.world
        while not world.is_over and (world.elapsed + 1) * world.dt <= t + 1e-9:
            world.step(self._act(obs=world.obs))

    def draw(self) -> Image.Image:
        """Draw the current picture.

        Raises:
            EnvError: The environment cannot be drawn.
        """
        picture = self.world.picture()
        if picture is None:
            raise EnvError(self.world.why_blank)
        width = self._script.width
        first, last = (round(part * len(picture)) for part in (SIDE_VIEW if self.world.is_robot else (0.0, 1.0)))
        image = Image.fromarray(picture[first:last])
        image = image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)
        panel = Image.new("RGB", (width, image.height + caption_height(len(self._lam))), PAPER)
        panel.paste(image, (0, 0))
        self._caption(ImageDraw.Draw(panel), image.height + MARGIN // 2)
        return panel

    def _caption(self, pen: ImageDraw.ImageDraw, top: int) -> None:
        """Draw a line for each objective: its name, its weight as a number and a bar, and the return so far."""
        font, width, world = ImageFont.load_default(FONT_SIZE), self._script.width, self.world
        state = "over" if world.is_over else f"{world.elapsed * world.dt:.1f} s"
        middle, right = width * 0.62, width - MARGIN
        pen.text((MARGIN, top), state, FAINT, font)
        pen.text((middle, top), "weight", FAINT, font, anchor="ra")
        pen.text((right, top), "return", FAINT, font, anchor="ra")
        for i, name in enumerate(world.spec.objectives):
            y = top + (i + 1) * LINE
            pen.text((MARGIN, y), name, INK, font)
            pen.text((middle, y), f"{self._lam[i]:.2f}", INK, font, anchor="ra")
            pen.text((right, y), format_number(world.returns[i], 3), INK, font, anchor="ra")
            ends = [(MARGIN, y + LINE - 4), (right, y + LINE - 3)]
            pen.rectangle(ends, TRACK)
            pen.rectangle([ends[0], (MARGIN + (right - MARGIN) * self._lam[i], ends[1][1])], BAR)


def caption_height(num_objectives: int) -> int:
    return LINE * (num_objectives + 1) + 2 * MARGIN


def play(script: Script, drawn: Sequence[int] | None = None) -> Iterator[Image.Image | None]:
    """Play a film and yield its frames; None in place of frames whose numbers are not in `drawn` (None: all are)."""
    panels = [Panel(script, lam) for lam in script.preferences]
    try:
        for number in range(script.num_frames):
            is_over = all(panel.world.is_over for panel in panels)
            for panel in panels:
                panel.play_to(number / script.fps)
            yield _beside([panel.draw() for panel in panels]) if drawn is None or number in drawn else None
            if is_over:
                return
    finally:
        for panel in panels:
            panel.world.close()


def survey(script: Script) -> tuple[int, list[Image.Image]]:
    """Play a film; return its number of frames, and the first and some later ones."""
    chosen = np.linspace(0, script.num_frames - 1, PALETTE_FRAMES).astype(int).tolist()
    frames = [*play(script, chosen)]
    return len(frames), [frame for frame in frames if frame is not None]


def _beside(images: list[Image.Image]) -> Image.Image:
    width = sum(image.width + GAP for image in images) - GAP
    height = max(image.height for image in images)
    sheet, left = Image.new("RGB", (width, height), PAPER), 0
    for image in images:
        sheet.paste(image, (left, 0))
        left += image.width + GAP
    return sheet


def check_target(path: Path) -> None:
    """Refuse a file that could not be written, before anything is played.

    Raises:
        ValueError: The file has another ending, or MP4 needs a package that is not installed.
        OSError: The folder of the file is missing, or the file is a folder.
    """
    if path.suffix.lower() not in ENDINGS:
        raise UserError(f"out must end in .gif or .mp4, got {path}")
    if path.is_dir():
        raise UserFileError(f"out must be a file, but {path} is a folder")
    if not path.parent.is_dir():
        raise MissingFileError(f"the folder of {path} is not there: make it first, or choose another")
    if path.suffix.lower() == ".mp4":
        _ffmpeg()


def write(script: Script, path: Path, quiet: bool = False) -> Path:
    """Play, draw and write a film; returns the file.

    Raises:
        EnvError: The environment fails, or cannot be drawn.
        ValueError: The film is too large or too fast for a GIF.
        OSError: The file cannot be written; no part of it is left.
    """
    num, some = survey(script)
    if path.suffix.lower() != ".mp4":
        _check_gif(script, num, some[0])
    progress = Progress(num, 0, quiet=quiet, workload=Workload(unit="frames"))
    try:
        progress.enter("drawing")
        frames = _reported(play(script), progress)
        if path.suffix.lower() == ".mp4":
            _write_mp4(path, frames, script.fps, some[0], num)
        else:
            _write_gif(path, frames, script.fps, _beside(some))
        progress.show(num, force=True)
    finally:
        progress.end()
    return path


def _reported(frames: Iterable[Image.Image | None], progress: Progress) -> Iterator[Image.Image]:
    for number, frame in enumerate(frames, start=1):
        assert frame is not None
        yield frame
        progress.show(number)


def _write_gif(path: Path, frames: Iterator[Image.Image], fps: float, sheet: Image.Image) -> None:
    palette = sheet.quantize(NUM_COLOURS, dither=Image.Dither.NONE)
    few = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    # A GIF counts in hundredths of a second: times are rounded, not lengths, so that the film keeps its pace.
    times = np.round(np.arange(len(few) + 1) * 100 / fps).astype(int)
    durations = (np.diff(times) * 10).tolist()
    file = io.BytesIO()
    few[0].save(file, "GIF", save_all=True, append_images=few[1:], duration=durations, loop=0, optimize=False)
    write_file(path, lambda stream: stream.write(file.getbuffer()))


def _check_gif(script: Script, num: int, first: Image.Image) -> None:
    """Refuse a film that is too fast or too large for a GIF."""
    if script.fps > MOST_GIF_FPS:
        raise UserError(f"fps must be at most {MOST_GIF_FPS:g} for a GIF, got {script.fps:g}; an .mp4 may have more")
    if (pixels := num * first.width * first.height) > MOST_GIF_PIXELS:
        size = f"{num:,} frames of {first.width} x {first.height}"
        less = "choose fewer seconds, frames a second or panels, a smaller width, or an .mp4"
        raise UserError(f"a GIF of {size} would take {pixels / 1e9:.1f} GB of memory while it is made: {less}")


def _write_mp4(path: Path, frames: Iterator[Image.Image], fps: float, first: Image.Image, num: int) -> None:
    ffmpeg = _ffmpeg()
    size = first.width - first.width % 2, first.height - first.height % 2  # the format has no odd sizes
    # ffmpeg reads the kind of a file from its ending, so the temporary name keeps it.
    temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}")
    try:
        sink = ffmpeg.write_frames(str(temporary), size, fps=fps, macro_block_size=2, ffmpeg_log_level="error")
        sink.send(None)
        try:
            for frame in frames:
                with file_errors(path, temporary):
                    sink.send(np.ascontiguousarray(np.asarray(frame)[: size[1], : size[0]]))
        finally:
            sink.close()
        if (written := _num_frames(ffmpeg, temporary)) != num:
            raise UserFileError(f"cannot write {path}: {written} of {num} frames arrived; is the disk full?")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _num_frames(ffmpeg: Any, path: Path) -> int:
    """Count the frames that can be read back: ffmpeg does not report a full disk."""
    try:
        return int(ffmpeg.count_frames_and_secs(str(path))[0])
    except RuntimeError:
        return 0


def _ffmpeg() -> Any:
    try:
        return importlib.import_module("imageio_ffmpeg")
    except ImportError as error:
        raise MissingPackageError(
            "MP4 files need imageio-ffmpeg: pip install 'qpensieve[mp4]', or write a .gif"
        ) from error
