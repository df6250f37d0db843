"""A small table of a report in another page, between two marks; every report replaces it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from qpensieve.errors import UserError
from qpensieve.experiments.plan import Artefact, Place
from qpensieve.records.files import write_text
from qpensieve.report.sheets import Sheet, power_of, view
from qpensieve.report.text import TextCell

LeftOut = Mapping[Place, Sequence[str]]
"""Place of a cell -> why runs of its name are not in it."""
BEGIN, END = "<!-- qpensieve paper report {name} -->", "<!-- end of {name} -->"


def insert(page: Path, artefact: Artefact, sheet: Sheet, left_out: LeftOut | None = None) -> None:
    """Put a table into a page, between its marks.

    Args:
        page: A Markdown page.
        artefact: What the table shows.
        sheet: The table.
        left_out: Sentences about runs that are there and do not count.

    Raises:
        ValueError: The page has no such marks; shows them.
        OSError: There is no such page.
    """
    begin, end = (mark.format(name=artefact.name) for mark in (BEGIN, END))
    text = page.read_text()
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise UserError(f"{page} must have the lines\n{begin}\n{end}\nwhere the table of {artefact.name} belongs")
    write_text(page, f"{before}{begin}\n\n{small_table(sheet, left_out)}\n\n{end}{after}")


def small_table(sheet: Sheet, left_out: LeftOut | None = None) -> str:
    """Means and deviations of the rows and columns that hold a run, the paper's in brackets; the rest is named."""
    told = left_out or {}
    rows = [row for row in sheet.rows if any(_has_run(sheet, row, column) for column in sheet.columns)]
    columns = [column for column in sheet.columns if any(_has_run(sheet, row, column) for row in rows)]
    lines = [f"| {sheet.corner} | | {' | '.join(columns)} |", f"|{'---|' * (2 + len(columns))}"]
    for row in rows:
        for metric in sheet.metrics:
            name = TextCell(metric.name, power_of(sheet, row, metric)).heading
            shown = [view(sheet, row, column, metric) for column in columns]
            texts = [f"**{one.text}**" if one.is_best else one.text for one in shown]
            printed = [
                f"{text} ({one.printed})" if one.printed else text for text, one in zip(texts, shown, strict=True)
            ]
            marks = [", ".join([text, *one.marks]) for text, one in zip(printed, shown, strict=True)]
            lines.append(f"| {row} | {name} | {' | '.join(marks)} |")
    names = _without_run(sheet, rows, columns, told)
    notes = [f"Without a run yet: {', '.join(names)}."] if names else []
    notes += [f"{' '.join(place)}: {' '.join(reasons)}" for place, reasons in told.items()]
    return "\n".join([*lines, "", "Mean ± standard deviation over seeds; in brackets what the paper prints.", *notes])


def _without_run(sheet: Sheet, rows: Sequence[str], columns: Sequence[str], told: LeftOut) -> list[str]:
    """Rows and columns without a run; where one is there and was left out, the other cells one by one."""
    empty = {row: [(row, column) for column in sheet.columns] for row in sheet.rows if row not in rows}
    absent = {column: [(row, column) for row in sheet.rows] for column in sheet.columns if column not in columns}
    whole = {name: not any(place in told for place in places) for name, places in [*empty.items(), *absent.items()]}
    names: list[str] = []
    for name, places in [*empty.items(), *absent.items()]:
        others = [place for place in places if place not in told and sheet.cell(*place).values is None]
        single = [" ".join(place) for place in others if not any(whole.get(part) for part in place)]
        names += [name] if whole[name] else single
    return list(dict.fromkeys(names))


def _has_run(sheet: Sheet, row: str, column: str) -> bool:
    return bool(sheet.cell(row, column).values)
