"""Several rows together: which rows and seeds count, scales, statistics over runs, profiles."""

from dataclasses import replace

import numpy as np
import pytest

from qpensieve import metrics
from qpensieve.report import aggregates, sheets, text
from qpensieve.report.paper_figures import Spot
from qpensieve.report.sheets import Cell, Metric, Sheet
from tests.oracles import stats as oracle

UT = Metric("UT")
ROWS = ["A", "B", "C"]


def cell(values: list[float], seeds: tuple[int, ...] = (), **changes: object) -> Cell:
    return replace(Cell({"UT": np.array(values)}, seeds or tuple(range(len(values))), 10, 10), **changes)


@pytest.fixture
def sheet() -> Sheet:
    cells = {
        ("A", "ours"): cell([1.0, 2.0, 3.0], printed={"UT": (2.0, 0.5)}),
        ("A", "plain"): cell([3.0, 1.0, 1.0], (2, 1, 7)),
        ("B", "ours"): cell([10.0, 30.0, 50.0], printed={"UT": (10.0, None)}),
        ("B", "plain"): cell([20.0, 20.0], (1, 2)),
        ("C", "ours"): cell([5.0], printed={"UT": (-1.0, None)}),
        ("C", "plain"): cell([5.0, 5.0], step=3),
    }
    return Sheet("t", "T", "", ROWS, ["ours", "plain", "nobody"], [UT], cells, reference="plain")


def test_scales(sheet: Sheet):
    assert aggregates.reference_scale(sheet, "UT", "plain") == {"A": pytest.approx(5 / 3), "B": 20.0}


def test_rows_that_are_whole_everywhere_and_seeds_that_all_share(sheet: Sheet):
    over = aggregates.over_rows(sheet, "UT", {"A": 2.0, "B": 10.0, "C": 1.0}, "the printed mean")
    assert (over.tasks, over.columns, over.reference) == (["A", "B"], ["ours", "plain", "nobody"], "plain")
    assert over.notes == ["Over A, B; left out: C."]
    ours, plain = (over.cell(aggregates.ALL_ROWS, column) for column in ("ours", "plain"))
    assert ours.seeds == plain.seeds == (1, 2)
    assert ours.values is not None
    assert plain.values is not None
    assert ours.values["UT"].tolist() == [[1.0, 3.0], [1.5, 5.0]]
    assert plain.values["UT"].tolist() == [[0.5, 2.0], [1.5, 2.0]]
    assert over.cell(aggregates.ALL_ROWS, "nobody").values is None


def test_statistics_are_those_over_all_runs(sheet: Sheet):
    over = aggregates.over_rows(sheet, "UT", {"A": 2.0, "B": 10.0}, "the printed mean")
    facts = sheets.facts(over, aggregates.ALL_ROWS, "ours", over.metrics[0])
    ours, plain = [[1.0, 3.0], [1.5, 5.0]], [[0.5, 2.0], [1.5, 2.0]]
    assert facts.summary is not None
    assert facts.improvement is not None
    assert facts.gap is not None
    assert facts.summary.iqm == pytest.approx(oracle.iqm(ours))
    assert facts.improvement[0] == pytest.approx(oracle.improvement(ours, plain))
    assert facts.gap.probability == pytest.approx(oracle.paired_wins(ours, plain))
    assert "better in 88% of 2 seeds x 2" in text.markdown(sheets.table(over))
    assert "[2.62 ± 0.62](#sheet-t)" in text.markdown(sheets.table(over)).replace("**", "")
    assert "all,ours,UT,1,B,3.0,,,full protocol,t," in text.csv(sheets.values(over))


def test_columns_may_be_chosen(sheet: Sheet):
    over = aggregates.over_rows(sheet, "UT", {"A": 1.0, "B": 1.0, "C": 1.0}, "1", columns=["ours"])
    assert (over.columns, over.reference, over.tasks) == (["ours"], None, ROWS)
    assert over.cell(aggregates.ALL_ROWS, "ours").seeds == (0,)  # C has one seed


def test_nothing_left_is_refused(sheet: Sheet):
    with pytest.raises(ValueError, match="t: no row has whole cells of ours, plain, nobody with a shared seed"):
        aggregates.over_rows(sheet, "UT", {"C": 1.0}, "1")


def test_profiles(sheet: Sheet):
    over = aggregates.over_rows(sheet, "UT", {"A": 2.0, "B": 10.0}, "the printed mean")
    found = aggregates.profiles(over, [0.0, 1.0, 2.0])
    assert found["nobody"] is None
    assert found["ours"] is not None
    assert found["ours"].share.tolist() == [1.0, 0.75, 0.5]
    usual = aggregates.profiles(over)["plain"]
    assert usual is not None
    assert (usual.taus[0], usual.taus[-1], usual.share[0]) == (0.0, 5.0, 1.0)
    expected = metrics.performance_profile([[0.5, 2.0], [1.5, 2.0]], usual.taus)
    np.testing.assert_array_equal(usual.low, expected.low)


def test_spots_say_what_is_missing_and_how_far_others_are(sheet: Sheet):
    spots = aggregates.spots(sheet)
    assert list(spots) == ["A, UT", "B, UT", "C, UT"]
    assert spots["A, UT"]["nobody"] is None
    plain, ours = spots["C, UT"]["plain"], spots["A, UT"]["ours"]
    assert plain is not None
    assert ours is not None
    assert ours.summary is not None
    assert (plain.mark, ours.mark, ours.summary.iqm) == ("at 3 of 10", "", 2.0)
    other = aggregates.spots(replace(sheet, metrics=[Metric("ED")]))["A, ED"]
    assert (other["ours"], other["nobody"]) == (Spot(None, "no value"), None)
