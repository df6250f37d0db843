"""Cells and curves from runs: seeds of several folders, the newest evaluation, ED, and what does not fit."""

import json
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from qpensieve import metrics
from qpensieve.preferences import sac_preferences, test_table
from qpensieve.records import evaluations
from qpensieve.report import cells, sheets
from qpensieve.report.cells import read_cell, read_runs, with_dominance
from qpensieve.report.results import export
from qpensieve.report.sheets import Cell
from tests.report.runs import make_run

TABLE = test_table(2)
REFERENCE = np.array([0.0, -50.0])
RESULTS = Path(__file__).parents[2] / "results" / "h200"
HALF = np.array([0.5, 0.5])


def returns_of(seeds: range, level: float = 0.0, table: np.ndarray = TABLE) -> np.ndarray:
    """Returns [seed, p, d]; a seed has the same in every run."""
    rows = [np.random.default_rng(seed).normal([10 + level, -8], 1, size=(len(table), 2)) for seed in seeds]
    return np.array(rows)


def make(folder: Path, seeds: range = range(3), full: tuple[int, ...] = (1000,), **more) -> Path:
    """A run of 1000 steps with short and full evaluations at some steps; the latter grow with the step."""
    table, level, short = more.pop("table", TABLE), more.pop("level", 0.0), more.pop("short", ())
    returns, stride = returns_of(seeds, level, table), more.pop("stride", 5)
    made = evaluations.empty(len(seeds), table[::stride], HALF[None], table, more.pop("reference", REFERENCE))
    for step in short:
        curve = np.array([[[[step + seed, -step]]] for seed in seeds], np.float64)
        made = evaluations.append_short(made, step, returns[:, ::stride, None], curve)
    for step in full:
        made = evaluations.append_full(made, step, (returns + step / 1000)[:, :, None].repeat(10, axis=2))
    config = {"first_seed": seeds[0], "steps": 1000, "seeds": len(seeds), "agent": {"num_snapshots": 4}}
    return make_run(folder, made, made={"device": "TPU", "cores": 3, "commit": "abc+"}, **config | more)


def utilities(seeds: range, step: int = 1000) -> np.ndarray:
    return np.asarray(metrics.utility(returns_of(seeds) + step / 1000, TABLE))


def values(cell: Cell, name: str = "UT") -> list[np.ndarray]:
    return list(cell.of(name).values())


class TestOneRun:
    def test_values_and_origin_of_the_newest_full_evaluation(self, tmp_path: Path):
        run = make(tmp_path / "runs" / "a", range(2, 5), full=(500, 1000), short=(500, 1000))
        cell = read_cell([run], report=tmp_path / "report")
        assert (cell.seeds, cell.step, cell.goal, cell.protocol) == ((2, 3, 4), 1000, 1000, sheets.FULL)
        assert cell.is_whole
        np.testing.assert_allclose(values(cell), utilities(range(2, 5)))
        expected = [metrics.hypervolume(one, REFERENCE) for one in returns_of(range(2, 5)) + 1]
        np.testing.assert_allclose(values(cell, "HV"), expected)
        (source,) = cell.sources
        assert (source.label, source.path) == ("DST2d qpensieve, seeds 2-4", "../runs/a")
        assert (source.machine, source.commit, source.config["steps"]) == ("TPU, 3 cores", "abc+", 1000)

    def test_an_exported_file_gives_the_same_cells_at_every_step(self, tmp_path: Path):
        run = make(tmp_path / "run", full=(500, 1000), short=(250,))
        file = export(run, tmp_path / "run.json")
        short = metrics.utility(returns_of(range(3))[:, ::5], TABLE[::5])
        for step, marks, expected in (
            (1000, (), utilities(range(3))),
            (999, ("at 500 of 1k",), utilities(range(3), 500)),
            (499, ("at 250 of 1k", "short protocol"), short),
        ):
            for cell in (read_cell([path], step) for path in (run, file)):
                assert (sheets.marks(cell), cell.is_whole) == (marks, step == 1000)
                np.testing.assert_allclose(values(cell), expected, rtol=1e-4)

    def test_a_cell_says_what_is_missing(self, tmp_path: Path):
        cell = read_cell([tmp_path / "none"], goal=7)
        assert (cell.values, cell.goal, cell.note) == (None, 7, "")
        run = make(tmp_path / "run", table=sac_preferences(), reference=None)
        assert with_dominance(cell, [run]) == cell
        assert read_cell([make_run(tmp_path / "begun", None)]).note == "Started, not evaluated yet."
        assert read_cell([run], 10).values is None
        cell = read_cell([run])
        assert (cell.has("UT"), cell.has("HV"), cell.protocol) == (True, False, "19 preferences")


class TestSeveralRuns:
    def test_any_order_makes_the_same_cell(self, tmp_path: Path):
        paths = [make(tmp_path / "c", range(5, 7)), make(tmp_path / "a", range(5)), make(tmp_path / "b", range(9, 10))]
        expected = np.concatenate([utilities(range(7)), utilities(range(9, 10))])
        for order in permutations(paths):
            cell = read_cell(list(order), report=tmp_path)
            assert cell.seeds == (0, 1, 2, 3, 4, 5, 6, 9)
            assert [source.path for source in cell.sources] == ["a", "c", "b"]
            np.testing.assert_allclose(values(cell), expected)

    def test_a_seed_that_two_have_is_read_once_and_refused_where_they_differ(self, tmp_path: Path):
        run = make(tmp_path / "run", range(3))
        file, more = export(run, tmp_path / "a.json"), make(tmp_path / "more", range(2, 4))
        other = make(tmp_path / "b", range(2, 4), level=0.1)
        for order in permutations([run, file, more]):
            # The folder has all digits, its exported file six.
            np.testing.assert_allclose(values(read_cell(list(order))), utilities(range(4)), rtol=1e-14)
        for order in permutations([run, other]):
            with pytest.raises(
                ValueError, match=r"seed 2 has different results at step 1000 in .*: remove one of them"
            ):
                read_runs(list(order))

    @pytest.mark.parametrize(
        ("changes", "what"),
        [
            ({"domain": "Hopper2d"}, "domain"),
            ({"algo": "mosac"}, "algo"),
            ({"agent": {"num_snapshots": 2}}, "num_snapshots"),
            ({"agent": {"num_snapshots": 4, "snapshot_margin": 0.05}}, "snapshot_margin"),  # one guard of six
            ({"agent": {"num_snapshots": 4, "sac": {"guards": True}}}, "guards"),
            ({"random_steps": 500}, "random_steps"),
            ({"table": sac_preferences()}, "test preferences"),
            ({"reference": np.array([0.0, -60.0])}, "reference point"),
        ],
    )
    def test_runs_that_do_not_belong_together_are_refused(self, tmp_path: Path, changes, what):
        paths = [make(tmp_path / "a", range(3)), make(tmp_path / "b", range(3, 4), **changes)]
        with pytest.raises(ValueError, match=f"runs of one cell must have the same {what}: .*a and .*b differ"):
            read_runs(paths)

    @pytest.mark.parametrize(
        ("ahead", "behind"),
        [
            ({"full": (1000,)}, {"full": (300,)}),
            ({"full": (500,)}, {"full": (), "short": (900,)}),  # a full evaluation counts before a later short one
        ],
    )
    def test_runs_that_are_behind_are_left_out_and_named(self, tmp_path: Path, ahead: dict, behind: dict):
        cell = read_cell([make(tmp_path / "a", range(3), **ahead), make(tmp_path / "b", range(3, 5), **behind)])
        assert (cell.seeds, cell.step, cell.protocol) == ((0, 1, 2), ahead["full"][0], sheets.FULL)
        assert cell.note == "Left out, being behind: DST2d qpensieve, seeds 3-4."
        assert [source.seeds for source in cell.sources] == [(0, 1, 2)]

    def test_short_evaluations_of_other_preferences_do_not_stand_in_one_curve_or_cell(self, tmp_path: Path):
        short = {"full": (), "short": (100,)}
        paths = [make(tmp_path / "a", range(2), **short), make(tmp_path / "b", range(2, 4), stride=25, **short)]
        for read in (lambda: cells.score_curve(read_runs(paths)), lambda: read_cell(paths)):
            with pytest.raises(ValueError, match=r"same preferences of the short protocol \(eval_stride\)"):
                read()


class TestDominance:
    def ed(self, ours: range, theirs: range) -> list[float]:
        a, b = returns_of(ours) + 1, returns_of(theirs, 0.5) + 1
        pairs = [(a[ours.index(seed)], b[theirs.index(seed)]) for seed in ours if seed in theirs]
        return [float(((x * TABLE).sum(1) > (y * TABLE).sum(1)).mean()) for x, y in pairs]

    def against(self, ours: Path, theirs: Path) -> Cell:
        return with_dominance(read_cell([ours]), [theirs])

    def test_dominance_compares_equal_seeds(self, tmp_path: Path):
        theirs = make(tmp_path / "b", range(1, 5), level=0.5, algo="mosac")
        cell = self.against(make(tmp_path / "a", range(3)), theirs)
        assert cell.of("ED").keys() == {1, 2}
        np.testing.assert_allclose(values(cell, "ED"), self.ed(range(3), range(1, 5)))
        assert cell.notes["ED"] == "ED over seeds 1-2 alone: the reference has no others."
        cell = self.against(make(tmp_path / "c", range(6, 8)), theirs)
        assert cell.notes["ED"] == "No ED: the reference has no run with the same seed."

    def test_dominance_is_on_shared_preferences(self, tmp_path: Path):
        cell = self.against(make(tmp_path / "b"), make(tmp_path / "a", table=sac_preferences(), algo="sac"))
        assert cell.notes["ED"] == "ED on the 19 preferences that both were evaluated on."
        assert len(cell.of("ED")) == 3

    def test_dominance_is_at_the_same_step_or_at_the_ends_of_whole_runs(self, tmp_path: Path):
        ours, theirs = make(tmp_path / "a", full=(500,)), make(tmp_path / "b", level=0.5, full=(500, 1000))
        np.testing.assert_allclose(values(self.against(ours, theirs), "ED"), self.ed(range(3), range(3)))
        cell = self.against(ours, make(tmp_path / "c", full=(400, 1000)))
        assert cell.of("ED") == {}
        assert cell.notes["ED"] == "No ED: the reference has no full protocol at 500 steps."
        longer = make(tmp_path / "d", full=(3000,), steps=3000)
        assert self.against(longer, theirs).of("ED") == {}
        assert len(with_dominance(read_cell([longer]), [theirs], goal=1000).of("ED")) == 3

    def test_dominance_needs_returns_and_one_domain(self, tmp_path: Path):
        short = export(make(tmp_path / "c", full=(), short=(500,)), tmp_path / "c.json")
        assert self.against(short, short).notes["ED"] == "No ED: an exported file has no returns of the short protocol."
        with pytest.raises(ValueError, match="runs must have the same domain to be compared, got DST2d, Hopper2d"):
            self.against(make(tmp_path / "a"), make(tmp_path / "b", domain="Hopper2d"))


class TestCommittedResults:
    def test_scores_of_committed_results_are_those_in_the_file(self):
        path = RESULTS / "HalfCheetah2d-qpensieve-1.5M.json"
        row = json.loads(path.read_text())["full_protocol"][-1]
        cell = with_dominance(read_cell([path]), [RESULTS / "HalfCheetah2d-mosac-1.5M.json"])
        for name in ("UT", "HV"):
            np.testing.assert_allclose(values(cell, name), row[name.lower()], rtol=1e-4)
        assert cell.is_whole
        assert len(cell.of("ED")) == 5

    def test_a_population_is_whole_with_its_last_iteration_and_a_stopped_run_is_not(self):
        cell = read_cell([RESULTS / "DST2d-pgmorl-1.5M.json"])
        assert (cell.step, cell.goal, cell.is_whole) == (1_474_560, 1_474_560, True)
        assert len(with_dominance(cell, [RESULTS / "DST2d-mosac-1.5M.json"]).of("ED")) == 5
        cell = read_cell([RESULTS / "DST2d-envelope-own-stopped.json"])
        assert sheets.marks(cell) == ("at 80k of 100k", "short protocol")


class TestCurves:
    def test_the_curve_of_a_score(self, tmp_path: Path):
        run = make(tmp_path / "run", range(2), short=(100, 200))
        expected = [metrics.hypervolume(one[::5], REFERENCE) for one in returns_of(range(2))]
        for path in (run, export(run, tmp_path / "run.json")):
            curve = cells.score_curve(read_runs([path]), "hv")
            assert curve is not None
            assert (curve.steps.tolist(), curve.goal) == ([100, 200], 1000)
            np.testing.assert_allclose(curve.values, [expected, expected], rtol=1e-5)
        assert cells.score_curve([], "ut") is None
        assert cells.score_curve(read_runs([make(tmp_path / "b", short=(100,), reference=None)]), "hv") is None

    def test_seeds_of_several_runs_stand_side_by_side(self, tmp_path: Path):
        paths = [make(tmp_path / "a", range(2), short=(100, 200)), make(tmp_path / "b", range(2, 5), short=(100,))]
        curve = cells.score_curve(read_runs(paths), "ut")
        assert curve is not None
        # At step 200 three of five seeds are missing: the mean would be one of other runs.
        assert (curve.steps.tolist(), curve.values.shape) == ([100], (1, 5))
        np.testing.assert_allclose(curve.values[0], metrics.utility(returns_of(range(5))[:, ::5], TABLE[::5]))

    def test_the_curve_of_the_return_under_a_preference(self, tmp_path: Path):
        run = make(tmp_path / "run", range(2), full=(), short=(100, 200, 300))
        runs = read_runs([run])
        for path in (run, export(run, tmp_path / "run.json")):
            curve = cells.preference_curve(read_runs([path]), HALF)
            assert curve is not None
            assert curve.steps.tolist() == [100, 200, 300]
            assert curve.values.tolist() == [[0.0, 0.5]] * 3
        path = cells.preference_path(runs, HALF, 10)
        assert path is not None
        assert path.steps.tolist() == [100, 200, 300]
        assert path.returns.tolist() == [[100.5, -100.0], [200.5, -200.0], [300.5, -300.0]]
        assert cells.preference_curve(runs, [0.987, 0.013]) is None
        assert cells.preference_path(runs, [0.987, 0.013], 10) is None
        full = read_runs([make(tmp_path / "full", range(2), full=(100,), short=(100, 200))])
        curve = cells.preference_curve(full, TABLE[5])  # full evaluations count before short ones
        assert curve is not None
        played = returns_of(range(2))[:, 5] @ TABLE[5]
        np.testing.assert_allclose(curve.values, [played + 0.1, played])
