"""The picture of the front that a run learned."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float64, Int64

from qpensieve import metrics
from qpensieve.console import plural
from qpensieve.envs.deep_sea import ExactFront, find_treasures, share_found
from qpensieve.envs.registry import find_domain
from qpensieve.errors import UserError
from qpensieve.front import Axis, number_of
from qpensieve.report import drawing
from qpensieve.report.curves import short_note
from qpensieve.report.drawing import COLOURS, Artist, Axes, Figure
from qpensieve.report.results import Evaluation, RunResults

MARKER_AREA = 30.0
"""Area of the marker of one return vector, square points."""
PALE_SHARE = 0.4
"""How much of its colour a dominated point keeps."""
MOST_POINTS = 400
"""With more return vectors than this, markers shrink so that their total area stays the same."""


@dataclass(frozen=True, eq=False)
class FrontPoints:
    """The return vectors of a front, all seeds together, and the names of its domain.

    Attributes:
        returns: Returns as means over episodes.
        preferences: Preferences of the returns.
        objectives: Names of all objectives, in reward order.
        labels: Axis labels of the objectives, with units if they are known.
        exact: The exact front of the domain. None: it is unknown.
    """

    returns: Float64[np.ndarray, "seed p d"]
    preferences: Float64[np.ndarray, "p d"]
    objectives: Sequence[str]
    labels: Sequence[str]
    exact: ExactFront | None

    @cached_property
    def all(self) -> Float64[np.ndarray, "n d"]:
        return self.returns.reshape(-1, self.returns.shape[-1])

    @cached_property
    def lam(self) -> Float64[np.ndarray, "n d"]:
        """Preferences of all points."""
        return np.tile(self.preferences, (len(self.returns), 1))

    @cached_property
    def is_best(self) -> Bool[np.ndarray, " n"]:
        """Whether no other point dominates. All equal points count, while `metrics` keeps one."""
        distinct, place = np.unique(self.all, axis=0, return_inverse=True)
        return metrics.is_non_dominated(distinct)[place.reshape(-1)]


def axes_of(objectives: Sequence[str], x: Axis | None = None, y: Axis | None = None) -> tuple[int, int]:
    """Return the numbers of the objectives on two axes. None: the first objective that the other axis does not show.

    Raises:
        ValueError: There is no such objective, both are the same, or there is only one.
    """
    if len(objectives) < 2:
        raise UserError(f"a front needs at least two objectives, got {', '.join(objectives)}")
    first, second = (None if axis is None else number_of(axis, objectives) for axis in (x, y))
    i = first if first is not None else int(second == 0)
    j = second if second is not None else int(i == 0)
    if i == j:
        raise UserError(f"x and y must be two objectives, got {objectives[i]} for both")
    return i, j


def plot_front(
    domain: str,
    objectives: Sequence[str],
    axes: tuple[int, int],
    preferences: Float64[np.ndarray, "p d"],
    measure: Callable[[], Float64[np.ndarray, "seed p e d"]],
) -> Figure:
    """Draw two objectives of a front (`axes_of`); returns the figure.

    `measure` makes the returns. It may take minutes, so everything else is checked before it is called.

    Raises:
        MissingPlots: matplotlib is not installed.
    """
    figure, known, returns = drawing.new_figure(height=6.2), find_domain(domain), measure()
    labels, exact = (objectives, None) if known is None else (known.labels, known.exact)
    points = FrontPoints(returns.mean(axis=2), preferences, objectives, labels, exact)
    entries = _draw_plane(figure, points, *axes)
    size = f"{int(points.is_best.sum())} of {len(points.all)} points not dominated"
    notes = [f"{len(preferences)} preferences x {plural(returns.shape[2], 'episode')}, {size}"]
    hidden = [name for k, name in enumerate(objectives) if k not in axes]
    if hidden:
        notes.append(f"dominated counts in all objectives, also in those not drawn: {', '.join(hidden)}")
    drawing.legend_below(figure, entries, "\n".join([*notes, *_marks(points)]), columns=5)
    return figure


def draw_front(run: RunResults, out: Path) -> Path:
    """Draw the learned front from the newest full evaluation, else from the newest short one.

    Equal return vectors are drawn as rings of one marker, with equal areas, each in the colour of its preference.

    Args:
        run: The run.
        out: Picture to write.

    Returns:
        The path of the picture.

    Raises:
        MissingPlots: matplotlib is not installed.
        FileNotFoundError: The folder lacks a file.
        ValueError: A file is damaged, there is no evaluation, or there are fewer than two objectives.
    """
    d = run.history.num_objectives
    if d < 2:
        raise UserError(f"a front needs at least two objectives, but {run.path} has {d}")
    newest = run.newest()
    if newest is None:
        raise UserError(f"{run.path} has no evaluation yet; nothing to draw")
    if newest.returns is None:
        raise UserError(
            f"{run.path} holds no returns: it was exported before the first full evaluation. Draw its curves (--what "
            "curves), or draw the front from the run folder"
        )
    points = FrontPoints(newest.returns, newest.preferences, run.objectives, run.labels, run.exact)
    figure = drawing.new_figure(height=6.2 if d == 2 else 7.6)
    if d == 2:
        entries = _draw_plane(figure, points)
    else:
        panels, grid = [], figure.add_gridspec(d - 1, d - 1)
        for axes, i, j in drawing.pairs(figure, grid, run.labels):
            _scatter(axes, points, i, j)
            panels.append(axes)
        entries = drawing.explain_preferences(figure, panels, run.objectives)
    drawing.legend_below(figure, entries, _describe_front(figure, run, newest, points), columns=5)
    return drawing.write_figure(figure, out)


def _draw_plane(figure: Figure, points: FrontPoints, i: int = 0, j: int = 1) -> dict[str, Artist]:
    """Draw two objectives; returns entries of the legend below."""
    axes = drawing.style(figure.add_subplot())
    _scatter(axes, points, i, j)
    best = metrics.non_dominated(points.all)
    is_plane = best.shape[1] == 2
    if is_plane:
        whose = "learned front, all seeds" if len(points.returns) > 1 else "learned front"
        drawing.draw_steps(axes, best[:, [i, j]], color=COLOURS[1], linewidth=1.4, zorder=2, label=whose)
    if points.exact is not None and is_plane:
        squares = {"marker": "s", "markersize": 13, "markerfacecolor": "none", "zorder": 4}
        look = {"color": "black", "linestyle": "--", "linewidth": 1}
        drawing.draw_steps(axes, points.exact.points[:, [i, j]], **look, label="exact front", **squares)
    axes.set_xlabel(points.labels[i], fontsize=11)
    axes.set_ylabel(points.labels[j], fontsize=11)
    if is_plane:
        look = {"ncols": 2, "fontsize": 10, "frameon": False, "borderaxespad": 0.2}
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), **look)
    return drawing.explain_preferences(figure, [axes], points.objectives)


def _scatter(axes: Axes, front: FrontPoints, i: int, j: int) -> None:
    """Draw objective j over objective i in the colours of the preferences. Dominated points are small and pale."""
    points, colours = front.all[:, [i, j]], drawing.preference_colours(front.lam)
    order, areas = _rings(points, front.lam[:, i])
    pale, strong = order[~front.is_best[order]], order[front.is_best[order]]
    # Pale colours are mixed with white: markers that one sees through would be strong where many overlap.
    faint = 1 - PALE_SHARE * (1 - colours[pale])
    axes.scatter(*points[pale].T, c=faint, s=0.5 * areas[pale], linewidths=0.0, zorder=2.5)
    axes.scatter(*points[strong].T, c=colours[strong], s=areas[strong], linewidths=0.0, zorder=3)


def _rings(
    points: Float64[np.ndarray, "n 2"], colour: Float64[np.ndarray, " n"]
) -> tuple[Int64[np.ndarray, " n"], Float64[np.ndarray, " n"]]:
    """Return the order to draw points in, and marker areas: equal points become rings of equal area, by colour."""
    _, place, counts = np.unique(points.round(6), axis=0, return_inverse=True, return_counts=True)
    order = np.lexsort((colour, place.reshape(-1)))
    first = np.cumsum(counts) - counts
    rank = np.empty(len(points))
    rank[order] = np.arange(len(points)) - np.repeat(first, counts)
    count = counts[place.reshape(-1)]
    whole = MARKER_AREA * min(1.0, MOST_POINTS / len(points)) * np.minimum(np.sqrt(count), 6.0)
    return order, whole * (1 - rank / count)


def _marks(front: FrontPoints) -> list[str]:
    """Explain the markers that are drawn, in one line."""
    pale = [] if front.is_best.all() else ["pale: dominated"]
    is_shared = len(np.unique(front.all.round(6), axis=0)) < len(front.all)
    said = [*pale, *(["rings: preferences with the same return"] if is_shared else [])]
    return [" · ".join(said)] if said else []


def _describe_front(figure: Figure, run: RunResults, newest: Evaluation, points: FrontPoints) -> str:
    """Set the title; returns the footnote, with numbers that show whether the policy follows the preference."""
    summary, seeds = newest.summary, plural(run.history.num_seeds, "seed")
    is_full = newest in run.history.full
    scores = f"UT {drawing.format_mean_std(summary.ut)}"
    if summary.hv is not None and newest.reference is not None:
        corner = ", ".join(f"{r:g}" for r in newest.reference)
        scores += f" · HV {drawing.format_mean_std(summary.hv)} from ({corner})"
    protocol = "" if is_full else " (short protocol)"
    drawing.set_title(figure, f"{run.domain} · {run.algo} · step {newest.step:,}{protocol} · {seeds}\n{scores}")

    rows, episodes = len(newest.preferences), newest.num_episodes
    full = f"full protocol: {plural(rows, 'preference')} x {plural(episodes, 'episode')}"
    sizes = summary.front_size
    size = f"{sizes[0]:.0f}" if len(sizes) == 1 else drawing.format_mean_std(sizes)
    notes = [f"best single row: UT {drawing.format_mean_std(summary.best_single)}", f"front size {size}"]
    if run.known is not None and run.known.front_treasures and newest.episodes is not None:
        wanted = run.known.front_treasures
        found = share_found(find_treasures(newest.episodes, run.known.treasures), wanted)
        notes.append(f"front treasures found: {', '.join(f'{x * len(wanted):.0f}' for x in found)} of {len(wanted)}")
    correlation = zip(run.objectives, summary.correlation.mean(axis=0), strict=True)
    obeys = "rank correlation of λ with return: " + ", ".join(f"{name} {value:.2f}" for name, value in correlation)
    lines = [full if is_full else short_note(run), " · ".join(notes), obeys, *_marks(points)]
    return "\n".join(lines)
