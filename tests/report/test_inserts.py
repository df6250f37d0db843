"""A small table as part of another page."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qpensieve.report.page import insert, small_table
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
    insert(page, "table1", SHEET, {})
    text = page.read_text()
    assert text.startswith("before\n<!-- qpensieve paper report table1 -->\n")
    assert text.endswith("<!-- end of table1 -->\nafter\n")
    assert "old" not in text
    assert "| Pond | HV (x10^2) | 2.00 ± 1.00 (1.50 ± 0.10) | 0.90, at 5 of 9 |" in text
    assert "Without a run yet: Lake, none." in text
    insert(page, "table1", SHEET, {})
    assert page.read_text() == text


def test_what_was_left_out_is_not_without_a_run():
    why = "Lake-ours-s0-4 is left out: it has other settings (hidden was 8, is 256)."
    text = small_table(SHEET, {("Lake", "ours"): [why]})
    assert "Without a run yet: Lake theirs, none.\n" in text
    assert text.endswith(f"\nLake ours: {why}")
    text = small_table(SHEET, {("Lake", "none"): [why], ("Pond", "theirs"): ["Further seeds are left out."]})
    assert "Without a run yet: Lake ours, Lake theirs, Pond none.\n" in text
    assert text.endswith(f"\nLake none: {why}\nPond theirs: Further seeds are left out.")
    whole = replace(SHEET, rows=["Lake"], columns=["ours"], cells={})
    assert "Without a run yet" not in small_table(whole, {("Lake", "ours"): [why]})


@pytest.mark.parametrize("cut", ["<!-- qpensieve paper report table1 -->", "<!-- end of table1 -->"])
def test_a_page_without_marks_is_refused_and_left_alone(tmp_path: Path, cut: str):
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace(cut, ""))
    with pytest.raises(ValueError, match="must have the lines"):
        insert(page, "table1", SHEET, {})
    assert page.read_text() == PAGE.replace(cut, "")
