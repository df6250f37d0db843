"""Tables of scores: rows and columns of cells with values per seed, their statistics, and their text.

`cells` fills cells from runs, `text` and `page` render tables.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float64

from qpensieve import metrics
from qpensieve.console import format_count, plural
from qpensieve.report.text import TextCell, TextTable, anchor_of, slug

Values = Float64[np.ndarray, " seed"] | Float64[np.ndarray, "seed task"]
"""One value per seed; NaN where a seed has none. [seed, task] in sheets over several domains."""
Printed = tuple[float, float | None]
"""Mean and standard deviation in the paper; None if it prints no deviation."""
MISSING = "missing"
"""Text of a cell without a run."""
FULL, SHORT = "full protocol", "short protocol"
"""Protocols of evaluation."""
LARGE = 1e4
"""Numbers from this size on get a power of ten if the sheet sets none."""
VALUE_COLUMNS = ("row", "column", "metric", "seed", "task", "value", "step", "goal", "protocol", "run", "commit")
SUMMARY_COLUMNS = (
    *("row", "column", "metric", "status", "seeds", "step", "goal", "protocol", "mean", "std"),
    *("iqm", "iqm_low", "iqm_high", "p_better", "p_better_low", "p_better_high"),
    *("difference", "difference_low", "difference_high", "paired_p", "paired_p_low", "paired_p_high", "paired_seeds"),
    *("printed_mean", "printed_std", "notes"),
)


@dataclass(frozen=True)
class Source:
    """A run that has provided numbers.

    Attributes:
        label: The run in words.
        path: Folder or exported file of the run, relative to the report. Empty: the run is not linked.
        seeds: Seeds of the run.
        machine: Machine in words.
        commit: Commit of the code that made the run.
        config: Configuration of the run.
        provenance: Versions and machine, as the run recorded them.
    """

    label: str
    path: str = ""
    seeds: tuple[int, ...] = ()
    machine: str = ""
    commit: str = ""
    config: Mapping[str, object] = field(default_factory=dict)
    provenance: Mapping[str, object] = field(default_factory=dict)

    @property
    def config_path(self) -> str:
        """File with the run's configuration, relative to the report; empty if the run is not linked."""
        return self.path if self.path.endswith(".json") or not self.path else f"{self.path}/config.json"

    @property
    def name(self) -> str:
        """Name of the run's folder or exported file; empty if the run is not linked."""
        return Path(self.path).name.removesuffix(".json")

    @property
    def anchor(self) -> str:
        """Name of the run's section in the report; equal for equal runs, different for others."""
        content = json.dumps([self.label, self.path, self.seeds, self.config, self.provenance], sort_keys=True)
        return f"run-{slug(self.label)}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


@dataclass(frozen=True, eq=False)
class Cell:
    """The values of one method on one row, and the paper's numbers.

    Attributes:
        values: Metric -> values in the order of `seeds`. None: there is no run.
        seeds: Seeds of the values.
        step: Environment steps after which the values were measured.
        goal: Environment steps of the whole run; a cell of fewer steps is marked.
        sources: The runs that the values come from.
        printed: Metric -> numbers that the paper prints, in full (1021, not 10.21 of a table in hundreds).
        note: Note for every number of the cell.
        notes: Metric -> note for its numbers.
        protocol: Protocol of the evaluation; any but `FULL` is marked.
        derived: Name of the sheet whose cells were combined in this cell; empty if it has sources.
        domain: Domain of the evaluation; empty if the values are of several.
        preferences: Test preferences of the evaluation.
        returns: Mean returns of the evaluation. None: an exported file has only scores.
    """

    values: Mapping[str, Values] | None = None
    seeds: tuple[int, ...] = ()
    step: int = 0
    goal: int = 0
    sources: tuple[Source, ...] = ()
    printed: Mapping[str, Printed] = field(default_factory=dict)
    note: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)
    protocol: str = FULL
    derived: str = ""
    domain: str = ""
    preferences: Float64[np.ndarray, "p d"] = field(default_factory=lambda: np.empty((0, 0)))
    returns: Float64[np.ndarray, "seed p d"] | None = None

    @property
    def scores(self) -> Mapping[str, Values]:
        """The values of the cell; an empty mapping if there is no run."""
        return self.values or {}

    @property
    def is_whole(self) -> bool:
        """Whether there is a run that has reached its goal."""
        return self.values is not None and self.step >= self.goal

    def has(self, metric: str) -> bool:
        """Return whether any seed has a value of this metric."""
        return metric in self.scores and bool(_is_there(self.scores[metric]).any())

    def of(self, metric: str) -> dict[int, np.ndarray]:
        """Return seed -> its value (or values, one per task), for the seeds that have one."""
        if metric not in self.scores:
            return {}
        values = self.scores[metric]
        rows = zip(self.seeds, values, _is_there(values), strict=True)
        return {seed: np.asarray(value) for seed, value, is_there in rows if is_there}


@dataclass(frozen=True)
class Metric:
    """A quantity that every cell may hold.

    Attributes:
        name: Name, the key of `Cell.values`.
        powers: Row -> power of ten by which its numbers are divided, as in the paper; for other rows by their size.
        digits: Decimals.
        is_lower_better: Whether the smallest mean of a line is the best; such sheets have no reference.
    """

    name: str
    powers: Mapping[str, int] = field(default_factory=dict)
    digits: int = 2
    is_lower_better: bool = False


@dataclass(frozen=True, eq=False)
class Sheet:
    """One table.

    Attributes:
        name: Name of its files: letters, digits, - and _.
        title: Heading.
        caption: What it shows.
        rows: Names of the rows (domains).
        columns: Names of the columns (methods).
        metrics: The lines of each row.
        cells: (row, column) -> cell; a place without an entry is a missing cell.
        notes: Sentences below the table.
        reference: Column with which the others are compared. None: no comparison.
        row_notes: (row, metric) -> why numbers of this line cannot be compared with the paper's.
        corner: Heading of the rows.
        tasks: Names of the tasks if values are [seed, task].
    """

    name: str
    title: str
    caption: str
    rows: Sequence[str]
    columns: Sequence[str]
    metrics: Sequence[Metric]
    cells: Mapping[tuple[str, str], Cell]
    notes: Sequence[str] = ()
    reference: str | None = None
    row_notes: Mapping[tuple[str, str], str] = field(default_factory=dict)
    corner: str = "domain"
    tasks: Sequence[str] = ()

    def cell(self, row: str, column: str) -> Cell:
        """Return the cell of a place; a missing cell if there is none."""
        return self.cells.get((row, column), Cell())


@dataclass(frozen=True)
class CellStatistics:
    """The statistics of one metric of one cell.

    Attributes:
        summary: Mean, deviation, interquartile mean and its interval; None if there is no value.
        improvement: Probability of improvement on the reference over all pairs of seeds, and the ends of its interval.
        gap: Difference to the reference over the seeds that both have; None if both have fewer than two.
        is_best: Whether the cell's mean is the best of the line.
    """

    summary: metrics.Summary | None = None
    improvement: tuple[float, float, float] | None = None
    gap: metrics.Difference | None = None
    is_best: bool = False


def cell_statistics(sheet: Sheet, row: str, column: str, metric: Metric) -> CellStatistics:
    """Return the statistics of a metric of a cell."""
    cell = sheet.cell(row, column)
    if not cell.has(metric.name):
        return CellStatistics()
    summary = metrics.summarize(np.stack(list(cell.of(metric.name).values())))
    is_best = column in best_columns(sheet, row, metric)
    if sheet.reference is None or column == sheet.reference:
        return CellStatistics(summary, is_best=is_best)
    other = sheet.cell(row, sheet.reference)
    if not other.has(metric.name) or not compares(cell, other):
        return CellStatistics(summary, is_best=is_best)
    ours, theirs = (np.stack(list(side.of(metric.name).values())) for side in (cell, other))
    improvement = (metrics.probability_of_improvement(ours, theirs), *metrics.improvement_interval(ours, theirs))
    shared = shared_seeds([cell, other], metric.name)
    if len(shared) < 2:
        return CellStatistics(summary, improvement, None, is_best)
    ours, theirs = (np.stack([side.of(metric.name)[seed] for seed in shared]) for side in (cell, other))
    return CellStatistics(summary, improvement, metrics.paired_difference(ours, theirs), is_best)


def text_cell(sheet: Sheet, row: str, column: str, metric: Metric) -> TextCell:
    """Return a metric of a cell as text: `missing` without a run, `-` without this metric."""
    cell, power = sheet.cell(row, column), power_of(sheet, row, metric)
    show = lambda value: format_scaled(value, power, metric.digits)
    known = cell_statistics(sheet, row, column, metric)
    summary = known.summary
    made = TextCell(
        MISSING if cell.values is None else "-",
        printed=" ± ".join(show(part) for part in cell.printed.get(metric.name, ()) if part is not None),
        notes=tuple(dict.fromkeys(note for note in (cell.notes.get(metric.name, ""), cell.note) if note)),
    )
    if summary is None:
        return made
    spread = f" [{show(summary.low)}, {show(summary.high)}]" if summary.num_seeds > 1 else ""
    details = [f"IQM {show(summary.iqm)}{spread}, {plural(summary.num_seeds, 'seed')}"]
    if known.improvement is not None:
        details.append("P(better) {:.2f} [{:.2f}, {:.2f}]".format(*known.improvement))
    if (gap := known.gap) is not None:
        pairs = f"{gap.num_pairs} seeds" + (f" x {len(sheet.tasks)}" if sheet.tasks else "")
        ends = f"{'+' if gap.mean > 0 else ''}{show(gap.mean)} [{show(gap.low)}, {show(gap.high)}]"
        details += [f"difference {ends}", f"better in {gap.probability:.0%} of {pairs}"]
    runs = tuple((seeds_in_words(source.seeds), f"#{source.anchor}") for source in cell.sources)
    return replace(
        made,
        text=show(summary.mean) + (f" ± {show(summary.std)}" if summary.num_seeds > 1 else ""),
        details=tuple(details),
        marks=marks(cell),
        link=runs[0][1] if runs else f"#{anchor_of('sheet', cell.derived)}" if cell.derived else "",
        runs=runs if len(runs) > 1 else (),
        is_best=known.is_best,
    )


def marks(cell: Cell) -> tuple[str, ...]:
    """Return the marks of a cell: the step of an unfinished run, and a protocol other than `FULL`."""
    partial = cell.values is not None and not cell.is_whole
    step = (f"at {format_count(cell.step)} of {format_count(cell.goal)}",) if partial else ()
    protocol = (cell.protocol,) if cell.values is not None and cell.protocol != FULL else ()
    return step + protocol


def compares(cell: Cell, other: Cell) -> bool:
    """Return whether two cells can be compared: the same protocol, and both complete or at the same step."""
    if cell.values is None or other.values is None or cell.protocol != other.protocol:
        return False
    return cell.step == other.step or (cell.is_whole and other.is_whole)


def shared_seeds(cells: Sequence[Cell], metric: str) -> tuple[int, ...]:
    """Return the seeds that have a value in every cell, in order."""
    common = set.intersection(*(set(cell.of(metric)) for cell in cells)) if cells else set()
    return tuple(sorted(common))


def best_columns(sheet: Sheet, row: str, metric: Metric) -> list[str]:
    """Return the columns with the best mean of a line, among two or more complete cells of the full protocol."""
    sign = -1 if metric.is_lower_better else 1
    cells = {column: sheet.cell(row, column) for column in sheet.columns}
    means = {
        column: sign * metrics.mean_std(np.stack(list(cell.of(metric.name).values())))[0]
        for column, cell in cells.items()
        if cell.is_whole and cell.protocol == FULL and cell.has(metric.name)
    }
    return [column for column, mean in means.items() if mean == max(means.values())] if len(means) > 1 else []


def power_of(sheet: Sheet, row: str, metric: Metric) -> int:
    """Return the power of ten of a line: the metric's own, or one by the size of the largest number."""
    if row in metric.powers:
        return metric.powers[row]
    cells = [sheet.cell(row, column) for column in sheet.columns]
    means = [abs(float(np.mean(list(cell.of(metric.name).values())))) for cell in cells if cell.has(metric.name)]
    means += [abs(cell.printed[metric.name][0]) for cell in cells if metric.name in cell.printed]
    largest = max(means, default=0.0)
    return math.floor(math.log10(largest)) if largest >= LARGE else 0


def format_scaled(value: float, power: int, digits: int = 2) -> str:
    """Format `value` in units of ten to `power`; never as -0.00."""
    text = f"{value / 10.0**power:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def table(sheet: Sheet) -> TextTable:
    """Return the sheet as a table of text, with a line for each row and metric."""
    rows = [
        [
            TextCell(row),
            TextCell(metric.name, power_of(sheet, row, metric), notes=_row_notes(sheet, row, metric)),
            *(text_cell(sheet, row, column, metric) for column in sheet.columns),
        ]
        for row in sheet.rows
        for metric in sheet.metrics
    ]
    headings = [sheet.corner, "metric", *sheet.columns]
    return TextTable(sheet.name, sheet.title, sheet.caption, headings, rows, 2, sheet.notes, "sheet")


def seed_table(sheet: Sheet) -> TextTable | None:
    """Return the values of every seed as a table of text; None if there are no values."""
    show = lambda value: " / ".join(f"{number:.6g}" for number in value.reshape(-1).tolist())
    rows = [
        list(map(TextCell, (row, column, metric.name, ", ".join(f"{seed}: {show(x)}" for seed, x in of.items()))))
        for row, column, metric, of in _places(sheet)
        if of
    ]
    headings = [sheet.corner, "column", "metric", "seed: value"]
    return TextTable(f"{sheet.name}-values", "Values per seed", "", headings, rows, kind="sheet") if rows else None


def value_lines(sheet: Sheet) -> list[Sequence[object]]:
    """Return one line per cell, metric, seed (and task), in full precision."""
    lines: list[Sequence[object]] = [VALUE_COLUMNS]
    for row, column, metric, of in _places(sheet):
        cell = sheet.cell(row, column)
        for seed, value in of.items():
            source = next((source for source in cell.sources if seed in source.seeds), None)
            origin = (source.path or source.label, source.commit) if source else (cell.derived, "")
            ends = (cell.step, cell.goal, cell.protocol) if cell.sources else ("", "", cell.protocol)
            for task, number in zip(sheet.tasks or ("",), value.reshape(-1).tolist(), strict=True):
                lines.append((row, column, metric.name, seed, task, repr(number), *ends, *origin))
    return lines


def statistics_lines(sheet: Sheet) -> list[Sequence[object]]:
    """Return one line per cell and metric: all statistics, the paper's numbers, and whether the cell is complete."""
    places = [(row, column, metric) for row, column, metric, _ in _places(sheet)]
    return [SUMMARY_COLUMNS, *(_statistics(sheet, *place) for place in places)]


def seeds_in_words(seeds: Sequence[int]) -> str:
    """Return seeds in words: `seeds 0-4`, or one by one if they are no range."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    is_range = bool(seeds) and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds)))
    return f"seeds {seeds[0]}-{seeds[-1]}" if is_range else "seeds " + ", ".join(map(str, seeds))


def _places(sheet: Sheet) -> Iterator[tuple[str, str, Metric, dict[int, np.ndarray]]]:
    """Yield row, column, metric, and the values by seed."""
    for row in sheet.rows:
        for column in sheet.columns:
            for metric in sheet.metrics:
                yield row, column, metric, sheet.cell(row, column).of(metric.name)


def _row_notes(sheet: Sheet, row: str, metric: Metric) -> tuple[str, ...]:
    note = sheet.row_notes.get((row, metric.name), "")
    return (note,) if note else ()


def _statistics(sheet: Sheet, row: str, column: str, metric: Metric) -> Sequence[object]:
    cell, known = sheet.cell(row, column), cell_statistics(sheet, row, column, metric)
    summary, gap = known.summary, known.gap
    status = "whole" if cell.is_whole else "partial"
    if summary is None:
        status = MISSING if cell.values is None else "no value"
    notes = [*_row_notes(sheet, row, metric), *text_cell(sheet, row, column, metric).notes]
    scores = ("",) * 5 if summary is None else (summary.mean, summary.std, summary.iqm, summary.low, summary.high)
    paired: Sequence[object] = ("",) * 7
    if gap is not None:
        ends = (gap.probability, gap.probability_low, gap.probability_high)
        paired = (gap.mean, gap.low, gap.high, *ends, gap.num_pairs)
    where = (row, column, metric.name, status, " ".join(map(str, cell.of(metric.name))))
    reached = (cell.step, cell.goal, cell.protocol) if cell.sources else ("", "", "")
    printed = cell.printed.get(metric.name, ("", ""))
    return (*where, *reached, *scores, *(known.improvement or ("",) * 3), *paired, *printed, " ".join(notes))


def _is_there(values: Values) -> Bool[np.ndarray, " seed"]:
    return np.asarray(np.isfinite(values.reshape(len(values), -1)).all(axis=1))
