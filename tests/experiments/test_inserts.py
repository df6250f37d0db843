"""A small table as part of another page."""

from pathlib import Path

import numpy as np
import pytest

from qpensieve.experiments.inserts import insert
from qpensieve.experiments.paper import ARTEFACTS
from qpensieve.report.sheets import Cell, Metric, Sheet

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
    insert(page, ARTEFACTS["table1"], SHEET)
    text = page.read_text()
    assert text.startswith("before\n<!-- qpensieve paper report table1 -->\n")
    assert text.endswith("<!-- end of table1 -->\nafter\n")
    assert "old" not in text
    assert "| Pond | HV (x10^2) | 2.00 ± 1.00 (1.50 ± 0.10) | 0.90, at 5 of 9 |" in text
    assert "Without a run yet: Lake, none." in text
    insert(page, ARTEFACTS["table1"], SHEET)
    assert page.read_text() == text


@pytest.mark.parametrize("cut", ["<!-- qpensieve paper report table1 -->", "<!-- end of table1 -->"])
def test_a_page_without_marks_is_refused_and_left_alone(tmp_path: Path, cut: str):
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace(cut, ""))
    with pytest.raises(ValueError, match="must have the lines"):
        insert(page, ARTEFACTS["table1"], SHEET)
    assert page.read_text() == PAGE.replace(cut, "")
