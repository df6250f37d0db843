"""Make the sheets and figures of each artefact from its runs; missing runs are shown as missing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from qpensieve.config import spec_of
from qpensieve.console import format_count
from qpensieve.envs import find_domain
from qpensieve.experiments.paper import LISTINGS
from qpensieve.experiments.plan import Artefact
from qpensieve.experiments.plan_results import PlanResults
from qpensieve.records.critic_errors import CriticErrors
from qpensieve.report import aggregates, cells, paper_figures
from qpensieve.report.critic import PAPER, PAPER_STEPS
from qpensieve.report.page import Report, ReportFigure
from qpensieve.report.paper_figures import COLUMNS
from qpensieve.report.results import RunResults
from qpensieve.report.sheets import Cell, Metric, Sheet, Source, cell_statistics
from qpensieve.report.text import slug
from qpensieve.train.evaluate import curve_preferences
from qpensieve.types import EnvSpec

T = TypeVar("T")
METRIC = "L_critic"

SUMMED = ("table1",)
"""Artefacts that also get a table (IQM) and a figure (performance profiles) over all their domains."""
CAPTION = "Mean and standard deviation over seeds; below them the interquartile mean with its 95 % interval."
OVER_SEEDS = "mean and standard deviation over seeds."
SHOWN_STEPS = 15
"""Markers of a figure of return vectors over training, as in the paper: every 100 000 steps of 1 500 000."""


@dataclass(frozen=True)
class View:
    """An artefact with its results.

    Attributes:
        artefact: The artefact.
        results: The results of its plan.
        report: Folder of the report, to link from.
    """

    artefact: Artefact
    results: PlanResults
    report: Path

    def columns(self, row: str) -> list[str]:
        """Return the columns that have a run in a row."""
        return [column for column in self.artefact.columns if (row, column) in self.artefact.cells]

    def runs(self, row: str, column: str) -> list[RunResults]:
        return cells.read_runs(self.results.paths(self.artefact.cells[row, column]), self.report)

    def spec(self, row: str) -> EnvSpec:
        """Return the description of a row's environment."""
        return spec_of(self.artefact.cells[row, self.columns(row)[0]].config())

    def axes(self) -> dict[str, tuple[str, str]]:
        """Return row -> labels of its first two objectives."""
        found = {}
        for row in self.artefact.rows:
            spec = self.spec(row)
            domain = find_domain(spec.id)
            labels = spec.objectives if domain is None else domain.labels
            found[row] = (labels[0], labels[1])
        return found

    def panels(
        self, wanted: Mapping[str, tuple[str, Callable[[Sequence[RunResults]], T | None]]]
    ) -> tuple[dict[str, dict[str, T | None]], tuple[Source, ...]]:
        """Make the series of each panel, column by column; returns the series and their runs.

        `wanted`: title of a panel -> its row, and a function from the runs of a cell to a series.
        """
        panels: dict[str, dict[str, T | None]] = {title: {} for title in wanted}
        sources: list[Source] = []
        for title, (row, make) in wanted.items():
            for column in self.columns(row):
                runs = self.runs(row, column)
                panels[title][column] = make(runs)
                sources += [] if panels[title][column] is None else [run.source for run in runs]
        return panels, tuple(sources)

    def preference_curves(
        self, rows: Mapping[str, tuple[str, tuple[float, ...]]], name: str, title: str, columns: int = COLUMNS
    ) -> ReportFigure:
        """Draw lam . return over training; `rows`: title of a panel -> its row and its preference."""
        make = lambda lam: partial(cells.preference_curve, lam=lam)
        panels, sources = self.panels({panel: (row, make(lam)) for panel, (row, lam) in rows.items()})
        figure = paper_figures.draw_curves(panels, "lam . return", title, columns)
        return ReportFigure(name, title, f"{self.artefact.opening} {title}: {OVER_SEEDS}", figure, sources)


def show(artefact: Artefact, results: PlanResults, report: Path) -> Report:
    """Make the parts of a report for an artefact; links are relative to the folder of the report."""
    if artefact.show == "settings":
        return Report(listings=[LISTINGS[artefact.name]()])
    if not artefact.cells:  # the plan leaves out all of its domains
        return Report()
    return SHOWS[artefact.show](View(artefact, results, report))


def _scores(view: View) -> Report:
    """Make the table of scores of an artefact."""
    artefact, results = view.artefact, view.results
    filled = {}
    for (row, column), wanted in artefact.cells.items():
        config = results.plan.configs[wanted]
        other = artefact.cells.get((row, artefact.reference)) if artefact.reference else None
        goal = config.steps if not config.method.is_population else None
        other_goal = 0 if other is None else results.plan.configs[other].steps
        step = max(config.steps, other_goal)
        cell = cells.read_cell(results.paths(wanted), step, goal, view.report)
        if other is not None and "ED" in artefact.metrics and column != artefact.reference:
            cell = cells.with_dominance(cell, results.paths(other), step, other_goal)
        filled[row, column] = replace(cell, printed=artefact.printed.scores.get((row, column), {}))
    for place in [(row, column) for row in artefact.rows for column in artefact.columns]:
        filled.setdefault(place, Cell(values={}))  # not missing: the plan has no run there
    printed_rows = dict.fromkeys(row for (row, _), scores in artefact.printed.scores.items() if "HV" in scores)
    sheet = Sheet(
        artefact.name,
        artefact.title,
        f"{artefact.opening} {CAPTION}",
        artefact.rows,
        artefact.columns,
        [Metric(name, artefact.printed.powers.get(name, {})) for name in artefact.metrics],
        filled,
        [*artefact.notes, *results.notes],
        artefact.reference,
        {(row, "HV"): note for row in printed_rows if (note := cells.hypervolume_note(row))},
    )
    return _with_sums(sheet) if artefact.name in SUMMED else Report(sheets=[sheet])


def _with_sums(sheet: Sheet) -> Report:
    """Return a sheet, and sheets and figures over its rows on the scale of the reference's means.

    Only complete rows are used; without one the sheet is alone.
    """
    shown = Report(sheets=[sheet])
    sources = tuple(source for cell in sheet.cells.values() for source in cell.sources)
    panels = {}
    for metric in ("UT", "HV"):
        over, about = aggregates.over_rows(sheet, metric), aggregates.about_scale(sheet, metric)
        if over is None:
            continue
        shown.sheets.append(over)
        figure = paper_figures.draw_profiles(aggregates.profiles(over), about, f"Performance profiles, {metric}")
        found = {
            column: cell_statistics(over, aggregates.ALL_ROWS, column, over.metrics[0]).summary
            for column in over.columns
        }
        panels[f"{aggregates.ALL_ROWS}, {metric}"] = found
        caption = f"Share of runs whose {about} exceeds a value; bands are 95 % intervals."
        shown.figures.append(ReportFigure(f"{sheet.name}-profiles-{slug(metric)}", caption, caption, figure, sources))
    if panels:
        title = f"Interquartile means over domains, divided by the mean of {sheet.reference}"
        figure = paper_figures.draw_intervals(panels, title=title)
        shown.figures.append(
            ReportFigure(f"{sheet.name}-intervals", title, f"{title}, with 95 % intervals.", figure, sources)
        )
    return shown


def _fronts(view: View) -> Report:
    """Draw the return vectors of every seed, at the preferences on which all methods of a domain were evaluated."""
    artefact, panels, sources = view.artefact, {}, []
    goal = lambda row, column: view.results.plan.configs[artefact.cells[row, column]].steps
    for row in artefact.rows:
        read = {column: cells.newest_cell(view.runs(row, column), goal(row, column)) for column in view.columns(row)}
        found = {column: cell for column, cell in read.items() if cell is not None and cell.returns is not None}
        common = cells.common_preferences([cell.preferences for cell in found.values()]) if found else np.empty((0, 0))
        points = {column: np.concatenate([*cells.returns_on(cell, common)]) for column, cell in found.items()}
        panels[row] = {column: points.get(column) for column in read}
        sources += [source for cell in found.values() for source in cell.sources]
    figure = paper_figures.draw_fronts(panels, view.axes(), artefact.title)
    caption = f"{artefact.title}. A point is the mean of the episodes of one seed under one preference."
    return Report(figures=[ReportFigure(artefact.name, artefact.title, caption, figure, tuple(sources))])


def _growth(view: View) -> Report:
    shown = Report()
    for lam in view.artefact.preferences:
        panels, sources = view.panels(
            {row: (row, partial(cells.preference_path, lam=lam, num=SHOWN_STEPS)) for row in view.artefact.rows}
        )
        title = f"Return vectors over training under ({_format_preference(lam)}), mean over seeds"
        figure = paper_figures.draw_growth(panels, view.axes(), title)
        name = f"{view.artefact.name}-{'-'.join(f'{round(100 * weight)}' for weight in lam)}"
        shown.figures.append(ReportFigure(name, title, f"{view.artefact.opening} {title}.", figure, sources))
    return shown


def _score_curves(view: View) -> Report:
    artefact, metric = view.artefact, view.artefact.metrics[0]
    make = partial(cells.score_curve, score=metric.lower())
    panels, sources = view.panels({row: (row, make) for row in artefact.rows})
    figure = paper_figures.draw_curves(panels, f"{metric}, short protocol", artefact.title)
    caption = f"{artefact.opening} {artefact.title}: {OVER_SEEDS}"
    return Report(figures=[ReportFigure(artefact.name, artefact.title, caption, figure, sources)])


def _learning_curves(view: View) -> Report:
    """Draw a figure for each domain, with a panel for each preference."""
    shown = Report()
    for row in view.artefact.rows:
        rows = {
            f"({_format_preference(lam)})": (row, lam)
            for lam in view.artefact.preferences or _curve_preferences(view, row)
        }
        title = f"{row}: return under a preference over training"
        shown.figures.append(view.preference_curves(rows, f"{view.artefact.name}-{slug(row)}", title))
    return shown


def _curve_preferences(view: View, row: str) -> list[tuple[float, ...]]:
    """Return the paper's curve preferences; without any, the middle of the simplex."""
    num = view.spec(row).num_objectives
    rows = curve_preferences(num)
    return [tuple(map(float, lam)) for lam in rows] if len(rows) else [(1 / num,) * num]


def _single_curves(view: View) -> Report:
    """Draw curves of agents of single preferences: a panel for each domain and preference that a run names."""
    rows = {}
    for (row, _), wanted in view.artefact.cells.items():
        for text in getattr(wanted.config().agent, "preferences", ()):
            lam = tuple(map(float, text.split(",")))
            rows[f"{row}, ({_format_preference(lam)})"] = (row, lam)
    return Report(figures=[view.preference_curves(rows, view.artefact.name, view.artefact.title, columns=2)])


def _critic_sheet(view: View) -> Report:
    """Make the table of L_critic: rows are preferences, columns are steps."""
    artefact = view.artefact
    ((domain, column), wanted), *_ = artefact.cells.items()
    measured = [(run.source, run.critic) for run in view.runs(domain, column) if run.critic is not None]
    planned = [step * view.results.plan.configs[wanted].steps // PAPER_STEPS[-1] for step in PAPER_STEPS]
    steps = sorted({row.step for _, errors in measured for row in errors.rows}) or planned
    filled = {}
    for lam in artefact.preferences:
        for step in steps:
            found = [(source, row) for source, errors in measured if (row := _critic_row(errors, lam, step))]
            values = {seed: value for _, row in found for seed, value in row.items()}
            as_printed = PAPER.get(domain, {}).get(lam) if step in planned else None
            filled[_format_preference(lam), format_count(step)] = Cell(
                {METRIC: np.array([values[seed] for seed in sorted(values)])} if values else None,
                tuple(sorted(values)),
                step,
                step,
                tuple(source for source, _ in found),
                {} if as_printed is None else {METRIC: (as_printed[planned.index(step)], None)},
            )
    sheet = Sheet(
        artefact.name,
        artefact.title,
        f"{artefact.opening} Norm of the critic's error against soft Monte-Carlo returns, mean over pairs.",
        [_format_preference(lam) for lam in artefact.preferences],
        [format_count(step) for step in steps],
        [Metric(METRIC, is_lower_better=True)],
        filled,
        [*artefact.notes, *view.results.notes],
        corner="preference",
    )
    return Report(sheets=[sheet])


def _critic_row(errors: CriticErrors, lam: tuple[float, ...], step: int) -> dict[int, float]:
    """Return seed -> error under a preference at a step; empty if it was not measured."""
    rows = (row for row in errors.rows if np.allclose(row.preference, lam) and row.actions == "policy")
    found = next((row.error for row in rows if row.step == step), None)
    return {} if found is None else dict(zip(errors.seeds, found, strict=True))


def _format_preference(lam: Sequence[float]) -> str:
    return ", ".join(f"{weight:.3g}" for weight in lam)


SHOWS: dict[str, Callable[[View], Report]] = {
    "scores": _scores,
    "critic": _critic_sheet,
    "fronts": _fronts,
    "growth": _growth,
    "score-curves": _score_curves,
    "learning-curves": _learning_curves,
    "single-curves": _single_curves,
}
"""Kind of artefact -> the function that makes its sheets and figures."""
