"""What a report shows of each artefact: sheets and figures made of its runs; what is missing is shown as missing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from qpensieve.report.cells import Run
from qpensieve.report.page import Plate
from qpensieve.report.paper_figures import Curve, Path2d

from qpensieve.config import spec_of
from qpensieve.envs import find_domain
from qpensieve.experiments.artefacts import Artefact, Wanted
from qpensieve.experiments.shelf import Shelf
from qpensieve.records.scores import summarize
from qpensieve.report import aggregates, cells, paper_figures
from qpensieve.report.run_data import Curves, RunData
from qpensieve.report.sheets import Metric, Sheet, Source, slug

SUMMED = ("table1",)
"""Artefacts whose rows are also put together: IQM over domains, performance profiles."""
CAPTION = "Mean and standard deviation over seeds; below them the interquartile mean with its 95 % interval."
SHOWN_STEPS = 15
"""Markers of a figure of return vectors over training, as in the paper: every 100 000 steps of 1 500 000."""


@dataclass
class Shown:
    """Sheets and figures of an artefact."""

    sheets: list[Sheet] = field(default_factory=list)
    plates: list[Plate] = field(default_factory=list)


def show(artefact: Artefact, shelf: Shelf, report: Path) -> Shown:
    """What a report shows of an artefact; links are relative to the folder of the report."""
    if not artefact.cells:
        return Shown()
    return _SHOWS[artefact.show](artefact, shelf, report)


def _scores(artefact: Artefact, shelf: Shelf, report: Path) -> Shown:
    sheet = score_sheet(artefact, shelf, report)
    shown = Shown([sheet])
    if artefact.name in SUMMED:
        _add_sums(shown, sheet)
    return shown


def score_sheet(artefact: Artefact, shelf: Shelf, report: Path) -> Sheet:
    """The table of scores of an artefact."""
    filled, mixed = {}, set()
    for (row, column), wanted in artefact.cells.items():
        config = shelf.plan.size.config_of(wanted)
        other = artefact.cells.get((row, artefact.reference)) if artefact.reference else None
        has_ed = "ED" in artefact.metrics and other is not None and column != artefact.reference
        about = cells.Wanted(
            goal=config.steps if not config.method.is_population else None,
            reference_goal=None if other is None else shelf.plan.size.config_of(other).steps,
            printed=artefact.printed.get((row, column), {}),
            report=report,
        )
        against = shelf.paths(other) if has_ed and other is not None else []
        cell = cells.read_cell(shelf.paths(wanted), against, about)
        mixed |= {str(source.config.get("kernels", "off")) for source in cell.sources}
        filled[row, column] = cell
    notes = [*artefact.notes, *_about_kernels(mixed), *_about_scale(shelf)]
    return Sheet(
        artefact.name,
        artefact.title,
        f"{artefact.where}. {CAPTION}",
        artefact.rows,
        artefact.columns,
        [_metric(name, artefact) for name in artefact.metrics],
        filled,
        notes,
        artefact.reference,
    )


def _metric(name: str, artefact: Artefact) -> Metric:
    """The metric, with the powers of ten that the paper prints."""
    powers = {}
    for row in artefact.rows:
        means = [abs(scores[name][0]) for (of, _), scores in artefact.printed.items() if of == row and name in scores]
        if means and max(means) > 0:
            powers[row] = int(np.floor(np.log10(max(means))))
    return Metric(name, {} if name == "ED" else powers)


def _about_kernels(found: set[str]) -> list[str]:
    if len(found) < 2:
        return []
    return [
        f"Mixed: some runs were made with fused kernels ({', '.join(sorted(found))}); their configurations say which."
    ]


def _about_scale(shelf: Shelf) -> list[str]:
    size = shelf.plan.size
    if size.scale == "paper" and size.steps is None:
        return []
    return [f"Made at the scale '{size.scale}': not comparable with the paper's numbers."]


def _add_sums(shown: Shown, sheet: Sheet) -> None:
    """Rows put together, on the scale of the reference's means; left out while nothing is whole."""
    if sheet.reference is None:
        return
    for metric in ("UT", "HV"):
        scale = aggregates.reference_scale(sheet, metric, sheet.reference)
        try:
            about = f"{metric} divided by the mean of {sheet.reference}"
            over = aggregates.over_rows(sheet, metric, scale, about, _with_whole_cells(sheet, metric, scale))
        except ValueError:
            continue
        shown.sheets.append(over)
        figure = paper_figures.draw_profiles(aggregates.profiles(over), about, f"Performance profiles, {metric}")
        sources = tuple(source for cell in sheet.cells.values() for source in cell.sources)
        caption = f"Share of runs whose {about} exceeds a value; bands are 95 % intervals."
        shown.plates.append(Plate(f"{sheet.name}-profiles-{slug(metric)}", caption, caption, figure, sources))


def _with_whole_cells(sheet: Sheet, metric: str, scale: Mapping[str, float]) -> list[str]:
    """Columns that have a whole cell in every row of the scale."""
    whole = lambda column: all(
        sheet.cell(row, column).is_whole and sheet.cell(row, column).has(metric) for row in scale
    )
    return [column for column in sheet.columns if scale and whole(column)]


def _fronts(artefact: Artefact, shelf: Shelf, report: Path) -> Shown:
    """Return vectors at the preferences that all methods of a domain were evaluated on, of every seed."""
    panels, sources = {}, []
    for row in artefact.rows:
        found = {column: _evaluation(shelf, artefact, (row, column), report) for column in _columns(artefact, row)}
        there = [one for one in found.values() if one is not None and one.returns is not None]
        common = _common([one.preferences for one in there])
        panels[row] = {column: _points(one, common) for column, one in found.items()}
        sources += [source for one in there for source in one.sources]
    figure = paper_figures.draw_fronts(panels, _axes(artefact), artefact.title)
    caption = f"{artefact.title}. A point is the mean of the episodes of one seed under one preference."
    return Shown(plates=[_plate(artefact, figure, caption, sources)])


def _evaluation(shelf: Shelf, artefact: Artefact, place: tuple[str, str], report: Path) -> cells.Evaluation | None:
    return cells.evaluation(cells.read_runs(shelf.paths(artefact.cells[place]), report))


def _common(tables: Sequence[np.ndarray]) -> np.ndarray | None:
    """The preferences that are rows of every table."""
    if not tables:
        return None
    first, *others = tables
    kept = [lam for lam in first if all(np.isclose(other, lam).all(axis=1).any() for other in others)]
    return np.array(kept) if kept else None


def _points(one: cells.Evaluation | None, common: np.ndarray | None) -> np.ndarray | None:
    if one is None or one.returns is None or common is None:
        return None
    rows = [int(np.isclose(one.preferences, lam).all(axis=1).argmax()) for lam in common]
    return one.returns[:, rows].reshape(-1, one.returns.shape[-1])


def _growth(artefact: Artefact, shelf: Shelf, report: Path) -> Shown:
    shown = Shown()
    for lam in artefact.preferences:
        panels, sources = {}, []
        for row in artefact.rows:
            panels[row] = {}
            for column in _columns(artefact, row):
                runs = cells.read_runs(shelf.paths(artefact.cells[row, column]), report)
                panels[row][column] = _path(runs, lam)
                sources += [run.source for run in runs]
        name = ", ".join(f"{weight:g}" for weight in lam)
        title = f"Return vectors over training under ({name}), mean over seeds"
        figure = paper_figures.draw_growth(panels, _axes(artefact), title)
        plate_name = f"{artefact.name}-{'-'.join(f'{round(100 * weight)}' for weight in lam)}"
        shown.plates.append(Plate(plate_name, title, f"{artefact.where}. {title}.", figure, tuple(sources)))
    return shown


def _path(runs: Sequence[Run], lam: tuple[float, ...]) -> Path2d | None:
    curve = _merged([(run, _at_preference(run.data, lam)) for run in runs])
    if curve is None:
        return None
    steps, values = curve
    goal = max(run.goal for run in runs)
    shown = _nearest(steps, goal * np.arange(1, SHOWN_STEPS + 1) / SHOWN_STEPS)
    return Path2d(steps[shown], values[shown].mean(axis=1))


def _nearest(steps: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Indices of the steps nearest to some, each once."""
    return np.unique([int(np.abs(steps - step).argmin()) for step in wanted])


def _score_curves(artefact: Artefact, shelf: Shelf, report: Path) -> Shown:
    metric = artefact.metrics[0]
    pick = lambda data: _score_curve(data, metric)
    panels, sources = _curve_panels(artefact, shelf, report, pick)
    figure = paper_figures.draw_curves(panels, f"{metric}, short protocol", artefact.title)
    caption = f"{artefact.where}. {artefact.title}: mean and standard deviation over seeds."
    return Shown(plates=[_plate(artefact, figure, caption, sources)])


def _score_curve(data: RunData, metric: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Steps, and a score of every seed [t, seed]."""
    name = metric.lower()
    if data.scored:
        rows = [row for row in data.scored if row[name] is not None]
        return (np.array([row["step"] for row in rows]), np.array([row[name] for row in rows])) if rows else None
    table = data.table
    if not len(table.short_steps):
        return None
    each = [getattr(summarize(one, table.short_preferences, table.reference), name) for one in table.short_returns]
    return None if each[0] is None else (table.short_steps, np.array(each))


def _learning_curves(artefact: Artefact, shelf: Shelf, report: Path) -> Shown:
    """A figure for each domain, a panel for each preference."""
    shown = Shown()
    for row in artefact.rows:
        spec = spec_of(shelf.plan.size.config_of(artefact.cells[row, _columns(artefact, row)[0]]))
        preferences = artefact.preferences or _curve_preferences(artefact, shelf, row, spec.num_objectives)
        panels, sources = {}, []
        for lam in preferences:
            pick = partial(_scalarized, lam=tuple(lam))
            one, used = _curve_panels(artefact, shelf, report, pick, [row])
            panels[f"({', '.join(f'{weight:.3g}' for weight in lam)})"] = one[row]
            sources += used
        if not panels:
            continue
        title = f"{row}: return under a preference over training"
        figure = paper_figures.draw_curves(panels, "lam . return", title)
        caption = f"{artefact.where}. {title}: mean and standard deviation over seeds."
        shown.plates.append(Plate(f"{artefact.name}-{slug(row)}", title, caption, figure, tuple(sources)))
    return shown


def _curve_preferences(artefact: Artefact, shelf: Shelf, row: str, num_objectives: int) -> Sequence[tuple[float, ...]]:
    """The preferences of the curves that the first run of a row holds; those of the paper are the same for all."""
    for column in _columns(artefact, row):
        for run in cells.read_runs(shelf.paths(artefact.cells[row, column])):
            if run.data.curves is not None and len(run.data.curves.preferences):
                return [tuple(map(float, lam)) for lam in run.data.curves.preferences]
    return [tuple([1 / num_objectives] * num_objectives)]


def _single_curves(artefact: Artefact, shelf: Shelf, report: Path) -> Shown:
    """Agents of single preferences: a panel for each domain and preference."""
    panels, sources = {}, []
    for row in artefact.rows:
        own = list(
            dict.fromkeys(lam for column in _columns(artefact, row) for lam in _own(artefact.cells[row, column]))
        )
        for lam in own:
            pick = partial(_scalarized_own, lam=lam)
            one, used = _curve_panels(artefact, shelf, report, pick, [row])
            panels[f"{row}, ({', '.join(f'{weight:g}' for weight in lam)})"] = one[row]
            sources += used
    figure = paper_figures.draw_curves(panels, "lam . return", artefact.title, columns=2)
    caption = f"{artefact.where}. {artefact.title}: mean and standard deviation over seeds."
    return Shown(plates=[_plate(artefact, figure, caption, sources)])


def _own(wanted: Wanted) -> list[tuple[float, ...]]:
    texts = getattr(wanted.config().agent, "preferences", ())
    return [tuple(map(float, text.split(","))) for text in texts]


def _scalarized_own(data: RunData, lam: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray] | None:
    """Lam . return of the agent trained for lam: those of exported files are in its rows."""
    table = data.table
    lams = table.full_preferences if data.scored else table.short_preferences
    match = np.isclose(lams, lam).all(axis=1)
    if not match.any():
        return None
    if data.scored:
        rows = [row for row in data.scored if "mean_returns" in row]
        steps, returns = np.array([row["step"] for row in rows]), np.array([row["mean_returns"] for row in rows])
    else:
        steps, returns = table.short_steps, table.short_returns.mean(axis=3) if len(table.short_steps) else np.empty(0)
    return None if not len(steps) else (steps, returns[:, :, int(match.argmax())] @ np.array(lam))


def _scalarized(data: RunData, lam: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray] | None:
    found = _at_preference(data, lam)
    return None if found is None else (found[0], found[1] @ np.array(lam))


def _at_preference(data: RunData, lam: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray] | None:
    """Steps, and mean returns of every seed under a preference [t, seed, d]; None if it was not evaluated."""
    curves: Curves | None = data.curves
    if curves is None:
        return None
    match = np.isclose(curves.preferences, lam).all(axis=1)
    return (curves.steps, curves.returns[:, :, int(match.argmax())]) if match.any() else None


Pick = Callable[[RunData], tuple[np.ndarray, np.ndarray] | None]


def _curve_panels(
    artefact: Artefact, shelf: Shelf, report: Path, pick: Pick, rows: Sequence[str] | None = None
) -> tuple[dict[str, dict[str, Curve | None]], list[Source]]:
    """A curve for every cell, seeds of several runs together, and the runs."""
    panels: dict[str, dict[str, Curve | None]] = {}
    sources: list[Source] = []
    for row in rows or artefact.rows:
        panels[row] = {}
        for column in _columns(artefact, row):
            runs = cells.read_runs(shelf.paths(artefact.cells[row, column]), report)
            found = _merged([(run, pick(run.data)) for run in runs])
            goal = max((run.goal for run in runs), default=0)
            panels[row][column] = None if found is None else Curve(*found, goal=goal)
            sources += [run.source for run in runs] if found is not None else []
    return panels, sources


def _merged(
    each: Sequence[tuple[Run, tuple[np.ndarray, np.ndarray] | None]],
) -> tuple[np.ndarray, np.ndarray] | None:
    """The curves of several runs as one, seeds side by side: the steps that all have, a seed once."""
    found = [(run, *curve) for run, curve in each if curve is not None]
    if not found:
        return None
    steps = found[0][1]
    for _, other, _ in found[1:]:
        steps = np.intersect1d(steps, other)
    taken: set[int] = set()
    columns = []
    for run, at, values in found:
        kept = [i for i, seed in enumerate(run.seeds) if seed not in taken]
        taken |= set(run.seeds)
        columns.append(values[np.isin(at, steps)][:, kept])
    return (steps, np.concatenate(columns, axis=1)) if len(steps) else None


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


def _plate(artefact: Artefact, figure: object, caption: str, sources: Sequence[Source]) -> Plate:
    return Plate(artefact.name, artefact.title, caption, figure, tuple(sources))


_SHOWS: dict[str, Callable[[Artefact, Shelf, Path], Shown]] = {
    "scores": _scores,
    "fronts": _fronts,
    "growth": _growth,
    "score-curves": _score_curves,
    "learning-curves": _learning_curves,
    "single-curves": _single_curves,
}
