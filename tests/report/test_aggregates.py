"""Several rows together: which rows, columns and seeds count, scales, statistics over runs, profiles."""

from dataclasses import replace

import numpy as np
import pytest

from qpensieve.report import aggregates, sheets, text
from qpensieve.report.sheets import Cell, Metric, Sheet
from tests.oracles import stats as oracle

UT = Metric("UT")


def cell(values: list[float], seeds: tuple[int, ...] = (), **changes: object) -> Cell:
    return replace(Cell({"UT": np.array(values)}, seeds or tuple(range(len(values))), 10, 10), **changes)


SHEET = Sheet("t", "T", "", ["A", "B", "C", "D"], ["ours", "plain", "thin"], [UT], {
    ("A", "ours"): cell([1.0, 2.0, 3.0]),
    ("A", "plain"): cell([3.0, 1.0, 2.0], (2, 1, 7)),
    ("A", "thin"): cell([3.0, 1.0], protocol=sheets.SHORT),
    ("B", "ours"): cell([10.0, 30.0, 50.0]),
    ("B", "plain"): cell([5.0, 15.0], (1, 2)),
    ("B", "thin"): cell([5.0, 15.0]),
    ("C", "ours"): cell([5.0]),
    ("C", "plain"): cell([5.0, 5.0], step=3),
    ("D", "plain"): cell([-1.0, -2.0]),
}, reference="plain")  # fmt: skip
OURS, PLAIN = [[1.0, 3.0], [1.5, 5.0]], [[0.5, 0.5], [1.5, 1.5]]
"""Of seeds 1 and 2 on A and B, divided by the reference's means, 2 and 10."""


@pytest.fixture(scope="module")
def over() -> Sheet:
    made = aggregates.over_rows(SHEET, "UT")
    assert made is not None
    return made


def test_rows_and_columns_that_are_whole_and_seeds_that_all_share(over: Sheet):
    assert (over.tasks, over.columns, over.reference) == (["A", "B"], ["ours", "plain"], "plain")
    assert over.notes == ["Over A, B; left out: C, D."]
    for column, values in (("ours", OURS), ("plain", PLAIN)):
        one = over.cell(aggregates.ALL_ROWS, column)
        assert one.seeds == (1, 2)
        assert one.scores["UT"].tolist() == values


def test_statistics_are_those_over_all_runs(over: Sheet):
    facts = sheets.cell_statistics(over, aggregates.ALL_ROWS, "ours", over.metrics[0])
    assert facts.summary is not None
    assert facts.improvement is not None
    assert facts.gap is not None
    assert facts.summary.iqm == pytest.approx(oracle.iqm(OURS))
    assert facts.improvement[0] == pytest.approx(oracle.improvement(OURS, PLAIN))
    assert facts.gap.probability == pytest.approx(oracle.paired_wins(OURS, PLAIN))
    assert "[2.62 ± 0.62](#sheet-t)" in text.markdown(sheets.table(over)).replace("**", "")
    assert "all,ours,UT,1,B,3.0,,,full protocol,t," in text.csv(sheets.value_lines(over))


@pytest.mark.parametrize("changes", [{"cells": {}}, {"reference": None}])
def test_where_nothing_is_left_there_is_no_sheet(changes: dict[str, object]):
    assert aggregates.over_rows(replace(SHEET, **changes), "UT") is None
