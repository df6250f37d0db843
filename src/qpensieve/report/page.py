"""The report: one web page that holds all sheets and figures, and the same as files beside it.

The page needs nothing from outside: no script, no fonts, no requests; it works from a disk. Equal inputs make equal
bytes.
"""

import base64
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from qpensieve.errors import UserError, make_folder
from qpensieve.records.atomic import write_file, write_text
from qpensieve.records.links import refuse_link
from qpensieve.report.listings import Listing, listing_csv, listing_html, listing_latex, listing_markdown
from qpensieve.report.sheet_page import html
from qpensieve.report.sheet_text import csv, latex, markdown, sheet_anchor, summary_csv
from qpensieve.report.sheets import Sheet, Source, check_name, distinct, slug, sources_of

# matplotlib is an extra and slow to import, so it is imported by the functions that draw.
if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any

PAGE, TEXT, TABLES, FIGURES = "index.html", "report.md", "tables", "figures"
"""Files and folders of a report."""
METADATA: Mapping[str, Mapping[str, None]] = {"svg": {"Date": None}, "png": {"Software": None}}
"""What a picture would say about when and by what it was drawn: equal pictures are equal files."""
TYPES = {"svg": "image/svg+xml", "png": "image/png"}
STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #ffffff; --soft: #5c5c5c; --line: #c8c8c8; --band: #f3f3f3;
  --link: #00528a; --mark: #8a3b00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --paper: #161616; --soft: #ababab; --line: #4a4a4a;
  --band: #222222; --link: #7cc0f4; --mark: #f0a860; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 90rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.45 system-ui, sans-serif; }
a { color: var(--link); }
a:focus-visible, summary:focus-visible, .wide:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.skip { position: absolute; left: -100vw; } .skip:focus { position: static; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .5rem; max-width: 60rem; }
th, td { border: 1px solid var(--line); padding: .35rem .6rem; text-align: left; vertical-align: top; }
thead th, th[scope=rowgroup] { background: var(--band); }
@media (min-width: 48rem) {
  .scores th[scope=rowgroup], .scores thead th:first-child { position: sticky; left: -1px; z-index: 1;
    min-width: 10.5rem; max-width: 10.5rem; overflow-wrap: anywhere; }
  .scores th[scope=row], .scores thead th:nth-child(2) { position: sticky; left: calc(10.5rem - 2px); z-index: 1; }
  .scores tbody th[scope=row] { background: var(--paper); }
}
td a:has(.mean) { text-decoration: none; } a .mean { text-decoration: underline; text-underline-offset: 2px; }
.mean, .detail, .mark, .paper { display: block; white-space: nowrap; }
.detail, .paper, .unit { font-size: .82rem; color: var(--soft); }
.mark { font-size: .82rem; color: var(--mark); font-style: italic; }
.missing .mean { color: var(--soft); font-style: italic; }
.note { font-size: .9rem; max-width: 60rem; margin: .4rem 0; }
section { margin: 2.5rem 0; } section section:target { outline: 2px dashed var(--link); outline-offset: .5rem; }
figure { margin: 1rem 0; } figure img { width: 48rem; max-width: 100%; height: auto; background: #ffffff; }
figcaption { max-width: 60rem; }
pre { overflow-x: auto; background: var(--band); padding: .6rem; font-size: .82rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .5rem 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
@media print { .skip, details { display: none; } .wide { overflow: visible; } }
"""


@dataclass(frozen=True, eq=False)
class Plate:
    """A figure of the report.

    Attributes:
        name: Name of its files: letters, digits, - and _.
        title: Heading.
        caption: What it shows, and what is missing.
        figure: The picture.
        sources: The runs that it shows.
        alt: What it shows, for those who cannot see it; default: the caption.
    """

    name: str
    title: str
    caption: str
    figure: Figure
    sources: tuple[Source, ...] = ()
    alt: str = ""


@dataclass(frozen=True)
class About:
    """What the report says about itself.

    Attributes:
        title: Title of the page.
        introduction: Paragraphs at its beginning.
        provenance: Versions and commit that made it, shown at its end.
    """

    title: str = "Report"
    introduction: Sequence[str] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)


def write_report(
    folder: Path,
    sheets: Sequence[Sheet],
    figures: Sequence[Plate],
    about: About | None = None,
    listings: Sequence[Listing] = (),
) -> Path:
    """Write the page, the text and all tables and figures into a folder; returns the page.

    Files of the same names are replaced, each whole or not at all; others are left alone.

    Raises:
        ValueError: If two sheets or two figures have the same name.
        LinkError: If one of the files is a symbolic link.
    """
    told = about or About()
    for plate in figures:
        check_name("figure", plate.name)
    _check_names([sheet_anchor(sheet.name) for sheet in sheets] + [_anchor(plate) for plate in figures])
    _check_names([listing.anchor for listing in listings])
    pictures = {plate.name: {ending: draw(plate.figure, ending) for ending in METADATA} for plate in figures}
    texts = {PAGE: page(sheets, figures, pictures, told, listings), TEXT: text(sheets, figures, told, listings)}
    for sheet in sheets:
        start = f"{TABLES}/{sheet.name}"
        texts |= {f"{start}.tex": latex(sheet), f"{start}.csv": csv(sheet), f"{start}-summary.csv": summary_csv(sheet)}
        texts[f"{start}.md"] = markdown(sheet, links=False)
    for listing in listings:
        start = f"{TABLES}/{listing.name}"
        texts |= {f"{start}.tex": listing_latex(listing), f"{start}.csv": listing_csv(listing)}
        texts[f"{start}.md"] = listing_markdown(listing)
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


def draw(figure: Figure, ending: str) -> bytes:
    """The picture as a file, `svg` or `png`; equal pictures are equal bytes."""
    from matplotlib import rc_context

    picture = io.BytesIO()
    with rc_context({"svg.hashsalt": "qpensieve", "svg.fonttype": "path"}):
        figure.savefig(picture, format=ending, metadata=dict(METADATA[ending]))
    return picture.getvalue()


def page(
    sheets: Sequence[Sheet],
    figures: Sequence[Plate],
    pictures: Mapping[str, Mapping[str, bytes]],
    about: About,
    listings: Sequence[Listing] = (),
) -> str:
    """The web page; `pictures` holds each figure as `svg` and `png`."""
    runs = _runs(sheets, figures)
    titles = _titles(runs)
    contents = [(sheet_anchor(sheet.name), sheet.title) for sheet in sheets]
    contents += [(_anchor(plate), plate.title) for plate in figures]
    contents += [(listing.anchor, listing.title) for listing in listings]
    contents += [("runs", "Runs"), ("provenance", "Provenance")]
    entries = "\n".join(f'<li><a href="#{anchor}">{escape(title)}</a></li>' for anchor, title in contents)
    return "\n".join(
        [
            f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(about.title)}</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',  # without it a browser asks the server for one
            f"<style>{STYLE}</style>\n</head>\n<body>",
            '<a class="skip" href="#content">Skip to the tables</a>',
            f"<header><h1>{escape(about.title)}</h1>",
            *(f"<p>{escape(paragraph)}</p>" for paragraph in about.introduction),
            f'</header>\n<nav aria-label="Contents"><ol>\n{entries}\n</ol></nav>\n<main id="content">',
            *map(html, sheets),
            *(_figure(plate, pictures[plate.name], titles) for plate in figures),
            *map(listing_html, listings),
            '<section id="runs" aria-labelledby="runs-title"><h2 id="runs-title">Runs</h2>',
            *(_run(run, titles[run.anchor]) for run in runs),
            "</section>",
            '<section id="provenance" aria-labelledby="provenance-title">',
            '<h2 id="provenance-title">Provenance</h2>',
            f"<p>{_counts(runs)}</p>",
            _folded("What made this page", about.provenance),
            "</section>\n</main>\n</body>\n</html>\n",
        ]
    )


def text(sheets: Sequence[Sheet], figures: Sequence[Plate], about: About, listings: Sequence[Listing] = ()) -> str:
    """The report in Markdown; figures are links to their files."""
    runs = _runs(sheets, figures)
    titles = _titles(runs)
    parts = [f"# {about.title}", *about.introduction]
    parts += [f'<a id="{sheet_anchor(sheet.name)}"></a>\n\n{markdown(sheet).strip()}' for sheet in sheets]
    for plate in figures:
        links = ", ".join(f"[{titles[source.anchor]}](#{source.anchor})" for source in plate.sources)
        picture = f"![{_alt(plate)}]({FIGURES}/{plate.name}.png)"
        parts += [f"## {plate.title}", picture, plate.caption, *([f"Runs: {links}"] if links else [])]
    parts += [listing_markdown(listing).strip() for listing in listings]
    parts.append("## Runs")
    for run in runs:
        where = f" [{run.path}]({quote(run.config_path)})" if run.path else ""
        facts = f"{run.machine}; commit {run.commit}.{where}"
        config = f"```json\n{_json(run.config)}\n```"
        parts.append(f'<a id="{run.anchor}"></a>\n\n### {titles[run.anchor]}\n\n{facts}\n\n{config}')
    parts += ["## Provenance", _counts(runs), f"```json\n{_json(about.provenance)}\n```"]
    return "\n\n".join(parts) + "\n"


def _titles(runs: Sequence[Source]) -> dict[str, str]:
    """Anchor -> what a run is called: where others are called the same, with the folder or file that it lies in."""
    alike = Counter(run.label for run in runs)
    return {run.anchor: f"{run.label} ({run.name})" if alike[run.label] > 1 and run.name else run.label for run in runs}


def _figure(plate: Plate, files: Mapping[str, bytes], titles: Mapping[str, str]) -> str:
    name = _anchor(plate)
    # Thousands of points make a large drawing and a small picture; inside the page the smaller one stands.
    ending = min(METADATA, key=lambda ending: len(files[ending]))
    picture = f"data:{TYPES[ending]};base64,{base64.b64encode(files[ending]).decode()}"
    runs = ", ".join(f'<a href="#{one.anchor}">{escape(titles[one.anchor])}</a>' for one in plate.sources)
    linked = ", ".join(f'<a href="{FIGURES}/{plate.name}.{ending}">{ending.upper()}</a>' for ending in METADATA)
    return "\n".join(
        [
            f'<section id="{name}" aria-labelledby="{name}-title">',
            f'<h2 id="{name}-title">{escape(plate.title)}</h2>',
            f'<figure><img src="{picture}" alt="{escape(_alt(plate))}">',
            f"<figcaption>{escape(plate.caption)}</figcaption></figure>",
            *([f'<p class="note">Runs: {runs}</p>'] if runs else []),
            f'<p class="note">Files: {linked}</p>',
            "</section>",
        ]
    )


def _run(source: Source, title: str) -> str:
    """The section of a run: where it lies, which machine and code made it, its configuration."""
    name = source.anchor
    link = (
        f'<a href="{quote(source.config_path)}">{escape(source.path)}</a>' if source.path else "not part of this report"
    )
    facts = {
        "files": link,
        "seeds": escape(", ".join(map(str, source.seeds)) or "unknown"),
        "machine": escape(source.machine or "unknown"),
        "commit": escape(source.commit or "unknown"),
    }
    listed = "".join(f"<dt>{word}</dt><dd>{value}</dd>" for word, value in facts.items())
    return "\n".join(
        [
            f'<section id="{name}" aria-labelledby="{name}-title"><h3 id="{name}-title">{escape(title)}</h3>',
            f"<dl>{listed}</dl>",
            _folded("Configuration", source.config),
            _folded("Versions and machine", source.provenance),
            "</section>",
        ]
    )


def _folded(summary: str, content: Mapping[str, Any]) -> str:
    return f"<details><summary>{escape(summary)}</summary><pre>{escape(_json(content))}</pre></details>"


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2, sort_keys=True)


def _runs(sheets: Sequence[Sheet], figures: Sequence[Plate]) -> list[Source]:
    return distinct([*sources_of(sheets), *(source for plate in figures for source in plate.sources)])


def _counts(runs: Sequence[Source]) -> str:
    """How many runs, and by which code and machines."""
    commits, machines = sorted({run.commit for run in runs}), sorted({run.machine for run in runs})
    if not runs:
        return "No runs."
    known = f"Commits: {', '.join(commits)}. Machines: {'; '.join(machines)}."
    return escape(f"{len(runs)} runs. {known}")


def _anchor(plate: Plate) -> str:
    return f"figure-{slug(plate.name)}"


def _alt(plate: Plate) -> str:
    return plate.alt or plate.caption or plate.title


def _check_names(anchors: Sequence[str]) -> None:
    twice = sorted({anchor for anchor in anchors if anchors.count(anchor) > 1})
    if twice:
        raise UserError(f"sheets and figures must have different names, these stand twice: {', '.join(twice)}")
