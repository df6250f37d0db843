"""Parts that pictures share: size, colours, titles, legends, curves over seeds, fronts, pairs of objectives."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64, Int64

from qpensieve import metrics
from qpensieve.errors import MissingPackageError, UserError, make_folder
from qpensieve.records.files import write_file
from qpensieve.records.folder import refuse_link

# matplotlib is an extra and slow to import, so it is imported by the functions that draw.
if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure
    from matplotlib.gridspec import GridSpec
else:
    Artist = Axes = Figure = GridSpec = ScalarMappable = Any

WIDTH = 8.0
"""Width of most pictures, inches."""
DPI = 150
SUFFIXES = (".png", ".pdf", ".svg", ".jpg", ".jpeg")
"""Endings of the files of pictures."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colour-blind-safe (Okabe and Ito), one per run."""
OBJECTIVE_COLOURS = ("#2563eb", "#dc3f6a", "#0b8f6a", "#b45f06", "#7c3aed", "#0e7490", "#5b6472", "#a21caf")
"""One per objective, as on the page of `watch` (`palette.js`); a preference gets their mixture."""
GENERATION_MAP = "viridis_r"
"""Colour map of generations; the newest is dark, because its front is the thinnest line."""
GREY, PALE = "#555555", "#AAAAAA"
MOST_MARKERS = 30
"""Evaluations get markers if there are at most this many."""
Colour = str | tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Curve:
    """A quantity over training.

    Attributes:
        steps: Environment steps, increasing.
        values: One value per step and seed.
        goal: Steps of the whole run. None: the curve is complete.
    """

    steps: Int64[np.ndarray, " t"]
    values: Float64[np.ndarray, "t seed"]
    goal: int | None = None


@dataclass(frozen=True)
class Look:
    """How a curve over seeds is drawn.

    Attributes:
        line: Style of the mean.
        thin: Opacity of the lines of seeds; 0: none.
        band: Opacity of the band of one standard deviation; 0: none.
        width: Width of the mean.
        has_markers: Whether the mean of few evaluations has markers.
    """

    line: str | tuple[int, tuple[int, ...]] = "-"
    thin: float = 0.5
    band: float = 0.18
    width: float = 1.8
    has_markers: bool = True


SEEDS_AND_BAND = Look()


class MissingPlots(MissingPackageError):  # noqa: N818  (says what is wrong; it is caught by this name)
    """matplotlib is not installed."""

    def __init__(self) -> None:
        super().__init__("pictures need matplotlib; install it with: pip install 'qpensieve[plots]'")


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """Make an empty figure; MissingPlots if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPlots from error
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.08)  # pyright: ignore[reportOptionalMemberAccess, reportCallIssue]
    return figure


def check_picture(path: Path) -> Path:
    """Check that a picture can be written to a path, and return the path.

    Raises:
        ValueError: The path does not end like a picture.
        LinkError: The path is a symbolic link.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"the name of a picture must end in {', '.join(SUFFIXES)}; got {path}")
    refuse_link(path)
    return path


def write_figure(figure: Figure, out: Path) -> Path:
    """Write a figure to a file, whole or not at all; the file's ending names the format."""
    picture = io.BytesIO()
    figure.savefig(picture, format=out.suffix.removeprefix(".") or "png")
    make_folder(out.parent)
    write_file(out, lambda file: file.write(picture.getbuffer()))
    return out


def set_title(figure: Figure, title: str) -> None:
    figure.suptitle(title, fontsize=13, fontweight="bold")


def style(axes: Axes) -> Axes:
    axes.grid(True, color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)
    return axes


def set_log(axes: Axes) -> None:
    """Make the vertical axis logarithmic, with numbers such as 0.06 instead of 6 times a power of ten."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            is_shown = super().__call__(x, pos)  # few of them have room
            return re.sub(r"e([+-]?)0*", lambda sign: f"e{sign[1].strip('+')}", f"{x:g}") if is_shown else ""

    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(Plain())
    axes.yaxis.set_minor_formatter(Plain())


def add_legend_above(axes: Axes, num_columns: int, share: float, **style: Any) -> None:
    """Add a legend at the top of a panel; the panel grows by a share of its height, so the legend hides no line."""
    scale = axes.yaxis.get_transform()
    low, high = scale.transform(np.array(axes.get_ylim()))
    axes.set_ylim(top=float(scale.inverted().transform(np.array([high + share / (1 - share) * (high - low)]))[0]))
    place = {"loc": "upper center", "ncols": num_columns, "columnspacing": 1.0, "handlelength": 1.2, "frameon": False}
    axes.legend(**place, **style)


def panels(figure: Figure, num: int, columns: int = 2, share: bool = True) -> list[Axes]:
    """Add panels in rows; with `share` they have one horizontal axis, of environment steps."""
    from matplotlib.ticker import EngFormatter

    columns = min(num, columns)
    made: list[Axes] = []
    for i in range(num):
        first = made[0] if made and share else None
        made.append(style(figure.add_subplot(-(-num // columns), columns, i + 1, sharex=first)))
        if share:
            made[-1].xaxis.set_major_formatter(EngFormatter(sep=""))
    return made


def pairs(figure: Figure, grid: GridSpec, labels: Sequence[str]) -> Iterator[tuple[Axes, int, int]]:
    """Add a panel for each pair of objectives (i, j); columns share the horizontal objective, rows the vertical one."""
    last = len(labels) - 1
    made: dict[tuple[int, int], Axes] = {}
    for j in range(1, last + 1):
        for i in range(j):
            share = {"sharex": made.get((j - 1, i)), "sharey": made.get((j, i - 1))}
            axes = made[j, i] = style(figure.add_subplot(grid[j - 1, i], **share))
            yield axes, i, j
            axes.tick_params(labelbottom=j == last, labelleft=i == 0)
            if j == last:
                axes.set_xlabel(labels[i].replace(" (", "\n("), fontsize=10)
            if i == 0:
                axes.set_ylabel(labels[j], fontsize=10)


def draw_seeds(
    axes: Axes, curve: Curve, colour: Colour, label: str | None = None, look: Look = SEEDS_AND_BAND
) -> Float64[np.ndarray, " t"]:
    """Draw a thin line for each seed, their mean, and a band of one standard deviation; return the mean.

    On a logarithmic axis, mean and deviation are taken over logarithms. Values that are not finite are left out.

    Args:
        axes: The panel.
        curve: The quantity.
        colour: Colour of all lines.
        label: Name in the legend.
        look: Which of these parts are drawn, and how.
    """
    steps, values = curve.steps, curve.values
    forward, back = (np.log, np.exp) if axes.get_yscale() == "log" else (np.array, np.array)
    scaled = np.ma.masked_invalid(forward(values))
    mean, std = scaled.mean(axis=1).filled(np.nan), scaled.std(axis=1).filled(np.nan)
    if values.shape[1] > 1 and look.band:
        ends = back(mean - std), back(mean + std)
        axes.fill_between(steps, *ends, color=colour, alpha=look.band, linewidth=0, zorder=2)
    if values.shape[1] > 1 and look.thin:
        axes.plot(steps, values, color=colour, alpha=look.thin, linewidth=0.8, zorder=3)
    there = np.ma.masked_invalid(values)  # rounding must not put the mean of a logarithm outside its values
    middle = np.clip(back(mean), there.min(axis=1).filled(np.nan), there.max(axis=1).filled(np.nan))
    # A single evaluation has no line, so it gets a marker.
    most = MOST_MARKERS if look.has_markers else 1
    marker = {"marker": "o", "markersize": 3.5} if len(steps) <= most else {}
    axes.plot(steps, middle, color=colour, linestyle=look.line, linewidth=look.width, zorder=4, label=label, **marker)
    return middle


def draw_steps(axes: Axes, points: Float64[np.ndarray, "n 2"], corner: np.ndarray | None = None, **style: Any) -> None:
    """Draw the boundary of the region that some points dominate, down to the corner."""
    x, y = points[np.argsort(points[:, 0])].T
    if corner is not None:
        x, y = np.append(x, x[-1]), np.append(y, corner[1])
        x, y = np.insert(x, 0, corner[0]), np.insert(y, 0, y[0])
    axes.step(x, y, where="pre", **style)


def entries_of(panels: Sequence[Axes]) -> dict[str, Artist]:
    """Return label -> handle of the legend entries of some panels; of equal labels the last one."""
    pairs = [zip(*reversed(axes.get_legend_handles_labels()), strict=True) for axes in panels]
    return {label: handle for each in pairs for label, handle in each}


def legend_below(figure: Figure, entries: Mapping[str, Artist], note: str = "", columns: int = 2) -> None:
    """Add a note and a legend below all panels, where they hide nothing."""
    if not entries:
        figure.supxlabel(note, fontsize=9, color=GREY)
        return
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": min(len(entries), columns)}
    words = {"title": note or None, "title_fontsize": 9, "fontsize": 9, "frameon": False}
    legend = figure.legend(list(entries.values()), list(entries), **place, **words)
    legend.get_title().set_color(GREY)
    legend.get_title().set_multialignment("center")


def preference_colours(lam: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, "n 3"]:
    """Return the colour of each preference: its objectives' colours, mixed as light (squares of the values)."""
    hexes = [OBJECTIVE_COLOURS[i % len(OBJECTIVE_COLOURS)] for i in range(lam.shape[1])]
    channels = np.array([[int(code[at : at + 2], 16) / 255 for at in (1, 3, 5)] for code in hexes])
    return np.sqrt(np.clip(lam @ channels**2, 0.0, 1.0))


def explain_preferences(figure: Figure, panels: list[Axes], objectives: Sequence[str]) -> dict[str, Artist]:
    """Add a bar for the colours of preferences over two objectives; for more, return entries of a legend."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap
    from matplotlib.lines import Line2D

    if len(objectives) == 2:
        share = np.linspace(0.0, 1.0, 256)
        colours = ListedColormap(preference_colours(np.stack([share, 1 - share], axis=1)))
        add_colour_bar(figure, ScalarMappable(cmap=colours), panels, f"λ₁: preference for {objectives[0]}")
        return {}
    pure = [tuple(colour) for colour in preference_colours(np.eye(len(objectives)))]
    dot = lambda colour: Line2D([], [], linestyle="none", marker="o", color=colour)
    return {f"λ for {name} alone": dot(colour) for name, colour in zip(objectives, pure, strict=True)}


def add_colour_bar(figure: Figure, scatter: ScalarMappable, panels: list[Axes], label: str) -> None:
    bar = figure.colorbar(scatter, ax=panels, fraction=0.05, pad=0.02)
    bar.set_label(label, fontsize=10)
    bar.ax.tick_params(labelsize=9)


def format_mean_std(values: np.ndarray) -> str:
    """Return mean ± standard deviation over seeds, with a common power of ten if the mean is large."""
    mean, std = metrics.mean_std(values)
    exponent = int(np.floor(np.log10(abs(mean)))) if abs(mean) >= 1e5 else 0
    scale = 10.0**exponent
    text = " ± ".join(format_like(part / scale, mean / scale) for part in (mean, std)[: len(values)])
    if not exponent:
        return text
    return f"({text})e{exponent}" if len(values) > 1 else f"{text}e{exponent}"


def format_like(value: float, like: float) -> str:
    """Return `value` with the number of decimals that fits `like`."""
    size = abs(like)
    return f"{value:,.{0 if size >= 1000 else 1 if size >= 100 else decimals(size)}f}"


def decimals(size: float) -> int:
    """Return the number of decimals for numbers of this size: 2, or enough for two digits of a smaller number."""
    return 2 if size >= 0.1 or size == 0 else 1 - int(np.floor(np.log10(size)))
