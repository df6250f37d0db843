"""The picture of how the archive of a population (PGMORL, PFA) grew over its generations."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64

from qpensieve import metrics
from qpensieve.errors import UserError
from qpensieve.records.search import SearchRecord
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
"""At most this many seeds get their own panel."""
MOST_FRONTS = 7
"""At most this many fronts are drawn in a panel."""
MOST_VOLUMES = 200
"""The hypervolume is computed for at most this many archives of a seed."""
MARGIN = 0.12
"""Margin around the content of a panel, as a share of its range."""
FAR = 1.0
"""The reference is drawn only if its distance from the fronts is below this share of their range."""


def draw_generations(folder: Path, out: Path) -> Path:
    """Draw how the archive grew: its fronts after the warm-up and after generations, and its hypervolume.

    With two objectives every seed (up to five) has a panel. With more, every pair of objectives of the first seed has.

    Args:
        folder: The run folder.
        out: Picture to write.

    Returns:
        The path of the picture.

    Raises:
        MissingPlots: If matplotlib is not installed.
        FileNotFoundError: If the folder lacks a file.
        ValueError: If a file is damaged, no iteration is done yet, or there are fewer than two objectives.
    """
    search = read_search(folder)
    if search.d < 2:
        raise UserError(f"a front needs at least two objectives, but {folder} has {search.d}")
    draw = _draw_planes if search.d == 2 else _draw_pairs
    figure = draw(search)
    return drawing.write_figure(figure, out)


def _draw_planes(search: SearchData) -> Figure:
    """Two objectives: a panel per seed, and the hypervolume."""
    seeds = range(min(MOST_SEEDS, search.record.num_seeds))
    columns = 2 if len(seeds) < 4 else 3
    rows = -(-(len(seeds) + 1) // columns)
    figure = drawing.new_figure(height=1.4 + (3.3 if columns == 2 else 2.9) * rows)
    limits = _limits(search, np.concatenate([search.record.archive_of(seed, search.ends[-1]) for seed in seeds]))
    panels = []
    for seed in seeds:
        share = {"sharex": panels[0], "sharey": panels[0]} if panels else {}
        axes = drawing.style(figure.add_subplot(rows, columns, seed + 1, **share))
        panels.append(axes)
        _draw_plane(axes, search, seed)
        axes.set_title(_archive_title(search, seed), fontsize=10 if columns == 2 else 9)
        axes.set_xlabel(search.run.labels[0], fontsize=10)
        if seed % columns == 0:
            axes.set_ylabel(search.run.labels[1], fontsize=10)
    panels[0].set(xlim=limits[0], ylim=limits[1])
    for axes in panels:
        _show_reference(axes, search, (0, 1))
    panels[0].legend(fontsize=8, loc="lower left", framealpha=0.9)
    _add_generation_bar(figure, search, panels)
    _draw_volumes(drawing.style(figure.add_subplot(rows, columns, len(seeds) + 1)), search)
    _describe(figure, search, _outside(search, seeds, limits))
    return figure


def _draw_plane(axes: Axes, search: SearchData, seed: int) -> None:
    """Draw fronts over all measured policies; earlier ones are broader, so they stay visible under equal later ones."""
    _scatter_measured(axes, search.measured(seed))
    if search.run.exact is not None:
        axes.plot(*search.run.exact.points.T, "x", color="black", markersize=6, zorder=6, label="exact front")
    colour = _generation_colours(search)
    shown = _shown_stages(len(search.ends))
    for stage, width in zip(shown, np.linspace(4.0, 1.2, len(shown)), strict=True):
        front = search.record.archive_of(seed, search.ends[stage])
        if len(front) == 0:
            continue
        front = front[np.argsort(front[:, 0])]
        low = search.record.reference
        # A point covers everything left of it and below it, down to the reference.
        x, y = np.append(front[:, 0], front[-1, 0]), np.append(front[:, 1], low[1])
        x, y = np.insert(x, 0, low[0]), np.insert(y, 0, y[0])
        axes.step(x, y, where="pre", color=colour(stage), linewidth=width, zorder=3)
        axes.plot(*front.T, "o", color=colour(stage), markersize=2.0 + width, markeredgewidth=0, zorder=4)


def _draw_pairs(search: SearchData) -> Figure:
    """More objectives: every pair of them for the first seed, and the hypervolume of all seeds in the free corner."""
    last, record = search.d - 1, search.record
    figure = drawing.new_figure(height=7.6)
    grid = figure.add_gridspec(last, last)
    limits = _limits(search, record.archive_of(0, search.ends[-1]))
    panels: dict[tuple[int, int], Axes] = {}
    for j in range(1, last + 1):
        for i in range(j):
            axes = panels[j, i] = drawing.style(figure.add_subplot(grid[j - 1, i]))
            _draw_pair(axes, search, i, j)
            axes.set(xlim=limits[i], ylim=limits[j])
            axes.tick_params(labelbottom=j == last, labelleft=i == 0)
            _show_reference(axes, search, (i, j))
            if j == last:
                axes.set_xlabel(search.run.labels[i].replace(" (", "\n("), fontsize=10)
            if i == 0:
                axes.set_ylabel(search.run.labels[j], fontsize=10)
    panels[1, 0].set_title(_archive_title(search, 0), fontsize=10)
    panels[1, 0].legend(fontsize=8, loc="best", framealpha=0.9)
    half = last // 2 if last > 2 else 1
    _draw_volumes(drawing.style(figure.add_subplot(grid[:half, half:])), search)
    _add_generation_bar(figure, search, list(panels.values()))
    _describe(figure, search, _outside(search, range(1), limits))
    return figure


def _draw_pair(axes: Axes, search: SearchData, i: int, j: int) -> None:
    """Objective j over i: the first seed's archive, each policy in the colour of the generation that found it."""
    record = search.record
    _scatter_measured(axes, search.measured(0)[:, [i, j]])
    own = record.archive_seed == 0
    stage = record.generation[record.archive_found_at[own]]
    face = {"cmap": REVERSED_COLOUR_MAP, "vmin": 0, "vmax": max(1, len(search.ends) - 1), "linewidths": 0}
    axes.scatter(*record.archive_objs[own][:, [i, j]].T, c=stage, s=22, zorder=3, label="in the archive", **face)


def _scatter_measured(axes: Axes, objs: Float64[np.ndarray, "n 2"]) -> None:
    axes.scatter(*objs.T, s=9, color=PALE, alpha=0.35, linewidths=0, zorder=2, label="measured policy")


def _draw_volumes(axes: Axes, search: SearchData) -> None:
    """The archives' hypervolume over iterations, with a line where each generation begins."""
    for end in search.ends[:-1]:
        axes.axvline(end, color="#CCCCCC", linewidth=0.8, zorder=1)
    if len(search.ends) > 1:
        axes.axvline(search.ends[0], color=GREY, linestyle=":", linewidth=1.2, zorder=1, label="warm-up ends")
    at = _volume_iterations(search)
    for seed, (name, colour) in enumerate(zip(search.seed_names, cycle(COLOURS), strict=False)):
        axes.plot(at, _volumes(search.record, seed, at), color=colour, linewidth=1.5, zorder=3, label=name)
    if search.run.exact is not None:
        best = metrics.hypervolume(search.run.exact.points, search.record.reference)
        axes.axhline(
            best,
            color="black",
            linestyle="--",
            linewidth=1.2,
            label=f"ceiling {drawing.format_like(best, best)} (whole exact front)",
        )
    axes.set_title("archive's hypervolume", fontsize=10)
    axes.set_xlabel("iterations of every task", fontsize=10)
    axes.legend(fontsize=7.5, loc="lower right", framealpha=0.9, labelspacing=0.25, handlelength=1.5)


def _volume_iterations(search: SearchData) -> list[int]:
    """Iterations at which the hypervolume of the archives is computed; they include the ends of generations."""
    spread = np.linspace(1, search.record.num_iterations, min(MOST_VOLUMES, search.record.num_iterations))
    return sorted({*spread.round().astype(int).tolist(), *search.ends})


def _volumes(record: SearchRecord, seed: int, at: Sequence[int]) -> list[float]:
    """`record.hypervolume_of(seed, t)` for increasing t, each archive made from the one before."""
    volumes, archive, done = [], np.empty((0, len(record.reference))), 0
    for t in at:
        new = record.objs[done + 1 : t + 1, seed].reshape(-1, len(record.reference))
        # Points that are not above the reference may stay: they dominate no point above it and have no volume.
        archive = metrics.non_dominated(np.concatenate([archive, new]))
        volumes.append(metrics.hypervolume(archive, record.reference))
        done = t
    return volumes


def _shown_stages(num: int) -> list[int]:
    """The warm-up, the newest generation, and some evenly spaced ones between them."""
    return sorted(set(np.linspace(0, num - 1, min(num, MOST_FRONTS)).round().astype(int).tolist()))


def _generation_colours(search: SearchData) -> Any:
    """Generation -> colour."""
    from matplotlib import colormaps

    return lambda stage: colormaps[REVERSED_COLOUR_MAP](stage / max(1, len(search.ends) - 1))


def _add_generation_bar(figure: Figure, search: SearchData, panels: list[Axes]) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    num = len(search.ends)
    if num == 1:
        return
    colours = ScalarMappable(Normalize(0, num - 1), REVERSED_COLOUR_MAP)
    drawing.add_colour_bar(figure, colours, panels, "generation (0: the warm-up)")
    figure.axes[-1].set_yticks(_shown_stages(num))


def _limits(search: SearchData, shown: Points) -> list[tuple[float, float]]:
    """The range to show per objective: that of `shown`, or of all policies if it is empty.

    It includes a reference that is near. It leaves out the many policies far below, which would make the fronts tiny.
    """
    if len(shown) == 0:
        shown = search.record.objs[1:].reshape(-1, search.d)
    if search.run.exact is not None:
        shown = np.concatenate([shown, search.run.exact.points])
    limits = []
    for values, corner in zip(shown.T, search.record.reference.tolist(), strict=True):
        low, high = float(values.min()), float(values.max())
        span = (high - low) or abs(high) or 1.0
        low = min(low, corner) if low - corner <= FAR * span else low
        limits.append((low - MARGIN * span, high + MARGIN * span))
    return limits


def _show_reference(axes: Axes, search: SearchData, pair: tuple[int, int]) -> None:
    """Draw the reference point if it is within the panel."""
    x, y = search.record.reference[list(pair)].tolist()
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    if left <= x <= right and low <= y <= high:
        axes.plot([x], [y], "P", color=COLOURS[1], markersize=7, zorder=5, label="reference")


def _archive_title(search: SearchData, seed: int) -> str:
    volume, size = search.record.hypervolume_of(seed), len(search.record.archive_of(seed))
    return f"{search.seed_names[seed]}: HV {drawing.format_mean_std(np.array([volume]))}, archive of {size}"


def _outside(search: SearchData, seeds: Sequence[int], limits: Sequence[tuple[float, float]]) -> str:
    """The number of measured policies outside the panels, in words."""
    objs = np.concatenate([search.measured(seed) for seed in seeds])
    low, high = np.array(limits).T
    num = int((~((objs >= low) & (objs <= high)).all(axis=1)).sum())
    return f"{num:,} of {len(objs):,} measured policies are out of sight"


def _describe(figure: Figure, search: SearchData, note: str) -> None:
    record, run = search.record, search.run
    seeds, generations = drawing.count(record.num_seeds, "seed"), drawing.count(record.num_generations, "generation")
    tasks = drawing.count(record.objs.shape[2], "task")
    iterations = drawing.count(record.num_iterations, "iteration")
    drawing.set_title(figure, f"{run.domain} · {run.algo} · {seeds}\n{iterations} of {tasks}, {generations}")
    corner = ", ".join(f"{value:g}" for value in record.reference)
    figure.supxlabel(f"{measured_note(search)}\n{note} · reference ({corner})", fontsize=9, color=GREY)
