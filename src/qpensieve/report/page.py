"""Write the report: one web page with all tables and figures, and the same as separate files.

The page needs nothing from outside: no script, no fonts, no requests; it works from a disk. Equal inputs make equal
bytes.
"""

import base64
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from qpensieve.errors import MissingPackageError, UserError, make_folder
from qpensieve.records.files import write_file, write_text
from qpensieve.records.folder import refuse_link
from qpensieve.report import sheets, text
from qpensieve.report.drawing import Figure
from qpensieve.report.sheets import Sheet, Source, power_of, text_cell
from qpensieve.report.text import TextCell, TextTable, anchor_of, check_name, markdown

PAGE, TEXT, TABLES, FIGURES = "index.html", "report.md", "tables", "figures"
"""Files and folders of a report; the template of the page names the folders too."""
TEMPLATES = Path(__file__).with_name("templates")
METADATA: Mapping[str, Mapping[str, None]] = {"svg": {"Date": None}, "png": {"Software": None}}
"""Ending of a picture -> entries that it leaves out, so that equal pictures are equal files."""
TYPES = {"svg": "image/svg+xml", "png": "image/png"}
LeftOut = Mapping[tuple[str, str], Sequence[str]]
"""Row and column of a cell -> why existing runs are not in the cell."""
BEGIN, END = "<!-- qpensieve paper report {name} -->", "<!-- end of {name} -->"
"""Lines around a table in another page."""


@dataclass(frozen=True, eq=False)
class ReportFigure:
    """A figure of the report.

    Attributes:
        name: Name of its files: letters, digits, - and _.
        title: Heading.
        caption: Description of the content.
        figure: The picture.
        sources: The runs in the picture.
    """

    name: str
    title: str
    caption: str
    figure: Figure
    sources: tuple[Source, ...] = ()

    @property
    def anchor(self) -> str:
        return anchor_of("figure", self.name)


@dataclass
class Report:
    """The content of a report; it must be complete before `tables` is read.

    Attributes:
        title: Title of the page.
        introduction: Paragraphs at the beginning.
        provenance: Versions and commit that made the report, shown at the end.
        sheets: Tables of scores.
        figures: Figures.
        listings: Plain tables.
    """

    title: str = "Report"
    introduction: Sequence[str] = ()
    provenance: Mapping[str, object] = field(default_factory=dict)
    sheets: list[Sheet] = field(default_factory=list)
    figures: list[ReportFigure] = field(default_factory=list)
    listings: list[TextTable] = field(default_factory=list)

    def add(self, other: "Report") -> None:
        """Append the tables and figures of another report."""
        self.sheets += other.sheets
        self.figures += other.figures
        self.listings += other.listings

    @cached_property
    def tables(self) -> list[tuple[TextTable, TextTable | None]]:
        """Each sheet as text, and its values per seed."""
        return [(sheets.table(sheet), sheets.seed_table(sheet)) for sheet in self.sheets]

    @property
    def contents(self) -> list[tuple[str, str]]:
        """Anchor and title of every section."""
        parts = [*(table for table, _ in self.tables), *self.figures, *self.listings]
        return [*((part.anchor, part.title) for part in parts), ("runs", "Runs"), ("provenance", "Provenance")]

    @cached_property
    def runs(self) -> list[Source]:
        """The runs of all cells and figures, by anchor."""
        cells = [cell for sheet in self.sheets for cell in sheet.cells.values()]
        by_anchor = {source.anchor: source for part in (*cells, *self.figures) for source in part.sources}
        return [by_anchor[anchor] for anchor in sorted(by_anchor)]

    @cached_property
    def titles(self) -> dict[str, str]:
        """Anchor -> title of a run; runs with equal labels are told apart by their folder or file."""
        num = Counter(run.label for run in self.runs)
        full = lambda run: f"{run.label} ({run.name})" if num[run.label] > 1 and run.name else run.label
        return {run.anchor: full(run) for run in self.runs}

    @property
    def counts(self) -> str:
        """Number of runs, and their code and machines."""
        commits, machines = sorted({run.commit for run in self.runs}), sorted({run.machine for run in self.runs})
        known = f"Commits: {', '.join(commits)}. Machines: {'; '.join(machines)}."
        return f"{len(self.runs)} runs. {known}" if self.runs else "No runs."


def write_report(folder: Path, report: Report) -> Path:
    """Write the page, the text and all tables and figures into a folder; returns the page.

    Files of the same names are replaced, each whole or not at all; other files are left alone.

    Raises:
        ValueError: Two tables or two figures have the same name.
        LinkError: One of the files is a symbolic link.
    """
    _check_names(report)
    pictures = {figure.name: {ending: draw(figure.figure, ending) for ending in METADATA} for figure in report.figures}
    texts = {PAGE: page(report, pictures), TEXT: _render("report.md.jinja", report=report)}
    for sheet in report.sheets:
        texts[f"{TABLES}/{sheet.name}.csv"] = text.csv(sheets.value_lines(sheet))
        texts[f"{TABLES}/{sheet.name}-summary.csv"] = text.csv(sheets.statistics_lines(sheet))
    for table in report.listings:
        texts[f"{TABLES}/{table.name}.csv"] = text.listing_csv(table)
    for table in (*(table for table, _ in report.tables), *report.listings):
        texts[f"{TABLES}/{table.name}.tex"] = text.latex(table)
        texts[f"{TABLES}/{table.name}.md"] = markdown(table, links=False)
    images = {f"{FIGURES}/{name}.{ending}": data for name, of in pictures.items() for ending, data in of.items()}
    for name in (*texts, *images):
        refuse_link(folder / name)
    for name in (TABLES, FIGURES):
        make_folder(folder / name)
    for name, content in texts.items():
        write_text(folder / name, content)
    for name, data in images.items():
        write_file(folder / name, lambda file, data=data: file.write(data))
    return folder / PAGE


def _check_names(report: Report) -> None:
    """Raise ValueError for a name that cannot name a file, or that two tables or two figures share."""
    for kind, named in (("table", (*report.sheets, *report.listings)), ("figure", report.figures)):
        for part in named:
            check_name(kind, part.name)
    twice = [anchor for anchor, num in Counter(anchor for anchor, _ in report.contents).items() if num > 1]
    if twice:
        raise UserError(
            f"sheets and figures must have different names, these are twice there: {', '.join(sorted(twice))}"
        )


def draw(figure: Figure, ending: str) -> bytes:
    """Return the picture as a file, `svg` or `png`; equal pictures are equal bytes."""
    from matplotlib import rc_context

    picture = io.BytesIO()
    with rc_context({"svg.hashsalt": "qpensieve", "svg.fonttype": "path"}):
        figure.savefig(picture, format=ending, metadata=dict(METADATA[ending]))
    return picture.getvalue()


def page(report: Report, pictures: Mapping[str, Mapping[str, bytes]]) -> str:
    """Return the web page; `pictures` holds each figure as `svg` and `png`."""
    images = {}
    for name, files in pictures.items():
        # A drawing of thousands of points is larger than a picture; the page holds the smaller file.
        ending = min(METADATA, key=lambda ending: len(files[ending]))
        images[name] = f"data:{TYPES[ending]};base64,{base64.b64encode(files[ending]).decode()}"
    return _render("report.html", report=report, images=images, style=(TEMPLATES / "report.css").read_text())


def _render(template: str, **content: object) -> str:
    """Fill a template in; a template of HTML escapes the content."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
    except ImportError as error:
        raise MissingPackageError("reports need Jinja2; install it with: pip install 'qpensieve[plots]'") from error

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=template.endswith(".md"),
    )
    environment.filters["json"] = lambda value: json.dumps(value, indent=2, sort_keys=True)
    environment.filters["markdown"] = lambda table: markdown(table).strip()
    return environment.get_template(template).render(**content)


def insert(page: Path, name: str, sheet: Sheet, left_out: LeftOut) -> None:
    """Write a small table between its marks in another page, over what is there.

    Args:
        page: A Markdown page.
        name: Name of the table in the marks.
        sheet: The table.
        left_out: Sentences about existing runs that are left out.

    Raises:
        ValueError: The page has no such marks; the message shows them.
        OSError: There is no such page.
    """
    begin, end = (mark.format(name=name) for mark in (BEGIN, END))
    text = page.read_text()
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise UserError(f"{page} must have the lines\n{begin}\n{end}\nwhere the table of {name} belongs")
    write_text(page, f"{before}{begin}\n\n{small_table(sheet, left_out)}\n\n{end}{after}")


def small_table(sheet: Sheet, left_out: LeftOut) -> str:
    """Return means and deviations, with the paper's in brackets, of the rows and columns that hold a run.

    A sentence below the table names the others.
    """
    has_run = {place for place, cell in sheet.cells.items() if cell.values}
    rows = [row for row in sheet.rows if any((row, column) in has_run for column in sheet.columns)]
    columns = [column for column in sheet.columns if any((row, column) in has_run for row in rows)]
    lines = [f"| {sheet.corner} | | {' | '.join(columns)} |", f"|{'---|' * (2 + len(columns))}"]
    for row in rows:
        for metric in sheet.metrics:
            texts = []
            for cell in (text_cell(sheet, row, column, metric) for column in columns):
                mean = f"**{cell.text}**" if cell.is_best else cell.text
                texts.append(", ".join([f"{mean} ({cell.printed})" if cell.printed else mean, *cell.marks]))
            name = TextCell(metric.name, power_of(sheet, row, metric)).heading
            lines.append(f"| {row} | {name} | {' | '.join(texts)} |")
    names = _without_run(sheet, rows, columns, left_out)
    about = "Mean ± standard deviation over seeds; in brackets what the paper prints."
    about += f" Without a run yet: {', '.join(names)}." if names else ""
    notes = [f"{' '.join(place)}: {' '.join(reasons)}" for place, reasons in left_out.items()]
    return "\n".join([*lines, "", about, *notes])


def _without_run(sheet: Sheet, rows: Sequence[str], columns: Sequence[str], left_out: LeftOut) -> list[str]:
    """Return the names of rows and columns without a run.

    Of a row or column with an existing run that is left out, the single cells without a run are named instead.
    """
    places = {row: [(row, column) for column in sheet.columns] for row in sheet.rows if row not in rows}
    places |= {column: [(row, column) for row in sheet.rows] for column in sheet.columns if column not in columns}
    whole = {name for name, of in places.items() if not any(place in left_out for place in of)}
    names: list[str] = []
    for name, of in places.items():
        missing = [place for place in of if place not in left_out and sheet.cell(*place).values is None]
        single = [" ".join(place) for place in missing if whole.isdisjoint(place)]
        names += [name] if name in whole else single
    return list(dict.fromkeys(names))
