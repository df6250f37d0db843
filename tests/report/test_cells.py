"""Cells from runs: seeds of several folders, the newest evaluation, ED seed by seed, and what does not fit."""

import json
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from qpensieve import metrics
from qpensieve.preferences import sac_preferences, test_table
from qpensieve.records import evaluations
from qpensieve.records.folder import EVALUATIONS
from qpensieve.report import cells, sheets
from qpensieve.report.cells import read_cell, read_runs, with_dominance
from qpensieve.report.results import export
from tests.report.runs import make_run

TABLE = test_table(2)
REFERENCE = np.array([0.0, -50.0])
RESULTS = Path(__file__).parents[2] / "results" / "h200"
HALF = np.array([0.5, 0.5])


def returns_of(seeds: range, level: float = 0.0, table: np.ndarray = TABLE) -> np.ndarray:
    """Returns [seed, p, d]; a seed has the same in whichever run it stands."""
    rows = [np.random.default_rng(seed).normal([10 + level, -8], 1, size=(len(table), 2)) for seed in seeds]
    return np.array(rows)


def make(folder: Path, seeds: range = range(3), full: tuple[int, ...] = (1000,), **more) -> Path:
    """A run of 1000 steps with a short evaluation every 100 steps, and full ones."""
    table, level, short = more.pop("table", TABLE), more.pop("level", 0.0), more.pop("short", ())
    returns = returns_of(seeds, level, table)
    made = evaluations.empty(len(seeds), table[::5], np.empty((0, 2)), table, more.pop("reference", REFERENCE))
    for step in short:
        made = evaluations.append_short(made, step, returns[:, ::5, None], np.empty((len(seeds), 0, 1, 2)))
    for step in full:
        made = evaluations.append_full(made, step, (returns + step / 1000)[:, :, None].repeat(10, axis=2))
    config = {"first_seed": seeds[0], "steps": 1000, "seeds": len(seeds), "agent": {"num_snapshots": 4}}
    return make_run(folder, made, made={"device": "TPU", "cores": 3, "commit": "abc+"}, **config | more)


def utilities(seeds: range, level: float = 0.0, step: int = 1000) -> np.ndarray:
    return np.asarray(metrics.utility(returns_of(seeds, level) + step / 1000, TABLE))


class TestOneRun:
    def test_values_of_the_newest_full_evaluation(self, tmp_path: Path):
        cell = read_cell([make(tmp_path / "run", range(2, 5), full=(500, 1000), short=(500, 1000))])
        assert (cell.seeds, cell.step, cell.goal, cell.protocol) == ((2, 3, 4), 1000, 1000, sheets.FULL)
        assert cell.is_whole
        assert cell.values is not None
        np.testing.assert_allclose(cell.values["UT"], utilities(range(2, 5)))
        expected = [metrics.hypervolume(one, REFERENCE) for one in returns_of(range(2, 5)) + 1]
        np.testing.assert_allclose(cell.values["HV"], expected)

    def test_at_an_earlier_step(self, tmp_path: Path):
        run = make(tmp_path / "run", full=(400, 1000))
        cell = read_cell([run], step=999)
        assert (cell.step, cell.is_whole) == (400, False)
        assert sheets.marks(cell) == ("at 400 of 1k",)
        np.testing.assert_allclose(cell.of("UT")[0], utilities(range(1), step=400)[0])

    def test_the_short_protocol_counts_where_there_is_no_full_one_and_is_marked(self, tmp_path: Path):
        cell = read_cell([make(tmp_path / "run", full=(1000,), short=(200, 300))], step=350)
        assert sheets.marks(cell) == ("at 300 of 1k", "short protocol")
        np.testing.assert_allclose(
            cell.of("UT")[1], metrics.utility(returns_of(range(3))[1, ::5], TABLE[::5]), rtol=1e-12
        )

    def test_other_preferences_are_marked(self, tmp_path: Path):
        assert read_cell([make(tmp_path / "run", table=sac_preferences())]).protocol == "19 preferences"

    def test_says_where_it_comes_from(self, tmp_path: Path):
        run = make(tmp_path / "runs" / "a")
        (source,) = read_cell([run], report=tmp_path / "report").sources
        assert (source.label, source.path) == ("DST2d qpensieve, seeds 0-2", "../runs/a")
        assert (source.machine, source.commit, source.config["steps"]) == ("TPU, 3 cores", "abc+", 1000)

    def test_the_exported_file_says_the_same(self, tmp_path: Path):
        run = make(tmp_path / "run", full=(500, 1000), short=(250,))
        file = export(run, tmp_path / "run.json")
        for step in (1000, 999, 499):
            folder, exported = (read_cell([path], step=step) for path in (run, file))
            assert (folder.step, folder.protocol, folder.seeds) == (exported.step, exported.protocol, exported.seeds)
            for name in ("UT", "HV"):
                np.testing.assert_allclose(list(folder.of(name).values()), list(exported.of(name).values()), rtol=1e-4)


def test_what_is_missing(tmp_path: Path):
    cell = read_cell([tmp_path / "none"], goal=7)
    assert (cell.values, cell.goal, cell.note) == (None, 7, "")
    assert with_dominance(cell, [make(tmp_path / "other")]) == cell
    cell = read_cell([make_run(tmp_path / "begun", None)])
    assert (cell.values, cell.note) == (None, "Started, not evaluated yet.")
    assert read_cell([make(tmp_path / "run")], step=10).values is None
    cell = read_cell([make(tmp_path / "pointless", reference=None)])
    assert (cell.has("UT"), cell.has("HV")) == (True, False)


class TestSeveralRuns:
    def test_any_order_makes_the_same_cell(self, tmp_path: Path):
        paths = [make(tmp_path / "c", range(5, 7)), make(tmp_path / "a", range(5)), make(tmp_path / "b", range(9, 10))]
        found = [read_cell(list(order), report=tmp_path) for order in permutations(paths)]
        assert {cell.seeds for cell in found} == {(0, 1, 2, 3, 4, 5, 6, 9)}
        assert {cell.sources[0].anchor for cell in found} == {found[0].sources[0].anchor}
        assert [source.path for source in found[0].sources] == ["a", "c", "b"]
        for cell in found:
            assert cell.values is not None
            np.testing.assert_array_equal(cell.values["UT"], (found[0].values or {})["UT"])
        expected = np.concatenate([utilities(range(7)), utilities(range(9, 10))])
        np.testing.assert_allclose(list(found[0].of("UT").values()), expected)

    def test_a_seed_that_two_have_is_read_once(self, tmp_path: Path):
        run = make(tmp_path / "run", range(3))
        file = export(run, tmp_path / "a.json")
        more = make(tmp_path / "more", range(2, 4))
        for order in permutations([run, file, more]):
            cell = read_cell(list(order))
            assert cell.seeds == (0, 1, 2, 3)
            # The folder has all digits, its exported file six.
            np.testing.assert_allclose(list(cell.of("UT").values()), utilities(range(4)), rtol=1e-14)

    def test_different_results_of_one_seed_are_refused(self, tmp_path: Path):
        paths = [make(tmp_path / "a", range(3)), make(tmp_path / "b", range(2, 4), level=0.1)]
        for order in permutations(paths):
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
            ({"agent": {"num_snapshots": 4, "layer_norm": True}}, "layer_norm"),
            ({"random_steps": 500}, "random_steps"),
            ({"table": sac_preferences()}, "test preferences"),
            ({"reference": np.array([0.0, -60.0])}, "reference point"),
        ],
    )
    def test_runs_that_do_not_belong_together_are_refused(self, tmp_path: Path, changes, what):
        paths = [make(tmp_path / "a", range(3)), make(tmp_path / "b", range(3, 4), **changes)]
        with pytest.raises(ValueError, match=f"runs of one cell must have the same {what}: .*a and .*b differ"):
            read_runs(paths)

    def test_runs_that_are_behind_are_left_out_and_named(self, tmp_path: Path):
        paths = [make(tmp_path / "a", range(3)), make(tmp_path / "b", range(3, 5), full=(300,))]
        cell = read_cell(paths)
        assert (cell.seeds, cell.step) == ((0, 1, 2), 1000)
        assert cell.note == "Left out, being behind: DST2d qpensieve, seeds 3-4."
        assert [source.seeds for source in cell.sources] == [(0, 1, 2)]

    def test_a_full_evaluation_counts_before_a_later_short_one(self, tmp_path: Path):
        paths = [make(tmp_path / "a", range(3), full=(500,)), make(tmp_path / "b", range(3, 5), full=(), short=(900,))]
        cell = read_cell(paths)
        assert (cell.seeds, cell.step, cell.protocol) == ((0, 1, 2), 500, sheets.FULL)
        assert cell.note == "Left out, being behind: DST2d qpensieve, seeds 3-4."


def against(ours: Path, theirs: Path) -> sheets.Cell:
    return with_dominance(read_cell([ours]), [theirs])


class TestDominance:
    def ed(self, ours: range, theirs: range) -> list[float]:
        a, b = returns_of(ours) + 1, returns_of(theirs, 0.5) + 1
        pairs = [(a[ours.index(seed)], b[theirs.index(seed)]) for seed in ours if seed in theirs]
        return [float(((x * TABLE).sum(1) > (y * TABLE).sum(1)).mean()) for x, y in pairs]

    def test_is_of_the_same_seed(self, tmp_path: Path):
        ours, theirs = make(tmp_path / "a", range(3)), make(tmp_path / "b", range(1, 5), level=0.5, algo="mosac")
        cell = against(ours, theirs)
        assert cell.of("ED").keys() == {1, 2}
        np.testing.assert_allclose(list(cell.of("ED").values()), self.ed(range(3), range(1, 5)))
        assert cell.notes["ED"] == "ED over seeds 1-2 alone: the reference has no others."

    def test_is_on_shared_preferences(self, tmp_path: Path):
        sac = make(tmp_path / "a", table=sac_preferences(), algo="sac")
        cell = against(make(tmp_path / "b"), sac)
        assert cell.notes["ED"] == "ED on the 19 preferences that both were evaluated on."
        assert len(cell.of("ED")) == 3

    def test_is_at_the_same_step(self, tmp_path: Path):
        ours = make(tmp_path / "a", full=(500,))
        theirs = make(tmp_path / "b", level=0.5, full=(500, 1000), algo="mosac")
        np.testing.assert_allclose(list(against(ours, theirs).of("ED").values()), self.ed(range(3), range(3)))
        early = make(tmp_path / "c", full=(400, 1000), algo="mosac")
        cell = against(ours, early)
        assert cell.of("ED") == {}
        assert cell.notes["ED"] == "No ED: the reference has no full protocol at 500 steps."

    def test_of_whole_runs_is_at_their_ends(self, tmp_path: Path):
        ours = make(tmp_path / "a", full=(3000,), steps=3000)
        theirs = make(tmp_path / "b", algo="mosac")
        assert against(ours, theirs).of("ED") == {}
        assert len(with_dominance(read_cell([ours]), [theirs], goal=1000).of("ED")) == 3

    def test_needs_a_shared_seed_and_returns(self, tmp_path: Path):
        ours, theirs = make(tmp_path / "a", range(2)), make(tmp_path / "b", range(5, 7), algo="mosac")
        assert against(ours, theirs).notes["ED"] == "No ED: the reference has no run with the same seed."
        short = export(make(tmp_path / "c", full=(), short=(500,)), tmp_path / "c.json")
        cell = against(short, short)
        assert cell.notes["ED"] == "No ED: an exported file has no returns of the short protocol."

    def test_is_refused_for_another_domain(self, tmp_path: Path):
        ours, theirs = make(tmp_path / "a"), make(tmp_path / "b", algo="mosac", domain="Hopper2d")
        with pytest.raises(ValueError, match="runs must have the same domain to be compared, got DST2d, Hopper2d"):
            against(ours, theirs)


class TestCommittedResults:
    def test_scores_are_those_in_the_file(self):
        path = RESULTS / "HalfCheetah2d-qpensieve-1.5M.json"
        row = json.loads(path.read_text())["full_protocol"][-1]
        cell = against(path, RESULTS / "HalfCheetah2d-mosac-1.5M.json")
        np.testing.assert_allclose(list(cell.of("UT").values()), row["ut"], rtol=1e-4)
        np.testing.assert_allclose(list(cell.of("HV").values()), row["hv"], rtol=1e-4)
        assert cell.is_whole
        assert len(cell.of("ED")) == 5

    def test_a_population_is_whole_with_its_last_iteration(self):
        cell = against(RESULTS / "DST2d-pgmorl-1.5M.json", RESULTS / "DST2d-mosac-1.5M.json")
        assert (cell.step, cell.goal, cell.is_whole) == (1_474_560, 1_474_560, True)
        assert len(cell.of("ED")) == 5

    def test_a_run_that_was_stopped(self):
        cell = read_cell([RESULTS / "DST2d-envelope-own-stopped.json"])
        assert sheets.marks(cell) == ("at 80k of 100k", "short protocol")


def test_where_hypervolumes_do_not_compare():
    assert cells.hypervolume_note("Hopper2d") == cells.hypervolume_note("CartPole-v1") == ""
    assert "Ours is (0, -50): fits" in cells.hypervolume_note("DST2d")


def add_curves(folder: Path, seeds: range) -> Path:
    """Curve evaluations under one preference: step, -step of seed 0, and one more for every seed after."""
    made = evaluations.empty(len(seeds), TABLE[::5], HALF[None], TABLE, REFERENCE)
    for step in (50_000, 100_000, 200_000):
        curve = np.array([[[[step + seed, -step]]] for seed in seeds], np.float64)
        made = evaluations.append_short(made, step, returns_of(seeds)[:, ::5, None], curve)
    evaluations.save(folder / EVALUATIONS, made)
    return folder


def test_a_score_over_training(tmp_path: Path):
    run = make(tmp_path / "run", range(2), short=(100, 200))
    expected = [metrics.hypervolume(one[::5], REFERENCE) for one in returns_of(range(2))]
    for path in (run, export(run, tmp_path / "run.json")):
        curve = cells.score_curve(read_runs([path]), "hv")
        assert curve is not None
        assert (curve.steps.tolist(), curve.goal) == ([100, 200], 1000)
        np.testing.assert_allclose(curve.values, [expected, expected], rtol=1e-5)


def test_seeds_of_several_runs_stand_side_by_side(tmp_path: Path):
    paths = [make(tmp_path / "a", range(2), short=(100, 200)), make(tmp_path / "b", range(2, 5), short=(100,))]
    curve = cells.score_curve(read_runs(paths), "ut")
    assert curve is not None
    # At step 200 three of five seeds are missing: the mean would be one of other runs.
    assert (curve.steps.tolist(), curve.values.shape) == ([100], (1, 5))
    np.testing.assert_allclose(curve.values[0], metrics.utility(returns_of(range(5))[:, ::5], TABLE[::5]))


def test_short_evaluations_of_other_preferences_do_not_stand_in_one_curve_or_cell(tmp_path: Path):
    paths = [make(tmp_path / "a", range(2), full=(), short=(100,)), make(tmp_path / "b", range(2, 4), full=())]
    thin = evaluations.empty(2, TABLE[::25], np.empty((0, 2)), TABLE, REFERENCE)
    thin = evaluations.append_short(thin, 100, returns_of(range(2, 4))[:, ::25, None], np.empty((2, 0, 1, 2)))
    evaluations.save(paths[1] / EVALUATIONS, thin)
    for read in (lambda: cells.score_curve(read_runs(paths)), lambda: read_cell(paths)):
        with pytest.raises(ValueError, match=r"same preferences of the short protocol \(eval_stride\)"):
            read()


def test_no_score(tmp_path: Path):
    runs = read_runs([make(tmp_path / "run", short=(100,), reference=None)])
    assert cells.score_curve(runs, "hv") is None
    assert cells.score_curve([], "ut") is None
    with pytest.raises(ValueError, match=r"score must be one of ut, .*hv, .*, got 'loss'"):
        cells.score_curve(runs, "loss")


def test_the_return_under_a_preference(tmp_path: Path):
    runs = read_runs([add_curves(make(tmp_path / "run", range(2)), range(2))])
    curve = cells.preference_curve(runs, HALF)
    assert curve is not None
    assert curve.steps.tolist() == [50_000, 100_000, 200_000]
    assert curve.values.tolist() == [[0.0, 0.5]] * 3
    path = cells.preference_path(runs, HALF, [100_000, 200_000])
    assert path is not None
    assert path.steps.tolist() == [100_000, 200_000]
    assert path.returns.tolist() == [[100_000.5, -100_000.0], [200_000.5, -200_000.0]]
    assert cells.preference_curve(runs, [0.987, 0.013]) is None
    assert cells.preference_path(runs, [0.987, 0.013], [50_000]) is None


def test_full_evaluations_count_before_short_ones(tmp_path: Path):
    runs = read_runs([make(tmp_path / "run", range(2), full=(100,), short=(100, 200))])
    curve = cells.preference_curve(runs, TABLE[5])
    assert curve is not None
    played = returns_of(range(2))[:, 5] @ TABLE[5]
    np.testing.assert_allclose(curve.values, [played + 0.1, played])
