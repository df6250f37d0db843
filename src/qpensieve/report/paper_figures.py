"""The figures of the paper as functions of plain arrays. A method has the same colour, marker and line in all of them.

A series that is None is missing, and the figure names it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from jaxtyping import Float64, Int64

from qpensieve.console import format_count
from qpensieve.metrics import Profile, Summary
from qpensieve.report import drawing
from qpensieve.report.drawing import COLOURS, GREY, Axes, Curve, Figure, Look

T = TypeVar("T")
Panels = Mapping[str, Mapping[str, T | None]]
"""Title of a panel -> name of a series -> what is drawn; None: it is missing."""
COLUMNS = 3
"""Panels in a row."""
ROW_HEIGHT, ONE_HEIGHT = 2.55, 3.6
"""Height of a row of panels, and of a panel that has a row for itself, inches."""
UNITS = {100_000: "hundred thousand ", 10_000: "ten thousand ", 1_000: "thousand ", 100: "hundred ", 10: "ten ", 1: ""}
"""Units of the numbers at markers, which have room for two or three digits."""


@dataclass(frozen=True)
class Style:
    """Look of a method. Marker and line differ too, for readers who cannot distinguish the colours."""

    colour: str
    marker: str
    line: str | tuple[int, tuple[int, ...]] = "-"


METHOD_STYLES: Mapping[str, Style] = MappingProxyType(
    {
        "qpensieve": Style(COLOURS[1], "o"),
        "mosac": Style(COLOURS[0], "s", "--"),
        "sac": Style(COLOURS[6], "^", ":"),
        "hybridsac": Style(COLOURS[3], "D", "-."),
        "cnder": Style(COLOURS[2], "v", (0, (5, 1, 1, 1))),
        "envelope": Style(COLOURS[5], "P", (0, (3, 1))),
        "pgmorl": Style(COLOURS[4], "X", (0, (1, 1))),
        "pfa": Style(GREY, "<", (0, (6, 2))),
    }
)
"""Name of a method, letters and digits alone -> style."""
OTHER_STYLES = tuple(
    Style(colour, marker, line)
    for colour, marker, line in zip(COLOURS, "osDv^PX", ("-", "--", "-.", ":", "-", "--", "-."), strict=True)
)
"""Styles of series that are no methods, in their order: buffer sizes, for instance."""

REPEATED = (("d", (0, (1, 2))), ("p", (0, (4, 1, 1, 1, 1, 1))), ("*", (0, (8, 2))))
"""Markers and lines of a method that occurs in a figure again."""


@dataclass(frozen=True, eq=False)
class Path2d:
    """Return vectors of one preference over training.

    Attributes:
        steps: Environment steps.
        returns: Two objectives each.
    """

    steps: Int64[np.ndarray, " t"]
    returns: Float64[np.ndarray, "t 2"]


def draw_fronts(
    panels: Panels[Float64[np.ndarray, "n 2"]],
    objectives: Mapping[str, tuple[str, str]],
    title: str = "",
) -> Figure:
    """Draw two objectives of the return vectors of several methods (in the paper, Q-Pensieve and 19 SACs).

    Args:
        panels: Domain -> method -> return vectors.
        objectives: Domain -> labels of the two axes.
        title: Title of the figure.
    """

    def draw(where: Axes, points: np.ndarray, style: Style, label: str) -> None:
        marks = {"marker": style.marker, "color": style.colour, "alpha": 0.75, "linewidths": 0.3}
        where.scatter(points[:, 0], points[:, 1], s=26, label=label, edgecolors="white", **marks)

    return _draw_planes(panels, objectives, title, draw)


def draw_growth(panels: Panels[Path2d], objectives: Mapping[str, tuple[str, str]], title: str = "") -> Figure:
    """Draw return vectors under one preference at several steps; the number at each marker is its step.

    Args:
        panels: Domain -> method -> return vectors over training.
        objectives: Domain -> labels of the two axes.
        title: Title of the figure, with the preference.
    """
    paths = [path for panel in panels.values() for path in panel.values() if path is not None]
    first = min((int(step) for path in paths for step in path.steps[:1]), default=0)
    unit = next((size for size in UNITS if size <= first), 1)

    def draw(where: Axes, path: Path2d, style: Style, label: str) -> None:
        x, y = path.returns.T
        look = {"markersize": 9.5, "color": style.colour, "label": label, "alpha": 0.9}
        where.plot(x, y, color=style.colour, linewidth=0.8, alpha=0.45)
        where.plot(x, y, linestyle="none", marker=style.marker, **look)
        for step, a, b in zip(path.steps.tolist(), x.tolist(), y.tolist(), strict=True):
            number = f"{step / unit:.3g}"
            where.annotate(number, (a, b), color="white", fontsize=5.5, fontweight="bold", ha="center", va="center")
        where.margins(0.08)

    return _draw_planes(panels, objectives, title, draw, f"the number at a marker: {UNITS[unit]}steps")


def draw_curves(panels: Panels[Curve], label: str, title: str = "", columns: int = COLUMNS) -> Figure:
    """Draw a quantity over training, mean and standard deviation over seeds; a panel per domain or preference.

    Args:
        panels: Domain or preference -> method -> curve.
        label: What the vertical axis shows.
        title: Title of the figure.
        columns: Panels in a row.
    """
    from matplotlib.ticker import EngFormatter

    figure, axes, styles = _start(panels, title, columns)
    for i, (where, name) in enumerate(zip(axes, panels, strict=True)):
        for series, curve in panels[name].items():
            if curve is not None:
                _draw_curve(where, curve, styles[series], series)
        where.xaxis.set_major_formatter(EngFormatter(sep=""))
        where.set_xlabel("environment steps", fontsize=9)
        if i % columns == 0:
            where.set_ylabel(label, fontsize=9)
    return _finish(figure, axes, panels)


def draw_profiles(profiles: Mapping[str, Profile | None], label: str, title: str = "") -> Figure:
    """Draw performance profiles: the share of runs above each score, with the bands of their intervals.

    Args:
        profiles: Method -> profile.
        label: What the horizontal axis shows: the scaled score.
        title: Title of the figure.
    """
    panels = {"": profiles}
    figure, axes, styles = _start(panels, title, columns=1)
    where = axes[0]
    for name, profile in profiles.items():
        if profile is not None:
            style = styles[name]
            where.plot(profile.taus, profile.share, color=style.colour, linestyle=style.line, linewidth=1.8, label=name)
            where.fill_between(profile.taus, profile.low, profile.high, color=style.colour, alpha=0.15, linewidth=0)
    where.set_xlabel(label, fontsize=10)
    where.set_ylabel("share of runs with a higher score", fontsize=10)
    where.set_ylim(-0.02, 1.02)
    return _finish(figure, axes, panels)


def draw_intervals(panels: Panels[Summary], label: str = "IQM, 95 % interval", title: str = "") -> Figure:
    """Draw interquartile means with their intervals, a line per method, a panel per metric or domain.

    Args:
        panels: Metric or domain -> method -> statistics.
        label: What the horizontal axis shows.
        title: Title of the figure.
    """
    names = list(dict.fromkeys(name for series in panels.values() for name in series))
    rows = -(-len(panels) // COLUMNS)
    figure, axes, styles = _start(panels, title, height=rows * (0.9 + 0.28 * len(names)))
    for i, (where, of) in enumerate(zip(axes, panels.values(), strict=True)):
        for row, name in enumerate(names):
            summary, style = of.get(name), styles[name]
            if summary is None:
                at = where.get_yaxis_transform()
                where.text(0.02, row, "missing", transform=at, color=GREY, fontsize=7, style="italic", va="center")
                continue
            where.plot([summary.low, summary.high], [row, row], color=style.colour, linewidth=3, alpha=0.5)
            where.plot(summary.iqm, row, marker=style.marker, color=style.colour, markersize=6.5)
        where.set_yticks(range(len(names)), names if i % COLUMNS == 0 else [""] * len(names))
        where.set_ylim(len(names) - 0.35, -0.5)
        where.set_xlabel(label, fontsize=9)
    return figure


def styles_of(names: Sequence[str]) -> dict[str, Style]:
    """Return series -> style: a method has its own style, other series take theirs from `OTHER_STYLES` in order.

    A method that occurs twice, with two budgets, keeps its colour and gets another marker and line.
    """
    others = iter(OTHER_STYLES * (1 + len(names) // len(OTHER_STYLES)))
    styles: dict[str, Style] = {}
    for name in names:
        known = METHOD_STYLES.get(method_key(name))
        if known is None:
            styles[name] = next(others)
        elif known not in styles.values():
            styles[name] = known
        else:
            number = sum(style.colour == known.colour for style in styles.values())
            styles[name] = Style(known.colour, *REPEATED[(number - 1) % len(REPEATED)])
    return styles


def run_colours(names: Sequence[str], algos: Sequence[str]) -> list[str]:
    """Return a colour for each run: the colour of its method, unless several runs have the same method."""
    if list(names) == list(algos):
        return [style.colour for style in styles_of(names).values()]
    return [COLOURS[i % len(COLOURS)] for i in range(len(names))]


def method_key(name: str) -> str:
    """Return the key of a method in `METHOD_STYLES`: `pgmorl` for `PGMORL (4.5M steps)`."""
    first = name.split("(")[0]
    return "".join(character for character in first.lower() if character.isalnum())


def _start(
    panels: Panels[object], title: str, columns: int = COLUMNS, height: float | None = None
) -> tuple[Figure, list[Axes], dict[str, Style]]:
    """Make a figure with empty panels; returns the figure, its panels, and the style of every series."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    usual = rows * (ONE_HEIGHT if columns == 1 else ROW_HEIGHT)
    figure = drawing.new_figure((height or usual) + 0.75)
    axes = drawing.panels(figure, len(panels), columns, share=False)
    for where, name in zip(axes, panels, strict=True):
        where.set_title(name, fontsize=9.5)
        where.tick_params(labelsize=8)
    if title:
        drawing.set_title(figure, title)
    return figure, axes, styles_of(list(dict.fromkeys(name for series in panels.values() for name in series)))


def _finish(figure: Figure, axes: Sequence[Axes], panels: Panels[object], note: str = "") -> Figure:
    """Name the missing series in each panel, and add one legend for all panels, with a note above it."""
    from matplotlib.lines import Line2D

    for where, series in zip(axes, panels.values(), strict=True):
        missing = [name for name, drawn in series.items() if drawn is None]
        if missing:
            where.set_title(where.get_title(), fontsize=9.5, pad=15)
            text, above = f"missing: {', '.join(missing)}", ((0.5, 1.0), (0, 3), "axes fraction", "offset points")
            where.annotate(text, *above, va="bottom", ha="center", fontsize=7.5, color=GREY, style="italic")
    handles = drawing.entries_of(axes)
    names = dict.fromkeys(name for series in panels.values() for name in series)
    nothing = Line2D([], [], linestyle="none")
    entries = {name if name in handles else f"{name}: missing": handles.get(name, nothing) for name in names}
    drawing.legend_below(figure, entries, note, columns=4)
    return figure


def _draw_planes(
    panels: Panels[T],
    objectives: Mapping[str, tuple[str, str]],
    title: str,
    draw: Callable[[Axes, T, Style, str], None],
    note: str = "",
) -> Figure:
    """Draw two objectives in a panel for each domain; `draw` draws one series."""
    figure, axes, styles = _start(panels, title)
    for where, (name, series) in zip(axes, panels.items(), strict=True):
        for label, drawn in series.items():
            if drawn is not None:
                draw(where, drawn, styles[label], label)
        where.set_xlabel(objectives[name][0], fontsize=9)
        where.set_ylabel(objectives[name][1], fontsize=9)
    return _finish(figure, axes, panels, note)


def _draw_curve(where: Axes, curve: Curve, style: Style, label: str) -> None:
    look = Look(line=style.line, thin=0.0, band=0.15, width=1.5, has_markers=False)
    mean = drawing.draw_seeds(where, curve, style.colour, label, look)
    if curve.goal is None or not len(curve.steps) or curve.steps[-1] >= curve.goal:
        return
    last = int(curve.steps[-1])
    where.axvline(last, color=style.colour, linewidth=0.8, linestyle=(0, (1, 2)))
    where.plot(last, mean[-1], marker="|", markersize=9, color=style.colour)
    where.annotate(
        f"{format_count(last)} of {format_count(curve.goal)}", (last, 0.02), (2, 0), ("data", "axes fraction"),
        "offset points", fontsize=7, color=style.colour, rotation=90, va="bottom",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.5, "pad": 0.5},
    )  # fmt: skip
