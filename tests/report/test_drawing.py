"""What all pictures share."""

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from qpensieve.report import drawing
from tests.report.runs import draw_front, dst_returns, make_run, make_table


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([7.0, 7.5], "7.25 ± 0.25"),
        ([1000.0, 1040.0], "1,020 ± 20"),
        ([3.0e7, 5.0e7], "(4.00 ± 1.00)e7"),
        ([3.82e7], "3.82e7"),
        ([0.0, 0.0], "0.00 ± 0.00"),
        ([-250.0], "-250.0"),
    ],
)
def test_scores_are_shown_with_fitting_digits(values: list[float], text: str):
    assert drawing.format_mean_std(np.array(values)) == text


def test_without_matplotlib_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = make_run(tmp_path, make_table(dst_returns()))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(drawing.MissingPlots, match=r"pip install 'qpensieve\[plots\]'"):
        draw_front(run)
    assert issubclass(drawing.MissingPlots, ImportError)


def test_drawing_leaves_the_global_figures_alone(tmp_path: Path):
    run = make_run(tmp_path, make_table(dst_returns(1)))
    draw_front(run)
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()
