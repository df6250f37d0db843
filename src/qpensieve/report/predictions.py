"""The picture that compares the predictions of a population (PGMORL) with what was reached."""

from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from qpensieve.report import drawing
from qpensieve.report.drawing import COLOURS, GREY, PALE, REVERSED_COLOUR_MAP
from qpensieve.report.run_data import Points, SearchData, measured_note, read_search

# matplotlib is an extra and slow to import, so it is imported by the functions that draw.
if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    Axes = Figure = Any

MOST_SEEDS = 5
"""Arrows are drawn for at most this many seeds."""
MARGIN = 0.12
"""Margin around the content of a panel, as a share of its range."""


@dataclass(frozen=True)
class _Predictions:
    """Tasks of whole generations that had a prediction, one row each.

    Attributes:
        generation: Counted from 1.
        seed: Counted from 0.
        start: Objectives they started from.
        predicted: Objectives predicted for them.
        reached: Objectives they reached.
    """

    generation: Int64[np.ndarray, " n"]
    seed: Int64[np.ndarray, " n"]
    start: Points
    predicted: Points
    reached: Points

    def where(self, own: Bool[np.ndarray, " n"]) -> "_Predictions":
        return _Predictions(*(rows[own] for rows in vars(self).values()))


def draw_predictions(folder: Path, out: Path) -> Path | None:
    """Draw the predicted changes of the objectives of tasks against the changes they reached.

    Only generations that ran to their full length count. With two objectives, arrows show the newest two of them.

    Args:
        folder: The run folder.
        out: Picture to write.

    Returns:
        The path of the picture; None if nothing was predicted (PFA, or no whole generation yet).

    Raises:
        MissingPlots: If matplotlib is not installed.
        FileNotFoundError: If the folder lacks a file.
        ValueError: If a file is damaged or no iteration is done yet.
    """
    search = read_search(folder)
    tasks = _predictions(search)
    if len(tasks.seed) == 0:
        return None
    figure = _draw_tasks(search, tasks)
    return drawing.write_figure(figure, out)


def _predictions(search: SearchData) -> _Predictions:
    record, whole = search.record, search.is_whole
    num = len(whole)  # a generation that has only been chosen has no result yet
    reached, predicted = record.reached()[0], record.predicted[:num]
    is_known = np.isfinite(predicted).all(axis=3) & whole[:, None, None]
    generation, seed, _ = (index.astype(np.int64) for index in np.nonzero(is_known))
    return _Predictions(generation + 1, seed, record.starts[:num][is_known], predicted[is_known], reached[is_known])


def _draw_tasks(search: SearchData, tasks: _Predictions) -> Figure:
    """Draw a panel per objective; with two objectives, also a panel with arrows per generation."""
    columns = 2 if search.d in (2, 4) else 3
    newest = sorted(set(tasks.generation.tolist()))
    shown = newest[-columns:] if search.d == 2 else []
    heights = [3.4 if columns == 2 else 2.9] * -(-search.d // columns) + [3.6] * bool(shown)
    figure = drawing.new_figure(height=0.9 + sum(heights))
    grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
    panels = [drawing.style(figure.add_subplot(grid[j // columns, j % columns])) for j in range(search.d)]
    scatters = [_draw_changes(axes, search, tasks, j) for j, axes in enumerate(panels)]
    if len(newest) > 1:
        drawing.add_colour_bar(figure, scatters[0], panels, "generation")
    for i, generation in enumerate(shown):
        axes = drawing.style(figure.add_subplot(grid[-1, i] if len(shown) > 1 else grid[-1, :]))
        _draw_arrows(axes, search, tasks.where(tasks.generation == generation))
        if generation == shown[-1]:
            axes.legend(fontsize=8, loc="best", framealpha=0.8)
    count = drawing.count(len(tasks.seed), "task")
    generations = drawing.count(len(newest), "whole generation")
    head = f"{search.run.domain} · {search.run.algo} · {drawing.count(search.record.num_seeds, 'seed')}"
    drawing.set_title(figure, f"{head}\npredictions of {count} in {generations}")
    figure.supxlabel(f"dashed: reached as predicted\n{measured_note(search)}", fontsize=9, color=GREY)
    return figure


def _draw_changes(axes: Axes, search: SearchData, tasks: _Predictions, j: int) -> Any:
    """Draw reached over predicted changes of objective j."""
    predicted, reached = (after[:, j] - tasks.start[:, j] for after in (tasks.predicted, tasks.reached))
    both = np.concatenate([predicted, reached])
    span = float(np.ptp(both)) or abs(float(both[0])) or 1.0
    ends = (float(both.min()) - MARGIN * span, float(both.max()) + MARGIN * span)
    axes.plot(ends, ends, color="black", linestyle="--", linewidth=1, zorder=2)
    axes.axhline(0, color=PALE, linewidth=0.8, zorder=1)
    axes.axvline(0, color=PALE, linewidth=0.8, zorder=1)
    face = {"cmap": REVERSED_COLOUR_MAP, "vmin": 0, "vmax": int(tasks.generation.max()), "linewidths": 0}
    scatter = axes.scatter(predicted, reached, c=tasks.generation, s=18, alpha=0.75, zorder=3, **face)
    error = float(np.abs(predicted - reached).mean())
    scores = f"r {_correlation(predicted, reached)}, mean |error| {drawing.format_like(error, error)}"
    axes.set_title(f"{search.run.objectives[j]}\n{scores}", fontsize=10)
    axes.set(xlim=ends, ylim=ends, box_aspect=1)
    axes.set_xlabel("predicted change", fontsize=10)
    axes.set_ylabel("reached change", fontsize=10)
    return scatter


def _correlation(x: Float64[np.ndarray, " n"], y: Float64[np.ndarray, " n"]) -> str:
    """Pearson's, or a dash if one of the two does not vary."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return "-"
    return f"{np.corrcoef(x, y)[0, 1]:.2f}"


def _draw_arrows(axes: Axes, search: SearchData, tasks: _Predictions) -> None:
    """Draw arrows for one generation: from the start of a task to its prediction, and to what it reached."""
    whole = {"angles": "xy", "scale_units": "xy", "scale": 1, "units": "inches"}
    tasks = tasks.where(tasks.seed < MOST_SEEDS)
    axes.quiver(*tasks.start.T, *(tasks.predicted - tasks.start).T, color=PALE, width=0.02, zorder=2, **whole)
    axes.scatter(*tasks.start.T, s=20, color="black", zorder=4, label="start")
    axes.scatter(*tasks.predicted.T, s=14, color=PALE, zorder=2, label="predicted")
    for seed, (name, colour) in enumerate(zip(search.seed_names[:MOST_SEEDS], cycle(COLOURS), strict=False)):
        own = tasks.where(tasks.seed == seed)
        axes.quiver(*own.start.T, *(own.reached - own.start).T, color=colour, width=0.014, zorder=3, **whole)
        axes.scatter(*own.reached.T, s=10, color=colour, zorder=5, label=f"reached, {name}")
    axes.margins(0.08)
    axes.set_title(f"generation {tasks.generation[0]}", fontsize=10)
    axes.set_xlabel(search.run.labels[0], fontsize=10)
    axes.set_ylabel(search.run.labels[1], fontsize=10)
