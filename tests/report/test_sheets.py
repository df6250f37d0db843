"""Sheets: what a cell shows, and the same table as Markdown, LaTeX, CSV and HTML."""

import csv
import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qpensieve import metrics
from qpensieve.report import sheets, text
from qpensieve.report.page import Report, page
from qpensieve.report.sheets import Cell, Metric, Sheet, Source

HV, UT = Metric("HV", {"Hopper2d": 6}), Metric("UT")
RUN = Source("Hopper2d ours, seeds 0-1", "../runs/a", (0, 1), "H200", "abc", {"steps": 10}, {"device": "H200"})
OTHER = Source("Hopper2d plain, seeds 0-1", "../runs/b", (0, 1), "H200", "abc")


def cell(hv: list[float], ut: list[float], source: Source = RUN, **changes: object) -> Cell:
    seeds = tuple(range(len(hv)))
    return replace(Cell({"HV": np.array(hv), "UT": np.array(ut)}, seeds, 1_500_000, 1_500_000, (source,)), **changes)


def small(**changes: object) -> Sheet:
    cells: Mapping[tuple[str, str], Cell] = {
        ("Hopper2d", "ours"): cell([1.5e6, 2.5e6], [4.0, 6.0], printed={"HV": (1.33e6, 0.2e6), "UT": (4.08, None)}),
        ("Hopper2d", "plain"): cell([1e6, 1e6], [5.0, -5.0], OTHER),
        ("Walker2d", "ours"): cell([3.0], [1.0], step=300_000, protocol=sheets.SHORT),
    }
    made = Sheet(
        name="table_1",
        title="Table 1",
        caption="HV & UT, 100 % ours.",
        rows=["Hopper2d", "Walker2d"],
        columns=["ours", "plain"],
        metrics=[HV, UT],
        cells=cells,
        notes=["Five seeds_were planned."],
        reference="plain",
        row_notes={("Walker2d", "HV"): "No reference point is printed."},
    )
    return replace(made, **changes)


TABLES = Path(__file__).with_name("tables")
"""The small sheet, as it must be rendered."""


class TestText:
    def test_tables_are_rendered_as_stored(self):
        table = sheets.table(small())
        assert text.markdown(table) == (TABLES / "table_1.markdown").read_text()
        assert text.latex(table) == (TABLES / "table_1.tex").read_text()
        assert text.csv(sheets.value_lines(small())) == (TABLES / "table_1.csv").read_text()

    def test_statistics_of_a_sheet(self):
        rows = list(csv.DictReader(io.StringIO(text.csv(sheets.statistics_lines(small())))))
        assert len(rows) == 2 * 2 * 2
        first = rows[0]
        assert (first["row"], first["column"], first["metric"], first["status"]) == ("Hopper2d", "ours", "HV", "whole")
        wanted = metrics.paired_difference([1.5e6, 2.5e6], [1e6, 1e6])
        found = [float(first[name]) for name in ("difference", "difference_low", "difference_high", "paired_p")]
        assert found == pytest.approx([wanted.mean, wanted.low, wanted.high, wanted.probability])
        assert (float(first["printed_mean"]), first["seeds"], first["paired_seeds"]) == (1.33e6, "0 1", "2")
        last = rows[-1]
        assert (last["status"], last["mean"], last["p_better"]) == ("missing", "", "")
        assert [row["status"] for row in rows if row["row"] == "Walker2d"] == ["partial", "partial"] + ["missing"] * 2

    def test_latex_takes_no_text_for_a_command(self):
        assert text.escape(r"a_b & 5 % of $x^2$ {~} #1 \n ±") == (
            r"a\_b \& 5 \% of \$x\textasciicircum{}2\$ \{\textasciitilde{}\} \#1 \textbackslash{}n $\pm$"
        )


class TestView:
    def test_a_seed_without_a_value_is_left_out(self):
        one = cell([1.0, 3.0, 5.0], [1.0, np.nan, 2.0])
        sheet = small(cells={("Hopper2d", "ours"): one})
        assert sheets.text_cell(sheet, "Hopper2d", "ours", UT).details == ("IQM 1.50 [1.00, 2.00], 2 seeds",)
        assert list(one.of("UT")) == [0, 2]

    @pytest.mark.parametrize(
        ("ours", "theirs", "expected"),
        [
            ({}, {}, True),
            ({"step": 300_000}, {}, False),
            ({"step": 300_000}, {"step": 300_000}, True),
            ({"step": 1_474_560, "goal": 1_474_560}, {}, True),  # populations end with a whole iteration
            ({"protocol": sheets.SHORT}, {}, False),
            ({"values": None}, {}, False),
        ],
    )
    def test_what_may_be_compared(self, ours, theirs, expected):
        one, other = cell([1.0], [1.0], **ours), cell([2.0], [2.0], **theirs)
        assert sheets.compares(one, other) is expected
        sheet = small(cells={("Hopper2d", "ours"): one, ("Hopper2d", "plain"): other})
        assert (sheets.cell_statistics(sheet, "Hopper2d", "ours", UT).improvement is not None) is expected

    def test_differences_are_over_shared_seeds_alone(self):
        one = replace(cell([1.0, 2.0, 3.0], [0.0] * 3), seeds=(3, 1, 7))
        other = replace(cell([0.0, 0.5, 9.0], [0.0] * 3), seeds=(1, 3, 8))
        sheet = small(cells={("Hopper2d", "ours"): one, ("Hopper2d", "plain"): other})
        gap = sheets.cell_statistics(sheet, "Hopper2d", "ours", HV).gap
        assert gap is not None
        assert (gap.mean, gap.num_pairs) == (((1.0 - 0.5) + (2.0 - 0.0)) / 2, 2)

    def test_only_what_is_whole_is_best_and_notes_have_letters(self):
        partial = cell([9e6, 9e6], [9.0, 9.0], step=300_000)
        noted = cell([1.0], [1.0], note="Stopped early.", notes={"UT": "Other units."})
        sheet = small(cells={("Hopper2d", "ours"): noted, ("Hopper2d", "plain"): partial}, row_notes={})
        assert sheets.best_columns(sheet, "Hopper2d", UT) == []
        for is_lower, best in ((False, "ours"), (True, "plain")):
            assert sheets.best_columns(small(), "Hopper2d", replace(UT, is_lower_better=is_lower)) == [best]
        assert sheets.table(sheet).notes == {"Stopped early.": "a", "Other units.": "b"}
        assert sheets.text_cell(sheet, "Hopper2d", "ours", UT).notes == ("Other units.", "Stopped early.")


def test_an_anchor_names_a_run_and_nothing_else():
    assert RUN.anchor == replace(RUN).anchor != replace(RUN, config={"steps": 11}).anchor
    assert RUN.anchor.startswith("run-hopper2d-ours-seeds-0-1-")


def test_html_escapes_what_others_wrote():
    nasty = "<script>alert('x')</script>"
    sheet = small(title=nasty, caption=nasty, columns=[nasty, "plain"], cells={}, notes=[nasty])
    assert "<script" not in page(Report(sheets=[sheet]), {})
