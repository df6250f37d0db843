"""The figures of the paper: what is drawn is what was given, what is missing is named, methods keep their colours."""

from typing import TYPE_CHECKING, Any

import numpy as np

from qpensieve import metrics
from qpensieve.report import paper_figures as figures
from qpensieve.report.drawing import Curve
from qpensieve.report.paper_figures import Path2d
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


def test_numbers_at_the_markers_are_hundred_thousands_or_smaller_units_that_fit():
    path = Path2d(np.array([100_000, 150_000, 1_500_000], np.int64), points(3))
    figure = figures.draw_growth({"Hopper2d": {"Q-Pensieve": path, "MO-SAC": None}}, AXES, "lam = (0.5, 0.5)")
    figure.draw_without_rendering()
    assert texts(figure, 0) == ["1", "1.5", "15", "missing: MO-SAC"]
    assert legend(figure) == ["Q-Pensieve", "MO-SAC: missing"]
    assert figure.legends[0].get_title().get_text() == "the number at a marker: hundred thousand steps"
    small = Path2d(np.array([100, 400], np.int64), points(2))
    figure = figures.draw_growth({"Hopper2d": {"Q-Pensieve": small}}, AXES, "lam = (0.5, 0.5)")
    assert texts(figure, 0) == ["1", "4"]  # 0.001 has no room there
    assert figure.legends[0].get_title().get_text() == "the number at a marker: hundred steps"


class TestCurves:
    steps = np.array([100_000, 200_000, 300_000], np.int64)
    values = np.array([[1.0, 3.0], [2.0, 4.0], [5.0, 7.0]])

    def test_show_mean_and_deviation(self):
        figure = figures.draw_curves({"DST2d": {"mosac": Curve(self.steps, self.values)}}, "HV")
        figure.draw_without_rendering()
        (line,) = figure.axes[0].get_lines()
        assert np.asarray(line.get_ydata()).tolist() == [2.0, 3.0, 6.0]
        band = figure.axes[0].collections[0].get_paths()[0].vertices
        assert (np.asarray(band)[:, 1].min(), np.asarray(band)[:, 1].max()) == (1.0, 7.0)

    def test_that_end_early_say_where(self):
        partial = Curve(self.steps, self.values, goal=1_500_000)
        whole = Curve(self.steps, self.values, goal=300_000)
        figure = figures.draw_curves({"a": {"PFA": partial}, "b": {"PFA": whole}}, "HV")
        figure.draw_without_rendering()
        assert texts(figure, 0) == ["300k of 1.5M"]
        assert texts(figure, 1) == []
        assert len(figure.axes[0].get_lines()) == 3

    def test_name_what_is_missing_in_each_panel(self):
        curve = Curve(self.steps, self.values)
        panels = {"a": {"PFA": curve, "CN-DER": None}, "b": {"PFA": None, "CN-DER": None, "SAC": curve}}
        figure = figures.draw_curves(panels, "HV")
        figure.draw_without_rendering()
        assert [texts(figure, panel) for panel in (0, 1)] == [["missing: CN-DER"], ["missing: PFA, CN-DER"]]
        assert legend(figure) == ["PFA", "CN-DER: missing", "SAC"]
        assert titles(figure) == ["a", "b"]


def test_profiles():
    profile = metrics.performance_profile([1.0, 2.0], [0.0, 1.5, 3.0])
    figure = figures.draw_profiles({"Q-Pensieve": profile, "PFA": None}, "UT")
    figure.draw_without_rendering()
    (line,) = figure.axes[0].get_lines()
    assert np.asarray(line.get_ydata()).tolist() == [1.0, 0.5, 0.0]
    assert legend(figure) == ["Q-Pensieve", "PFA: missing"]


def test_intervals():
    summary = metrics.summarize([1.0, 2.0, 4.0])
    figure = figures.draw_intervals({"UT": {"Q-Pensieve": summary, "PFA": None}, "HV": {"PFA": summary}})
    figure.draw_without_rendering()
    assert [texts(figure, panel) for panel in (0, 1)] == [["missing"], ["missing"]]
    band, mark = figure.axes[0].get_lines()
    assert np.asarray(band.get_xdata()).tolist() == [summary.low, summary.high]
    assert np.asarray(mark.get_xdata()).tolist() == [summary.iqm]


def test_a_method_has_one_look_and_others_differ():
    known = figures.METHOD_STYLES
    for part in ("colour", "marker", "line"):
        assert len({str(getattr(style, part)) for style in known.values()}) == len(known)
    for algo in ("qpensieve", "mosac", "sac", "hybrid-sac", "cnder", "envelope", "pgmorl", "pfa"):
        assert figures.method_key(algo) in known
    for name in ("Q-Pensieve", "qpensieve", "Q-Pensieve (1.5M steps)"):
        assert figures.styles_of(["SAC", name])[name] == known["qpensieve"]
    short, long = figures.styles_of(["PFA (1.5M steps)", "PFA (4.5M steps)"]).values()
    assert short.colour == long.colour
    assert (short.marker, short.line) != (long.marker, long.line)
    sizes = figures.styles_of([f"K={i}" for i in range(20)])
    assert len({style.colour for style in sizes.values()}) == 7
