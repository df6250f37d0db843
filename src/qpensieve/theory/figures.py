"""The two pictures of `qpensieve theory`: the gap to the optimum, and the front as the temperature falls."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from qpensieve.report import drawing
from qpensieve.report.drawing import COLOURS, GREY, Axes
from qpensieve.theory.coverage import SoftFront

SIZE = (4.2, 10.0)
"""Height and width of a picture, inches."""
FLOOR = 1e-12
"""Smallest gap that is drawn; smaller ones are rounding."""
Curves = Mapping[str, Sequence[float]]
"""Method -> gap to the optimum at each iteration."""


def draw_gaps(path: Path, title: str, panels: Mapping[str, Curves]) -> Path:
    """Draw the gap to the optimum per iteration: one panel per kind of critic, one line per method."""
    figure = drawing.new_figure(*SIZE)
    figure.suptitle(title, fontsize=12)
    for axes, (name, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        _draw_curves(axes, curves)
        axes.set_title(name, fontsize=11)
        axes.set_xlabel("iteration")
    figure.axes[0].set_ylabel("largest gap to the optimum")
    figure.axes[0].legend(fontsize=8.5)
    return drawing.write_figure(figure, path)


def _draw_curves(axes: Axes, curves: Curves) -> None:
    # Equal lines stay visible: the first is the widest and is drawn below the others.
    for i, (name, gaps) in enumerate(curves.items()):
        values = np.maximum(gaps, FLOOR)
        width = 1.2 + 0.8 * (len(curves) - 1 - i)
        axes.plot(values, color=COLOURS[i % len(COLOURS)], linewidth=width, label=name, solid_capstyle="round")
    axes.set_yscale("log")
    axes.grid(alpha=0.3)


def draw_front(path: Path, title: str, vertices: Float64[np.ndarray, "n 2"], fronts: Sequence[SoftFront]) -> Path:
    """Draw the returns of the final policies per temperature, the exact coverage set, and their loss with its bound."""
    figure = drawing.new_figure(*SIZE)
    from matplotlib import colormaps  # new_figure has said so if matplotlib is missing

    figure.suptitle(title, fontsize=12)
    left, right = figure.subplots(1, 2)
    colours = colormaps["viridis"](np.linspace(0.95, 0.0, len(fronts)))
    left.plot(*vertices.T, color="black", linewidth=1, marker="o", markersize=9, fillstyle="none", label="exact set")
    for front, colour in zip(fronts, colours, strict=True):
        left.scatter(*front.returns.T, s=12, color=colour, label=f"temperature {front.alpha:g}", zorder=3)
    _zoom(left, vertices)
    left.set(xlabel="discounted return, objective 1", ylabel="discounted return, objective 2")
    left.legend(fontsize=8)
    alphas = [front.alpha for front in fronts]
    right.plot(alphas, [front.bound for front in fronts], color=GREY, linestyle="--", label="bound")
    worst = [max(float(front.loss.max()), FLOOR) for front in fronts]
    right.plot(alphas, worst, color=COLOURS[0], marker="o", label="largest loss over preferences")
    right.set(xscale="log", yscale="log", xlabel="temperature", title="loss against the best scalarised return")
    right.grid(alpha=0.3)
    right.legend(fontsize=8.5)
    return drawing.write_figure(figure, path)


def _zoom(axes: Axes, vertices: Float64[np.ndarray, "n 2"]) -> None:
    """Show the front with a margin of half its size: at high temperatures the policies are far away."""
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    room = 0.5 * np.maximum(high - low, 1e-3)
    axes.set_xlim(low[0] - room[0], high[0] + 0.3 * room[0])
    axes.set_ylim(low[1] - room[1], high[1] + 0.3 * room[1])
