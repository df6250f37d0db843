"""What the tests of pictures share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qpensieve.report import drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any  # matplotlib is an extra


@contextmanager
def keeping_figures() -> Iterator[list[Figure]]:
    """The figures that are drawn, laid out but not written to a picture: quick, and their content can be read."""
    kept: list[Figure] = []

    def keep(figure: Figure, out: Path) -> Path:
        figure.draw_without_rendering()
        kept.append(figure)
        return out

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "write_figure", keep)
        yield kept


@pytest.fixture
def drawn() -> Iterator[list[Figure]]:
    """The figures that a test draws."""
    with keeping_figures() as kept:
        yield kept
