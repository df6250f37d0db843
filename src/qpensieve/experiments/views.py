"""What a report shows of each artefact: sheets and figures made of its runs; what is missing is shown as missing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from qpensieve.config import spec_of
from qpensieve.console import format_count
from qpensieve.envs import find_domain
from qpensieve.experiments.paper import LISTINGS
from qpensieve.experiments.plan import Artefact, Place, Wanted
from qpensieve.experiments.plan_results import PlanResults
from qpensieve.records.critic_errors import CriticErrors
from qpensieve.report import aggregates, cells, paper_figures
from qpensieve.report.critic import PAPER, PAPER_STEPS
from qpensieve.report.page import Plate
from qpensieve.report.paper_figures import Path2d
from qpensieve.report.results import RunResults, read_run
from qpensieve.report.sheets import Cell, Metric, Sheet, Source, facts
from qpensieve.report.text import TextTable, slug
from qpensieve.train.evaluate import curve_preferences

T = TypeVar("T")
METRIC = "L_critic"

SUMMED = ("table1",)
"""Artefacts whose rows are also put together: IQM over domains, performance profiles."""
CAPTION = "Mean and standard deviation over seeds; below them the interquartile mean with its 95 % interval."
OVER_SEEDS = "mean and standard deviation over seeds."
SHOWN_STEPS = 15
"""Markers of a figure of return vectors over training, as in the paper: every 100 000 steps of 1 500 000."""


@dataclass
class Shown:
    """Sheets, figures and plain tables of an artefact."""

    sheets: list[Sheet] = field(default_factory=list)
    plates: list[Plate] = field(default_factory=list)
    listings: list[TextTable] = field(default_factory=list)


def show(artefact: Artefact, results: PlanResults, report: Path) -> Shown:
    """What a report shows of an artefact; links are relative to the folder of the report."""
    if artefact.show == "settings":
        return Shown(listings=[LISTINGS[artefact.name]()])
    if not artefact.cells:  # all of its domains were left out
        return Shown()
    return SHOWS[artefact.show](artefact, results, report)


def _scores(artefact: Artefact, results: PlanResults, report: Path) -> Shown:
    sheet = score_sheet(artefact, results, report)
    shown = Shown([sheet])
    if artefact.name in SUMMED:
        _add_sums(shown, sheet)
    return shown


def score_sheet(artefact: Artefact, results: PlanResults, report: Path) -> Sheet:
    """The table of scores of an artefact."""
    filled = {}
    for (row, column), wanted in artefact.cells.items():
        config = results.plan.configs[wanted]
        other = artefact.cells.get((row, artefact.reference)) if artefact.reference else None
        goal = config.steps if not config.method.is_population else None
        other_goal = 0 if other is None else results.plan.configs[other].steps
        step = max(config.steps, other_goal)
        cell = cells.read_cell(results.paths(wanted), step, goal, report)
        if other is not None and "ED" in artefact.metrics and column != artefact.reference:
            cell = cells.with_dominance(cell, results.paths(other), step, other_goal)
        filled[row, column] = replace(cell, printed=artefact.printed.scores.get((row, column), {}))
    for place in [(row, column) for row in artefact.rows for column in artefact.columns]:
        filled.setdefault(place, Cell(values={}))  # not missing: the plan has no run there
    notes = [*artefact.notes, *results.notes]
    return Sheet(
        artefact.name,
        artefact.title,
        f"{artefact.opening} {CAPTION}",
        artefact.rows,
        artefact.columns,
        [Metric(name, artefact.printed.powers.get(name, {})) for name in artefact.metrics],
        filled,
        notes,
        artefact.reference,
        {(row, "HV"): note for row in artefact.rows if (note := _about_hypervolume(artefact, row))},
    )


def _about_hypervolume(artefact: Artefact, row: str) -> str:
    """Why HV of a domain does not compare with the paper's; nothing where the paper prints none."""
    is_printed = any("HV" in scores for (of, _), scores in artefact.printed.scores.items() if of == row)
    return cells.hypervolume_note(row) if is_printed else ""


def _add_sums(shown: Shown, sheet: Sheet) -> None:
    """Rows put together, on the scale of the reference's means; left out while nothing is whole."""
    sources = tuple(source for cell in sheet.cells.values() for source in cell.sources)
    panels = {}
    for metric in ("UT", "HV"):
        over, about = aggregates.over_rows(sheet, metric), aggregates.about_scale(sheet, metric)
        if over is None:
            continue
        shown.sheets.append(over)
        figure = paper_figures.draw_profiles(aggregates.profiles(over), about, f"Performance profiles, {metric}")
        found = {column: facts(over, aggregates.ALL_ROWS, column, over.metrics[0]).summary for column in over.columns}
        panels[f"{aggregates.ALL_ROWS}, {metric}"] = found
        caption = f"Share of runs whose {about} exceeds a value; bands are 95 % intervals."
        shown.plates.append(Plate(f"{sheet.name}-profiles-{slug(metric)}", caption, caption, figure, sources))
    if panels:
        title = f"Interquartile means over domains, divided by the mean of {sheet.reference}"
        figure = paper_figures.draw_intervals(panels, title=title)
        shown.plates.append(Plate(f"{sheet.name}-intervals", title, f"{title}, with 95 % intervals.", figure, sources))


def _fronts(artefact: Artefact, results: PlanResults, report: Path) -> Shown:
    """Return vectors at the preferences that all methods of a domain were evaluated on, of every seed."""
    panels, sources = {}, []
    for row in artefact.rows:
        found = {column: _evaluation(results, artefact, (row, column), report) for column in _columns(artefact, row)}
        there = [one for one in found.values() if one is not None and one.returns is not None]
        common = cells.common_preferences([one.preferences for one in there]) if there else None
        panels[row] = {column: _points(one, common) for column, one in found.items()}
        sources += [source for one in there for source in one.sources]
    figure = paper_figures.draw_fronts(panels, _axes(artefact), artefact.title)
    caption = f"{artefact.title}. A point is the mean of the episodes of one seed under one preference."
    return Shown(plates=[_plate(artefact, figure, caption, sources)])


def _evaluation(results: PlanResults, artefact: Artefact, place: Place, report: Path) -> Cell | None:
    wanted = artefact.cells[place]
    return cells.evaluation(cells.read_runs(results.paths(wanted), report), results.plan.configs[wanted].steps)


def _points(one: Cell | None, common: np.ndarray | None) -> np.ndarray | None:
    if one is None or one.returns is None or common is None:
        return None
    return cells.returns_on(one, common).reshape(-1, one.returns.shape[-1])


def _growth(artefact: Artefact, results: PlanResults, report: Path) -> Shown:
    shown = Shown()
    for lam in artefact.preferences:
        panels, sources = _panels(
            artefact, results, report, {row: (row, partial(_path, lam=lam)) for row in artefact.rows}
        )
        title = f"Return vectors over training under ({_words(lam)}), mean over seeds"
        figure = paper_figures.draw_growth(panels, _axes(artefact), title)
        name = f"{artefact.name}-{'-'.join(f'{round(100 * weight)}' for weight in lam)}"
        shown.plates.append(Plate(name, title, f"{artefact.opening} {title}.", figure, sources))
    return shown


def _path(runs: Sequence[RunResults], lam: tuple[float, ...]) -> Path2d | None:
    """The steps nearest to fifteenths of the run: every 100 000 in the paper."""
    curve = cells.preference_curve(runs, lam)
    if curve is None:
        return None
    goal = max(run.goal for run in runs)
    wanted = goal * np.arange(1, SHOWN_STEPS + 1) / SHOWN_STEPS
    nearest = [int(curve.steps[np.abs(curve.steps - step).argmin()]) for step in wanted if step <= curve.steps[-1]]
    return cells.preference_path(runs, lam, nearest)


def _score_curves(artefact: Artefact, results: PlanResults, report: Path) -> Shown:
    metric = artefact.metrics[0]
    make = partial(cells.score_curve, score=metric.lower())
    panels, sources = _panels(artefact, results, report, {row: (row, make) for row in artefact.rows})
    figure = paper_figures.draw_curves(panels, f"{metric}, short protocol", artefact.title)
    return Shown(plates=[_plate(artefact, figure, f"{artefact.opening} {artefact.title}: {OVER_SEEDS}", sources)])


def _learning_curves(artefact: Artefact, results: PlanResults, report: Path) -> Shown:
    """A figure for each domain, a panel for each preference."""
    shown = Shown()
    for row in artefact.rows:
        rows_of = artefact.preferences or _curve_preferences(artefact, row)
        wanted = {f"({_words(lam)})": (row, partial(cells.preference_curve, lam=lam)) for lam in rows_of}
        panels, sources = _panels(artefact, results, report, wanted)
        title = f"{row}: return under a preference over training"
        figure = paper_figures.draw_curves(panels, "lam . return", title)
        caption = f"{artefact.opening} {title}: {OVER_SEEDS}"
        shown.plates.append(Plate(f"{artefact.name}-{slug(row)}", title, caption, figure, sources))
    return shown


def _curve_preferences(artefact: Artefact, row: str) -> list[tuple[float, ...]]:
    """The paper's; the middle of the simplex where it has none."""
    num = spec_of(artefact.cells[row, _columns(artefact, row)[0]].config()).num_objectives
    rows = curve_preferences(num)
    return [tuple(map(float, lam)) for lam in rows] if len(rows) else [(1 / num,) * num]


def _single_curves(artefact: Artefact, results: PlanResults, report: Path) -> Shown:
    """Agents of single preferences: a panel for each domain and preference."""
    wanted = {
        f"{row}, ({_words(lam)})": (row, partial(cells.preference_curve, lam=lam))
        for row in artefact.rows
        for column in _columns(artefact, row)
        for lam in _own(artefact.cells[row, column])
    }
    panels, sources = _panels(artefact, results, report, wanted)
    figure = paper_figures.draw_curves(panels, "lam . return", artefact.title, columns=2)
    return Shown(plates=[_plate(artefact, figure, f"{artefact.opening} {artefact.title}: {OVER_SEEDS}", sources)])


def _own(wanted: Wanted) -> list[tuple[float, ...]]:
    """The preferences that a run names."""
    return [tuple(map(float, text.split(","))) for text in getattr(wanted.config().agent, "preferences", ())]


def _panels(
    artefact: Artefact,
    results: PlanResults,
    report: Path,
    wanted: Mapping[str, tuple[str, Callable[[Sequence[RunResults]], T | None]]],
) -> tuple[dict[str, dict[str, T | None]], tuple[Source, ...]]:
    """What is drawn in each panel, column by column, and the runs that it comes from.

    `wanted`: title of a panel -> its row, and what makes a line of the runs of a cell.
    """
    panels: dict[str, dict[str, T | None]] = {title: {} for title in wanted}
    sources: list[Source] = []
    for title, (row, make) in wanted.items():
        for column in _columns(artefact, row):
            runs = cells.read_runs(results.paths(artefact.cells[row, column]), report)
            panels[title][column] = make(runs)
            sources += [] if panels[title][column] is None else [run.source for run in runs]
    return panels, tuple(sources)


def _critic_sheet(artefact: Artefact, results: PlanResults, report: Path) -> Sheet:
    """L_critic: rows are preferences, columns are steps."""
    ((domain, _), wanted), *_ = artefact.cells.items()
    goal = results.plan.configs[wanted].steps
    measured = [(errors, path) for path in results.paths(wanted) if (errors := read_run(path).critic) is not None]
    sources = {run.path: run.source for run in cells.read_runs([path for _, path in measured], report)}
    planned = [step * goal // PAPER_STEPS[-1] for step in PAPER_STEPS]
    steps = sorted({row.step for errors, _ in measured for row in errors.rows}) or planned
    filled = {}
    for lam in artefact.preferences:
        for step in steps:
            found = [(path, row) for errors, path in measured if (row := _critic_row(errors, lam, step))]
            values = {seed: value for _, row in reversed(found) for seed, value in row.items()}
            as_printed = PAPER.get(domain, {}).get(lam) if step in planned else None
            printed = {} if as_printed is None else {METRIC: (as_printed[planned.index(step)], None)}
            filled[_words(lam), format_count(step)] = Cell(
                {METRIC: np.array([values[seed] for seed in sorted(values)])} if values else None,
                tuple(sorted(values)),
                step,
                step,
                tuple(sources[path] for path, _ in found if path in sources),
                printed,
            )
    return Sheet(
        artefact.name,
        artefact.title,
        f"{artefact.opening} Norm of the critic's error against soft Monte-Carlo returns, mean over pairs.",
        [_words(lam) for lam in artefact.preferences],
        [format_count(step) for step in steps],
        [Metric(METRIC, is_lower_better=True)],
        filled,
        [*artefact.notes, *results.notes],
        corner="preference",
    )


def _critic_row(errors: CriticErrors, lam: tuple[float, ...], step: int) -> dict[int, float]:
    """Seed -> its error under a preference at a step; empty where it was not measured."""
    rows = (row for row in errors.rows if np.allclose(row.preference, lam) and row.actions == "policy")
    found = next((row.error for row in rows if row.step == step), None)
    return {} if found is None else dict(zip(errors.seeds, found, strict=True))


def _words(lam: Sequence[float]) -> str:
    return ", ".join(f"{weight:.3g}" for weight in lam)


def _columns(artefact: Artefact, row: str) -> list[str]:
    return [column for column in artefact.columns if (row, column) in artefact.cells]


def _axes(artefact: Artefact) -> dict[str, tuple[str, str]]:
    """Row -> labels of its two objectives."""
    found = {}
    for row in artefact.rows:
        known = find_domain(artefact.cells[row, _columns(artefact, row)[0]].domain)
        labels = known.labels if known else ("objective 1", "objective 2")
        found[row] = (labels[0], labels[1])
    return found


def _plate(artefact: Artefact, figure: Any, caption: str, sources: Sequence[Source]) -> Plate:
    return Plate(artefact.name, artefact.title, caption, figure, tuple(sources))


SHOWS: dict[str, Callable[[Artefact, PlanResults, Path], Shown]] = {
    "scores": _scores,
    "critic": lambda artefact, results, report: Shown([_critic_sheet(artefact, results, report)]),
    "fronts": _fronts,
    "growth": _growth,
    "score-curves": _score_curves,
    "learning-curves": _learning_curves,
    "single-curves": _single_curves,
}
"""Name -> what makes the sheets and figures of an artefact."""
