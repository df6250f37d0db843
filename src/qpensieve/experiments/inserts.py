"""A table of a report as part of another page, between two marks: small, and written anew by every report."""

from pathlib import Path

from qpensieve.experiments.artefacts import Artefact
from qpensieve.records.atomic import write_text
from qpensieve.report.sheet_text import heading
from qpensieve.report.sheets import Sheet, view

BEGIN, END = "<!-- qpensieve paper report {name} -->", "<!-- end of {name} -->"


def insert(page: Path, artefact: Artefact, sheet: Sheet) -> None:
    """Put a table into a page, in the place of what stands between its marks.

    Raises:
        ValueError: The page has no such marks; shows them.
        OSError: There is no such page.
    """
    begin, end = (mark.format(name=artefact.name) for mark in (BEGIN, END))
    text = page.read_text()
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page} must have the lines\n{begin}\n{end}\nwhere the table of {artefact.name} belongs")
    write_text(page, f"{before}{begin}\n\n{small_table(sheet)}\n\n{end}{after}")


def small_table(sheet: Sheet) -> str:
    """Means and deviations of the rows and columns that hold a run, the paper's in brackets; the rest is named."""
    rows = [row for row in sheet.rows if any(_has_run(sheet, row, column) for column in sheet.columns)]
    columns = [column for column in sheet.columns if any(_has_run(sheet, row, column) for row in rows)]
    lines = [f"| {sheet.corner} | | {' | '.join(columns)} |", f"|{'---|' * (2 + len(columns))}"]
    for row in rows:
        for metric in sheet.metrics:
            name = heading(sheet, row, metric)
            shown = [view(sheet, row, column, metric) for column in columns]
            texts = [f"**{one.mean}**" if one.is_best else one.mean for one in shown]
            printed = [
                f"{text} ({one.printed})" if one.printed else text for text, one in zip(texts, shown, strict=True)
            ]
            marks = [", ".join([text, *one.marks]) for text, one in zip(printed, shown, strict=True)]
            lines.append(f"| {row} | {name} | {' | '.join(marks)} |")
    empty = [row for row in sheet.rows if row not in rows]
    absent = [column for column in sheet.columns if column not in columns]
    notes = [f"Without a run yet: {', '.join([*empty, *absent])}."] if empty or absent else []
    return "\n".join([*lines, "", "Mean ± standard deviation over seeds; in brackets what the paper prints.", *notes])


def _has_run(sheet: Sheet, row: str, column: str) -> bool:
    return bool(sheet.cell(row, column).values)
