"""The page of the report: every link leads somewhere, nothing comes from outside, equal inputs make equal files."""

import html
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from qpensieve.records.folder import LinkError
from qpensieve.report import paper_figures
from qpensieve.report.drawing import Curve
from qpensieve.report.page import Report, ReportFigure, insert, write_report
from qpensieve.report.sheets import Cell, Metric, Sheet
from tests.report.test_sheets import OTHER, RUN, small

VOID = {"meta", "link", "img", "br", "input"}


class Page:
    """Tags of a page with their attributes, its ids and links, and its text."""

    def __init__(self, text: str):
        opened = re.findall(r"<(\w+)([^>]*)>", text)
        self.tags = [(tag, dict(re.findall(r'([\w-]+)="([^"]*)"', words))) for tag, words in opened]
        self.ids = [named["id"] for _, named in self.tags if "id" in named]
        self.links = [named[name] for _, named in self.tags for name in ("href", "src") if name in named]
        self.text = html.unescape(re.sub(r"<[^>]*>", "", text))
        ends = Counter(re.findall(r"</(\w+)>", text))
        assert Counter(tag for tag, _ in opened if tag not in VOID) == ends


@pytest.fixture(scope="module")
def plate() -> ReportFigure:
    curve = Curve(np.array([1, 2], np.int64), np.ones((2, 2)))
    figure = paper_figures.draw_curves({"Hopper2d": {"Q-Pensieve": curve, "CN-DER": None}}, "HV")
    return ReportFigure("hv", "HV over <training>", 'Figure 4, "HV".', figure, (RUN,))


def write(folder: Path, plate: ReportFigure) -> Path:
    sheets = [small(), replace(small(), name="other", title="Other")]
    about = ("All <tables>", ["Five seeds & ten domains."], {"commit": "abc"})
    return write_report(folder, Report(*about, sheets=sheets, figures=[plate]))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, plate: ReportFigure) -> Path:
    """The page, beside folders of its runs."""
    folder = tmp_path_factory.mktemp("all") / "report"
    for source in (RUN, OTHER):
        (folder / source.path).mkdir(parents=True)
        (folder / source.path / "config.json").write_text("{}")
    return write(folder, plate)


class TestPage:
    def test_links_lead_somewhere_and_ids_are_unique(self, written: Path):
        path = written
        shown = Page(path.read_text())
        assert len(set(shown.ids)) == len(shown.ids)
        inside = [link[1:] for link in shown.links if link.startswith("#")]
        assert set(inside) <= set(shown.ids)
        files = [link for link in shown.links if not link.startswith(("#", "data:"))]
        assert files
        assert [link for link in files if not (path.parent / unquote(link)).exists()] == []

    def test_every_number_of_ours_is_a_link_to_its_run(self, written: Path):
        text = written.read_text()
        numbers = re.findall(r'(<a href="([^"]*)">)?<(?:span|strong) class="mean">([^<]*)<', text)
        assert len(numbers) == 2 * 8
        linked = {number: link for _, link, number in numbers}
        assert linked["2.00 ± 0.50"] == f"#{RUN.anchor}"
        assert linked["1.00 ± 0.00"] == f"#{OTHER.anchor}"
        assert [number for number, link in linked.items() if not link] == ["missing"]

    def test_the_page_needs_nothing_from_outside_and_is_accessible(self, written: Path):
        text = written.read_text()
        shown = Page(text)
        of = lambda tag: [attributes for name, attributes in shown.tags if name == tag]
        assert not any(of(tag) for tag in ("script", "iframe", "object", "form"))
        assert [link for link in shown.links if re.match(r"(\w+:)?//", link)] == []
        assert "url(" not in text
        assert "@import" not in text
        assert of("html") == [{"lang": "en"}]
        assert all(one["scope"] in ("col", "row", "rowgroup") for one in of("th"))
        assert all(one["alt"] and (one["src"] or "").startswith("data:image/") for one in of("img"))
        regions = [one for one in of("div") if one.get("class") == "wide"]
        assert len(regions) == 4
        assert all(one["tabindex"] == "0" and one["role"] == "region" for one in regions)

    def test_equal_inputs_make_equal_files(self, written: Path, plate: ReportFigure):
        folder = written.parent
        read = lambda: {str(file): file.read_bytes() for file in sorted(folder.rglob("*.*")) if file.is_file()}
        before = read()
        write(folder, plate)
        assert read() == before
        names = {str(Path(name).relative_to(folder)) for name in before}
        assert names >= {"index.html", "report.md", "figures/hv.svg", "figures/hv.png", "tables/table_1.tex"}
        assert names >= {"tables/table_1.csv", "tables/table_1-summary.csv", "tables/other.md"}


def test_the_text_links_to_sections_that_it_has(written: Path):
    text = (written.parent / "report.md").read_text()
    anchors = set(re.findall(r'<a id="([^"]+)">', text))
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= anchors
    assert {RUN.anchor, OTHER.anchor, "sheet-table-1"} <= anchors
    assert "![Figure 4" in text


def test_equal_names_are_refused(tmp_path: Path, plate: ReportFigure):
    with pytest.raises(ValueError, match="these are twice there: sheet-table-1"):
        write_report(tmp_path, Report(sheets=[small(), small(name="TABLE-1")]))
    with pytest.raises(ValueError, match="these are twice there: figure-hv"):
        write_report(tmp_path, Report(figures=[plate, plate]))
    with pytest.raises(ValueError, match=r"the name of a figure becomes a file name: .* got '\.\./x'"):
        write_report(tmp_path, Report(figures=[replace(plate, name="../x")]))


def test_nothing_is_written_through_a_link(tmp_path: Path):
    (tmp_path / "mine").write_text("keep")
    (tmp_path / "index.html").symlink_to(tmp_path / "mine")
    with pytest.raises(LinkError):
        write_report(tmp_path, Report(sheets=[small()]))
    assert (tmp_path / "mine").read_text() == "keep"
    assert not (tmp_path / "tables").exists()


SHEET = Sheet(
    "table1",
    "Title",
    "Caption",
    ["Pond", "Lake"],
    ["ours", "theirs", "none"],
    [Metric("HV", {"Pond": 2})],
    {
        ("Pond", "ours"): Cell({"HV": np.array([100.0, 300.0])}, (0, 1), 9, 9, printed={"HV": (150.0, 10.0)}),
        ("Pond", "theirs"): Cell({"HV": np.array([90.0])}, (0,), 5, 9),
    },
)
PAGE = "before\n<!-- qpensieve paper report table1 -->\nold\n<!-- end of table1 -->\nafter\n"


def test_what_stands_between_the_marks_is_replaced(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    insert(page, "table1", SHEET, {})
    text = page.read_text()
    assert text.startswith("before\n<!-- qpensieve paper report table1 -->\n")
    assert text.endswith("<!-- end of table1 -->\nafter\n")
    assert "old" not in text
    assert "| Pond | HV (x10^2) | 2.00 ± 1.00 (1.50 ± 0.10) | 0.90, at 5 of 9 |" in text
    assert "Without a run yet: Lake, none." in text
    insert(page, "table1", SHEET, {})
    assert page.read_text() == text
