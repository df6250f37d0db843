"""The table of all pictures of a run: their file names, how they are drawn, and what they need."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from qpensieve.errors import UserError
from qpensieve.records.folder import METRICS, SEARCH
from qpensieve.records.links import refuse_link
from qpensieve.report.curves import draw_curves, draw_training
from qpensieve.report.drawing import MissingPlots
from qpensieve.report.front import SUFFIXES, draw_front
from qpensieve.report.population import draw_generations, draw_predictions
from qpensieve.report.results import RunResults, read_run


@dataclass(frozen=True)
class Picture:
    """One picture of a run.

    Attributes:
        name: Name of its file in the run folder.
        draw: Draws the run of a folder into a file; returns the file, or None if there is nothing to draw.
        needs: A file of the folder; the picture applies only if it exists.
        objectives: How many there must be at least.
    """

    name: str
    draw: Callable[[RunResults, Path], Path | None]
    needs: str | None = None
    objectives: int = 1


PICTURES = (
    Picture("front.png", draw_front, objectives=2),
    Picture("curves.png", draw_curves),
    Picture("training.png", draw_training, needs=METRICS),
    Picture("generations.png", draw_generations, needs=SEARCH),
    Picture("predictions.png", draw_predictions, needs=SEARCH),
)


What = Literal["front", "curves", "training", "generations", "predictions"]
"""Names of the pictures."""


def plot(run: Path, out: Path | None = None, what: What | None = None) -> list[Path]:
    """Draw a run's folder or an exported run; returns the pictures.

    Args:
        run: The folder or file.
        out: A picture file for `what`, or for the front; or a folder for all pictures. None: the run's folder, or that
            of the exported file.
        what: The one picture to draw. None: all.

    Raises:
        ValueError: If the run does not hold what the picture needs, or `out` looks like a file that is no picture.
    """
    if out is not None:
        check_folder(out)
    one = what or ("front" if out is not None and is_picture(out) else None)
    if one is not None:
        return [_draw_one(next(picture for picture in PICTURES if picture.name == f"{one}.png"), read_run(run), out)]
    return all_pictures(run, out)


def _draw_one(picture: Picture, run: RunResults, out: Path | None) -> Path:
    target = _place(run.path) + picture.name if out is None else out if is_picture(out) else out / picture.name
    if picture.needs is not None and not (run.path / picture.needs).exists():
        raise UserError(f"{run.path} has no {picture.needs}, which {picture.name} is drawn from")
    refuse_link(Path(target))
    drawn = picture.draw(run, Path(target))
    if drawn is None:
        raise UserError(f"{run.path} holds nothing yet that {picture.name} could show")
    return drawn


def _place(run: Path) -> str:
    """The beginning of the paths of a run's pictures: its folder, or the name of the exported file."""
    return f"{run.parent / run.stem}-" if run.is_file() else f"{run}/"


def is_picture(path: Path) -> bool:
    """Whether a path is a picture; any other is a folder for all of them."""
    return path.suffix.lower() in SUFFIXES


def file_of(out: Path, name: str) -> Path:
    """The file of one picture: `out`, or a file of this name in the folder `out`.

    Raises:
        ValueError: Its ending is that of another kind of file.
    """
    check_folder(out)
    return out if is_picture(out) else out / name


def check_folder(out: Path) -> None:
    """ValueError for a new folder that was meant to be a picture, by its ending: x.gif."""
    if not is_picture(out) and not out.is_dir() and re.fullmatch(r"\.[A-Za-z]{3,4}", out.suffix):
        endings = ", ".join(SUFFIXES)
        raise UserError(f"out must be a picture, which ends in {endings}, or a folder for pictures; got {out}")


def all_pictures(path: Path, to: Path | None = None) -> list[Path]:
    """Draw every picture that applies to a run; returns their files.

    Args:
        path: Its folder, or the file it was exported to.
        to: Folder of the pictures; default: the run's.
    """
    run = read_run(path)
    fitting = [picture for picture in PICTURES if picture.objectives <= run.history.num_objectives]
    if run.lacks_returns:
        fitting = [picture for picture in fitting if picture.draw is not draw_front]
    if not run.history.short:  # a saved agent that was evaluated
        fitting = [picture for picture in fitting if picture.draw is not draw_curves]
    chosen = [picture for picture in fitting if picture.needs is None or (path / picture.needs).exists()]
    targets = [Path(_place(path) + picture.name) if to is None else to / picture.name for picture in chosen]
    for target in targets:
        refuse_link(target)
    paths = [picture.draw(run, target) for picture, target in zip(chosen, targets, strict=True)]
    return [path for path in paths if path is not None]


def missing(run: Path) -> list[str]:
    """List the pictures that an exported run has no data for, and why; a sentence each."""
    data = read_run(run)
    has_search = data.record is None and data.search is not None
    searches = [picture.name for picture in PICTURES if picture.needs == SEARCH] if has_search else []
    said = [f"no {name}: an exported file does not hold the search, the run's folder does" for name in searches]
    if data.lacks_returns:
        said.append(
            "no front.png: there is no full evaluation, and an exported file does not hold the returns of others"
        )
    return said


def draw_pictures(folder: Path) -> list[Path]:
    """Draw all pictures; without matplotlib there are none."""
    try:
        return all_pictures(folder)
    except MissingPlots:
        return []
