"""The table of all pictures of a run: their file names, how they are drawn, and what they need."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from qpensieve.errors import UserError
from qpensieve.records.folder import METRICS, SEARCH, refuse_link
from qpensieve.report.curves import draw_curves, draw_training
from qpensieve.report.drawing import SUFFIXES, MissingPlots
from qpensieve.report.front import draw_front
from qpensieve.report.population import draw_generations, draw_predictions
from qpensieve.report.results import RunResults, read_run

What = Literal["front", "curves", "training", "generations", "predictions"]
"""Names of the pictures."""


@dataclass(frozen=True)
class Picture:
    """One picture of a run.

    Attributes:
        draw: Draws the run of a folder into a file; returns the file, or None if there is nothing to draw.
        needs: A file of the folder; the picture applies only if it exists.
        applies: Whether the results hold what the picture shows.
    """

    draw: Callable[[RunResults, Path], Path | None]
    needs: str = ""
    applies: Callable[[RunResults], bool] = lambda run: True


PICTURES: dict[What, Picture] = {
    "front": Picture(draw_front, applies=lambda run: run.history.num_objectives > 1 and not run.lacks_returns),
    "curves": Picture(draw_curves, applies=lambda run: bool(run.history.short)),  # not of a saved agent
    "training": Picture(draw_training, METRICS),
    "generations": Picture(draw_generations, SEARCH),
    "predictions": Picture(draw_predictions, SEARCH),
}


def plot(run: Path, out: Path | None = None, what: What | None = None) -> list[Path]:
    """Draw the pictures of a run, from its folder or an exported file; returns their files.

    Args:
        run: The folder or file.
        out: File of one picture (`what`, or the front), or a folder. None: the run's folder, or the folder of the
            exported file.
        what: The picture to draw. None: all that the run has data for.

    Raises:
        ValueError: The run does not hold what the picture needs, or `out` looks like a file that is no picture.
    """
    if out is not None:
        _check_folder(out)
        if what is None and is_picture(out):
            what = "front"
    data = read_run(run)
    has_file = lambda picture: not picture.needs or (run / picture.needs).exists()
    if what is None:
        names: list[What] = [name for name, picture in PICTURES.items() if has_file(picture) and picture.applies(data)]
    elif has_file(PICTURES[what]):
        names = [what]
    else:
        raise UserError(f"{run} has no {PICTURES[what].needs}, which {what}.png is drawn from")
    files = [_target(run, name) if out is None else file_of(out, f"{name}.png") for name in names]
    for file in files:
        refuse_link(file)
    drawn = [PICTURES[name].draw(data, file) for name, file in zip(names, files, strict=True)]
    if what is not None and drawn == [None]:
        raise UserError(f"{run} holds nothing yet that {what}.png could show")
    return [picture for picture in drawn if picture is not None]


def is_picture(path: Path) -> bool:
    """Return whether a path has the ending of a picture; any other path is a folder for pictures."""
    return path.suffix.lower() in SUFFIXES


def file_of(out: Path, name: str) -> Path:
    """Return the file of one picture: `out`, or a file of this name in the folder `out`.

    Raises:
        ValueError: `out` ends like another kind of file.
    """
    _check_folder(out)
    return out if is_picture(out) else out / name


def missing(run: Path) -> list[str]:
    """List the pictures that an exported run has no data for, and why; a sentence each."""
    data = read_run(run)
    searches = [name for name, picture in PICTURES.items() if picture.needs == SEARCH]
    said = [f"no {name}.png: an exported file does not hold the search, the run's folder does" for name in searches]
    said = said if data.record is None and data.search is not None else []
    if data.lacks_returns:
        said.append("no front.png: there is no full evaluation, and an exported file lacks returns of short ones")
    return said


def draw_pictures(folder: Path) -> list[Path]:
    """Draw all pictures; without matplotlib there are none."""
    try:
        return plot(folder)
    except MissingPlots:
        return []


def _target(run: Path, name: str) -> Path:
    """Return the default file of a picture: in the run's folder, or next to the exported file."""
    return run.with_name(f"{run.stem}-{name}.png") if run.is_file() else run / f"{name}.png"


def _check_folder(out: Path) -> None:
    """Raise ValueError for a new folder whose ending, such as x.gif, shows that it was meant to be a picture."""
    if not is_picture(out) and not out.is_dir() and re.fullmatch(r"\.[A-Za-z]{3,4}", out.suffix):
        endings = ", ".join(SUFFIXES)
        raise UserError(f"out must be a picture, which ends in {endings}, or a folder for pictures; got {out}")
