"""Sheets as Markdown, LaTeX and CSV."""

import csv as writers
import io
from collections.abc import Sequence

from qpensieve.report import sheets
from qpensieve.report.sheets import Cell, Metric, Sheet, View

ESCAPES = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        **{character: "\\" + character for character in "&%$#_{}"},
    }
)
"""What LaTeX would take as a command -> how it is written."""
VALUE_COLUMNS = ("row", "column", "metric", "seed", "task", "value", "step", "goal", "protocol", "run", "commit")
SUMMARY_COLUMNS = (
    *("row", "column", "metric", "status", "seeds", "step", "goal", "protocol", "mean", "std"),
    *("iqm", "iqm_low", "iqm_high", "p_better", "p_better_low", "p_better_high"),
    *("difference", "difference_low", "difference_high", "paired_p", "paired_p_low", "paired_p_high", "paired_seeds"),
    *("printed_mean", "printed_std", "notes"),
)


def markdown(sheet: Sheet, links: bool = True) -> str:
    """The table in Markdown; a cell has a line per statistic, and its mean links to its run's section.

    Args:
        sheet: The sheet.
        links: Whether to link; only the text of a whole report has the sections of runs.
    """
    letters = footnotes(sheet)
    head = [sheet.corner, "metric", *sheet.columns]
    table = [head, ["---"] * len(head)]
    for row, metric, views in sheets.lines(sheet):
        note = _letters(letters, _row_notes(sheet, row, metric))
        cells = [sheet.cell(row, column) for column in sheet.columns]
        shown = [_markdown_cell(*pair, letters, links) for pair in zip(views, cells, strict=True)]
        table.append([row, heading(sheet, row, metric) + (f"<sup>{note}</sup>" if note else ""), *shown])
    lines = ["| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in table]
    below = [f"<sup>{letter}</sup> {note}" for note, letter in letters.items()]
    return "\n\n".join([f"## {sheet.title}", sheet.caption, "\n".join(lines), *below, *sheet.notes]) + "\n"


def latex(sheet: Sheet) -> str:
    """The table in LaTeX: a plain `tabular`, no packages."""
    letters = footnotes(sheet)
    lines = [
        r"\begin{table}",
        rf"\caption{{{escape(sheet.caption or sheet.title)}}}",
        rf"\label{{tab:{sheet.name}}}",
        r"\centering\small",
        rf"\begin{{tabular}}{{ll{'c' * len(sheet.columns)}}}",
        r"\hline",
        " & ".join(escape(name) for name in (sheet.corner, "metric", *sheet.columns)) + r" \\",
        r"\hline",
    ]
    for row, metric, views in sheets.lines(sheet):
        name = escape(row) if metric is sheet.metrics[0] else ""
        note = _letters(letters, _row_notes(sheet, row, metric))
        head = escape(metric.name) + _latex_power(sheets.power_of(sheet, row, metric)) + _superscript(note)
        lines.append(" & ".join([name, head, *(_latex_cell(one, letters) for one in views)]) + r" \\")
        if metric is sheet.metrics[-1]:
            lines.append(r"\hline")
    lines.append(r"\end{tabular}")
    notes = [_superscript(letter) + escape(note) for note, letter in letters.items()]
    lines += [r"\par\smallskip\footnotesize " + note for note in (*notes, *map(escape, sheet.notes))]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def csv(sheet: Sheet) -> str:
    """One line per cell, metric, seed (and task), in full precision."""
    lines = []
    for row in sheet.rows:
        for column in sheet.columns:
            cell = sheet.cell(row, column)
            for metric in sheet.metrics:
                lines += _value_lines(sheet, (row, column), cell, metric)
    return _csv([VALUE_COLUMNS, *lines])


def summary_csv(sheet: Sheet) -> str:
    """One line per cell and metric: every statistic, what the paper prints, and whether the cell is whole."""
    lines = [
        _summary_line(sheet, row, column, metric)
        for row in sheet.rows
        for column in sheet.columns
        for metric in sheet.metrics
    ]
    return _csv([SUMMARY_COLUMNS, *lines])


def footnotes(sheet: Sheet) -> dict[str, str]:
    """Note -> letter, in the order of the table; every note once."""
    notes: dict[str, None] = {}
    for row in sheet.rows:
        for metric in sheet.metrics:
            found = list(_row_notes(sheet, row, metric))
            for column in sheet.columns:
                cell = sheet.cell(row, column)
                found += [cell.notes.get(metric.name, ""), cell.note]
            notes |= dict.fromkeys(note for note in found if note)
    return {note: _letter(i) for i, note in enumerate(notes)}


def heading(sheet: Sheet, row: str, metric: Metric) -> str:
    """Name of a line: the metric, with its power of ten."""
    power = sheets.power_of(sheet, row, metric)
    return metric.name + (f" (x10^{power})" if power else "")


def escape(text: str) -> str:
    """`text` for LaTeX."""
    return text.translate(ESCAPES)


def target(cell: Cell) -> str:
    """Address of what the numbers of a cell come from: its first run, or the sheet that they were put together from."""
    if cell.sources:
        return f"#{cell.sources[0].anchor}"
    return f"#{sheet_anchor(cell.derived)}" if cell.derived else ""


def sheet_anchor(name: str) -> str:
    """Address of a sheet in the report."""
    return f"sheet-{sheets.slug(name)}"


def letters_of(view: View, letters: dict[str, str]) -> str:
    """The letters of a cell's notes."""
    return _letters(letters, view.notes)


def row_letters(sheet: Sheet, row: str, metric: Metric, letters: dict[str, str]) -> str:
    """The letters of a line's notes."""
    return _letters(letters, _row_notes(sheet, row, metric))


def _markdown_cell(view: View, cell: Cell, letters: dict[str, str], links: bool) -> str:
    mean = f"**{view.mean}**" if view.is_best else view.mean
    link = target(cell) if links else ""
    lines = [f"[{mean}]({link})" if link and view.details else mean, *view.details, *(f"*{m}*" for m in view.marks)]
    if links and view.details and len(cell.sources) > 1:
        lines.append(", ".join(f"[{sheets.seeds_in_words(source.seeds)}](#{source.anchor})" for source in cell.sources))
    if view.printed:
        lines.append(f"paper {view.printed}")
    note = letters_of(view, letters)
    return "<br>".join(lines) + (f" <sup>{note}</sup>" if note else "")


def _latex_cell(view: View, letters: dict[str, str]) -> str:
    mean = rf"\textbf{{{escape(view.mean)}}}" if view.is_best else escape(view.mean)
    lines = [mean + _superscript(letters_of(view, letters))]
    lines += [rf"{{\scriptsize {escape(line)}}}" for line in (*view.details, *view.marks)]
    if view.printed:
        lines.append(rf"{{\scriptsize paper {escape(view.printed)}}}")
    stacked = r" \\ ".join(lines)
    return stacked if len(lines) == 1 else rf"\begin{{tabular}}{{@{{}}c@{{}}}}{stacked}\end{{tabular}}"


def _latex_power(power: int) -> str:
    return rf" ($\times 10^{{{power}}}$)" if power else ""


def _superscript(letters: str) -> str:
    return rf"$^{{\mathrm{{{letters}}}}}$" if letters else ""


def _value_lines(sheet: Sheet, where: tuple[str, str], cell: Cell, metric: Metric) -> list[Sequence[object]]:
    lines: list[Sequence[object]] = []
    for seed, value in cell.of(metric.name).items():
        source = next((one for one in cell.sources if seed in one.seeds), None)
        origin = (source.path or source.label, source.commit) if source else (cell.derived, "")
        for task, number in zip(sheet.tasks or ("",), value.reshape(-1).tolist(), strict=True):
            ends = (cell.step, cell.goal, cell.protocol) if cell.sources else ("", "", cell.protocol)
            lines.append((*where, metric.name, seed, task, repr(number), *ends, *origin))
    return lines


def _summary_line(sheet: Sheet, row: str, column: str, metric: Metric) -> Sequence[object]:
    cell, facts = sheet.cell(row, column), sheets.facts(sheet, row, column, metric)
    summary, gap = facts.summary, facts.gap
    status = "whole" if cell.is_whole else "partial"
    if summary is None:
        status = sheets.MISSING if cell.values is None else "no value"
    notes = [*_row_notes(sheet, row, metric), *sheets.view(sheet, row, column, metric).notes]
    printed = cell.printed.get(metric.name, ("", ""))
    known = ("",) * 5 if summary is None else (summary.mean, summary.std, summary.iqm, summary.low, summary.high)
    paired: Sequence[object] = ("",) * 7
    if gap is not None:
        ends = (gap.probability, gap.probability_low, gap.probability_high)
        paired = (gap.mean, gap.low, gap.high, *ends, gap.num_pairs)
    where = (row, column, metric.name, status, " ".join(map(str, cell.of(metric.name))))
    reached = (cell.step, cell.goal, cell.protocol) if cell.sources else ("", "", "")
    improved = facts.improvement or ("",) * 3
    return (*where, *reached, *known, *improved, *paired, *printed, " ".join(notes))


def _csv(lines: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    writers.writer(text, lineterminator="\n").writerows(map(_plain, line) for line in lines)
    return text.getvalue()


def _plain(value: object) -> object:
    """Numbers without the digits that are rounding."""
    return "" if value is None else f"{value:.12g}" if isinstance(value, float) else value


def _row_notes(sheet: Sheet, row: str, metric: Metric) -> tuple[str, ...]:
    note = sheet.row_notes.get((row, metric.name), "")
    return (note,) if note else ()


def _letters(letters: dict[str, str], notes: Sequence[str]) -> str:
    return " ".join(letters[note] for note in notes)


def _letter(number: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    before, last = divmod(number, 26)
    return (_letter(before - 1) if before else "") + chr(ord("a") + last)
