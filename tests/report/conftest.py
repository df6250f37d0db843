"""What the tests of pictures share."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qpensieve.report import drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any  # matplotlib is an extra


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were drawn, laid out but not written to a picture: quick, and their content can be read."""
    kept: list[Figure] = []

    def keep(figure: Figure, out: Path) -> Path:
        figure.draw_without_rendering()
        kept.append(figure)
        return out

    monkeypatch.setattr(drawing, "write_figure", keep)
    return kept
