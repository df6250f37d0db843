"""Pictures of a population's search (PGMORL, PFA): how its archive grew, and how far its predictions came true."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from qpensieve import metrics
from qpensieve.envs import dst
from qpensieve.records import search as records
from qpensieve.records.folder import SEARCH
from qpensieve.records.search import SearchRecord
from qpensieve.report import figures
from qpensieve.report.figures import COLOURS, GREY

# matplotlib is an extra and slow to import, so it is imported by the functions that draw.
if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    Axes = Figure = Any

GENERATIONS, PREDICTIONS = "generations.png", "predictions.png"
MOST_SEEDS = 5
"""So many seeds at most get a panel of their own."""
MOST_FRONTS = 7
"""So many fronts at most are drawn into a panel."""
MOST_VOLUMES = 200
"""Of so many archives of a seed at most the hypervolume is taken."""
MARGIN = 0.12
"""Room around what a panel is about, as a share of what that spans."""
FAR = 1.0
"""A reference further from the fronts than this share of what they span is named, not drawn."""
PALE = "#AAAAAA"
COLOUR_MAP = f"{figures.COLOUR_MAP}_r"
"""Of generations; the newest is dark, since its front is drawn thinnest."""

Points = Float64[np.ndarray, "n d"]


@dataclass(frozen=True)
class _Search:
    """A run, and the record of its search."""

    run: figures._Run
    record: SearchRecord

    @property
    def d(self) -> int:
        return len(self.record.reference)

    @property
    def is_dst(self) -> bool:
        return self.run.domain == "DST2d" and self.d == 2

    @cached_property
    def ends(self) -> list[int]:
        return self.record.generation_ends()

    @property
    def stages(self) -> dict[str, Any]:
        """Settings of warm-up and generations."""
        return self.run.config.get("agent", {}).get("stages", {})

    @property
    def seed_names(self) -> list[str]:
        first = int(self.run.config.get("first_seed", 0))
        return [f"seed {first + i}" for i in range(self.record.num_seeds)]

    @property
    def is_whole(self) -> Bool[np.ndarray, " g"]:
        """Whether a generation ran to its full length; a record with only one cannot tell, its settings can."""
        whole, length = self.record.reached()[1], self.stages.get("generation_iterations")
        return whole if length is None else whole & (np.diff(self.ends) == length)

    def measured(self, seed: int) -> Points:
        """What every policy of a seed reached."""
        return self.record.objs[1:, seed].reshape(-1, self.d)


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


def draw_generations(folder: Path, out: Path | None = None) -> Path:
    """Draw how the archive grew: its fronts after the warm-up and after generations, and its hypervolume.

    With two objectives every seed (up to five) has a panel. With more, the pairs of objectives of the first seed have.

    Args:
        folder: Folder of the run.
        out: Picture to write; `generations.png` in the folder if None.

    Returns:
        The path of the picture.

    Raises:
        MissingPlots: If matplotlib is not installed.
        FileNotFoundError: If the folder lacks a file.
        ValueError: If a file is damaged, no iteration is done yet, or there are fewer than two objectives.
    """
    search = _read(folder)
    if search.d < 2:
        raise ValueError(f"a front needs at least two objectives, {folder} has {search.d}")
    draw = _draw_planes if search.d == 2 else _draw_pairs
    figure = draw(search)
    return figures.write_figure(figure, out or folder / GENERATIONS)


def draw_predictions(folder: Path, out: Path | None = None) -> Path | None:
    """Draw the changes of the objectives that were predicted for tasks against those that they reached.

    Only generations that ran to their full length count. With two objectives, arrows show the newest two of them.

    Args:
        folder: Folder of the run.
        out: Picture to write; `predictions.png` in the folder if None.

    Returns:
        The path of the picture; None where nothing was predicted (PFA, or no whole generation yet).

    Raises:
        MissingPlots: If matplotlib is not installed.
        FileNotFoundError: If the folder lacks a file.
        ValueError: If a file is damaged or no iteration is done yet.
    """
    search = _read(folder)
    tasks = _predictions(search)
    if len(tasks.seed) == 0:
        return None
    figure = _draw_tasks(search, tasks)
    return figures.write_figure(figure, out or folder / PREDICTIONS)


def _read(folder: Path) -> _Search:
    search = _Search(figures._read_run(folder), records.load(folder / SEARCH))
    if search.record.num_iterations == 0:
        raise ValueError(f"{folder} has no iteration yet; nothing to draw")
    return search


def _draw_planes(search: _Search) -> Figure:
    """Two objectives: a panel per seed, and the hypervolume."""
    seeds = range(min(MOST_SEEDS, search.record.num_seeds))
    columns = 2 if len(seeds) < 4 else 3
    rows = -(-(len(seeds) + 1) // columns)
    figure = figures.new_figure(height=1.4 + (3.3 if columns == 2 else 2.9) * rows)
    limits = _limits(search, np.concatenate([search.record.archive_of(seed, search.ends[-1]) for seed in seeds]))
    panels = []
    for seed in seeds:
        share = {"sharex": panels[0], "sharey": panels[0]} if panels else {}
        axes = figures._style(figure.add_subplot(rows, columns, seed + 1, **share))
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
    _draw_volumes(figures._style(figure.add_subplot(rows, columns, len(seeds) + 1)), search)
    _describe(figure, search, _outside(search, seeds, limits))
    return figure


def _draw_plane(axes: Axes, search: _Search, seed: int) -> None:
    """Fronts over all that was measured; earlier ones are broader, so that they show where a later one is the same."""
    _scatter_measured(axes, search.measured(seed))
    if search.is_dst:
        axes.plot(*dst.exact_front().T, "x", color="black", markersize=6, zorder=6, label="exact front")
    colour = _generation_colours(search)
    shown = _shown_stages(len(search.ends))
    for stage, width in zip(shown, np.linspace(4.0, 1.2, len(shown)), strict=True):
        front = search.record.archive_of(seed, search.ends[stage])
        if len(front) == 0:
            continue
        front = front[np.argsort(front[:, 0])]
        low = search.record.reference
        # A point reaches all that is left of and below it, down to the reference.
        x, y = np.append(front[:, 0], front[-1, 0]), np.append(front[:, 1], low[1])
        x, y = np.insert(x, 0, low[0]), np.insert(y, 0, y[0])
        axes.step(x, y, where="pre", color=colour(stage), linewidth=width, zorder=3)
        axes.plot(*front.T, "o", color=colour(stage), markersize=2.0 + width, markeredgewidth=0, zorder=4)


def _draw_pairs(search: _Search) -> Figure:
    """More objectives: every pair of them for the first seed, and the hypervolume of all seeds in the free corner."""
    last, record = search.d - 1, search.record
    figure = figures.new_figure(height=7.6)
    grid = figure.add_gridspec(last, last)
    limits = _limits(search, record.archive_of(0, search.ends[-1]))
    panels: dict[tuple[int, int], Axes] = {}
    for j in range(1, last + 1):
        for i in range(j):
            axes = panels[j, i] = figures._style(figure.add_subplot(grid[j - 1, i]))
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
    _draw_volumes(figures._style(figure.add_subplot(grid[:half, half:])), search)
    _add_generation_bar(figure, search, list(panels.values()))
    _describe(figure, search, _outside(search, range(1), limits))
    return figure


def _draw_pair(axes: Axes, search: _Search, i: int, j: int) -> None:
    """Objective j over i: the first seed's archive, each policy in the colour of the generation that found it."""
    record = search.record
    _scatter_measured(axes, search.measured(0)[:, [i, j]])
    own = record.archive_seed == 0
    stage = record.generation[record.archive_found_at[own]]
    face = {"cmap": COLOUR_MAP, "vmin": 0, "vmax": max(1, len(search.ends) - 1), "linewidths": 0}
    axes.scatter(*record.archive_objs[own][:, [i, j]].T, c=stage, s=22, zorder=3, label="in the archive", **face)


def _scatter_measured(axes: Axes, objs: Float64[np.ndarray, "n 2"]) -> None:
    axes.scatter(*objs.T, s=9, color=PALE, alpha=0.35, linewidths=0, zorder=2, label="measured policy")


def _draw_volumes(axes: Axes, search: _Search) -> None:
    """The archives' hypervolume over iterations, with a line where each generation begins."""
    for end in search.ends[:-1]:
        axes.axvline(end, color="#CCCCCC", linewidth=0.8, zorder=1)
    if len(search.ends) > 1:
        axes.axvline(search.ends[0], color=GREY, linestyle=":", linewidth=1.2, zorder=1, label="warm-up ends")
    at = _volume_iterations(search)
    for seed, (name, colour) in enumerate(zip(search.seed_names, cycle(COLOURS), strict=False)):
        axes.plot(at, _volumes(search.record, seed, at), color=colour, linewidth=1.5, zorder=3, label=name)
    if search.is_dst:
        best = metrics.hypervolume(dst.exact_front(), search.record.reference)
        axes.axhline(best, color="black", linestyle="--", linewidth=1.2, label=f"ceiling {figures._show(best, best)}")
    axes.set_title("archive's hypervolume", fontsize=10)
    axes.set_xlabel("iterations of every task", fontsize=10)
    axes.legend(fontsize=7.5, loc="lower right", framealpha=0.9, labelspacing=0.25, handlelength=1.5)


def _volume_iterations(search: _Search) -> list[int]:
    """Iterations, few enough, whose archives' hypervolumes are taken: the ends of generations among them."""
    spread = np.linspace(1, search.record.num_iterations, min(MOST_VOLUMES, search.record.num_iterations))
    return sorted({*spread.round().astype(int).tolist(), *search.ends})


def _volumes(record: SearchRecord, seed: int, at: Sequence[int]) -> list[float]:
    """`record.hypervolume_of(seed, t)` for increasing t, each archive made from the one before."""
    volumes, archive, done = [], np.empty((0, len(record.reference))), 0
    for t in at:
        new = record.objs[done + 1 : t + 1, seed].reshape(-1, len(record.reference))
        # What is not above the reference stays in: it dominates nothing that is, and has no volume.
        archive = metrics.non_dominated(np.concatenate([archive, new]))
        volumes.append(metrics.hypervolume(archive, record.reference))
        done = t
    return volumes


def _shown_stages(num: int) -> list[int]:
    """Warm-up, newest generation, and some evenly between."""
    return sorted(set(np.linspace(0, num - 1, min(num, MOST_FRONTS)).round().astype(int).tolist()))


def _generation_colours(search: _Search) -> Any:
    """Generation -> colour."""
    from matplotlib import colormaps

    return lambda stage: colormaps[COLOUR_MAP](stage / max(1, len(search.ends) - 1))


def _add_generation_bar(figure: Figure, search: _Search, panels: list[Axes]) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    num = len(search.ends)
    if num == 1:
        return
    colours = ScalarMappable(Normalize(0, num - 1), COLOUR_MAP)
    figures._add_colour_bar(figure, colours, panels, "generation (0: the warm-up)")
    figure.axes[-1].set_yticks(_shown_stages(num))


def _limits(search: _Search, shown: Points) -> list[tuple[float, float]]:
    """Per objective the range to show: that of the points given, or of all policies where there are none.

    A reference near it is taken in. Policies far below it are many and would leave no room for the fronts.
    """
    if len(shown) == 0:
        shown = search.record.objs[1:].reshape(-1, search.d)
    if search.is_dst:
        shown = np.concatenate([shown, dst.exact_front()])
    limits = []
    for values, corner in zip(shown.T, search.record.reference.tolist(), strict=True):
        low, high = float(values.min()), float(values.max())
        span = (high - low) or abs(high) or 1.0
        low = min(low, corner) if low - corner <= FAR * span else low
        limits.append((low - MARGIN * span, high + MARGIN * span))
    return limits


def _show_reference(axes: Axes, search: _Search, pair: tuple[int, int]) -> None:
    """The reference corner, where it is in sight."""
    x, y = search.record.reference[list(pair)].tolist()
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    if left <= x <= right and low <= y <= high:
        axes.plot([x], [y], "P", color=COLOURS[1], markersize=7, zorder=5, label="reference")


def _archive_title(search: _Search, seed: int) -> str:
    volume, size = search.record.hypervolume_of(seed), len(search.record.archive_of(seed))
    return f"{search.seed_names[seed]}: HV {figures._mean_std(np.array([volume]))}, archive of {size}"


def _outside(search: _Search, seeds: Sequence[int], limits: Sequence[tuple[float, float]]) -> str:
    """How many of the measured policies the panels do not show."""
    objs = np.concatenate([search.measured(seed) for seed in seeds])
    low, high = np.array(limits).T
    num = int((~((objs >= low) & (objs <= high)).all(axis=1)).sum())
    return f"{num:,} of {len(objs):,} measured policies are out of sight"


def _describe(figure: Figure, search: _Search, note: str) -> None:
    record, run = search.record, search.run
    seeds, generations = figures._count(record.num_seeds, "seed"), figures._count(record.num_generations, "generation")
    tasks = figures._count(record.objs.shape[2], "task")
    iterations = figures._count(record.num_iterations, "iteration")
    figures._set_title(figure, f"{run.domain} · {run.algo} · {seeds}\n{iterations} of {tasks}, {generations}")
    corner = ", ".join(f"{value:g}" for value in record.reference)
    figure.supxlabel(f"{_measured_note(search)}\n{note} · reference ({corner})", fontsize=9, color=GREY)


def _measured_note(search: _Search) -> str:
    episodes = search.stages.get("fitness_episodes")
    how = "" if episodes is None else f": the mean of {figures._count(episodes, 'episode')} of the mean action"
    return f"objectives as measured during the search{how}"


def _predictions(search: _Search) -> _Predictions:
    record, whole = search.record, search.is_whole
    num = len(whole)  # a generation that has only been chosen has reached nothing yet
    reached, predicted = record.reached()[0], record.predicted[:num]
    is_known = np.isfinite(predicted).all(axis=3) & whole[:, None, None]
    generation, seed, _ = (index.astype(np.int64) for index in np.nonzero(is_known))
    return _Predictions(generation + 1, seed, record.starts[:num][is_known], predicted[is_known], reached[is_known])


def _draw_tasks(search: _Search, tasks: _Predictions) -> Figure:
    """A panel per objective; with two objectives below them one per generation with arrows."""
    columns = 2 if search.d in (2, 4) else 3
    newest = sorted(set(tasks.generation.tolist()))
    shown = newest[-columns:] if search.d == 2 else []
    heights = [3.4 if columns == 2 else 2.9] * -(-search.d // columns) + [3.6] * bool(shown)
    figure = figures.new_figure(height=0.9 + sum(heights))
    grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
    panels = [figures._style(figure.add_subplot(grid[j // columns, j % columns])) for j in range(search.d)]
    scatters = [_draw_changes(axes, search, tasks, j) for j, axes in enumerate(panels)]
    if len(newest) > 1:
        figures._add_colour_bar(figure, scatters[0], panels, "generation")
    for i, generation in enumerate(shown):
        axes = figures._style(figure.add_subplot(grid[-1, i] if len(shown) > 1 else grid[-1, :]))
        _draw_arrows(axes, search, tasks.where(tasks.generation == generation))
        if generation == shown[-1]:
            axes.legend(fontsize=8, loc="best", framealpha=0.8)
    count = figures._count(len(tasks.seed), "task")
    generations = figures._count(len(newest), "whole generation")
    head = f"{search.run.domain} · {search.run.algo} · {figures._count(search.record.num_seeds, 'seed')}"
    figures._set_title(figure, f"{head}\npredictions of {count} in {generations}")
    figure.supxlabel(f"dashed: reached as predicted\n{_measured_note(search)}", fontsize=9, color=GREY)
    return figure


def _draw_changes(axes: Axes, search: _Search, tasks: _Predictions, j: int) -> Any:
    """Reached over predicted changes of objective j."""
    predicted, reached = (after[:, j] - tasks.start[:, j] for after in (tasks.predicted, tasks.reached))
    both = np.concatenate([predicted, reached])
    span = float(np.ptp(both)) or abs(float(both[0])) or 1.0
    ends = (float(both.min()) - MARGIN * span, float(both.max()) + MARGIN * span)
    axes.plot(ends, ends, color="black", linestyle="--", linewidth=1, zorder=2)
    axes.axhline(0, color=PALE, linewidth=0.8, zorder=1)
    axes.axvline(0, color=PALE, linewidth=0.8, zorder=1)
    face = {"cmap": COLOUR_MAP, "vmin": 0, "vmax": int(tasks.generation.max()), "linewidths": 0}
    scatter = axes.scatter(predicted, reached, c=tasks.generation, s=18, alpha=0.75, zorder=3, **face)
    error = float(np.abs(predicted - reached).mean())
    scores = f"r {_correlation(predicted, reached)}, mean |error| {figures._show(error, error)}"
    axes.set_title(f"{search.run.objectives[j]}\n{scores}", fontsize=10)
    axes.set(xlim=ends, ylim=ends, box_aspect=1)
    axes.set_xlabel("predicted change", fontsize=10)
    axes.set_ylabel("reached change", fontsize=10)
    return scatter


def _correlation(x: Float64[np.ndarray, " n"], y: Float64[np.ndarray, " n"]) -> str:
    """Pearson's, or a dash where one of the two does not vary."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return "-"
    return f"{np.corrcoef(x, y)[0, 1]:.2f}"


def _draw_arrows(axes: Axes, search: _Search, tasks: _Predictions) -> None:
    """Of one generation: from where a task started to where it was predicted to go, and to where it went."""
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
