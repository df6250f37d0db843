"""Combine several domains: scores on the scale of a reference, and their performance profiles."""

from dataclasses import replace

import numpy as np

from qpensieve import metrics
from qpensieve.report.sheets import FULL, Cell, Sheet, shared_seeds
from qpensieve.report.text import slug

ALL_ROWS = "all"
"""Name of the only row of a sheet that combines or compares whole runs."""
NUM_TAUS = 201
"""Thresholds of a performance profile."""


def over_rows(sheet: Sheet, metric: str) -> Sheet | None:
    """Return a sheet of one row: all rows of `sheet`, each divided by the mean of the reference's own runs.

    It uses the rows in which the reference is complete and above 0, the columns that are complete in all these rows,
    and the seeds that all these cells share. Its notes name the rows left out. Values are [seed, row]: interquartile
    mean, intervals and probabilities of improvement are over the runs of all rows, stratified by row.

    Args:
        sheet: The sheet.
        metric: The metric.

    Returns:
        The sheet; None if nothing is left, or the sheet has no reference.
    """
    reference = sheet.reference
    if reference is None:
        return None
    means = {
        row: np.mean(list(cell.of(metric).values()))
        for row in sheet.rows
        if _is_usable(cell := sheet.cell(row, reference), metric)
    }
    scale = {row: float(mean) for row, mean in means.items() if mean > 0}
    whole = lambda column: all(_is_usable(sheet.cell(row, column), metric) for row in scale)
    columns, left = list(filter(whole, sheet.columns)), [row for row in sheet.rows if row not in scale]
    seeds = shared_seeds([sheet.cell(row, column) for row in scale for column in columns], metric)
    if not seeds:
        return None

    def scaled(column: str) -> Cell:
        values = [[float(sheet.cell(row, column).of(metric)[seed]) for row in scale] for seed in seeds]
        return Cell({metric: metrics.normalize(values, list(scale.values()))}, seeds, derived=sheet.name)

    return Sheet(
        name=f"{sheet.name}-{slug(metric)}-all",
        title=f"{metric} over {len(scale)} of {len(sheet.rows)} rows",
        caption=f"{sheet.title}, {metric} divided by {about_scale(sheet, metric)}.",
        rows=[ALL_ROWS],
        columns=columns,
        metrics=[replace(line, powers={ALL_ROWS: 0}) for line in sheet.metrics if line.name == metric],
        cells={(ALL_ROWS, column): scaled(column) for column in columns},
        notes=[f"Over {', '.join(scale)}" + (f"; left out: {', '.join(left)}." if left else ".")],
        reference=reference,
        corner="rows",
        tasks=list(scale),
    )


def about_scale(sheet: Sheet, metric: str) -> str:
    """Return the scaled score in words."""
    return f"{metric} divided by the mean of {sheet.reference}"


def profiles(over: Sheet) -> dict[str, metrics.Profile | None]:
    """Return column -> performance profile of a sheet that `over_rows` made, from 0 to the highest score.

    A line begins below 1 if the method has runs that score below 0.
    """
    name = over.metrics[0].name
    scores = {column: over.cell(ALL_ROWS, column).scores[name] for column in over.columns}
    highest, lowest = (of(list(map(of, scores.values()))) for of in (np.max, np.min))
    taus = np.linspace(0.0 if highest > 0 else lowest, highest, NUM_TAUS)
    return {column: metrics.performance_profile(values, taus) for column, values in scores.items()}


def _is_usable(cell: Cell, metric: str) -> bool:
    return cell.is_whole and cell.protocol == FULL and cell.has(metric)
