"""Pictures of a run, from the files in its folder: the front it learned and its learning curves."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from qpensieve import metrics
from qpensieve.envs import dst
from qpensieve.envs.registry import DISCRETE, DOMAINS, get_domain
from qpensieve.records import evaluations
from qpensieve.records.evaluations import Evaluations
from qpensieve.records.folder import CONFIG, EVALUATIONS, METRICS
from qpensieve.records.scores import summarize

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
GREY = "#555555"
UNITS = {
    "treasure": "value",
    "time": "-1 per step",
    "forward": "sum of velocity",
    "height": "sum of height",
    "healthy": "steps",
}
"""Objective of the ten domains -> unit of its return, where there is an obvious one."""
KNOWN = DOMAINS | DISCRETE
"""Domains whose objectives have names."""
MARKER_AREA = 30.0
"""Area of the marker of one return vector, square points."""
MOST_MARKERS = 30
"""Up to so many evaluations each gets a marker."""
MOST_POINTS = 400
"""Beyond so many return vectors the markers shrink, to the same area in all."""
UNNAMED = "_"
"""Label of what the legend of the panel beside it explains already; legends skip it."""
UT_TITLE, HV_TITLE = "utility (UT)", "hypervolume (HV)"

Values = Float64[np.ndarray, "t seed"]


class MissingPlots(ImportError):  # noqa: N818  (says what is wrong; it is caught by this name)
    """matplotlib is not installed."""

    def __init__(self) -> None:
        super().__init__("pictures need matplotlib; install it with: pip install 'qpensieve[plots]'")


@dataclass(frozen=True)
class _Run:
    """What the folder of a run holds."""

    folder: Path
    config: Mapping[str, Any]
    table: Evaluations

    @property
    def algo(self) -> str:
        return str(self.config.get("algo", "unknown algorithm"))

    @cached_property
    def domain(self) -> str:
        """Short name of one of the ten domains, or whatever the run calls a foreign one."""
        name = str(self.config.get("domain", "unknown domain"))
        try:
            return get_domain(name).id
        except ValueError:
            return name

    @property
    def is_dst(self) -> bool:
        return self.domain == "DST2d" and self.table.num_objectives == 2

    @property
    def objectives(self) -> tuple[str, ...]:
        d = self.table.num_objectives
        names = KNOWN[self.domain].objectives if self.domain in KNOWN else self.config.get("objectives", ())
        return tuple(map(str, names)) if len(names) == d else tuple(f"objective {i + 1}" for i in range(d))

    @property
    def labels(self) -> tuple[str, ...]:
        """Axis labels: the objectives, with units where they are obvious."""
        units = UNITS if self.domain in KNOWN else {}
        return tuple(f"{name} ({units[name]})" if name in units else name for name in self.objectives)


@dataclass(frozen=True)
class _Scores:
    """Short evaluations over time; `hv` is None without a reference point."""

    steps: Int64[np.ndarray, " t"]
    ut: Values
    best_single: Values
    hv: Values | None


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
        """Whether no point dominates; all of several equal points count, where `metrics` keeps one."""
        distinct, place = np.unique(self.points, axis=0, return_inverse=True)
        return metrics.is_non_dominated(distinct)[place.reshape(-1)]


def draw_front(run: Path, out: Path | None = None) -> Path:
    """Draw the learned front from the newest full evaluation, else from the newest short one.

    Return vectors that coincide are drawn as rings of one marker, of equal area, each in its preference's colour.

    Args:
        run: Folder of the run.
        out: Picture to write; `front.png` in the folder if None.

    Returns:
        The path of the picture.

    Raises:
        MissingPlots: If matplotlib is not installed.
        FileNotFoundError: If the folder lacks a file.
        ValueError: If a file is damaged, there is no evaluation, or there are fewer than two objectives.
    """
    data = _read_run(run)
    d = data.table.num_objectives
    if d < 2:
        raise ValueError(f"a front needs at least two objectives, {run} has {d}")
    front = _newest(data)
    figure = new_figure(height=6.2 if d == 2 else 7.6)
    if d == 2:
        _draw_plane(figure, data, front)
    else:
        _draw_pairs(figure, data, front)
    _describe_front(figure, data, front)
    return write_figure(figure, out or run / "front.png")


def draw_curves(run: Path, out: Path | None = None) -> Path:
    """Draw UT, HV, temperature and the share of samples that climb a snapshot against environment steps.

    Panels without data are left out. Where the axis is logarithmic, mean and deviation are those of the logarithm.

    Args:
        run: Folder of the run.
        out: Picture to write; `curves.png` in the folder if None.

    Returns:
        The path of the picture.

    Raises:
        MissingPlots: If matplotlib is not installed.
        FileNotFoundError: If the folder lacks a file.
        ValueError: If a file is damaged or there is no evaluation.
    """
    data = _read_run(run)
    scores = _score(data)
    rows = _read_rows(run / METRICS)
    logged = {key: _read_series(rows, key, data.table.num_seeds) for key in ("temperature", "snapshot_share")}
    logged = {key: series for key, series in logged.items() if series is not None}

    num_panels = 1 + (scores.hv is not None) + len(logged)
    figure = new_figure(height=3.9 if num_panels <= 2 else 6.8)
    panels = iter(_panels(figure, num_panels))
    ut_ceilings, hv_ceilings = _ceilings(data)
    axes = next(panels)
    _draw_seeds(axes, scores.steps, scores.ut, COLOURS[0])
    _draw_mean(axes, scores.steps, scores.best_single.mean(axis=1), COLOURS[1], "run's best single row")
    _finish(axes, UT_TITLE, ut_ceilings)
    if scores.hv is not None:
        axes = next(panels)
        _draw_seeds(axes, scores.steps, scores.hv, COLOURS[0], UNNAMED)
        _finish(axes, HV_TITLE, hv_ceilings)
    if "temperature" in logged:
        _draw_temperature(next(panels), *logged["temperature"])
    if "snapshot_share" in logged:
        _draw_share(next(panels), *logged["snapshot_share"])
    _set_title(figure, f"{data.domain} · {data.algo} · {_count(data.table.num_seeds, 'seed')}")
    figure.supxlabel(_short_note(data.table), fontsize=9, color=GREY)
    return write_figure(figure, out or run / "curves.png")


def compare_curves(runs: Sequence[Path], out: Path) -> Path:
    """Draw UT and HV of several runs of one domain over each other, and return the path of the picture.

    Raises:
        MissingPlots: If matplotlib is not installed.
        FileNotFoundError: If a folder lacks a file.
        ValueError: If there are no runs, a file is damaged, a run has no evaluation, or the runs differ in domain,
            short preferences or reference point, so that their scores do not compare.
    """
    data = [_read_run(run) for run in runs]
    _check_comparable(data)
    scores = [_score(run) for run in data]
    has_hv = all(score.hv is not None for score in scores)
    figure = new_figure(height=4.3)
    panels = _panels(figure, 2 if has_hv else 1)
    for label, colour, score in zip(_run_labels(data), cycle(COLOURS), scores, strict=False):
        _draw_seeds(panels[0], score.steps, score.ut, colour, label)
        if has_hv and score.hv is not None:
            _draw_seeds(panels[1], score.steps, score.hv, colour, UNNAMED)
    for axes, title, ceilings in zip(panels, (UT_TITLE, HV_TITLE), _ceilings(data[0]), strict=False):
        _finish(axes, title, ceilings)
    _set_title(figure, f"{data[0].domain} · {_count(len(data), 'run')}: mean ± 1 std over seeds")
    figure.supxlabel(_short_note(data[0].table), fontsize=9, color=GREY)
    return write_figure(figure, out)


def _read_run(folder: Path) -> _Run:
    path = folder / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"no {CONFIG} in {folder}; is it a run's folder?")
    try:
        config = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path} is damaged: it holds no JSON object")
    return _Run(folder, config, evaluations.load(folder / EVALUATIONS))


def _read_rows(path: Path) -> list[dict[str, Any]]:
    """Train rows by step; of two at one step (a resumed run) the later counts. A line cut off by a crash is skipped."""
    by_step = {}
    for line in path.read_text().splitlines() if path.is_file() else []:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and row.get("event") == "train" and "step" in row:
            by_step[row["step"]] = row
    return [by_step[step] for step in sorted(by_step)]


def _read_series(rows: list[dict[str, Any]], key: str, num_seeds: int) -> tuple[Int64[np.ndarray, " t"], Values] | None:
    """Steps and values of one logged quantity, or None if no row has it; what is not finite leaves a gap."""
    pairs = [(row["step"], row[key]) for row in rows if np.size(row.get(key, ())) == num_seeds]
    if not pairs:
        return None
    steps = np.array([step for step, _ in pairs], np.int64)
    values = np.array([value for _, value in pairs], np.float64).reshape(-1, num_seeds)
    is_finite = np.isfinite(values)
    return (steps, np.where(is_finite, values, np.nan)) if is_finite.any() else None


def _score(run: _Run) -> _Scores:
    table = run.table
    if len(table.short_steps) == 0:
        raise ValueError(f"{run.folder} has no short evaluation yet; nothing to draw")
    each = [summarize(r, table.short_preferences, table.reference) for r in table.short_returns]
    return _Scores(
        steps=table.short_steps,
        ut=np.stack([summary.ut for summary in each]),
        best_single=np.stack([summary.best_single for summary in each]),
        hv=None if table.reference is None else np.stack([s.hv for s in each if s.hv is not None]),
    )


def _check_comparable(runs: Sequence[_Run]) -> None:
    if not runs:
        raise ValueError("no runs to compare")
    first = runs[0]
    for run in runs[1:]:
        if run.domain != first.domain:
            raise ValueError(f"{run.folder} is a run on {run.domain}, {first.folder} on {first.domain}")
        if not np.array_equal(run.table.short_preferences, first.table.short_preferences):
            raise ValueError(f"{run.folder} and {first.folder} were evaluated on different preferences")
        ours, theirs = run.table.reference, first.table.reference
        if ours is not None and theirs is not None and not np.array_equal(ours, theirs):
            raise ValueError(f"{run.folder} and {first.folder} have different reference points")


def _run_labels(runs: Sequence[_Run]) -> list[str]:
    """The algorithms; with the folder's name where several runs have the same one."""
    counts = Counter(run.algo for run in runs)
    return [run.algo if counts[run.algo] == 1 else f"{run.algo} ({run.folder.name})" for run in runs]


def _newest(run: _Run) -> _Front:
    table = run.table
    if len(table.full_steps):
        return _Front(int(table.full_steps[-1]), True, table.full_returns[-1], table.full_preferences)
    if len(table.short_steps):
        return _Front(int(table.short_steps[-1]), False, table.short_returns[-1], table.short_preferences)
    raise ValueError(f"{run.folder} has no evaluation yet; nothing to draw")


def new_figure(height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPlots from error
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.08)  # pyright: ignore[reportOptionalMemberAccess, reportCallIssue]
    return figure


def write_figure(figure: Figure, out: Path) -> Path:
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)
    return out


def _set_title(figure: Figure, title: str) -> None:
    figure.suptitle(title, fontsize=13, fontweight="bold")


def _style(axes: Axes) -> Axes:
    axes.grid(True, color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)
    return axes


def _panels(figure: Figure, num: int) -> list[Axes]:
    """Up to two panels a row, with environment steps along the bottom."""
    from matplotlib.ticker import EngFormatter

    columns = min(num, 2)
    panels: list[Axes] = []
    for i in range(num):
        axes = _style(figure.add_subplot(-(-num // columns), columns, i + 1, sharex=panels[0] if panels else None))
        panels.append(axes)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set_xlabel("environment steps", fontsize=10)
    return panels


def _draw_plane(figure: Figure, run: _Run, front: _Front) -> None:
    axes = _style(figure.add_subplot())
    scatter = _scatter(axes, front, 0, 1)
    best = metrics.non_dominated(front.points)
    best = best[np.argsort(best[:, 0])]
    # A point reaches all that is left of and below it: the boundary of that is a step before each point.
    axes.step(*best.T, where="pre", color=COLOURS[1], linewidth=1.4, zorder=2, label="learned front, all seeds")
    if run.is_dst:
        exact = dst.exact_front()
        squares = {"marker": "s", "markersize": 13, "markerfacecolor": "none", "zorder": 4}
        # Squares and steps share one entry of the legend.
        axes.plot(
            *exact.T, color="black", linestyle="--", linewidth=1, drawstyle="steps-pre", label="exact front", **squares
        )
    axes.set_xlabel(run.labels[0], fontsize=11)
    axes.set_ylabel(run.labels[1], fontsize=11)
    axes.legend(fontsize=10, loc="lower left", framealpha=0.9)
    _add_colour_bar(figure, scatter, [axes], f"λ₁: preference for {run.objectives[0]}")


def _draw_pairs(figure: Figure, run: _Run, front: _Front) -> None:
    """Every pair of objectives; columns share the objective along the bottom, rows the one at the left."""
    last = run.table.num_objectives - 1
    panels: dict[tuple[int, int], Axes] = {}
    scatter = None
    for j in range(1, last + 1):
        for i in range(j):
            share = {"sharex": panels.get((j - 1, i)), "sharey": panels.get((j, i - 1))}
            axes = panels[j, i] = _style(figure.add_subplot(last, last, (j - 1) * last + i + 1, **share))
            scatter = _scatter(axes, front, i, j)
            axes.tick_params(labelbottom=j == last, labelleft=i == 0)
            if j == last:
                axes.set_xlabel(run.labels[i].replace(" (", "\n("), fontsize=10)
            if i == 0:
                axes.set_ylabel(run.labels[j], fontsize=10)
    _add_colour_bar(figure, scatter, list(panels.values()), "λ horizontal / (λ horizontal + λ vertical)")


def _scatter(axes: Axes, front: _Front, i: int, j: int) -> Any:
    """Objective j over i. Dominated points are small and pale; colour is how much of the pair's preference i has."""
    points, lam = front.points, front.lam[:, [i, j]]
    total = lam.sum(axis=1)
    colour = np.divide(lam[:, 0], total, out=np.full(len(lam), 0.5), where=total > 0)
    order, areas = _rings(points[:, [i, j]], colour)
    face = {"cmap": COLOUR_MAP, "vmin": 0.0, "vmax": 1.0, "linewidths": 0.0}
    pale, strong = order[~front.is_best[order]], order[front.is_best[order]]
    axes.scatter(*points[pale][:, [i, j]].T, c=colour[pale], s=0.5 * areas[pale], alpha=0.4, zorder=2.5, **face)
    return axes.scatter(*points[strong][:, [i, j]].T, c=colour[strong], s=areas[strong], zorder=3, **face)


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


def _add_colour_bar(figure: Figure, scatter: Any, panels: list[Axes], label: str) -> None:
    bar = figure.colorbar(scatter, ax=panels, fraction=0.05, pad=0.02)
    bar.set_label(label, fontsize=10)
    bar.ax.tick_params(labelsize=9)


def _describe_front(figure: Figure, run: _Run, front: _Front) -> None:
    """Title and footnote; beside UT always what shows whether the preference is obeyed."""
    seeds, rows, episodes, _ = front.returns.shape
    summary = summarize(front.returns, front.preferences, run.table.reference)
    protocol = "" if front.is_full else " (short protocol)"
    scores = f"UT {_mean_std(summary.ut)}"
    if summary.hv is not None and run.table.reference is not None:
        scores += f" · HV {_mean_std(summary.hv)} from ({', '.join(f'{r:g}' for r in run.table.reference)})"
    head = f"{run.domain} · {run.algo} · step {front.step:,}{protocol} · {_count(seeds, 'seed')}"
    _set_title(figure, f"{head}\n{scores}")

    full = f"full protocol: {rows} preferences x {episodes} episodes"
    notes = [f"best single row: UT {_mean_std(summary.best_single)}", f"front size {_mean_std(summary.front_size)}"]
    if run.is_dst:
        num = len(evaluations.front_treasures())
        found = [f"{share * num:.0f}" for share in evaluations.treasures(front.returns).share]
        notes.append(f"front treasures found: {', '.join(found)} of {num}")
    correlation = zip(run.objectives, summary.correlation.mean(axis=0), strict=True)
    obeys = "rank correlation of λ with return: " + ", ".join(f"{name} {value:.2f}" for name, value in correlation)
    marks = "pale: dominated · rings: preferences with the same return"
    lines = [full if front.is_full else _short_note(run.table), " · ".join(notes), obeys, marks]
    figure.supxlabel("\n".join(lines), fontsize=9, color=GREY)


def _short_note(table: Evaluations) -> str:
    episodes = table.short_returns.shape[3]
    return f"short protocol: every fifth preference x {episodes} episodes; not comparable with the paper's table"


def _draw_seeds(
    axes: Axes, steps: Int64[np.ndarray, " t"], values: Values, colour: str, label: str | None = None
) -> None:
    """Thin lines of the seeds, their mean and a band of one standard deviation; logarithmic where the axis is."""
    forward, back = (np.log, np.exp) if axes.get_yscale() == "log" else (np.array, np.array)
    mean, std = forward(values).mean(axis=1), forward(values).std(axis=1)
    is_one = values.shape[1] == 1
    if not is_one:
        axes.fill_between(steps, back(mean - std), back(mean + std), color=colour, alpha=0.18, linewidth=0, zorder=2)
        axes.plot(steps, values, color=colour, alpha=0.5, linewidth=0.8, zorder=3)
    _draw_mean(axes, steps, back(mean), colour, label or ("one seed" if is_one else "mean ± 1 std, seeds thin"))


def _draw_mean(
    axes: Axes, steps: Int64[np.ndarray, " t"], mean: Float64[np.ndarray, " t"], colour: str, label: str
) -> None:
    # One evaluation makes no line, so few of them get markers.
    marker = "o" if len(steps) <= MOST_MARKERS else None
    axes.plot(steps, mean, color=colour, linewidth=1.8, marker=marker, markersize=3.5, zorder=4, label=label)


def _ceilings(run: _Run) -> tuple[dict[str, float], dict[str, float]]:
    """Of UT and of HV: what no policy can exceed, by name; known for DST2d only."""
    if not run.is_dst or run.table.reference is None:
        return {}, {}
    best = dst.ceilings(run.table.short_preferences, run.table.reference)
    return {"ceiling": best.utility, "best single policy": best.best_single}, {"ceiling": best.hypervolume}


def _finish(axes: Axes, title: str, ceilings: Mapping[str, float]) -> None:
    for (name, value), linestyle in zip(ceilings.items(), ("--", ":"), strict=False):
        axes.axhline(value, color="black", linewidth=1.2, linestyle=linestyle, label=f"{name} {_show(value, value)}")
    axes.set_title(title, fontsize=11)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8.5, loc="best", framealpha=0.8)


def _draw_temperature(axes: Axes, steps: Int64[np.ndarray, " t"], values: Values) -> None:
    # Only a positive temperature has a logarithm; anything else is a sign of trouble that must stay visible.
    if not (values <= 0).any():
        axes.set_yscale("log")
    _draw_seeds(axes, steps, values, COLOURS[0])
    axes.set_title("temperature", fontsize=11)


def _draw_share(axes: Axes, steps: Int64[np.ndarray, " t"], values: Values) -> None:
    from matplotlib.ticker import PercentFormatter

    _draw_seeds(axes, steps, values, COLOURS[0])
    axes.set_ylim(-0.03, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=0))
    axes.set_title("samples that climb a snapshot", fontsize=11)


def _count(num: int, word: str) -> str:
    return f"{num} {word}" if num == 1 else f"{num} {word}s"


def _mean_std(values: np.ndarray) -> str:
    """Mean ± standard deviation over seeds, with a common power of ten where the mean is large."""
    mean, std = metrics.mean_std(values)
    exponent = int(np.floor(np.log10(abs(mean)))) if abs(mean) >= 1e5 else 0
    scale = 10.0**exponent
    text = " ± ".join(_show(part / scale, mean / scale) for part in (mean, std)[: len(values)])
    if not exponent:
        return text
    return f"({text})e{exponent}" if len(values) > 1 else f"{text}e{exponent}"


def _show(value: float, like: float) -> str:
    """`value` with as many decimals as suit `like`."""
    size = abs(like)
    return f"{value:,.{0 if size >= 1000 else 1 if size >= 100 else 2}f}"
