"""The pictures of learning curves: one run, or several runs in one picture."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64, Int64

from qpensieve.errors import UserError
from qpensieve.records.folder import METRICS
from qpensieve.records.reading import interpreting
from qpensieve.records.scores import summarize
from qpensieve.report import drawing
from qpensieve.report.drawing import COLOURS, GREY
from qpensieve.report.logged import Series, read_series, read_training
from qpensieve.report.run_data import RunData, read_run, short_note

# matplotlib is an extra and slow to import, so it is imported by the functions that draw.
if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    Axes = Figure = Any

MOST_MARKERS = 30
"""Evaluations get markers if there are at most this many."""
MOST_NUMBERED = 10
"""Seeds are numbered if there are at most this many."""
NEAR = 0.04
"""Share of a panel's height within which ends of lines share a label."""
UNNAMED = "_"
"""Label of a line that the legend of another panel explains; legends skip it."""
UT_TITLE, HV_TITLE = "utility (UT)", "hypervolume (HV)"

Values = Float64[np.ndarray, "t seed"]


@dataclass(frozen=True)
class _Scores:
    """Short evaluations over time; `hv` is None without a reference point."""

    steps: Int64[np.ndarray, " t"]
    ut: Values
    best_single: Values
    hv: Values | None


def draw_curves(run: Path, out: Path) -> Path:
    """Draw UT, HV, temperature and the share of samples that climb a snapshot against environment steps.

    Panels without data are left out. If the axis is logarithmic, mean and deviation are those of the logarithm.

    Args:
        run: The run folder.
        out: Picture to write.

    Returns:
        The path of the picture.

    Raises:
        MissingPlots: If matplotlib is not installed.
        FileNotFoundError: If the folder lacks a file.
        ValueError: If a file is damaged or there is no evaluation.
    """
    data = read_run(run)
    scores = _score(data)
    logged = _read_logged(run, data.table.num_seeds)
    num_panels = 1 + (scores.hv is not None) + len(logged)
    figure = drawing.new_figure(height=3.9 if num_panels <= 2 else 6.8)
    panels = iter(_panels(figure, num_panels))
    ut_ceilings, hv_ceilings = _ceilings(data)
    axes = next(panels)
    _draw_seeds(axes, scores.steps, scores.ut, COLOURS[0])
    _draw_mean(axes, scores.steps, scores.best_single.mean(axis=1), COLOURS[1], "run's best single row")
    _finish(axes, UT_TITLE, ut_ceilings)
    _number_seeds(axes, scores.steps, scores.ut, data.first_seed)
    if scores.hv is not None:
        axes = next(panels)
        _draw_seeds(axes, scores.steps, scores.hv, COLOURS[0], UNNAMED)
        _finish(axes, HV_TITLE, hv_ceilings)
        _number_seeds(axes, scores.steps, scores.hv, data.first_seed)
    if "temperature" in logged:
        _draw_temperature(next(panels), *logged["temperature"])
    if "snapshot_share" in logged:
        _draw_share(next(panels), *logged["snapshot_share"])
    drawing.set_title(figure, f"{data.domain} · {data.algo} · {drawing.count(data.table.num_seeds, 'seed')}")
    _name_lines(figure, figure.axes[0], short_note(data))
    return drawing.write_figure(figure, out)


def _read_logged(run: Path, num_seeds: int) -> dict[str, Series]:
    """What was logged of the values that have a panel."""
    rows = read_training(run / METRICS)
    with interpreting(run / METRICS, "a log"):
        logged = {key: read_series(rows, key, num_seeds) for key in ("temperature", "snapshot_share")}
    return {key: series for key, series in logged.items() if series is not None}


def compare_curves(runs: Sequence[Path], out: Path) -> Path:
    """Draw UT and HV of several runs of one domain in one picture; returns its path.

    Raises:
        MissingPlots: If matplotlib is not installed.
        FileNotFoundError: If a folder lacks a file.
        ValueError: If there are no runs, a file is damaged, a run has no evaluation, or the runs differ in domain,
            short preferences or reference point, so that their scores cannot be compared.
    """
    data = [read_run(run) for run in runs]
    _check_comparable(data)
    scores = [_score(run) for run in data]
    has_hv = all(score.hv is not None for score in scores)
    figure = drawing.new_figure(height=4.2 + 0.12 * len(data))
    panels = _panels(figure, 2 if has_hv else 1)
    for label, colour, score in zip(_run_labels(data), cycle(COLOURS), scores, strict=False):
        _draw_seeds(panels[0], score.steps, score.ut, colour, label)
        if has_hv and score.hv is not None:
            _draw_seeds(panels[1], score.steps, score.hv, colour, UNNAMED)
    for axes, title, ceilings in zip(panels, (UT_TITLE, HV_TITLE), _ceilings(data[0]), strict=False):
        _finish(axes, title, ceilings)
    _name_runs(figure, panels[0], len(data), short_note(*data))
    drawing.set_title(figure, f"{data[0].domain} · {drawing.count(len(data), 'run')}: mean ± 1 std over seeds")
    return drawing.write_figure(figure, out)


def _score(run: RunData) -> _Scores:
    table = run.table
    if run.scored:
        of = lambda name: np.array([row[name] for row in run.scored or ()])
        steps, hv = of("step").astype(np.int64), of("hv")
        values = of("ut").astype(np.float64), of("best_single").astype(np.float64)
        return _Scores(steps, *values, None if table.reference is None else hv.astype(np.float64))
    if len(table.short_steps) == 0:
        raise UserError(f"{run.folder} has no short evaluation yet; nothing to draw")
    each = [summarize(r, table.short_preferences, table.reference) for r in table.short_returns]
    return _Scores(
        steps=table.short_steps,
        ut=np.stack([summary.ut for summary in each]),
        best_single=np.stack([summary.best_single for summary in each]),
        hv=None if table.reference is None else np.stack([s.hv for s in each if s.hv is not None]),
    )


def _check_comparable(runs: Sequence[RunData]) -> None:
    if not runs:
        raise UserError("no runs to compare")
    first = runs[0]
    for run in runs[1:]:
        if run.domain != first.domain:
            found = f"{run.folder} is on {run.domain}, {first.folder} on {first.domain}"
            raise UserError(f"runs must have the same domain to be compared: {found}")
        if not np.array_equal(run.table.short_preferences, first.table.short_preferences):
            raise UserError(f"{run.folder} and {first.folder} were evaluated on different preferences")
        ours, theirs = run.table.reference, first.table.reference
        if ours is not None and theirs is not None and not np.array_equal(ours, theirs):
            raise UserError(f"{run.folder} and {first.folder} have different reference points")


def _run_labels(runs: Sequence[RunData]) -> list[str]:
    """Each run's algorithm, with the name of its folder or file if others share it; that name alone if all do."""
    algos, names = [run.algo for run in runs], [run.folder.name.removesuffix(".json") for run in runs]
    counts = Counter(algos)
    if len(counts) == 1 < len(runs):
        return names
    return [algo if counts[algo] == 1 else f"{algo} ({name})" for algo, name in zip(algos, names, strict=True)]


def _name_runs(figure: Figure, axes: Axes, num: int, note: str) -> None:
    """A legend of the runs below the panels, where long names hide nothing; that of a panel has its ceilings alone."""
    handles, labels = axes.get_legend_handles_labels()  # in the order they were drawn: the runs first
    _name_lines(figure, axes, note, num)
    if handles[num:]:
        axes.legend(handles[num:], labels[num:], fontsize=8.5, loc="best", framealpha=0.8)


def _name_lines(figure: Figure, axes: Axes, note: str, num: int | None = None) -> None:
    """A legend of the first lines of a panel (default: of all) below the panels, in place of its own."""
    handles, labels = axes.get_legend_handles_labels()
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": min(len(handles[:num]), 2)}
    legend = figure.legend(
        handles[:num], labels[:num], title=note, title_fontsize=9, fontsize=9, frameon=False, **place
    )
    legend.get_title().set_color(GREY)
    if (own := axes.get_legend()) is not None:
        own.remove()


def _panels(figure: Figure, num: int) -> list[Axes]:
    """Up to two panels per row, with environment steps on the horizontal axis."""
    from matplotlib.ticker import EngFormatter

    columns = min(num, 2)
    panels: list[Axes] = []
    for i in range(num):
        axes = drawing.style(
            figure.add_subplot(-(-num // columns), columns, i + 1, sharex=panels[0] if panels else None)
        )
        panels.append(axes)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set_xlabel("environment steps", fontsize=10)
    return panels


def _draw_seeds(
    axes: Axes, steps: Int64[np.ndarray, " t"], values: Values, colour: str, label: str | None = None
) -> None:
    """Draw a thin line per seed, their mean and a band of one standard deviation; logarithmic if the axis is."""
    forward, back = (np.log, np.exp) if axes.get_yscale() == "log" else (np.array, np.array)
    mean, std = forward(values).mean(axis=1), forward(values).std(axis=1)
    is_one = values.shape[1] == 1
    if not is_one:
        axes.fill_between(steps, back(mean - std), back(mean + std), color=colour, alpha=0.18, linewidth=0, zorder=2)
        axes.plot(steps, values, color=colour, alpha=0.5, linewidth=0.8, zorder=3)
    _draw_mean(axes, steps, back(mean), colour, label or ("one seed" if is_one else "mean ± 1 std, seeds thin"))


def _number_seeds(axes: Axes, steps: Int64[np.ndarray, " t"], values: Values, first: int) -> None:
    """The number of each seed where its line ends, so that one that goes astray has a name; ends that meet share it."""
    if not 1 < values.shape[1] <= MOST_NUMBERED:
        return
    low, high = axes.get_ylim()
    ends, groups = values[-1], list[list[int]]()
    for i in np.argsort(ends).tolist():
        is_near = bool(groups) and ends[i] - ends[groups[-1][0]] < NEAR * (high - low)
        groups[-1].append(i) if is_near else groups.append([i])
    for group in groups:
        text = ",".join(str(first + i) for i in sorted(group))
        at = (float(steps[-1]), float(ends[group].mean()))
        axes.annotate(text, at, (4, 0), textcoords="offset points", fontsize=7, color=COLOURS[0], va="center")


def _draw_mean(
    axes: Axes, steps: Int64[np.ndarray, " t"], mean: Float64[np.ndarray, " t"], colour: str, label: str
) -> None:
    # A single evaluation has no line, so few evaluations get markers.
    marker = "o" if len(steps) <= MOST_MARKERS else None
    axes.plot(steps, mean, color=colour, linewidth=1.8, marker=marker, markersize=3.5, zorder=4, label=label)


def _ceilings(run: RunData) -> tuple[dict[str, float], dict[str, float]]:
    """Name -> ceiling that no policy can exceed, of UT and of HV; empty if the exact front is unknown."""
    if run.exact is None or run.table.reference is None:
        return {}, {}
    best = run.exact.ceilings(run.table.short_preferences, run.table.reference)
    ceiling = "ceiling (short protocol)"
    return {ceiling: best.utility, "best single policy": best.best_single}, {ceiling: best.hypervolume}


def _finish(axes: Axes, title: str, ceilings: Mapping[str, float]) -> None:
    for (name, value), linestyle in zip(ceilings.items(), ("--", ":"), strict=False):
        axes.axhline(
            value,
            color="black",
            linewidth=1.2,
            linestyle=linestyle,
            label=f"{name} {drawing.format_like(value, value)}",
        )
    axes.set_title(title, fontsize=11)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8.5, loc="best", framealpha=0.8)


def _draw_temperature(axes: Axes, steps: Int64[np.ndarray, " t"], values: Values) -> None:
    # Only a positive temperature has a logarithm; anything else is a sign of trouble that must stay visible.
    if not (values <= 0).any():
        drawing.set_log(axes)
    _draw_seeds(axes, steps, values, COLOURS[0])
    axes.set_title("temperature", fontsize=11)


def _draw_share(axes: Axes, steps: Int64[np.ndarray, " t"], values: Values) -> None:
    from matplotlib.ticker import PercentFormatter

    _draw_seeds(axes, steps, values, COLOURS[0])
    axes.set_ylim(-0.03, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=0))
    axes.set_title("samples that climb a snapshot", fontsize=11)
