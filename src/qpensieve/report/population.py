"""Pictures of a population's search (PGMORL, PFA): how its archive grew, and what it predicted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float64, Int64

from qpensieve import metrics
from qpensieve.console import plural
from qpensieve.errors import UserError
from qpensieve.records import search as searches
from qpensieve.records.folder import SEARCH
from qpensieve.records.search import SearchRecord
from qpensieve.report import drawing
from qpensieve.report.drawing import COLOURS, GENERATION_MAP, GREY, PALE, Axes, Figure, ScalarMappable
from qpensieve.report.results import RunResults

Points = Float64[np.ndarray, "n d"]
MOST_SEEDS = 5
"""At most this many seeds get their own panel or arrows."""
MOST_FRONTS = 7
"""At most this many fronts are drawn in a panel."""
MOST_VOLUMES = 200
"""The hypervolume is computed for at most this many archives of a seed."""
MARGIN = 0.12
"""Margin around the content of a panel, as a share of its range."""
FAR = 1.0
"""The reference is drawn only if its distance from the fronts is below this share of their range."""


@dataclass(frozen=True, eq=False)
class Search:
    """A run and the record of its search."""

    run: RunResults
    record: SearchRecord

    @property
    def d(self) -> int:
        return len(self.record.reference)

    @cached_property
    def ends(self) -> list[int]:
        return self.record.generation_ends()

    @property
    def stages(self) -> Mapping[str, int]:
        """Settings of warm-up and generations."""
        return self.run.config.get("agent", {}).get("stages", {})

    @property
    def seed_names(self) -> list[str]:
        return [f"seed {self.run.first_seed + i}" for i in range(self.record.num_seeds)]

    @property
    def is_whole(self) -> Bool[np.ndarray, " g"]:
        """Whether each generation ran to its full length, by the record and, if known, by the settings."""
        whole, length = self.record.reached()[1], self.stages.get("generation_iterations")
        return whole if length is None else whole & (np.diff(self.ends) == length)

    @property
    def note(self) -> str:
        """How the objectives were measured, for the foot of a picture."""
        episodes = self.stages.get("fitness_episodes")
        how = "" if episodes is None else f": the mean of {plural(episodes, 'episode')} of the mean action"
        return f"objectives as measured during the search{how}"

    def measured(self, seed: int) -> Points:
        """The objectives that every policy of a seed reached."""
        return self.record.objs[1:, seed].reshape(-1, self.d)


@dataclass(frozen=True)
class _Predictions:
    """Tasks of complete generations that had a prediction, one row each.

    Attributes:
        generation: Number of the generation, counted from 1.
        seed: Number of the seed, counted from 0.
        start: Objectives at the start of the task.
        predicted: Predicted objectives.
        reached: Objectives at the end of the task.
    """

    generation: Int64[np.ndarray, " n"]
    seed: Int64[np.ndarray, " n"]
    start: Points
    predicted: Points
    reached: Points

    def where(self, own: Bool[np.ndarray, " n"]) -> "_Predictions":
        return _Predictions(*(rows[own] for rows in vars(self).values()))


def search_of(run: RunResults) -> Search:
    """Return a run with its search; ValueError if no iteration is done yet."""
    search = Search(run, searches.load(run.path / SEARCH))
    if search.record.num_iterations == 0:
        raise UserError(f"{run.path} has no iteration yet; nothing to draw")
    return search


def draw_generations(run: RunResults, out: Path) -> Path:
    """Draw how the archive grew: its fronts after the warm-up and after generations, and its hypervolume.

    With two objectives every seed (up to five) has a panel. With more, every pair of objectives of the first seed has.

    Args:
        run: The run.
        out: Picture to write.

    Returns:
        The path of the picture.

    Raises:
        MissingPlots: matplotlib is not installed.
        FileNotFoundError: The folder lacks a file.
        ValueError: A file is damaged, no iteration is done yet, or there are fewer than two objectives.
    """
    search = search_of(run)
    if search.d < 2:
        raise UserError(f"a front needs at least two objectives, but {run.path} has {search.d}")
    figure = (_draw_planes if search.d == 2 else _draw_pairs)(search)
    record = search.record
    seeds, generations = plural(record.num_seeds, "seed"), plural(record.num_generations, "generation")
    tasks, iterations = plural(record.objs.shape[2], "task"), plural(record.num_iterations, "iteration")
    drawing.set_title(figure, f"{run.domain} · {run.algo} · {seeds}\n{iterations} of {tasks}, {generations}")
    return drawing.write_figure(figure, out)


def draw_predictions(run: RunResults, out: Path) -> Path | None:
    """Draw the predicted changes of the objectives of tasks against the changes they reached.

    Only generations that ran to their full length count. With two objectives, arrows show the newest two generations.

    Args:
        run: The run.
        out: Picture to write.

    Returns:
        The path of the picture; None if nothing was predicted (PFA, or no whole generation yet).

    Raises:
        MissingPlots: matplotlib is not installed.
        FileNotFoundError: The folder lacks a file.
        ValueError: A file is damaged or no iteration is done yet.
    """
    search = search_of(run)
    tasks = _predictions(search)
    return None if len(tasks.seed) == 0 else drawing.write_figure(_draw_tasks(search, tasks), out)


def _draw_planes(search: Search) -> Figure:
    """Draw two objectives: a panel per seed, and the hypervolume."""
    seeds = range(min(MOST_SEEDS, search.record.num_seeds))
    columns = 2 if len(seeds) < 4 else 3
    rows = -(-(len(seeds) + 1) // columns)
    figure = drawing.new_figure(height=1.7 + (3.3 if columns == 2 else 2.9) * rows)
    limits = _limits(search, np.concatenate([search.record.archive_of(seed, search.ends[-1]) for seed in seeds]))
    *panels, volumes = drawing.panels(figure, len(seeds) + 1, columns, share=False)
    for seed, axes in enumerate(panels):
        _draw_plane(axes, search, seed)
        axes.set_title(_archive_title(search, seed), fontsize=10 if columns == 2 else 9)
        axes.set_xlabel(search.run.labels[0], fontsize=10)
        if seed % columns == 0:
            axes.set_ylabel(search.run.labels[1], fontsize=10)
        axes.set(xlim=limits[0], ylim=limits[1])
        _show_reference(axes, search, (0, 1))
    _finish(figure, search, panels, volumes, _outside(search, seeds, limits))
    return figure


def _draw_plane(axes: Axes, search: Search, seed: int) -> None:
    """Draw fronts over all measured policies; earlier ones are broader, so they stay visible under equal later ones."""
    from matplotlib import colormaps

    _scatter_measured(axes, search.measured(seed))
    if search.run.exact is not None:
        axes.plot(*search.run.exact.points.T, "x", color="black", markersize=6, zorder=6, label="exact front")
    shown = _shown_stages(len(search.ends))
    for stage, width in zip(shown, np.linspace(4.0, 1.2, len(shown)), strict=True):
        front = search.record.archive_of(seed, search.ends[stage])
        if len(front):
            colour = colormaps[GENERATION_MAP](stage / max(1, len(search.ends) - 1))
            drawing.draw_steps(axes, front, search.record.reference, color=colour, linewidth=width, zorder=3)
            axes.plot(*front.T, "o", color=colour, markersize=2.0 + width, markeredgewidth=0, zorder=4)


def _draw_pairs(search: Search) -> Figure:
    """Draw every pair of objectives for the first seed, and the hypervolume of all seeds in the free corner."""
    last, record = search.d - 1, search.record
    figure = drawing.new_figure(height=7.9)
    limits = _limits(search, record.archive_of(0, search.ends[-1]))
    own = record.archive_seed == 0
    stage = record.generation[record.archive_found_at[own]]
    face = {"cmap": GENERATION_MAP, "vmin": 0, "vmax": max(1, len(search.ends) - 1), "linewidths": 0}
    panels, grid = [], figure.add_gridspec(last, last)
    for axes, i, j in drawing.pairs(figure, grid, search.run.labels):
        panels.append(axes)
        _scatter_measured(axes, search.measured(0)[:, [i, j]])
        axes.scatter(*record.archive_objs[own][:, [i, j]].T, c=stage, s=22, zorder=3, label="in the archive", **face)
        axes.set(xlim=limits[i], ylim=limits[j])
        _show_reference(axes, search, (i, j))
    panels[0].set_title(_archive_title(search, 0), fontsize=10)
    half = last // 2 if last > 2 else 1
    volumes = drawing.style(figure.add_subplot(grid[:half, half:]))
    _finish(figure, search, panels, volumes, _outside(search, range(1), limits))
    return figure


def _finish(figure: Figure, search: Search, panels: list[Axes], volumes: Axes, outside: str) -> None:
    """Draw the hypervolume, the legend, the bar of generations and the foot."""
    _draw_volumes(volumes, search)
    _add_generation_bar(figure, search, panels)
    corner = ", ".join(f"{value:g}" for value in search.record.reference)
    note = f"{search.note}\n{outside} · reference ({corner})"
    drawing.legend_below(figure, drawing.entries_of([*panels, volumes]), note, columns=4)


def _scatter_measured(axes: Axes, objs: Float64[np.ndarray, "n 2"]) -> None:
    axes.scatter(*objs.T, s=9, color=PALE, alpha=0.35, linewidths=0, zorder=2, label="measured policy")


def _draw_volumes(axes: Axes, search: Search) -> None:
    """Draw the hypervolume of the archives over iterations, with a line where each generation begins."""
    for end in search.ends[:-1]:
        axes.axvline(end, color="#CCCCCC", linewidth=0.8, zorder=1)
    if len(search.ends) > 1:
        axes.axvline(search.ends[0], color=GREY, linestyle=":", linewidth=1.2, zorder=1, label="warm-up ends")
    num = search.record.num_iterations
    spread = np.linspace(1, num, min(MOST_VOLUMES, num)).round().astype(int)
    at = sorted({*spread.tolist(), *search.ends})
    for seed, (name, colour) in enumerate(zip(search.seed_names, cycle(COLOURS), strict=False)):
        axes.plot(at, _volumes(search.record, seed, at), color=colour, linewidth=1.5, zorder=3, label=name)
    if search.run.exact is not None:
        best = metrics.hypervolume(search.run.exact.points, search.record.reference)
        label = f"ceiling {drawing.format_like(best, best)} (whole exact front)"
        axes.axhline(best, color="black", linestyle="--", linewidth=1.2, label=label)
    axes.set_title("archive's hypervolume", fontsize=10)
    axes.set_xlabel("iterations of every task", fontsize=10)


def _volumes(record: SearchRecord, seed: int, at: Sequence[int]) -> list[float]:
    """Return `record.hypervolume_of(seed, t)` for increasing t; each archive is made from the archive before."""
    volumes, archive, done = [], np.empty((0, len(record.reference))), 0
    for t in at:
        new = record.objs[done + 1 : t + 1, seed].reshape(-1, len(record.reference))
        # Points that are not above the reference may stay: they dominate no point above it and have no volume.
        archive = metrics.non_dominated(np.concatenate([archive, new]))
        volumes.append(metrics.hypervolume(archive, record.reference))
        done = t
    return volumes


def _shown_stages(num: int) -> list[int]:
    """Return the warm-up (0), the newest generation, and some evenly spaced generations between them."""
    return sorted(set(np.linspace(0, num - 1, min(num, MOST_FRONTS)).round().astype(int).tolist()))


def _add_generation_bar(figure: Figure, search: Search, panels: list[Axes]) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    num = len(search.ends)
    if num > 1:
        colours = ScalarMappable(Normalize(0, num - 1), GENERATION_MAP)
        drawing.add_colour_bar(figure, colours, panels, "generation (0: the warm-up)")
        figure.axes[-1].set_yticks(_shown_stages(num))


def _limits(search: Search, shown: Points) -> list[tuple[float, float]]:
    """Return the range to show per objective: the range of `shown`, or of all policies if `shown` is empty.

    The range includes a near reference point. It leaves out policies far below, with which the fronts would look tiny.
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


def _show_reference(axes: Axes, search: Search, pair: tuple[int, int]) -> None:
    """Draw the reference point if it is within the panel."""
    x, y = search.record.reference[list(pair)].tolist()
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    if left <= x <= right and low <= y <= high:
        axes.plot([x], [y], "P", color=COLOURS[1], markersize=7, zorder=5, label="reference")


def _archive_title(search: Search, seed: int) -> str:
    volume, size = search.record.hypervolume_of(seed), len(search.record.archive_of(seed))
    return f"{search.seed_names[seed]}: HV {drawing.format_mean_std(np.array([volume]))}, archive of {size}"


def _outside(search: Search, seeds: Sequence[int], limits: Sequence[tuple[float, float]]) -> str:
    """Return in words how many measured policies are outside the panels."""
    objs = np.concatenate([search.measured(seed) for seed in seeds])
    low, high = np.array(limits).T
    num = int((~((objs >= low) & (objs <= high)).all(axis=1)).sum())
    return f"{num:,} of {len(objs):,} measured policies are out of sight"


def _predictions(search: Search) -> _Predictions:
    record, whole = search.record, search.is_whole
    num = len(whole)  # a generation that has only been chosen has no result yet
    reached, predicted = record.reached()[0], record.predicted[:num]
    is_known = np.isfinite(predicted).all(axis=3) & whole[:, None, None]
    generation, seed, _ = (index.astype(np.int64) for index in np.nonzero(is_known))
    return _Predictions(generation + 1, seed, record.starts[:num][is_known], predicted[is_known], reached[is_known])


def _draw_tasks(search: Search, tasks: _Predictions) -> Figure:
    """Draw a panel per objective; with two objectives, also a panel with arrows per generation."""
    columns = 2 if search.d in (2, 4) else 3
    newest = sorted(set(tasks.generation.tolist()))
    shown = newest[-columns:] if search.d == 2 else []
    heights = [3.4 if columns == 2 else 2.9] * -(-search.d // columns) + [3.6] * bool(shown)
    figure = drawing.new_figure(height=1.2 + sum(heights))
    grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
    panels = [drawing.style(figure.add_subplot(grid[j // columns, j % columns])) for j in range(search.d)]
    scatters = [_draw_changes(axes, search, tasks, j) for j, axes in enumerate(panels)]
    if len(newest) > 1:
        drawing.add_colour_bar(figure, scatters[0], panels, "generation")
    arrows = []
    for i, generation in enumerate(shown):
        arrows.append(drawing.style(figure.add_subplot(grid[-1, i] if len(shown) > 1 else grid[-1, :])))
        _draw_arrows(arrows[-1], search, tasks.where(tasks.generation == generation))
    note = f"dashed: reached as predicted\n{search.note}"
    drawing.legend_below(figure, drawing.entries_of(arrows), note, columns=4)
    count = plural(len(tasks.seed), "task")
    generations = plural(len(newest), "whole generation")
    head = f"{search.run.domain} · {search.run.algo} · {plural(search.record.num_seeds, 'seed')}"
    drawing.set_title(figure, f"{head}\npredictions of {count} in {generations}")
    return figure


def _draw_changes(axes: Axes, search: Search, tasks: _Predictions, j: int) -> ScalarMappable:
    """Draw reached over predicted changes of objective j."""
    predicted, reached = (after[:, j] - tasks.start[:, j] for after in (tasks.predicted, tasks.reached))
    both = np.concatenate([predicted, reached])
    span = float(np.ptp(both)) or abs(float(both[0])) or 1.0
    ends = (float(both.min()) - MARGIN * span, float(both.max()) + MARGIN * span)
    axes.plot(ends, ends, color="black", linestyle="--", linewidth=1, zorder=2)
    axes.axhline(0, color=PALE, linewidth=0.8, zorder=1)
    axes.axvline(0, color=PALE, linewidth=0.8, zorder=1)
    face = {"cmap": GENERATION_MAP, "vmin": 0, "vmax": int(tasks.generation.max()), "linewidths": 0}
    scatter = axes.scatter(predicted, reached, c=tasks.generation, s=18, alpha=0.75, zorder=3, **face)
    error = float(np.abs(predicted - reached).mean())
    # Pearson's correlation needs values that vary.
    is_flat = np.ptp(predicted) == 0 or np.ptp(reached) == 0
    r = "-" if is_flat else f"{np.corrcoef(predicted, reached)[0, 1]:.2f}"
    title = f"{search.run.objectives[j]}\nr {r}, mean |error| {drawing.format_like(error, error)}"
    axes.set_title(title, fontsize=10)
    axes.set(xlim=ends, ylim=ends, box_aspect=1)
    axes.set_xlabel("predicted change", fontsize=10)
    axes.set_ylabel("reached change", fontsize=10)
    return scatter


def _draw_arrows(axes: Axes, search: Search, tasks: _Predictions) -> None:
    """Draw arrows for one generation: from the start of each task to its predicted and to its reached objectives."""
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
