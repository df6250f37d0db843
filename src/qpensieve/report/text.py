"""One kind of table for every report, and its renderers: Markdown, LaTeX, CSV and terminal (HTML: `page`)."""

import csv as writers
import io
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

from qpensieve.console import PAGE, Row, format_table
from qpensieve.errors import UserError

ESCAPES = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        **{character: "\\" + character for character in "&%$#_{}"},
    }
)
"""Characters that are commands in LaTeX -> how they are written."""


@dataclass(frozen=True)
class TextCell:
    """One cell of a table.

    Attributes:
        text: Main line of the cell.
        power: Power of ten by which the numbers of its line are divided; a heading shows it.
        details: Further lines.
        marks: Remarks about the numbers, such as `at 300k of 1.5M`.
        printed: Numbers that the paper prints; empty if it has none.
        notes: Sentences below the table, to which a letter refers.
        link: Anchor to which the main line links.
        runs: Text and anchor of every run, if there are several.
        is_best: Whether the cell's mean is the best of the line.
    """

    text: str
    power: int = 0
    details: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    printed: str = ""
    notes: tuple[str, ...] = ()
    link: str = ""
    runs: tuple[tuple[str, str], ...] = ()
    is_best: bool = False

    @property
    def paper(self) -> tuple[str, ...]:
        """The line of the printed numbers, if there are some."""
        return (f"paper {self.printed}",) if self.printed else ()

    @property
    def heading(self) -> str:
        """The text with the power of ten."""
        return self.text + (f" (x10^{self.power})" if self.power else "")


@dataclass(frozen=True)
class TextTable:
    """A table of text.

    Attributes:
        name: Name of its files: letters, digits, - and _.
        title: Heading.
        caption: What it shows.
        headings: Headings of the columns.
        rows: Lines of the table, with a cell for each heading.
        num_heads: Number of first cells that name the line. With two, lines with the same first cell are a group.
        below: Sentences below the table.
        kind: Kind of table, the first part of its anchor.
    """

    name: str
    title: str
    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[TextCell]]
    num_heads: int = 1
    below: Sequence[str] = ()
    kind: str = "listing"

    @property
    def anchor(self) -> str:
        return anchor_of(self.kind, self.name)

    @cached_property
    def notes(self) -> dict[str, str]:
        """Note -> letter, in the order of the table."""
        notes = dict.fromkeys(note for row in self.rows for cell in row for note in cell.notes)
        return {note: _letter(i) for i, note in enumerate(notes)}

    def letters(self, cell: TextCell) -> str:
        """The letters of a cell's notes."""
        return " ".join(self.notes[note] for note in cell.notes)

    @property
    def groups(self) -> list[list[Sequence[TextCell]]]:
        """The lines in groups."""
        groups: list[list[Sequence[TextCell]]] = []
        for row in self.rows:
            is_same = groups and (self.num_heads == 1 or groups[-1][0][0].text == row[0].text)
            groups[-1].append(row) if is_same else groups.append([row])
        return groups


def listing(name: str, title: str, caption: str, rows: Sequence[Row], notes: Sequence[str] = ()) -> TextTable:
    """Return a plain table.

    Args:
        name: Name of its files.
        title: Heading.
        caption: Description of the content.
        rows: Heading -> text, the same headings in every row; the first names the row.
        notes: Sentences below the table.
    """
    show = lambda value: f"{value:,}" if isinstance(value, int) else str(value)
    lines = [[TextCell(show(value)) for value in row.values()] for row in rows]
    return TextTable(name, title, caption, list(rows[0]), lines, below=notes)


def markdown(table: TextTable, links: bool = True) -> str:
    """Return the table in Markdown. `links` need the text of a whole report, which has the sections of runs."""
    lines = [
        table.headings,
        ["---"] * len(table.headings),
        *([_in_markdown(table, cell, links) for cell in row] for row in table.rows),
    ]
    body = "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)
    notes = [f"<sup>{letter}</sup> {note}" for note, letter in table.notes.items()]
    parts = [f"## {table.title}" if table.title else "", table.caption, body, *notes, *table.below]
    return "\n\n".join(part for part in parts if part) + "\n"


def latex(table: TextTable) -> str:
    """Return the table in LaTeX: a plain `tabular` that needs no packages."""
    columns = "l" * table.num_heads + "c" * (len(table.headings) - table.num_heads)
    lines = [
        r"\begin{table}",
        rf"\caption{{{escape(table.caption or table.title)}}}",
        rf"\label{{tab:{table.name}}}",
        r"\centering\small",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\hline",
        " & ".join(map(escape, table.headings)) + r" \\",
        r"\hline",
    ]
    for group in table.groups:
        for i, row in enumerate(group):
            cells = [_in_latex(table, cell) for cell in row]
            shown = ["", *cells[1:]] if i and table.num_heads > 1 else cells
            lines.append(" & ".join(shown) + r" \\")
        lines.append(r"\hline")
    lines.append(r"\end{tabular}")
    notes = [_superscript(letter) + escape(note) for note, letter in table.notes.items()]
    lines += [r"\par\smallskip\footnotesize " + note for note in (*notes, *map(escape, table.below))]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def terminal(table: TextTable) -> str:
    """Return the table for a terminal: further lines of a cell are lines of their own."""
    rows = []
    for row in table.rows:
        columns = [[cell.heading, *cell.details, *cell.marks, *cell.paper] for cell in row]
        rows += [dict(zip(table.headings, line, strict=True)) for line in zip_longest(*columns, fillvalue="")]
    shown = re.sub(r"\n{3,}", "\n\n", format_table(rows)).strip()
    return "\n\n".join([shown, *(textwrap.fill(note, PAGE) for note in (*table.notes, *table.below))])


def csv(lines: Iterable[Sequence[object]]) -> str:
    """Return lines of values as CSV; floats have 12 digits, without those that are rounding."""
    show = lambda value: "" if value is None else f"{value:.12g}" if isinstance(value, float) else value
    text = io.StringIO()
    writers.writer(text, lineterminator="\n").writerows(map(show, line) for line in lines)
    return text.getvalue()


def listing_csv(table: TextTable) -> str:
    """Return the texts of a table as CSV."""
    return csv([table.headings, *([cell.text for cell in row] for row in table.rows)])


def escape(text: str) -> str:
    """Escape `text` for LaTeX."""
    return text.translate(ESCAPES)


def slug(text: str) -> str:
    """Return `text` as part of an address: lower-case letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "x"


def anchor_of(kind: str, name: str) -> str:
    """Return the address of a table or figure in the report."""
    return f"{kind}-{slug(name)}"


def check_name(kind: str, name: str) -> None:
    """Raise ValueError unless the name has only letters, digits, - and _: it becomes a file name."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise UserError(f"the name of a {kind} becomes a file name: use letters, digits, - and _; got {name!r}")


def _in_markdown(table: TextTable, cell: TextCell, links: bool) -> str:
    text = f"**{cell.heading}**" if cell.is_best else cell.heading
    lines = [f"[{text}]({cell.link})" if links and cell.link else text, *cell.details, *(f"*{m}*" for m in cell.marks)]
    lines += [", ".join(f"[{name}]({anchor})" for name, anchor in cell.runs)] if links and cell.runs else []
    letters = table.letters(cell)
    return "<br>".join([*lines, *cell.paper]) + (f"<sup>{letters}</sup>" if letters else "")


def _in_latex(table: TextTable, cell: TextCell) -> str:
    text = rf"\textbf{{{escape(cell.text)}}}" if cell.is_best else escape(cell.text)
    power = rf" ($\times 10^{{{cell.power}}}$)" if cell.power else ""
    lines = [text + power + _superscript(table.letters(cell))]
    lines += [rf"{{\scriptsize {escape(line)}}}" for line in (*cell.details, *cell.marks, *cell.paper)]
    stacked = r" \\ ".join(lines)
    return stacked if len(lines) == 1 else rf"\begin{{tabular}}{{@{{}}c@{{}}}}{stacked}\end{{tabular}}"


def _superscript(letters: str) -> str:
    return rf"$^{{\mathrm{{{letters}}}}}$" if letters else ""


def _letter(number: int) -> str:
    """Return the letter of a note: a, b, ..., z, aa, ab, ..."""
    before, last = divmod(number, 26)
    return (_letter(before - 1) if before else "") + chr(ord("a") + last)
