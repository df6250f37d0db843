"""Several domains put together: scores on one scale, their statistics and performance profiles."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float64

from qpensieve import metrics
from qpensieve.errors import UserError
from qpensieve.preferences import ArrayLike
from qpensieve.report.paper_figures import Spot
from qpensieve.report.sheets import FULL, Cell, Metric, Sheet, facts, marks, shared_seeds
from qpensieve.report.text import slug

ALL_ROWS = "all"
"""Name of the row of a sheet over rows."""
NUM_TAUS = 201
"""Thresholds of a performance profile."""


def reference_scale(sheet: Sheet, metric: str, column: str) -> dict[str, float]:
    """Row -> mean of our own runs of `column`, whole cells only; rows where it is not above 0 are left out.

    For metrics whose printed numbers do not compare with ours.
    """
    cells = {row: sheet.cell(row, column) for row in sheet.rows}
    means = {
        row: float(np.mean(list(cell.of(metric).values()))) for row, cell in cells.items() if _is_usable(cell, metric)
    }
    return {row: mean for row, mean in means.items() if mean > 0}


def over_rows(
    sheet: Sheet, metric: str, scale: Mapping[str, float], about: str, columns: Sequence[str] | None = None
) -> Sheet:
    """A sheet of one row: the rows of `sheet` together, each divided by its scale.

    It takes the rows that are whole in every column (of those that have any whole cell), and the seeds that all these
    cells share; its notes name the rows left out. Values are [seed, row], so that the interquartile mean, intervals and
    probabilities of improvement are those over runs of all rows, stratified by row.

    Args:
        sheet: The sheet.
        metric: The metric.
        scale: Row -> number above 0 that its values are divided by. Rows without are left out.
        about: The scale in words, for the caption.
        columns: Columns to put together; default: all.

    Raises:
        ValueError: If nothing is left.
    """
    chosen = list(columns or sheet.columns)
    present, rows = _common(sheet, metric, chosen)
    rows = [row for row in rows if row in scale]
    seeds = shared_seeds([sheet.cell(row, column) for row in rows for column in present], metric)
    if not seeds:
        raise UserError(f"{sheet.name}: no row has whole cells of {', '.join(chosen)} with a shared seed to average")
    of = lambda column: {row: sheet.cell(row, column).of(metric) for row in rows}
    tables = {column: _table(of(column), seeds, scale) for column in present}
    known = next(one for one in sheet.metrics if one.name == metric)
    left = [row for row in sheet.rows if row not in rows]
    return Sheet(
        name=f"{sheet.name}-{slug(metric)}-all",
        title=f"{metric} over {len(rows)} of {len(sheet.rows)} rows",
        caption=f"{sheet.title}, {metric} divided by {about}.",
        rows=[ALL_ROWS],
        columns=chosen,
        metrics=[replace(known, powers={ALL_ROWS: 0})],
        cells={
            (ALL_ROWS, column): Cell({metric: table}, seeds, derived=sheet.name) for column, table in tables.items()
        },
        notes=[f"Over {', '.join(rows)}" + (f"; left out: {', '.join(left)}." if left else ".")],
        reference=sheet.reference if sheet.reference in chosen else None,
        corner="rows",
        tasks=rows,
    )


def profiles(over: Sheet, taus: ArrayLike | None = None) -> dict[str, metrics.Profile | None]:
    """Column -> performance profile of a sheet that `over_rows` made; None: the column is missing.

    Args:
        over: The sheet.
        taus: Thresholds; default: from 0 to the highest score. Runs below 0 are then what every line lacks to 1.
    """
    name = over.metrics[0].name
    tables = {column: over.cell(ALL_ROWS, column).values for column in over.columns}
    scores = {column: None if table is None else np.asarray(table[name]) for column, table in tables.items()}
    found = np.concatenate([table.reshape(-1) for table in scores.values() if table is not None])
    at = np.linspace(0.0 if found.max() > 0 else found.min(), found.max(), NUM_TAUS) if taus is None else taus
    return {
        column: None if table is None else metrics.performance_profile(table, at) for column, table in scores.items()
    }


def spots(sheet: Sheet) -> dict[str, dict[str, Spot | None]]:
    """Row and metric -> column -> interquartile mean and interval, for `paper_figures.draw_intervals`."""
    panels = {}
    for row in sheet.rows:
        for metric in sheet.metrics:
            of = {column: _spot(sheet, row, column, metric) for column in sheet.columns}
            panels[f"{row}, {metric.name}"] = of
    return panels


def _spot(sheet: Sheet, row: str, column: str, metric: Metric) -> Spot | None:
    cell, summary = sheet.cell(row, column), facts(sheet, row, column, metric).summary
    if cell.values is None:
        return None
    return Spot(None, "no value") if summary is None else Spot(summary, ", ".join(marks(cell)))


def _common(sheet: Sheet, metric: str, columns: Sequence[str]) -> tuple[list[str], list[str]]:
    """The columns that have any whole cell, and the rows that are whole in all of them."""
    is_usable = lambda row, column: _is_usable(sheet.cell(row, column), metric)
    present = [column for column in columns if any(is_usable(row, column) for row in sheet.rows)]
    return present, [row for row in sheet.rows if all(is_usable(row, column) for column in present)]


def _is_usable(cell: Cell, metric: str) -> bool:
    return cell.is_whole and cell.protocol == FULL and cell.has(metric)


def _table(
    values: Mapping[str, Mapping[int, np.ndarray]], seeds: Sequence[int], scale: Mapping[str, float]
) -> Float64[np.ndarray, "seed task"]:
    """Values [seed, row] from row -> seed -> value, over their scale."""
    table = np.array([[of_row[seed] for of_row in values.values()] for seed in seeds], np.float64)
    return metrics.normalize(table, [scale[row] for row in values])
