"""The figures of the paper: what is drawn is what was given, what is missing is named, methods keep their colours."""

from typing import TYPE_CHECKING, Any

import numpy as np

from qpensieve.report import paper_figures as figures
from qpensieve.report.drawing import Curve
from tests.report.runs import titles

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any

AXES = {"Hopper2d": ("forward", "control"), "DST2d": ("treasure", "time")}


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def texts(figure: Figure, panel: int) -> list[str]:
    return [text.get_text() for text in figure.axes[panel].texts if text.get_text()]


def points(num: int) -> np.ndarray:
    return np.random.default_rng(num).normal(size=(num, 2))


def test_fronts_show_every_point():
    ours, sac = points(7), points(5)
    figure = figures.draw_fronts({"Hopper2d": {"Q-Pensieve": ours, "SAC": sac}, "DST2d": {"Q-Pensieve": ours}}, AXES)
    figure.draw_without_rendering()
    shown = [np.asarray(one.get_offsets()) for one in figure.axes[0].collections]
    np.testing.assert_array_equal(shown[0], ours)
    np.testing.assert_array_equal(shown[1], sac)
    assert (figure.axes[1].get_xlabel(), figure.axes[1].get_ylabel()) == ("treasure", "time")
    assert legend(figure) == ["Q-Pensieve", "SAC"]


class TestCurves:
    steps = np.array([100_000, 200_000, 300_000], np.int64)
    values = np.array([[1.0, 3.0], [2.0, 4.0], [5.0, 7.0]])

    def test_curves_show_mean_and_deviation(self):
        figure = figures.draw_curves({"DST2d": {"mosac": Curve(self.steps, self.values)}}, "HV")
        figure.draw_without_rendering()
        (line,) = figure.axes[0].get_lines()
        assert np.asarray(line.get_ydata()).tolist() == [2.0, 3.0, 6.0]
        band = figure.axes[0].collections[0].get_paths()[0].vertices
        assert (np.asarray(band)[:, 1].min(), np.asarray(band)[:, 1].max()) == (1.0, 7.0)

    def test_curves_name_what_is_missing_in_each_panel(self):
        curve = Curve(self.steps, self.values)
        panels = {"a": {"PFA": curve, "CN-DER": None}, "b": {"PFA": None, "CN-DER": None, "SAC": curve}}
        figure = figures.draw_curves(panels, "HV")
        figure.draw_without_rendering()
        assert [texts(figure, panel) for panel in (0, 1)] == [["missing: CN-DER"], ["missing: PFA, CN-DER"]]
        assert legend(figure) == ["PFA", "CN-DER: missing", "SAC"]
        assert titles(figure) == ["a", "b"]
