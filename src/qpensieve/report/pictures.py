"""All pictures of a run: one table of what is drawn, under which name and when."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from qpensieve.records.folder import SEARCH
from qpensieve.records.links import refuse_link
from qpensieve.report.curves import draw_curves
from qpensieve.report.drawing import MissingPlots
from qpensieve.report.front import draw_front
from qpensieve.report.generations import draw_generations
from qpensieve.report.predictions import draw_predictions


@dataclass(frozen=True)
class Picture:
    """One picture of a run.

    Attributes:
        name: Name of its file in the run folder.
        draw: Draws the run of a folder into a file; returns the file, or None if there is nothing to draw.
        needs: A file of the folder without which the picture does not apply.
    """

    name: str
    draw: Callable[[Path, Path], Path | None]
    needs: str | None = None


PICTURES = (
    Picture("front.png", draw_front),
    Picture("curves.png", draw_curves),
    Picture("generations.png", draw_generations, needs=SEARCH),
    Picture("predictions.png", draw_predictions, needs=SEARCH),
)


def all_pictures(folder: Path) -> list[Path]:
    """Draw every picture that applies to the run of `folder`; returns their files."""
    chosen = [picture for picture in PICTURES if picture.needs is None or (folder / picture.needs).exists()]
    for picture in chosen:
        refuse_link(folder / picture.name)
    paths = [picture.draw(folder, folder / picture.name) for picture in chosen]
    return [path for path in paths if path is not None]


def draw_pictures(folder: Path) -> list[Path]:
    """`all_pictures`, or none if matplotlib is not installed."""
    try:
        return all_pictures(folder)
    except MissingPlots:
        return []
