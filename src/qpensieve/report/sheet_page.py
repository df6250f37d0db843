"""A sheet as part of a web page: a table that can be read by keyboard, whose numbers link to their runs."""

from html import escape

from qpensieve.report import sheets
from qpensieve.report.sheet_text import footnotes, letters_of, row_letters, sheet_anchor, target
from qpensieve.report.sheets import Cell, Metric, Sheet, View


def html(sheet: Sheet) -> str:
    """The section of a sheet: table, notes, and values per seed."""
    name, letters = sheet_anchor(sheet.name), footnotes(sheet)
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in (sheet.corner, "metric", *sheet.columns))
    bodies = "\n".join(_body(sheet, row, letters) for row in sheet.rows)
    notes = [f'<p class="note" id="{name}-note-{letter}"><sup>{letter}</sup> {escape(note)}</p>'
             for note, letter in letters.items()]  # fmt: skip
    notes += [f'<p class="note">{escape(note)}</p>' for note in sheet.notes]
    files = ", ".join(
        f'<a href="tables/{sheet.name}{ending}">{escape(text)}</a>'
        for ending, text in (("-summary.csv", "statistics (CSV)"), (".csv", "values (CSV)"), (".tex", "LaTeX"))
    )
    return "\n".join(
        [
            f'<section id="{name}" aria-labelledby="{name}-title">',
            f'<h2 id="{name}-title">{escape(sheet.title)}</h2>',
            f'<div class="wide" tabindex="0" role="region" aria-labelledby="{name}-title">',
            f'<table class="scores">\n<caption>{escape(sheet.caption)}</caption>',
            f"<thead><tr>{head}</tr></thead>",
            bodies,
            "</table>\n</div>",
            *notes,
            _values(sheet),
            f'<p class="note">Files: {files}</p>',
            "</section>",
        ]
    )


def _body(sheet: Sheet, row: str, letters: dict[str, str]) -> str:
    lines = ["<tbody>"]
    for i, metric in enumerate(sheet.metrics):
        first = f'<th scope="rowgroup" rowspan="{len(sheet.metrics)}">{escape(row)}</th>' if i == 0 else ""
        note = _links(sheet, row_letters(sheet, row, metric, letters))
        cells = [
            _cell(sheet, sheets.view(sheet, row, column, metric), sheet.cell(row, column), letters)
            for column in sheet.columns
        ]
        head = f'<th scope="row">{escape(metric.name)}{note}{_unit(sheet, row, metric)}</th>'
        lines.append(f"<tr>{first}{head}{''.join(cells)}</tr>")
    return "\n".join([*lines, "</tbody>"])


def _unit(sheet: Sheet, row: str, metric: Metric) -> str:
    power = sheets.power_of(sheet, row, metric)
    return f' <span class="unit">×10<sup>{power}</sup></span>' if power else ""  # noqa: RUF001


def _cell(sheet: Sheet, view: View, cell: Cell, letters: dict[str, str]) -> str:
    strong = "strong" if view.is_best else "span"
    mean = f'<{strong} class="mean">{escape(view.mean)}</{strong}>'
    details = "".join(f'<span class="detail">{escape(line)}</span>' for line in view.details)
    link = target(cell)
    parts = [f'<a href="{escape(link)}">{mean}{details}</a>' if link and view.details else mean + details]
    parts += [f'<span class="mark">{escape(mark)}</span>' for mark in view.marks]
    if view.details and len(cell.sources) > 1:
        runs = ", ".join(
            f'<a href="#{source.anchor}">{escape(sheets.seeds_in_words(source.seeds))}</a>' for source in cell.sources
        )
        parts.append(f'<span class="detail">{runs}</span>')
    if view.printed:
        parts.append(f'<span class="paper">paper {escape(view.printed)}</span>')
    kind = "" if view.details else ' class="missing"'
    return f"<td{kind}>{''.join(parts)}{_links(sheet, letters_of(view, letters))}</td>"


def _links(sheet: Sheet, letters: str) -> str:
    """Letters of notes, each a link to its note."""
    name = sheet_anchor(sheet.name)
    links = " ".join(f'<a href="#{name}-note-{letter}">{letter}</a>' for letter in letters.split())
    return f"<sup>{links}</sup>" if links else ""


def _values(sheet: Sheet) -> str:
    """Every value of every seed, folded away."""
    lines = []
    for row in sheet.rows:
        for column in sheet.columns:
            for metric in sheet.metrics:
                of = sheet.cell(row, column).of(metric.name)
                shown = ", ".join(f"{seed}: {_number(value.reshape(-1).tolist())}" for seed, value in of.items())
                if shown:
                    cells = (row, column, metric.name, shown)
                    lines.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in (sheet.corner, "column", "metric", "seed: value"))
    name = sheet_anchor(sheet.name)
    region = f'<div class="wide" tabindex="0" role="region" aria-label="Values per seed, {escape(sheet.title)}">'
    table = f"<table><thead><tr>{head}</tr></thead><tbody>\n" + "\n".join(lines) + "\n</tbody></table>"
    return f'<details id="{name}-values"><summary>Values per seed</summary>{region}{table}</div></details>'


def _number(values: list[float]) -> str:
    return " / ".join(f"{value:.6g}" for value in values)
