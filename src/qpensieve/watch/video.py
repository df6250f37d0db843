"""A film as a file: GIF through Pillow, MP4 through imageio-ffmpeg. It is written whole or not at all."""

import importlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from qpensieve.console import Progress, Workload
from qpensieve.errors import MissingFileError, MissingPackageError, UserError, UserFileError, file_errors
from qpensieve.records.files import TEMPORARY, write_file
from qpensieve.watch import film
from qpensieve.watch.film import Script

NUM_COLOURS = 96
"""Colours of a GIF; more make it larger and no better."""
MOST_GIF_FPS, MOST_GIF_PIXELS = 50.0, 1e9
"""Browsers show no more frames a second of a GIF; all its pixels are in memory, a byte each, while it is made."""
DRAWING = "drawing"
"""Text of the progress line."""
ENDINGS = (".gif", ".mp4")


def check_target(path: Path) -> None:
    """Refuse a file that could not be written, before anything is played.

    Raises:
        ValueError: It has another ending, or MP4 needs a package that is not there.
        OSError: Its folder is not there, or it is one.
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
        ValueError: A GIF cannot be that large or that fast.
        OSError: It cannot be written; nothing of it is left.
    """
    num, first = film.count(script), film.first(script)
    if path.suffix.lower() != ".mp4":
        _check_gif(script, num, first)
    progress = Progress(num, 0, quiet=quiet, workload=Workload(unit="frames"))
    try:
        progress.enter(DRAWING)
        frames = _reported(film.play(script), progress)
        if path.suffix.lower() == ".mp4":
            _write_mp4(path, frames, script.fps, first, num)
        else:
            _write_gif(path, frames, script.fps, film.colours(script, num))
        progress.show(num, force=True)
    finally:
        progress.end()
    return path


def _reported(frames: Iterator[Image.Image | None], progress: Progress) -> Iterator[Image.Image]:
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
