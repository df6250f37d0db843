"""The picture of the front that a run learned."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from qpensieve import metrics
from qpensieve.envs.deep_sea import ExactFront, find_treasures, share_found
from qpensieve.envs.registry import find_domain
from qpensieve.errors import UserError
from qpensieve.records.links import refuse_link
from qpensieve.records.scores import summarize
from qpensieve.report import drawing
from qpensieve.report.drawing import COLOUR_MAP, COLOURS, GREY
from qpensieve.report.run_data import RunData, read_run, short_note

# matplotlib is an extra and slow to import, so it is imported by the functions that draw.
if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    Axes = Figure = Any

Axis = str | int
"""An objective: its name, or its number counted from 0."""
SUFFIXES = (".png", ".pdf", ".svg", ".jpg", ".jpeg")
"""How the file of a picture ends."""
MARKER_AREA = 30.0
"""Area of the marker of one return vector, square points."""
PALE_SHARE = 0.4
"""How much of its colour a dominated point keeps."""
MOST_POINTS = 400
"""With more return vectors than this, markers shrink so that their total area stays the same."""


@dataclass(frozen=True)
class _Front:
    """The evaluation a front is drawn from."""

    step: int
    is_full: bool
    returns: Float64[np.ndarray, "seed p e d"]
    preferences: Float64[np.ndarray, "p d"]

    @cached_property
    def points(self) -> Float64[np.ndarray, "n d"]:
        """Means over episodes, all seeds together."""
        return self.returns.mean(axis=2).reshape(-1, self.returns.shape[-1])

    @cached_property
    def lam(self) -> Float64[np.ndarray, "n d"]:
        """Preferences of `points`."""
        return np.tile(self.preferences, (len(self.returns), 1))

    @cached_property
    def is_best(self) -> Bool[np.ndarray, " n"]:
        """Whether no other point dominates; of equal points all count, while `metrics` keeps one."""
        distinct, place = np.unique(self.points, axis=0, return_inverse=True)
        return metrics.is_non_dominated(distinct)[place.reshape(-1)]


@dataclass(frozen=True)
class Plane:
    """Two objectives of a domain, one for each axis.

    Attributes:
        domain: Its name.
        objectives: Their names, in reward order.
        x: The horizontal one; None: the first that y is not.
        y: The vertical one; None: the first that x is not.
    """

    domain: str
    objectives: Sequence[str]
    x: Axis | None = None
    y: Axis | None = None

    @property
    def labels(self) -> Sequence[str]:
        """Axis labels, with units if they are known."""
        known = find_domain(self.domain)
        return self.objectives if known is None else known.labels

    @property
    def exact(self) -> ExactFront | None:
        known = find_domain(self.domain)
        return None if known is None else known.exact

    def axes(self) -> tuple[int, int]:
        """The numbers of the two objectives.

        Raises:
            ValueError: There is no such objective, both are the same, or there is only one.
        """
        num = len(self.objectives)
        if num < 2:
            raise UserError(f"a front needs at least two objectives, but {self.domain} has {num}")
        x, y = (None if axis is None else self._number(axis) for axis in (self.x, self.y))
        i = x if x is not None else next(k for k in range(num) if k != y)
        j = y if y is not None else next(k for k in range(num) if k != i)
        if i == j:
            raise UserError(f"x and y must be two objectives, got {self.objectives[i]} for both")
        return i, j

    def _number(self, axis: Axis) -> int:
        if isinstance(axis, str) and axis in self.objectives:
            return list(self.objectives).index(axis)
        if isinstance(axis, int) and not isinstance(axis, bool) and 0 <= axis < len(self.objectives):
            return axis
        raise UserError(
            f"an axis must be one of {', '.join(self.objectives)}, or its number from 0 to "
            f"{len(self.objectives) - 1}; got {axis!r}"
        )


def plot_front(
    plane: Plane,
    preferences: Float64[np.ndarray, "p d"],
    measure: Callable[[], Float64[np.ndarray, "seed p e d"]],
    title: str,
    out: Path | None = None,
) -> Figure:
    """Draw two objectives of a front; returns the figure.

    Args:
        plane: What to draw.
        preferences: The preferences of the returns.
        measure: Makes the returns. It takes its time, so it is called when nothing else can go wrong.
        title: Stands above.
        out: Also write the picture here.

    Raises:
        MissingPlots: If matplotlib is not installed.
        ValueError: If the axes or the ending of `out` are none.
    """
    i, j = plane.axes()
    if out is not None:
        check_picture(out)
    figure = drawing.new_figure(height=6.2)
    front = _Front(0, True, measure(), preferences)
    _draw_plane(figure, plane, front, i, j)
    drawing.set_title(figure, title)
    _, num, episodes, _ = front.returns.shape
    size = f"{int(front.is_best.sum())} of {len(front.points)} points not dominated"
    notes = [f"{num} preferences x {drawing.count(episodes, 'episode')}, {size}"]
    hidden = [name for k, name in enumerate(plane.objectives) if k not in (i, j)]
    if hidden:
        notes.append(f"dominated counts in all objectives, also in those not drawn: {', '.join(hidden)}")
    notes += _marks(front)
    figure.supxlabel("\n".join(notes), fontsize=9, color=GREY)
    if out is not None:
        drawing.write_figure(figure, out)
    return figure


def check_picture(path: Path) -> None:
    """Refuse a path that no picture can be written to.

    Raises:
        ValueError: Its ending is not one of a picture.
        LinkError: It is a symbolic link.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"the name of a picture must end in {', '.join(SUFFIXES)}; got {path}")
    refuse_link(path)


def draw_front(run: Path, out: Path) -> Path:
    """Draw the learned front from the newest full evaluation, else from the newest short one.

    Equal return vectors are drawn as rings of one marker, with equal areas, each in the colour of its preference.

    Args:
        run: The run folder.
        out: Picture to write.

    Returns:
        The path of the picture.

    Raises:
        MissingPlots: If matplotlib is not installed.
        FileNotFoundError: If the folder lacks a file.
        ValueError: If a file is damaged, there is no evaluation, or there are fewer than two objectives.
    """
    data = read_run(run)
    d = data.table.num_objectives
    if d < 2:
        raise UserError(f"a front needs at least two objectives, but {run} has {d}")
    front = _newest(data)
    figure = drawing.new_figure(height=6.2 if d == 2 else 7.6)
    if d == 2:
        _draw_plane(figure, data, front)
    else:
        _draw_pairs(figure, data, front)
    _describe_front(figure, data, front)
    return drawing.write_figure(figure, out)


def _newest(run: RunData) -> _Front:
    table = run.table
    if len(table.full_steps):
        return _Front(int(table.full_steps[-1]), True, table.full_returns[-1], table.full_preferences)
    if len(table.short_steps):
        return _Front(int(table.short_steps[-1]), False, table.short_returns[-1], table.short_preferences)
    if run.lacks_returns:
        raise UserError(
            f"{run.folder} has no full evaluation, and an exported file does not hold the returns of short ones: draw "
            "its curves (--what curves), or the front of the run's folder"
        )
    raise UserError(f"{run.folder} has no evaluation yet; nothing to draw")


def _draw_plane(figure: Figure, run: RunData | Plane, front: _Front, i: int = 0, j: int = 1) -> None:
    axes = drawing.style(figure.add_subplot())
    scatter = _scatter(axes, front, i, j)
    best = metrics.non_dominated(front.points)
    best = best[np.argsort(best[:, i])]
    is_plane = best.shape[1] == 2
    if is_plane:
        # A point covers everything left of it and below it: the boundary is a step before each point.
        whose = "learned front, all seeds" if len(front.returns) > 1 else "learned front"
        axes.step(*best[:, [i, j]].T, where="pre", color=COLOURS[1], linewidth=1.4, zorder=2, label=whose)
    if run.exact is not None and is_plane:
        squares = {"marker": "s", "markersize": 13, "markerfacecolor": "none", "zorder": 4}
        # Squares and steps share one entry of the legend.
        axes.plot(
            *run.exact.points[:, [i, j]].T,
            color="black",
            linestyle="--",
            linewidth=1,
            drawstyle="steps-pre",
            label="exact front",
            **squares,
        )
    axes.set_xlabel(run.labels[i], fontsize=11)
    axes.set_ylabel(run.labels[j], fontsize=11)
    if is_plane:
        axes.legend(fontsize=10, loc="lower left", framealpha=0.9)
        label = f"λ{'₁₂'[i]}: preference for {run.objectives[i]}"
    else:
        label = f"λ {run.objectives[i]} / (λ {run.objectives[i]} + λ {run.objectives[j]})"
    drawing.add_colour_bar(figure, scatter, [axes], label)


def _draw_pairs(figure: Figure, run: RunData, front: _Front) -> None:
    """Draw every pair of objectives; columns share the horizontal objective, rows the vertical one."""
    last = run.table.num_objectives - 1
    panels: dict[tuple[int, int], Axes] = {}
    scatter = None
    for j in range(1, last + 1):
        for i in range(j):
            share = {"sharex": panels.get((j - 1, i)), "sharey": panels.get((j, i - 1))}
            axes = panels[j, i] = drawing.style(figure.add_subplot(last, last, (j - 1) * last + i + 1, **share))
            scatter = _scatter(axes, front, i, j)
            axes.tick_params(labelbottom=j == last, labelleft=i == 0)
            if j == last:
                axes.set_xlabel(run.labels[i].replace(" (", "\n("), fontsize=10)
            if i == 0:
                axes.set_ylabel(run.labels[j], fontsize=10)
    drawing.add_colour_bar(figure, scatter, list(panels.values()), "λ horizontal / (λ horizontal + λ vertical)")


def _scatter(axes: Axes, front: _Front, i: int, j: int) -> Any:
    """Draw objective j over i. Dominated points are small and pale; the colour is the share of i in the preference."""
    points, lam = front.points, front.lam[:, [i, j]]
    total = lam.sum(axis=1)
    colour = np.divide(lam[:, 0], total, out=np.full(len(lam), 0.5), where=total > 0)
    order, areas = _rings(points[:, [i, j]], colour)
    face = {"cmap": COLOUR_MAP, "vmin": 0.0, "vmax": 1.0, "linewidths": 0.0}
    pale, strong = order[~front.is_best[order]], order[front.is_best[order]]
    bare = {"linewidths": 0.0, "zorder": 2.5}
    axes.scatter(*points[pale][:, [i, j]].T, c=_paled(colour[pale]), s=0.5 * areas[pale], **bare)
    return axes.scatter(*points[strong][:, [i, j]].T, c=colour[strong], s=areas[strong], zorder=3, **face)


def _paled(colour: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, "n rgb"]:
    """Colours mixed with white; markers that one sees through would be strong where many lie on each other."""
    from matplotlib import colormaps

    return 1 - PALE_SHARE * (1 - np.asarray(colormaps[COLOUR_MAP](colour))[:, :3])


def _rings(
    points: Float64[np.ndarray, "n 2"], colour: Float64[np.ndarray, " n"]
) -> tuple[Int64[np.ndarray, " n"], Float64[np.ndarray, " n"]]:
    """Order to draw in, and marker areas: points at one place become rings of equal area, sorted by colour."""
    _, place, counts = np.unique(points.round(6), axis=0, return_inverse=True, return_counts=True)
    order = np.lexsort((colour, place.reshape(-1)))
    first = np.cumsum(counts) - counts
    rank = np.empty(len(points))
    rank[order] = np.arange(len(points)) - np.repeat(first, counts)
    count = counts[place.reshape(-1)]
    whole = MARKER_AREA * min(1.0, MOST_POINTS / len(points)) * np.minimum(np.sqrt(count), 6.0)
    return order, whole * (1 - rank / count)


def _marks(front: _Front) -> list[str]:
    """What markers say, in a line; nothing of what is not there."""
    pale = [] if front.is_best.all() else ["pale: dominated"]
    is_shared = len(np.unique(front.points.round(6), axis=0)) < len(front.points)
    said = [*pale, *(["rings: preferences with the same return"] if is_shared else [])]
    return [" · ".join(said)] if said else []


def _format_sizes(sizes: np.ndarray) -> str:
    """How many policies a front has: of one seed a whole number."""
    return f"{sizes[0]:.0f}" if len(sizes) == 1 else drawing.format_mean_std(sizes)


def _describe_front(figure: Figure, run: RunData, front: _Front) -> None:
    """Title and footnote; next to UT always the numbers that show whether the preference is obeyed."""
    seeds, rows = front.returns.shape[:2]
    summary = summarize(front.returns, front.preferences, run.table.reference)
    protocol = "" if front.is_full else " (short protocol)"
    scores = f"UT {drawing.format_mean_std(summary.ut)}"
    if summary.hv is not None and run.table.reference is not None:
        scores += (
            f" · HV {drawing.format_mean_std(summary.hv)} from ({', '.join(f'{r:g}' for r in run.table.reference)})"
        )
    head = f"{run.domain} · {run.algo} · step {front.step:,}{protocol} · {drawing.count(seeds, 'seed')}"
    drawing.set_title(figure, f"{head}\n{scores}")

    full = f"full protocol: {drawing.count(rows, 'preference')} x {drawing.count(run.full_episodes, 'episode')}"
    notes = [
        f"best single row: UT {drawing.format_mean_std(summary.best_single)}",
        f"front size {_format_sizes(summary.front_size)}",
    ]
    if run.known is not None and run.known.front_treasures:
        wanted = run.known.front_treasures
        found = share_found(find_treasures(front.returns, run.known.treasures), wanted)
        notes.append(f"front treasures found: {', '.join(f'{x * len(wanted):.0f}' for x in found)} of {len(wanted)}")
    correlation = zip(run.objectives, summary.correlation.mean(axis=0), strict=True)
    obeys = "rank correlation of λ with return: " + ", ".join(f"{name} {value:.2f}" for name, value in correlation)
    lines = [full if front.is_full else short_note(run), " · ".join(notes), obeys, *_marks(front)]
    figure.supxlabel("\n".join(lines), fontsize=9, color=GREY)
