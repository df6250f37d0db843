"""What all pictures share."""

import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from qpensieve import watch
from qpensieve.report import drawing


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([7.0, 7.5], "7.25 ± 0.25"),
        ([1000.0, 1040.0], "1,020 ± 20"),
        ([3.0e7, 5.0e7], "(4.00 ± 1.00)e7"),
        ([3.82e7], "3.82e7"),
        ([0.0, 0.0], "0.00 ± 0.00"),
        ([-250.0], "-250.0"),
        ([0.002, 0.004], "0.0030 ± 0.0010"),
    ],
)
def test_scores_are_shown_with_fitting_digits(values: list[float], text: str):
    assert drawing.format_mean_std(np.array(values)) == text


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_a_legend_above_covers_no_line(scale: str):
    figure = drawing.new_figure(3.0)
    axes = figure.add_subplot()
    (line,) = axes.plot([0, 1, 2], [1.0, 50.0, 100.0], label="a")
    axes.plot([0, 1, 2], [100.0, 99.0, 100.0], label="b")
    axes.set_yscale(scale)
    drawing.add_legend_above(axes, 2, 0.2, fontsize=7)
    figure.canvas.draw()
    legend = axes.get_legend()
    assert legend is not None
    assert legend.get_window_extent().y0 > line.get_window_extent().y1


def test_pictures_and_the_page_of_watch_give_an_objective_the_same_colour():
    page = Path(watch.__file__).parent / "page" / "palette.js"
    light = re.search(r"light: \[(.*)\]", page.read_text())
    assert light is not None
    assert tuple(re.findall(r"#\w{6}", light[1])) == drawing.OBJECTIVE_COLOURS
