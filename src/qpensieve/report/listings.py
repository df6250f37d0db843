"""Plain tables of a report: text in cells, no statistics."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from qpensieve.console import Row, format_markdown
from qpensieve.errors import UserError
from qpensieve.report import sheet_text
from qpensieve.report.sheets import check_name, slug


@dataclass(frozen=True)
class Listing:
    """One such table.

    Attributes:
        name: Name of its files: letters, digits, - and _.
        title: Heading.
        caption: What it shows.
        rows: Heading -> text, the same headings in every row; the first names the row.
        notes: Sentences below the table.
    """

    name: str
    title: str
    caption: str
    rows: Sequence[Row]
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_name("listing", self.name)
        if not self.rows:
            raise UserError(f"{self.name}: a listing needs a row")

    @property
    def anchor(self) -> str:
        return f"listing-{slug(self.name)}"


def listing_markdown(listing: Listing) -> str:
    """The table in Markdown, with its heading."""
    parts = [f"## {listing.title}", listing.caption, format_markdown(listing.rows), *listing.notes]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def listing_html(listing: Listing) -> str:
    """The table as a section of a page."""
    name, headings = listing.anchor, list(listing.rows[0])
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    lines = [f"<tr>{_first(row, headings)}{_others(row, headings)}</tr>" for row in listing.rows]
    return "\n".join(
        [
            f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{escape(listing.title)}</h2>',
            f'<div class="wide" tabindex="0" role="group" aria-labelledby="{name}-title"><table>',
            f"<caption>{escape(listing.caption)}</caption>",
            f"<thead><tr>{head}</tr></thead>",
            "<tbody>",
            *lines,
            "</tbody></table></div>",
            *(f'<p class="note">{escape(note)}</p>' for note in listing.notes),
            "</section>",
        ]
    )


def listing_csv(listing: Listing) -> str:
    """The table as CSV."""
    headings = list(listing.rows[0])
    lines = [headings, *([str(row[heading]) for heading in headings] for row in listing.rows)]
    return "".join(",".join(map(_quoted, line)) + "\n" for line in lines)


def listing_latex(listing: Listing) -> str:
    """The table as a LaTeX tabular."""
    headings = list(listing.rows[0])
    lines = [headings, *([str(row[heading]) for heading in headings] for row in listing.rows)]
    body = [" & ".join(map(sheet_text.escape, line)) + r" \\" for line in lines]
    columns = "l" * len(headings)
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", r"\hline", body[0], r"\hline", *body[1:], r"\hline"]) + (
        "\n\\end{tabular}\n"
    )


def _first(row: Row, headings: Sequence[str]) -> str:
    return f'<th scope="row">{escape(str(row[headings[0]]))}</th>'


def _others(row: Row, headings: Sequence[str]) -> str:
    return "".join(f"<td>{escape(str(row[heading]))}</td>" for heading in headings[1:])


def _quoted(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"' if any(letter in text for letter in ',"\n') else text
