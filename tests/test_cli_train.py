"""The commands around runs: train, resume, evaluate, plot."""

import dataclasses
import io
import json
import shutil
import signal
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qpensieve import cli, commands
from qpensieve.records import evaluations
from qpensieve.report import pictures
from qpensieve.train import workers
from qpensieve.train.trainer import Trainer
from tests import faults
from tests.train.kill_run import NEVER, TINY, assert_same_arrays, assert_same_run, final_arrays, rows, words

SHOWN: dict[str, str] = {}
"""What the command that trained `ours` printed."""
PERIODS = {"eval_period": 100, "parameters_period": 300, "checkpoint_seconds": NEVER}
RUN = {**TINY, **PERIODS, "preset": "paper", "steps": 300, "replay_capacity": 200}
"""Its last checkpoints are of steps 200 and 300; a longer run has a replay of the same size, so the same programs."""
QUIET = ("--name", "run", "--quiet")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with two finished runs: `ours`, and `mosac` with the algorithm of that name."""
    out = tmp_path_factory.mktemp("runs")
    mosac = {name: value for name, value in RUN.items() if not name.startswith(("push", "num_snap"))}
    with redirect_stdout(io.StringIO()) as shown, redirect_stderr(io.StringIO()) as said:
        cli.main(["train", "DST2d", *words(RUN), "--out", str(out), "--name", "ours"])
    SHOWN.update(out=shown.getvalue(), err=said.getvalue())
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (out / "ours").glob("*.png"))  # as drawn
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "draw_pictures", lambda folder: [])  # the pictures of one are enough
        cli.main(["train", "DST2d", "--algo", "mosac", *words(mosac), "--out", str(out), "--name", "mosac", "--quiet"])
    return out


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    """A copy of `ours`."""
    return shutil.copytree(trained / "ours", tmp_path / "run")


class TestTrain:
    def test_train_leaves_a_whole_run_and_says_where(self, trained: Path):
        folder, shown = trained / "ours", SHOWN["out"]
        names = {path.name for path in folder.iterdir()}
        assert {"config.json", "environment.json", "metrics.jsonl", "evaluations.npz", "summary.json"} <= names
        assert {"checkpoints", "replay", "parameters", "front.png", "curves.png", "training.png"} <= names
        config = json.loads((folder / "config.json").read_text())
        assert (config["agent"]["sac"]["hidden"], config["domain"]) == (RUN["hidden"], "DST2d")
        of_mosac = json.loads((trained / "mosac" / "config.json").read_text())
        assert (of_mosac["algo"], of_mosac["agent"]["hidden"]) == ("mosac", RUN["hidden"])
        parts = ["DST2d, qpensieve, step 300", "exact ceilings, full protocol: UT 7.757", "of the front's treasures"]
        parts += [f"next: qpensieve watch {folder} ", f"      qpensieve export-policy {folder} "]
        assert [part for part in parts if part not in shown] == []
        assert {str(folder / name) for name in ("summary.json", "front.png", "curves.png")} <= {*shown.splitlines()}
        for part in (f"run folder: {folder}", "300/300 steps", "300 steps x 2 seeds"):
            assert part in SHOWN["err"]

    @pytest.mark.usefixtures("unrendered")
    def test_sigterm_saves_and_the_resumed_run_has_the_numbers_of_one_that_was_not_stopped(
        self, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
    ):
        advance, folder = Trainer.advance, tmp_path / "run"

        def terminated(trainer: Trainer) -> Any:
            if trainer.step == 160:
                signal.raise_signal(signal.SIGTERM)
            return advance(trainer)

        monkeypatch.setattr(Trainer, "advance", terminated)
        with pytest.raises(SystemExit) as end:
            cli.main(["train", "DST2d", *words(RUN), "--out", str(tmp_path), *QUIET])
        assert end.value.code == cli.EXIT_TERMINATED
        last = capsys.readouterr().err.splitlines()[-1]
        assert last == f"stopped at step 180; continue with: qpensieve resume {folder}"
        monkeypatch.undo()
        cli.main(["resume", str(folder), "--quiet"])
        assert_same_run(folder, trained / "ours")

    @pytest.mark.parametrize(
        ("fault", "said"),
        [
            ("option", "gravity must be below 0, got 9.81"),
            ("killed", "DST2d: the process that steps lanes 0 to 0 was killed by SIGKILL, as the system does where"),
        ],
    )
    @pytest.mark.usefixtures("unrendered")
    def test_a_worker_that_fails_is_one_sentence_with_its_cause(
        self, fault: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
    ):
        monkeypatch.setenv(faults.FAULT, fault)
        monkeypatch.setattr(workers, "RemoteCollector", faults.Faulty)
        more = ["--out", str(tmp_path), *QUIET, "--num-threads", "2", "--reference", "-1", "-60.5"]
        with pytest.raises(SystemExit) as end:
            cli.main(["train", "DST2d", *words(RUN), *more])
        assert end.value.code == cli.EXIT_FAILED
        *_, last = lines = capfd.readouterr().err.splitlines()
        assert sum("qpensieve: " in line for line in lines) == 1
        assert said in last
        assert "Traceback" not in "".join(lines)
        if fault == "option":
            return
        assert last.endswith(f"; nothing is learned yet, continue with: qpensieve resume {tmp_path / 'run'}")
        monkeypatch.undo()
        cli.main(["resume", str(tmp_path / "run"), "--steps", "100", "--quiet", "--num-threads", "2"])
        shown = capfd.readouterr()
        assert "nothing is learned in 100 steps: learning starts after 100 random ones" in shown.err
        assert "HV is measured from (-1, -60.5), not from the domain's own (0, -50)" in shown.out
        assert json.loads((tmp_path / "run" / "summary.json").read_text())["reference"] == [-1.0, -60.5]
        table = evaluations.load(tmp_path / "run" / "evaluations.npz")
        assert table.reference is not None
        assert table.reference.tolist() == [-1.0, -60.5]

    @pytest.mark.parametrize(
        ("arguments", "hints"),
        [
            (["DST2d", "--seed", "3"], ["--seed", "--seeds"]),
            (["DST2d", "--keep-replay", "no"], ["--keep-replay", "on", "off"]),
            (["DST2d", "--eval-period=1.3e2", "--learning-rate-end=none"], ["eval_period must be a multiple of block"]),
            (["DST2d", "--algo=ppo"], ["use qpensieve, mosac, sac"]),
            (["DST2d", "--preset", "fast"], ["use robust, quick, paper"]),
            (["dst2d"], ["unknown domain 'dst2d'; did you mean DST2d?"]),
            (["mo-mountaincarcontinous-v0"], ["did you mean", "mo-mountaincarcontinuous-v0"]),
            (["tests.envs.foreign:nothing"], ["nothing"]),
            (["tests.envs.foreign:FailingReset"], ["licence has run out"]),
            (["DST2d", "--reference", "nan", "-50"], ["reference must be finite, got (nan, -50.0)"]),
            *(
                (["DST2d", "--algo", algo, "--preset", "quick", "--reference", "0", "-50", "3"], ["2 numbers, one per"])
                for algo in ("hybrid-sac", "pgmorl")
            ),
            *((["DST2d", "--name", name], ["name must be that of a folder below"]) for name in ("..", "a/../..", "/x")),
        ],
    )
    def test_train_refuses_impossible_options_and_creates_nothing(
        self, arguments: list[str], hints: list[str], tmp_path: Path, fail: Any
    ):
        said = fail("train", *arguments, "--out", tmp_path / "runs")
        assert [hint for hint in hints if hint not in said] == []
        assert not any(tmp_path.iterdir())

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("run", "holds a run already: continue it with 'qpensieve resume"),
            ("run/run", "a run needs a folder outside of other runs, but"),
            ("parts/front.png/run", "must be a folder, but"),
            ("parts", "must not hold parts of another run, but it holds environment.json, metrics.jsonl, evaluations"),
        ],
    )
    def test_a_run_needs_a_new_folder(self, name: str, said: str, copied: Path, tmp_path: Path, fail: Any):
        if name.startswith("parts"):  # old checkpoints are not mixed with a new run
            copied.rename(tmp_path / "parts")
            (tmp_path / "parts" / "config.json").unlink()
        before = sorted(tmp_path.rglob("*"))
        out, last = (tmp_path / name).parent, (tmp_path / name).name
        assert said in fail("train", "DST2d", *words(RUN), "--out", out, "--name", last)
        assert sorted(tmp_path.rglob("*")) == before

    def test_a_run_is_not_made_below_a_run_that_holds_the_working_folder(
        self, copied: Path, monkeypatch: pytest.MonkeyPatch, fail: Any
    ):
        (copied / "below").mkdir()
        monkeypatch.chdir(copied / "below")
        assert f"{copied} holds one" in fail("train", "DST2d", *words(RUN), "--out", "runs")


@pytest.mark.usefixtures("unrendered")
class TestResume:
    def test_a_finished_run_is_said_to_be_complete_and_left_as_it_is(self, copied: Path, trained: Path, capsys: Any):
        cli.main(["resume", str(copied)])
        said = capsys.readouterr().err
        assert "the run is complete: all 300 steps are done" in said
        assert f"qpensieve resume {copied} --steps 600" in said
        assert "full evaluation" not in said
        assert "nothing is learned" not in said
        assert_same_run(copied, trained / "ours")

    def test_more_steps_extend_a_run_as_if_it_had_been_longer_from_the_start(
        self, copied: Path, trained: Path, tmp_path: Path
    ):
        """Also where many more steps were asked for before, by mistake; whole blocks in each."""
        mistaken = shutil.copytree(copied, tmp_path / "mistaken")
        config = (mistaken / "config.json").read_text().replace('"steps": 300,', '"steps": 40000000,')
        (mistaken / "config.json").write_text(config)
        longer = [*words({**RUN, "steps": 381}), "--out", str(tmp_path), "--name", "longer", "--quiet"]
        cli.main(["train", "DST2d", *longer])
        whole = final_arrays(tmp_path / "longer")
        for folder, steps in ((copied, "400"), (mistaken, "381")):
            cli.main(["resume", str(folder), "--steps", steps, "--quiet"])
            assert json.loads((folder / "config.json").read_text())["steps"] == 400
            assert_same_arrays(final_arrays(folder), whole)
        assert set(rows(tmp_path / "longer")) <= set(rows(copied))

    def test_steps_are_not_less_than_what_is_reached(self, copied: Path, fail: Any):
        said = fail("resume", copied, "--steps", "200")
        assert "steps must be at least 300, which the run has reached, got 200" in said
        assert json.loads((copied / "config.json").read_text())["steps"] == 300

    def test_a_folder_that_is_no_run_is_refused_and_runs_that_it_holds_are_named(
        self, trained: Path, tmp_path: Path, fail: Any
    ):
        assert "is not a run folder" in fail("resume", tmp_path)
        assert list(tmp_path.iterdir()) == []
        for command in ("resume", "evaluate", "export", "plot", "compare", "critic", "export-policy"):
            out = ["--out", str(tmp_path / "x")] if command == "export" else []
            assert "it holds several (mosac, ours): name one of them" in fail(command, trained, *out)

    def test_resume_says_that_evaluations_are_gone(self, copied: Path, capsys: Any):
        (copied / "evaluations.npz").unlink()
        cli.main(["resume", str(copied), "--quiet"])
        assert f"{copied / 'evaluations.npz'} is gone: " in capsys.readouterr().err
        cli.main(["resume", str(copied), "--quiet"])
        assert "is gone" not in capsys.readouterr().err

    @pytest.mark.parametrize("command", ["resume", "evaluate"])
    def test_resume_and_evaluate_take_a_saved_agent(self, command: str, trained: Path, tmp_path: Path):
        parts = {"config.json", "checkpoints", "replay"}
        others = [path.name for path in (trained / "ours").iterdir() if path.name not in parts]
        folder = shutil.copytree(trained / "ours", tmp_path / "agent", ignore=shutil.ignore_patterns(*others))
        cli.main([command, str(folder), *(["--quiet"] if command == "resume" else [])])
        cli.main(["export", str(folder), "--out", str(tmp_path / "run.json")])
        table, other = (evaluations.load(run / "evaluations.npz") for run in (folder, trained / "ours"))
        np.testing.assert_array_equal(table.full_returns, other.full_returns)
        if command == "evaluate":
            cli.main(["resume", str(folder), "--quiet"])


@pytest.mark.usefixtures("unrendered")
class TestEvaluate:
    def test_evaluate_compares_a_run_with_another(self, copied: Path, trained: Path, capsys: Any):
        cli.main(["evaluate", str(copied), "--other", str(trained / "mosac")])
        out = capsys.readouterr().out
        assert "full protocol (100 preferences)" in out
        assert f"ED against {trained / 'mosac'}: " in out
        assert "over 2 seed pairs" in out
        assert rows(copied) == rows(trained / "ours")  # it had been evaluated before

    def test_what_cannot_be_compared_with_is_named_before_anything_is_evaluated(
        self, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail: Any
    ):
        monkeypatch.setattr(commands.runs, "evaluate", lambda *_: pytest.fail("it was evaluated first"))
        command = ("evaluate", trained / "ours")
        assert f"{tmp_path} is not a run folder: it has no config.json" in fail(*command, "--other", tmp_path)
        said = fail(*command, "--reference", "1")
        assert "reference must have 2 numbers, one per objective of DST2d (treasure, time), got 1" in said
        assert "reference must be finite" in fail(*command, "--reference", "1", "nan")

    def test_a_run_without_a_full_evaluation_gets_one(self, trained: Path, tmp_path: Path, fail: Any):
        folder = tmp_path / "run"
        cli.main(["train", "DST2d", *words(RUN), "--out", str(tmp_path), *QUIET, "--no-final-evaluation"])
        assert not (folder / "summary.json").exists()
        said = fail("evaluate", trained / "mosac", "--other", folder)
        assert f"{folder} has no full evaluation yet: run 'qpensieve evaluate {folder}'" in said
        cli.main(["evaluate", str(folder)])
        assert_same_run(folder, trained / "ours")
        assert (folder / "summary.json").exists()


class TestPlot:
    @pytest.mark.usefixtures("unrendered")
    def test_runs_and_exported_files_are_drawn_where_out_says(self, trained: Path, tmp_path: Path, capsys: Any):
        file, ours = tmp_path / "ours.json", str(trained / "ours")
        for words_ in (
            ["plot", ours, "--out", str(tmp_path / "x.png")],  # a picture of the front, or a folder for all
            ["plot", ours, "--out", str(tmp_path / "all")],
            ["export", ours, "--out", str(file)],
            ["plot", str(file)],
            ["plot", str(file), str(trained / "mosac"), "--out", str(tmp_path / "both")],
        ):
            cli.main(words_)
        named = ["x.png", *(f"all/{name}.png" for name in ("front", "curves", "training"))]
        named += ["ours.json", "ours-front.png", "ours-curves.png", "both/compare.png"]
        assert capsys.readouterr().out.split() == [str(tmp_path / name) for name in named]
        assert all((tmp_path / name).exists() for name in named)
        assert (tmp_path / "x.png").read_text() == (tmp_path / "all" / "front.png").read_text()

    @pytest.mark.usefixtures("unrendered")
    def test_a_file_exported_before_the_first_full_evaluation_has_curves(
        self, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], fail: Any
    ):
        file = tmp_path / "half.json"
        cli.main(["export", str(trained / "ours"), "--out", str(file)])
        file.write_text(json.dumps(json.loads(file.read_text()) | {"full_protocol": []}))
        capsys.readouterr()
        cli.main(["plot", str(file)])
        said = capsys.readouterr()
        assert said.out.split() == [str(tmp_path / "half-curves.png")]
        assert said.err.startswith("no front.png: there is no full evaluation")
        assert "exported before the first full evaluation. Draw its curves" in fail("plot", file, "--what", "front")

    def test_what_is_no_run_is_refused(self, tmp_path: Path, fail: Any):
        assert "is not a run folder: it has no config.json" in fail("plot", tmp_path)
        (tmp_path / "other.json").write_text("{}")
        said = fail("plot", tmp_path / "other.json")
        assert "as a file that 'qpensieve export' wrote: 'config' is missing" in said
        for command in ("plot", "compare"):
            assert "name at least one run folder, or a file written by" in fail(command)


class TestReference:
    """The point that HV is measured from after training."""

    @pytest.mark.usefixtures("unrendered")
    def test_another_reference_leaves_the_run_as_it_is(self, trained: Path, capsys: pytest.CaptureFixture[str]):
        before = (trained / "ours" / "evaluations.npz").read_bytes()
        shown = {}
        for point in ((0, -50), (-10, -100)):
            cli.main(["evaluate", str(trained / "ours"), "--reference", *map(str, point)])
            lines = capsys.readouterr().out.splitlines()
            (shown[point],) = [line.split(": ")[1] for line in lines if line.startswith(f"HV from {point}: ")]
        assert len(set(shown.values())) == 2
        assert (trained / "ours" / "evaluations.npz").read_bytes() == before

    def test_a_comparison_has_one_reference(
        self, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], fail: Any
    ):
        both, mosac = [str(trained / "ours"), str(tmp_path / "mosac")], str(trained / "mosac")
        moved = shutil.copytree(mosac, tmp_path / "mosac") / "evaluations.npz"
        evaluations.save(moved, dataclasses.replace(evaluations.load(moved), reference=np.array([-10.0, -100.0])))
        said = fail("compare", *both)
        assert "got ours: (0, -50), mosac: (-10, -100); --reference sets one" in said
        cli.main(["compare", *both, "--reference", "0", "-50"])
        first = capsys.readouterr().out
        cli.main(["compare", both[0], mosac])
        assert first == capsys.readouterr().out
        assert "reference must have shape (2,)" in fail("compare", *both, "--reference", "1", "2", "3")
        assert "reference must be finite" in fail("compare", *both, "--reference", "inf", "2")
