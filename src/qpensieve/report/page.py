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
from pathlib import Path
from urllib.parse import quote

from qpensieve.errors import MissingPackageError, UserError, make_folder
from qpensieve.records.files import write_file, write_text
from qpensieve.records.folder import refuse_link
from qpensieve.report import sheets, text
from qpensieve.report.drawing import Figure
from qpensieve.report.sheets import Sheet, Source, distinct, power_of, view
from qpensieve.report.text import TextCell, TextTable, anchor_of, check_name, markdown

PAGE, TEXT, TABLES, FIGURES = "index.html", "report.md", "tables", "figures"
"""Files and folders of a report."""
TEMPLATES = Path(__file__).with_name("templates")
METADATA: Mapping[str, Mapping[str, None]] = {"svg": {"Date": None}, "png": {"Software": None}}
"""Entries that pictures leave out, so that equal pictures are equal files."""
TYPES = {"svg": "image/svg+xml", "png": "image/png"}
SHEET_FILES = (("-summary.csv", "statistics (CSV)"), (".csv", "values (CSV)"), (".tex", "LaTeX"))
LISTING_FILES = ((".csv", "CSV"), (".tex", "LaTeX"))
"""Files of a table -> their names on the page."""
LeftOut = Mapping[tuple[str, str], Sequence[str]]
"""Row and column of a cell -> why runs of its name are not in it."""
BEGIN, END = "<!-- qpensieve paper report {name} -->", "<!-- end of {name} -->"
"""Lines around a table in another page."""


@dataclass(frozen=True, eq=False)
class Plate:
    """A figure of the report.

    Attributes:
        name: Name of its files: letters, digits, - and _.
        title: Heading.
        caption: Description of the content, and of missing runs.
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
class Parts:
    """Tables of scores, figures and plain tables of a report, each in its order."""

    sheets: list[Sheet] = field(default_factory=list)
    plates: list[Plate] = field(default_factory=list)
    listings: list[TextTable] = field(default_factory=list)

    def add(self, other: "Parts") -> None:
        """Append other parts."""
        self.sheets += other.sheets
        self.plates += other.plates
        self.listings += other.listings


@dataclass(frozen=True)
class About:
    """Title, introduction and origin of a report.

    Attributes:
        title: Title of the page.
        introduction: Paragraphs at its beginning.
        provenance: Versions and commit that made it, shown at its end.
    """

    title: str = "Report"
    introduction: Sequence[str] = ()
    provenance: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Report:
    """All parts of a report; each sheet is turned into text once."""

    sheets: Sequence[tuple[TextTable, TextTable | None]]
    plates: Sequence[Plate]
    listings: Sequence[TextTable]
    runs: Sequence[Source]
    about: About

    @property
    def contents(self) -> list[tuple[str, str]]:
        """Anchor and title of every section."""
        parts = [*(table for table, _ in self.sheets), *self.plates, *self.listings]
        return [*((part.anchor, part.title) for part in parts), ("runs", "Runs"), ("provenance", "Provenance")]

    @property
    def titles(self) -> dict[str, str]:
        """Anchor -> title of a run; runs with one label are told apart by their folder or file."""
        same = Counter(run.label for run in self.runs)
        full = lambda run: f"{run.label} ({run.name})" if same[run.label] > 1 and run.name else run.label
        return {run.anchor: full(run) for run in self.runs}

    @property
    def counts(self) -> str:
        """Number of runs, and their code and machines."""
        commits, machines = sorted({run.commit for run in self.runs}), sorted({run.machine for run in self.runs})
        known = f"Commits: {', '.join(commits)}. Machines: {'; '.join(machines)}."
        return f"{len(self.runs)} runs. {known}" if self.runs else "No runs."


def write_report(folder: Path, parts: Parts, about: About) -> Path:
    """Write the page, the text and all tables and figures into a folder; returns the page.

    Files of the same names are replaced, each whole or not at all; other files are left alone.

    Raises:
        ValueError: Two tables or two figures have the same name.
        LinkError: One of the files is a symbolic link.
    """
    report = make_report(parts, about)
    pictures = {plate.name: {ending: draw(plate.figure, ending) for ending in METADATA} for plate in parts.plates}
    texts = {PAGE: page(report, pictures), TEXT: report_text(report)}
    for sheet in parts.sheets:
        start = f"{TABLES}/{sheet.name}"
        texts |= {f"{start}.csv": text.csv(sheets.values(sheet))}
        texts |= {f"{start}-summary.csv": text.csv(sheets.statistics(sheet))}
    for table in (*(table for table, _ in report.sheets), *parts.listings):
        texts |= {f"{TABLES}/{table.name}.tex": text.latex(table), f"{TABLES}/{table.name}.md": markdown(table, False)}
    texts |= {f"{TABLES}/{table.name}.csv": text.listing_csv(table) for table in parts.listings}
    binary = {f"{FIGURES}/{name}.{ending}": data for name, both in pictures.items() for ending, data in both.items()}
    for name in (*texts, *binary):
        refuse_link(folder / name)
    for name in (TABLES, FIGURES):
        make_folder(folder / name)
    for name, content in texts.items():
        write_text(folder / name, content)
    for name, data in binary.items():
        write_file(folder / name, lambda file, data=data: file.write(data))
    return folder / PAGE


def make_report(parts: Parts, about: About) -> Report:
    """Put the parts of a report together; ValueError if two tables or two figures have the same name."""
    for kind, named in (("table", (*parts.sheets, *parts.listings)), ("figure", parts.plates)):
        for part in named:
            check_name(kind, part.name)
    cells = [cell for sheet in parts.sheets for cell in sheet.cells.values()]
    runs = distinct(source for part in (*cells, *parts.plates) for source in part.sources)
    made = [(sheets.table(sheet), sheets.seed_table(sheet)) for sheet in parts.sheets]
    report = Report(made, parts.plates, parts.listings, runs, about)
    twice = [anchor for anchor, num in Counter(anchor for anchor, _ in report.contents).items() if num > 1]
    if twice:
        raise UserError(
            f"sheets and figures must have different names, these are twice there: {', '.join(sorted(twice))}"
        )
    return report


def draw(figure: Figure, ending: str) -> bytes:
    """The picture as a file, `svg` or `png`; equal pictures are equal bytes."""
    from matplotlib import rc_context

    picture = io.BytesIO()
    with rc_context({"svg.hashsalt": "qpensieve", "svg.fonttype": "path"}):
        figure.savefig(picture, format=ending, metadata=dict(METADATA[ending]))
    return picture.getvalue()


def page(report: Report, pictures: Mapping[str, Mapping[str, bytes]]) -> str:
    """The web page; `pictures` holds each figure as `svg` and `png`."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise MissingPackageError("reports need Jinja2; install it with: pip install 'qpensieve[plots]'") from error
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["json"] = _json
    # A drawing of thousands of points is larger than a picture; the page holds the smaller file.
    smaller = {name: min(METADATA, key=lambda ending: len(files[ending])) for name, files in pictures.items()}
    encoded = {name: base64.b64encode(pictures[name][ending]).decode() for name, ending in smaller.items()}
    return environment.get_template("report.html").render(
        **{name: getattr(report, name) for name in ("about", "contents", "counts", "listings", "runs", "titles")},
        style=Markup((TEMPLATES / "report.css").read_text()),
        sheets=report.sheets,
        plates=report.plates,
        images={name: f"data:{TYPES[ending]};base64,{encoded[name]}" for name, ending in smaller.items()},
        endings=list(METADATA),
        sheet_files=SHEET_FILES,
        listing_files=LISTING_FILES,
        tables_folder=TABLES,
        figures_folder=FIGURES,
    )


def report_text(report: Report) -> str:
    """The report in Markdown; figures are links to their files."""
    titles = report.titles
    parts = [f"# {report.about.title}", *report.about.introduction]
    parts += [f'<a id="{table.anchor}"></a>\n\n{markdown(table).strip()}' for table, _ in report.sheets]
    for plate in report.plates:
        links = ", ".join(f"[{titles[source.anchor]}](#{source.anchor})" for source in plate.sources)
        picture = f"![{plate.caption}]({FIGURES}/{plate.name}.png)"
        parts += [f"## {plate.title}", picture, plate.caption, *([f"Runs: {links}"] if links else [])]
    parts += [markdown(table).strip() for table in report.listings]
    parts.append("## Runs")
    for run in report.runs:
        where = f" [{run.path}]({quote(run.config_path)})" if run.path else ""
        facts = f"{run.machine}; commit {run.commit}.{where}"
        config = f"```json\n{_json(run.config)}\n```"
        parts.append(f'<a id="{run.anchor}"></a>\n\n### {titles[run.anchor]}\n\n{facts}\n\n{config}')
    parts += ["## Provenance", report.counts, f"```json\n{_json(report.about.provenance)}\n```"]
    return "\n\n".join(parts) + "\n"


def _json(content: Mapping[str, object]) -> str:
    return json.dumps(content, indent=2, sort_keys=True)


def insert(page: Path, name: str, sheet: Sheet, left_out: LeftOut) -> None:
    """Put a small table into another page, between its marks, in the place of the last one.

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
    """Means and deviations of the rows and columns that hold a run, the paper's in brackets; the rest is named."""
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
    names = _without_run(sheet, rows, columns, left_out)
    about = "Mean ± standard deviation over seeds; in brackets what the paper prints."
    about += f" Without a run yet: {', '.join(names)}." if names else ""
    notes = [f"{' '.join(place)}: {' '.join(reasons)}" for place, reasons in left_out.items()]
    return "\n".join([*lines, "", about, *notes])


def _without_run(sheet: Sheet, rows: Sequence[str], columns: Sequence[str], told: LeftOut) -> list[str]:
    """Return the rows and columns without a run in words; single cells where the row or column has an existing run."""
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
