"""What all pictures share: size, colours, titles, and how their numbers are shown."""

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qpensieve import metrics
from qpensieve.errors import MissingPackageError, make_folder
from qpensieve.records.atomic import write_file

# matplotlib is an extra and slow to import, so it is imported by the functions that draw.
if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    Axes = Figure = Any

WIDTH = 8.0
"""Width of every picture, inches."""
DPI = 150
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colour-blind-safe (Okabe and Ito), one per run."""
COLOUR_MAP = "viridis"
REVERSED_COLOUR_MAP = f"{COLOUR_MAP}_r"
"""Colour map of generations; the newest is dark, because its front is the thinnest line."""
GREY, PALE = "#555555", "#AAAAAA"


class MissingPlots(MissingPackageError):  # noqa: N818  (says what is wrong; it is caught by this name)
    """matplotlib is not installed."""

    def __init__(self) -> None:
        super().__init__("pictures need matplotlib; install it with: pip install 'qpensieve[plots]'")


def new_figure(height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPlots from error
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.08)  # pyright: ignore[reportOptionalMemberAccess, reportCallIssue]
    return figure


def write_figure(figure: Figure, out: Path) -> Path:
    """Draw into a file, whole or not at all; its ending says in which format."""
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
    """A logarithmic axis whose numbers are written as people write them: 0.06, not 6 times a power of ten."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            is_shown = super().__call__(x, pos)  # few of them have room
            return re.sub(r"e([+-]?)0*", lambda sign: f"e{sign[1].strip('+')}", f"{x:g}") if is_shown else ""

    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(Plain())
    axes.yaxis.set_minor_formatter(Plain())


def add_legend_above(axes: Axes, num_columns: int, share: float, **style: Any) -> None:
    """A legend at the top of a panel, with a share of its height for it alone: it hides no line."""
    scale = axes.yaxis.get_transform()
    low, high = scale.transform(np.array(axes.get_ylim()))
    axes.set_ylim(top=float(scale.inverted().transform(np.array([high + share / (1 - share) * (high - low)]))[0]))
    place = {"loc": "upper center", "ncols": num_columns, "columnspacing": 1.0, "handlelength": 1.2, "frameon": False}
    axes.legend(**place, **style)


def add_colour_bar(figure: Figure, scatter: Any, panels: list[Axes], label: str) -> None:
    bar = figure.colorbar(scatter, ax=panels, fraction=0.05, pad=0.02)
    bar.set_label(label, fontsize=10)
    bar.ax.tick_params(labelsize=9)


def count(num: int, word: str) -> str:
    return f"{num} {word}" if num == 1 else f"{num} {word}s"


def format_mean_std(values: np.ndarray) -> str:
    """Mean ± standard deviation over seeds, with a common power of ten where the mean is large."""
    mean, std = metrics.mean_std(values)
    exponent = int(np.floor(np.log10(abs(mean)))) if abs(mean) >= 1e5 else 0
    scale = 10.0**exponent
    text = " ± ".join(format_like(part / scale, mean / scale) for part in (mean, std)[: len(values)])
    if not exponent:
        return text
    return f"({text})e{exponent}" if len(values) > 1 else f"{text}e{exponent}"


def format_like(value: float, like: float) -> str:
    """`value` with the number of decimals that fits `like`."""
    size = abs(like)
    return f"{value:,.{0 if size >= 1000 else 1 if size >= 100 else decimals(size)}f}"


def decimals(size: float) -> int:
    """Two decimals, or as many as show two digits of a smaller number."""
    return 2 if size >= 0.1 or size == 0 else 1 - int(np.floor(np.log10(size)))
