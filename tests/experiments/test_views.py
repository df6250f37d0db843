"""What the report shows of each artefact, from exported runs and folders; and where the runs lie."""

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from qpensieve import config as configs
from qpensieve.experiments import tasks
from qpensieve.experiments.paper import ARTEFACTS
from qpensieve.experiments.plan import Size, Wanted, make_plan
from qpensieve.experiments.plan_results import PlanResults, read_exported
from qpensieve.experiments.views import show
from qpensieve.records import critic_errors, evaluations
from qpensieve.records.critic_errors import CriticErrors, CriticRow
from qpensieve.records.folder import CONFIG, CRITIC, EVALUATIONS, PROVENANCE, SUMMARY
from qpensieve.report import sheets
from qpensieve.report.page import ReportFigure
from qpensieve.report.results import export
from qpensieve.report.summary import write_summary
from qpensieve.train.evaluate import protocols

RESULTS = Path(__file__).parents[2] / "results" / "h200"


def results_of(
    root: Path, names: tuple[str, ...] = (), exported: tuple[Path, ...] = (), size: Size | None = None
) -> PlanResults:
    chosen = [ARTEFACTS[name] for name in names] or list(ARTEFACTS.values())
    return PlanResults(make_plan(chosen, size or Size(), root), read_exported(exported))


def make_run(results: PlanResults, wanted: Wanted) -> None:
    """The folders of a run; those that are there stay."""
    for task in results.plan.tasks_of[wanted]:
        if not task.folder.exists():
            tasks.prepare(task)
            write_results(task.folder)


def write_results(folder: Path) -> int:
    """Write the files of a run of two objectives that was evaluated at every quarter of its length."""
    config = configs.load(folder / CONFIG)
    goal = tasks.last_step(config)
    (folder / PROVENANCE).write_text(json.dumps({"device": "abacus", "cores": 1, "commit": "abc"}))
    on = protocols(2, None, config.eval_stride, config.full_eval_stride)
    table = evaluations.empty(config.seeds, on.short, on.curve, on.full, np.array([0.0, -50.0]))
    returns = lambda lam, step: np.array(
        [[[[10 * a + seed + step / 1e3, -b]] for a, b in lam] for seed in range(config.seeds)]
    )
    for step in range(goal // 4, goal + 1, goal // 4):
        table = evaluations.append_short(table, step, returns(on.short, step), returns(on.curve, step))
    table = evaluations.append_full(table, goal, returns(on.full, goal))
    evaluations.save(folder / EVALUATIONS, table)
    write_summary(folder)
    return 0


def test_without_a_run_everything_is_shown_as_missing(tmp_path: Path):
    """One artefact of each kind, with few panels."""
    names = ("table1", "critic-hopper2d", "buffer-fronts", "growth", "hv-training", "hybrid", "curves", "settings")
    results = results_of(tmp_path, names, size=Size("smoke", only=("Ant2d", "DST2d", "Hopper2d")))
    for artefact in results.plan.artefacts:
        shown = show(artefact, results, tmp_path)
        assert shown.sheets or shown.figures or shown.listings, artefact.name
        for sheet in shown.sheets:
            views = [view for row in sheets.table(sheet).rows for view in row[2:]]
            assert {view.text for view in views} <= {sheets.MISSING, "-"}
            assert any("not comparable with the paper's numbers" in note for note in sheet.notes)  # of this scale


class TestCommittedResults:
    def test_committed_results_fill_the_cells_whose_settings_they_have(self, tmp_path: Path):
        results = results_of(tmp_path, ("table1",), (RESULTS,))
        shown = show(ARTEFACTS["table1"], results, tmp_path)
        sheet, *over = shown.sheets
        content = json.loads((RESULTS / "DST2d-qpensieve-1.5M.json").read_text())
        cell = sheet.cell("DST2d", "Q-Pensieve")
        assert cell.values is not None
        np.testing.assert_allclose(cell.values["UT"], content["full_protocol"][-1]["ut"], rtol=1e-4)
        assert (cell.step, cell.is_whole, cell.seeds) == (1_500_000, True, (0, 1, 2, 3, 4))
        assert cell.printed["UT"] == (7.31, 0.91)
        assert sheet.cell("DST2d", "CN-DER").values is None  # there is one of 200 000 steps alone
        assert [list(one.tasks) for one in over] == [["DST2d", "HalfCheetah2d", "Hopper2d", "Ant2d", "Walker2d"]] * 2
        assert [list(one.columns) for one in over] == [["Q-Pensieve", "MO-SAC"]] * 2  # what all these domains have
        names = [plate.name for plate in shown.figures]
        assert names == ["table1-profiles-ut", "table1-profiles-hv", "table1-intervals"]

    def test_a_run_of_other_settings_fills_no_cell(self, tmp_path: Path):
        content = json.loads((RESULTS / "DST2d-qpensieve-1.5M.json").read_text())
        content["config"]["agent"]["num_snapshots"] = 3
        (tmp_path / "other.json").write_text(json.dumps(content))
        for name, text in (("a", "[1]"), ("b", "{}")):  # other files are passed over
            (tmp_path / f"{name}.json").write_text(text)
        results = results_of(tmp_path / "runs", ("envelope",), (tmp_path,))
        assert len(results.exported) == 1
        assert results.paths(Wanted("DST2d")) == []
        with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
            read_exported([tmp_path / "nowhere"])


def test_axes_name_the_objectives_of_a_foreign_domain(tmp_path: Path):
    wanted = Wanted("tests.watch.foreign:Blind")
    artefact = replace(ARTEFACTS["growth"], cells={("mine", "Q-Pensieve"): wanted}, preferences=((0.5, 0.5),))
    (shown,) = show(artefact, PlanResults(make_plan([artefact], Size(), tmp_path)), tmp_path).figures
    (panel,) = shown.figure.axes
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("far", "cheap")


class TestFolders:
    SIZE = Size("smoke")

    def test_a_folder_of_other_settings_is_left_out_and_named(self, tmp_path: Path):
        wanted = Wanted("Hopper2d")
        results = results_of(tmp_path, ("growth",), size=self.SIZE)
        make_run(results, wanted)
        [task] = results.plan.tasks_of[wanted]
        [run] = results.paths(wanted)
        content = json.loads((run / CONFIG).read_text())
        content |= {"kernels": "on", "eval_period": 77}  # nothing that changes what is learned
        (run / CONFIG).write_text(json.dumps(content))
        assert (results.left_out, results.paths(wanted)) == ([], [run])
        assert tasks.status(task).state == "done"
        content["agent"]["num_preferences"] = 3
        (run / CONFIG).write_text(json.dumps(content))
        assert results.paths(wanted) == []
        [said] = results.left_out
        assert said.startswith(f"{task.name} is left out")
        assert tasks.status(task).state == "other settings"  # status and plan agree with the report
        assert "num_preferences was 3" in tasks.status(task).message
        assert "num_preferences" in said

    def test_a_seed_counts_once_and_a_run_that_is_done_goes_before_an_exported_one(self, tmp_path: Path):
        wanted = Wanted("Hopper2d")
        results = results_of(tmp_path / "runs", ("growth",), size=self.SIZE)
        make_run(results, wanted)
        run = results.plan.tasks_of[wanted][0].folder
        file = export(run, tmp_path / "run.json")
        more = results_of(tmp_path / "runs", ("growth",), (file,), replace(self.SIZE, seeds=5))
        make_run(more, wanted)
        folders = [task.folder for task in more.plan.tasks_of[wanted]]
        assert more.paths(wanted) == folders
        one = replace(ARTEFACTS["table1"], cells={("Hopper2d", "Q-Pensieve"): wanted}, reference=None)
        assert show(one, more, tmp_path).sheets[0].cell("Hopper2d", "Q-Pensieve").seeds == (0, 1, 2, 3, 4)
        (run / SUMMARY).unlink()  # not done: what was exported counts
        assert set(more.paths(wanted)) == {file, folders[1]}

    def test_a_run_that_went_on_beyond_the_plan_is_shown_at_the_plans_end(self, tmp_path: Path):
        longer = results_of(tmp_path, ("buffer-size",), size=replace(self.SIZE, steps=800))
        make_run(longer, Wanted("Ant2d"))
        shorter = results_of(tmp_path, ("buffer-size",), size=self.SIZE)
        (sheet,) = show(ARTEFACTS["buffer-size"], shorter, tmp_path).sheets
        cell = sheet.cell("Ant2d", "size 4")
        assert (cell.step, cell.protocol) == (400, sheets.SHORT)

    def test_curves_are_weighed_by_the_preference_of_their_panel(self, tmp_path: Path):
        results = results_of(tmp_path, ("curves",), size=self.SIZE)
        make_run(results, Wanted("Hopper2d"))
        plates = show(ARTEFACTS["curves"], results, tmp_path).figures
        plate = next(one for one in plates if one.name == "curves-hopper2d")
        panel = next(axes for axes in plate.figure.axes if axes.get_title() == "(0.9, 0.1)")
        line = next(line for line in panel.get_lines() if line.get_label() == "Q-Pensieve")
        steps, values = map(np.asarray, line.get_data())
        np.testing.assert_array_equal(steps, [100, 200, 300, 400])
        expected = [0.9 * (9 + 0.5 + step / 1e3) + 0.1 * -0.1 for step in steps.tolist()]  # mean over seeds 0 and 1
        np.testing.assert_allclose(values, expected)


def texts(plate: ReportFigure) -> list[str]:
    return [text.get_text() for axes in plate.figure.axes for text in axes.texts]


def measured(domain: str, step: int, errors: list[float]) -> CriticErrors:
    """Errors of two seeds under one preference; all other numbers are 1."""
    names = [field.name for field in fields(CriticRow)]
    known = {"step": step, "preference": [0.5, 0.5], "actions": "policy", "pairs": 2, "rollouts": 2, "seed": 0}
    known |= dict.fromkeys(("bias", "bias_se", "twins"), [[1.0, 1.0]] * 2) | {"horizon": [1, 1]}
    row = CriticRow(**{name: known.get(name, [1.0] * 2) for name in names if name != "error"}, error=errors)
    return CriticErrors(domain, "qpensieve", [0, 1], 0.99, ["a", "b"], [row])


def test_errors_of_critics_are_shown_by_preference_and_step_also_of_exported_runs(tmp_path: Path):
    size = Size("smoke")
    results = results_of(tmp_path / "runs", ("critic-hopper2d",), size=size)
    make_run(results, Wanted("Hopper2d"))
    (task,) = results.plan.tasks
    run = task.folder
    critic_errors.add(run / CRITIC, measured("Hopper2d", 400, [3.0, 5.0]))
    export(run, tmp_path / "run.json")
    exported = results_of(tmp_path / "none", ("critic-hopper2d",), (tmp_path / "run.json",), size)
    for one in (results, exported):
        (sheet,) = show(ARTEFACTS["critic-hopper2d"], one, tmp_path).sheets
        cell = sheet.cell("0.5, 0.5", "400")
        assert cell.values is not None
        np.testing.assert_array_equal(cell.values["L_critic"], [3.0, 5.0])
        assert cell.printed["L_critic"] == (11.59, None)
        assert sheet.cell("0.1, 0.9", "400").values is None
        assert sheet.columns == ["400"]  # what was measured
    nothing = results_of(tmp_path / "none", ("critic-hopper2d",))
    (sheet,) = show(ARTEFACTS["critic-hopper2d"], nothing, tmp_path).sheets
    assert sheet.columns == ["100k", "500k", "1M", "1.5M"]
