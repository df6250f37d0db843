"""Pictures of a run over its training: scores of evaluations, and what was logged; and scores of several runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qpensieve.console import plural
from qpensieve.errors import UserError
from qpensieve.records.files import interpreting
from qpensieve.records.folder import METRICS
from qpensieve.records.log import ALARM, TRAINING, read_rows
from qpensieve.report import drawing
from qpensieve.report.drawing import COLOURS, GREY, Axes, Curve, Figure, Look
from qpensieve.report.paper_figures import run_colours
from qpensieve.report.results import FEW, RunResults, check_same, check_same_short_preferences, labels

MOST_NUMBERED = 10
"""Seeds are numbered if there are at most this many."""
NEAR = 0.04
"""Ends of lines closer than this share of a panel's height share a label."""
TITLES = {"ut": "utility (UT)", "hv": "hypervolume (HV)"}
MEAN_ALONE = Look(thin=0.0, band=0.0)
SNAPSHOTS = "samples that climb a snapshot"
BINS = 5
ALARM_COLOUR = COLOURS[1]


@dataclass(frozen=True)
class Panel:
    """One panel of logged values.

    Attributes:
        title: Title of the panel.
        names: Logged value -> label of its line.
        is_log: Whether the value axis is logarithmic.
        is_ordered: Whether the lines are bins, coloured from small to large.
    """

    title: str
    names: Mapping[str, str]
    is_log: bool = False
    is_ordered: bool = False


def logged_panels(objectives: Sequence[str]) -> list[Panel]:
    """Return all panels of logged values, in the order drawn."""
    edges = [f"{i / BINS:g} to {(i + 1) / BINS:g}" for i in range(BINS)]
    of_first = f"by preference for {objectives[0]}" if objectives else "by preference"
    errors = {f"td_error_{i + 1}": name for i, name in enumerate(objectives)}
    binned = lambda name: {f"{name}_bin_{i + 1}": edges[i] for i in range(BINS)}
    return [
        Panel("critic loss, mean of a row", {"critic_loss": ""}, is_log=True),
        Panel("critic loss, largest of a row", {"critic_loss_max": ""}, is_log=True),
        Panel("length of the critics' gradient, largest seen", {"critic_gradient_max": ""}, is_log=True),
        Panel("error of the critics", errors, is_log=True),
        Panel("entropy of the policy", {"entropy": ""}),
        Panel(f"entropy {of_first}", binned("entropy"), is_ordered=True),
        Panel(f"value λ · Q {of_first}", binned("q"), is_ordered=True),
        Panel("temperature", {"temperature": ""}, is_log=True),
        Panel("temperature raised at once, times", {"temperature_raise": ""}),
        Panel("actions at their limits", {"saturation": ""}),
        Panel(SNAPSHOTS, {"snapshot_share": ""}),
    ]


def draw_curves(run: RunResults, out: Path) -> Path:
    """Draw UT, HV, temperature and the share of samples that climb a snapshot against environment steps.

    Panels without data are left out.

    Args:
        run: The run.
        out: Picture to write.

    Returns:
        The path of the picture.

    Raises:
        MissingPlots: matplotlib is not installed.
        FileNotFoundError: The folder lacks a file.
        ValueError: A file is damaged or there is no evaluation.
    """
    scores = _scores(run)
    shown = [panel for panel in logged_panels(()) if {"temperature", "snapshot_share"} & set(panel.names)]
    logged = _found(run.path, shown, run.history.num_seeds)
    num = 1 + ("hv" in scores) + len(logged)
    figure = drawing.new_figure(height=3.9 if num <= 2 else 6.8)
    panels = _panels(figure, num)
    label = "one seed" if run.history.num_seeds == 1 else "mean ± 1 std, seeds thin"
    ceilings = _ceilings(run)
    drawing.draw_seeds(panels[0], scores["ut"], COLOURS[0], label)
    drawing.draw_seeds(panels[0], scores["best_single"], COLOURS[1], "run's best single row", MEAN_ALONE)
    if "hv" in scores:
        drawing.draw_seeds(panels[1], scores["hv"], COLOURS[0], label)
    for axes, name in zip(panels, ("ut", "hv") if "hv" in scores else ("ut",), strict=False):
        _draw_ceilings(axes, TITLES[name], ceilings[name])
        _number_seeds(axes, scores[name], run.first_seed)
    for axes, (panel, series) in zip(panels[1 + ("hv" in scores) :], logged, strict=True):
        _draw_logged(axes, panel, series)
    drawing.set_title(figure, f"{run.domain} · {run.algo} · {plural(run.history.num_seeds, 'seed')}")
    drawing.legend_below(figure, drawing.entries_of(panels), short_note(run))
    return drawing.write_figure(figure, out)


def compare_curves(runs: Sequence[RunResults], out: Path, by_preference: bool = False) -> Path:
    """Draw UT and HV of several runs of one domain in one picture; returns its path.

    Args:
        runs: The runs.
        out: Picture to write.
        by_preference: Draw the return under each preference instead; the runs must learn single preferences.

    Raises:
        MissingPlots: matplotlib is not installed.
        FileNotFoundError: A folder lacks a file.
        ValueError: A file is damaged, a run has no evaluation, or the runs differ in domain, short
            preferences or reference point, so that their scores cannot be compared.
    """
    check_same(runs, "domain", lambda run: run.domain)
    check_same_short_preferences(runs)
    measured = [run for run in runs if run.history.reference is not None]
    check_same(measured, "reference point", lambda run: run.history.reference)
    scores = [_by_preference(run) if by_preference else _scores(run) for run in runs]
    shown = [name for name in (scores[0] if by_preference else TITLES) if all(name in each for each in scores)]
    figure = drawing.new_figure(height=4.2 + 0.12 * len(runs))
    panels = _panels(figure, len(shown))
    ceilings, names = _ceilings(runs[0]), labels(runs)
    colours = run_colours(names, [run.algo for run in runs])
    for axes, name in zip(panels, shown, strict=True):
        for label, colour, each in zip(names, colours, scores, strict=True):
            drawing.draw_seeds(axes, each[name], colour, label)
        _draw_ceilings(axes, TITLES.get(name, name), ceilings.get(name, {}))
    drawing.legend_below(figure, drawing.entries_of(panels), "" if by_preference else short_note(*runs))
    drawing.set_title(figure, f"{runs[0].domain} · {plural(len(runs), 'run')}: mean ± 1 std over seeds")
    return drawing.write_figure(figure, out)


def draw_training(run: RunResults, out: Path) -> Path | None:
    """Draw the training metrics of a run, with a line at every alarm; None if nothing was logged.

    Raises:
        MissingPlots: matplotlib is not installed.
        FileNotFoundError: There is no run folder.
        ValueError: A file is damaged.
    """
    num_seeds = int(run.config.get("seeds", 1))
    rows = read_training(run.path / METRICS)
    chosen = _found(run.path, logged_panels(_learned_objectives(run, rows)), num_seeds)
    if not chosen:
        return None
    alarms = sorted({row["step"] for row in read_rows(run.path / METRICS) if row["event"] == ALARM})
    figure = drawing.new_figure(height=0.6 + 2.2 * -(-len(chosen) // 2))
    for axes, (panel, series) in zip(drawing.panels(figure, len(chosen)), chosen, strict=True):
        _draw_logged(axes, panel, series)
        for step in alarms:
            axes.axvline(step, color=ALARM_COLOUR, linewidth=0.6, alpha=0.6, zorder=1)
    drawing.set_title(figure, f"{run.domain} · {run.algo} · {plural(num_seeds, 'seed')}")
    found = f"{plural(len(alarms), 'step')} with alarms (orange)" if alarms else "no alarm"
    figure.supxlabel(f"environment steps; {found}", fontsize=9, color=GREY)
    return drawing.write_figure(figure, out)


def read_training(path: Path) -> list[dict[str, object]]:
    """Return training rows by step. If a step occurs twice, the later row counts. Broken lines are skipped."""
    by_step = {row["step"]: row for row in read_rows(path) if row["event"] == TRAINING}
    return [by_step[step] for step in sorted(by_step)]


def read_series(rows: list[dict[str, object]], key: str, num_seeds: int) -> Curve | None:
    """Return one logged quantity, or None if no row has it; values that are not finite leave a gap.

    If a seed has several agents, its value is their mean, or the largest of peaks.
    """
    fits = lambda value: np.size(value) > 0 and np.size(value) % num_seeds == 0
    pairs = [(row["step"], row[key]) for row in rows if fits(row.get(key, ()))]
    if not pairs:
        return None
    steps = np.array([step for step, _ in pairs], np.int64)
    agents = np.array([value for _, value in pairs], np.float64).reshape(len(pairs), num_seeds, -1)
    values = agents.max(axis=2) if key.endswith("_max") else agents.mean(axis=2)
    is_finite = np.isfinite(values)
    return Curve(steps, np.where(is_finite, values, np.nan)) if is_finite.any() else None


def short_note(*runs: RunResults) -> str:
    """Describe the short protocol of runs that share its preferences, for the foot of a picture."""
    rows = plural(len(runs[0].history.short_preferences), "preference")
    episodes = sorted({evaluation.num_episodes for run in runs for evaluation in run.history.short[:1]})
    played = " or ".join(map(str, episodes)) + (" episode" if episodes == [1] else " episodes")
    known = runs[0].known
    other = "the paper's table" if known is not None and known.in_paper else "the full protocol"
    return f"short protocol: {rows} x {played}; not comparable with {other}"


def _scores(run: RunResults) -> dict[str, Curve]:
    """Return score -> its values in the short evaluations; without HV if there is no reference point."""
    short = run.history.short
    if not short:
        raise UserError(f"{run.path} has no short evaluation yet; nothing to draw")
    steps = np.array([evaluation.step for evaluation in short], np.int64)
    values = {name: [evaluation.score(name) for evaluation in short] for name in ("ut", "best_single", "hv")}
    found = {name: scores for name, scores in values.items() if all(score is not None for score in scores)}
    return {name: Curve(steps, np.array(scores, np.float64)) for name, scores in found.items()}


def _by_preference(run: RunResults) -> dict[str, Curve]:
    """Return preference -> lam . return, for a run whose agents have their own preferences.

    Raises:
        ValueError: The run has no such evaluations.
    """
    short = run.history.short
    if not short or len(short[0].preferences) > FEW or short[0].returns is None:
        raise UserError(f"{run.path} holds no curves of single preferences, which sac and hybrid-sac have")
    steps, lam = np.array([evaluation.step for evaluation in short], np.int64), short[0].preferences
    values = np.stack([evaluation.returns for evaluation in short if evaluation.returns is not None])
    name = lambda row: "λ = " + ", ".join(f"{x:g}" for x in row)
    return {f"λ · return, {name(row)}": Curve(steps, values[:, :, i] @ row) for i, row in enumerate(lam)}


def _found(run: Path, panels: Sequence[Panel], num_seeds: int) -> list[tuple[Panel, dict[str, Curve]]]:
    """Return the panels that have logged values, each with its series."""
    rows, chosen = read_training(run / METRICS), []
    with interpreting(run / METRICS, "a log"):
        for panel in panels:
            series = {name: read_series(rows, name, num_seeds) for name in panel.names}
            found = {name: curve for name, curve in series.items() if curve is not None}
            chosen += [(panel, found)] if found else []
    return chosen


def _learned_objectives(run: RunResults, rows: list[dict[str, object]]) -> list[str]:
    """Return a name for each objective whose critic error is logged."""
    num = sum(name.startswith("td_error_") for name in (rows[-1] if rows else {}))
    names = run.named_objectives
    if num == 1 < len(names):
        return ["λ · Q"]  # SAC learns nothing else
    return list(names) if len(names) == num else [f"objective {i + 1}" for i in range(num)]


def _panels(figure: Figure, num: int) -> list[Axes]:
    panels = drawing.panels(figure, num)
    for axes in panels:
        axes.set_xlabel("environment steps", fontsize=10)
    return panels


def _number_seeds(axes: Axes, curve: Curve, first: int) -> None:
    """Write the number of each seed where its line ends; ends that meet share a label."""
    steps, values = curve.steps, curve.values
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


def _ceilings(run: RunResults) -> dict[str, dict[str, float]]:
    """Return score -> name -> ceiling that no policy can exceed; empty if the exact front is unknown."""
    history = run.history
    if run.exact is None or history.reference is None:
        return {"ut": {}, "hv": {}}
    best = run.exact.ceilings(history.short_preferences, history.reference)
    of_ut = {"ceiling of UT (short protocol)": best.utility, "UT of the best single policy": best.best_single}
    return {"ut": of_ut, "hv": {"ceiling of HV (short protocol)": best.hypervolume}}


def _draw_ceilings(axes: Axes, title: str, ceilings: Mapping[str, float]) -> None:
    axes.set_title(title, fontsize=11)
    for (name, value), line in zip(ceilings.items(), ("--", ":"), strict=False):
        axes.axhline(
            value, color="black", linewidth=1.2, linestyle=line, label=f"{name} {drawing.format_like(value, value)}"
        )


def _draw_logged(axes: Axes, panel: Panel, found: Mapping[str, Curve]) -> None:
    from matplotlib.ticker import PercentFormatter

    # Only positive values have a logarithm; other values are a sign of trouble that must stay visible.
    if panel.is_log and not any((curve.values <= 0).any() for curve in found.values()):
        drawing.set_log(axes)
    middles = (np.arange(BINS) + 0.5) / BINS
    binned = map(tuple, drawing.preference_colours(np.stack([middles, 1 - middles], axis=1)))
    shades = binned if panel.is_ordered else COLOURS
    look = Look(thin=0.5 if len(panel.names) == 1 else 0.25, band=0.0, width=1.4, has_markers=False)
    for (name, curve), colour in zip(found.items(), shades, strict=False):
        drawing.draw_seeds(axes, curve, colour, panel.names[name] or None, look)
    axes.set_title(panel.title, fontsize=10)
    if panel.title == SNAPSHOTS:
        axes.set_ylim(-0.03, 1.03)
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=0))
    if len(panel.names) > 1:
        drawing.add_legend_above(axes, 3, 0.08 + 0.1 * -(-len(found) // 3), fontsize=7)
