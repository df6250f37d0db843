"""The commands around runs: train, resume, evaluate, plot."""

import dataclasses
import io
import json
import shutil
import signal
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from qpensieve import cli, commands
from qpensieve.records import evaluations
from qpensieve.report import pictures
from qpensieve.train import workers
from qpensieve.train.trainer import Trainer
from tests import faults
from tests.train.kill_run import NEVER, TINY, assert_same_run, final_arrays, rows, words

SHOWN: dict[str, str] = {}
"""What the command that trained `ours` printed."""
RUN = {**TINY, "steps": 300, "eval_period": 300, "parameters_period": 300}


def fail(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command that has to fail says, boxes and line breaks undone."""
    with pytest.raises(SystemExit) as end:
        cli.main(list(arguments))
    assert end.value.code not in (0, None)
    return " ".join(word for word in capsys.readouterr().err.split() if word != "│")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with two finished runs: `ours`, and `mosac` with the algorithm of that name."""
    out = tmp_path_factory.mktemp("runs")
    mosac = {name: value for name, value in RUN.items() if not name.startswith(("push", "num_snap"))}
    with redirect_stdout(io.StringIO()) as shown, redirect_stderr(io.StringIO()) as said:
        cli.main(["train", "DST2d", *words(RUN), "--out", str(out), "--name", "ours"])
    SHOWN.update(out=shown.getvalue(), err=said.getvalue())
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (out / "ours").glob("*.png"))  # as drawn
    with pytest.MonkeyPatch.context() as patch:  # the pictures of one are enough
        patch.setattr(pictures, "draw_pictures", lambda folder: [])
        cli.main(["train", "DST2d", "--algo", "mosac", *words(mosac), "--out", str(out), "--name", "mosac", "--quiet"])
    return out


class TestTrain:
    def test_leaves_a_whole_run_behind(self, trained: Path):
        names = {path.name for path in (trained / "ours").iterdir()}
        assert {"config.json", "environment.json", "metrics.jsonl", "evaluations.npz", "summary.json"} <= names
        assert {"checkpoints", "replay", "parameters", "front.png", "curves.png", "training.png"} <= names
        config = json.loads((trained / "ours" / "config.json").read_text())
        assert config["agent"]["sac"]["hidden"] == RUN["hidden"]
        assert config["domain"] == "DST2d"

    @pytest.mark.usefixtures("unrendered")
    def test_says_where_nothing_will_be_learned(self, trained: Path, tmp_path: Path, capsys: Any):
        short = {**TINY, "steps": 100, "eval_period": 100, "parameters_period": 100, "full_eval_stride": 50}
        cli.main(["train", "DST2d", *words(short), "--out", str(tmp_path), "--name", "run", "--quiet"])
        about = "nothing is learned in 100 steps: learning starts after 100 random ones"
        assert about in capsys.readouterr().err
        cli.main(["resume", str(trained / "ours"), "--quiet"])
        assert "nothing is learned" not in capsys.readouterr().err

    def test_too_little_memory_is_said_in_a_sentence_whoever_notices(
        self, monkeypatch: pytest.MonkeyPatch, capsys: Any
    ):
        def run_out(*_: Any) -> None:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 7 bytes.\nDetails")

        monkeypatch.setattr(commands, "train", run_out)
        said = fail(capsys, "train", "DST2d")
        assert said.startswith("qpensieve: there is not enough memory (RESOURCE_EXHAUSTED: Out of memory allocating 7")
        assert "smaller batch" in said
        assert "Traceback" not in said

    def test_arrays_of_other_shapes_in_training_are_a_bug_with_its_traceback(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
    ):
        monkeypatch.setattr(Trainer, "advance", lambda trainer: np.zeros(2) + np.zeros(3))
        with pytest.raises(SystemExit) as end:
            cli.main(["train", "DST2d", *words(RUN), "--out", str(tmp_path), "--name", "run", "--quiet"])
        assert end.value.code == cli.EXIT_BUG
        said = capsys.readouterr().err
        assert "Traceback (most recent call last)" in said
        assert "ValueError: operands could not be broadcast together with shapes (2,) (3,)" in said
        assert "this is a bug in qpensieve" in said

    @pytest.mark.usefixtures("unrendered")
    def test_sigterm_saves_and_the_resumed_run_has_the_numbers_of_one_that_was_not_stopped(
        self, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
    ):
        advance = Trainer.advance

        def terminated(trainer: Trainer) -> Any:
            if trainer.step == 160:
                signal.raise_signal(signal.SIGTERM)
            return advance(trainer)

        monkeypatch.setattr(Trainer, "advance", terminated)
        with pytest.raises(SystemExit) as end:
            cli.main(["train", "DST2d", *words(RUN), "--out", str(tmp_path), "--name", "run", "--quiet"])
        assert end.value.code == cli.EXIT_TERMINATED
        folder = tmp_path / "run"
        last = capsys.readouterr().err.splitlines()[-1]
        assert last == f"stopped at step 180; continue with: qpensieve resume {folder}"
        monkeypatch.undo()
        cli.main(["resume", str(folder), "--quiet"])
        assert_same_run(folder, trained / "ours")

    @pytest.mark.parametrize(
        ("fault", "said"),
        [
            ("module", "DST2d: the process that steps lanes 0 to 0 cannot work: No module named 'no_such_simulator'"),
            ("option", "gravity must be below 0, got 9.81"),
            ("killed", "DST2d: the process that steps lanes 0 to 0 was killed by SIGKILL, as the system does where"),
            ("memory", "DST2d: the process that steps lanes 0 to 0 has run out of memory (Unable to allocate 256. PiB"),
            ("reset", "the environment failed in lane 0 at reset with seed 3: OSError: the licence has run out"),
        ],
    )
    def test_a_worker_that_fails_is_one_sentence_with_its_cause(
        self, fault: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
    ):
        monkeypatch.setenv(faults.FAULT, fault)
        monkeypatch.setattr(workers, "RemoteCollector", faults.Faulty)
        out = [*words(RUN), "--out", str(tmp_path), "--name", "run", "--quiet", "--num-threads", "2"]
        with pytest.raises(SystemExit) as end:
            cli.main(["train", "DST2d", *out])
        assert end.value.code == cli.EXIT_FAILED
        *_, last = lines = capfd.readouterr().err.splitlines()
        assert sum("qpensieve: " in line for line in lines) == 1
        assert said in last
        assert "Traceback" not in "".join(lines)
        if fault != "option":
            assert last.endswith(f"; nothing is learned yet, continue with: qpensieve resume {tmp_path / 'run'}")
        monkeypatch.undo()
        cli.main(["resume", str(tmp_path / "run"), "--steps", "100", "--quiet", "--num-threads", "2"])

    def test_ends_with_a_table_beside_the_ceilings_and_the_paths(self, trained: Path):
        folder, shown = trained / "ours", SHOWN["out"]
        parts = ["DST2d, qpensieve, step 300", "exact ceilings, full protocol: UT 7.757", "of the front's treasures"]
        parts += [f"next: qpensieve watch {folder} ", f"      qpensieve export-policy {folder} "]
        assert [part for part in parts if part not in shown] == []
        for name in ("summary.json", "front.png", "curves.png"):
            assert str(folder / name) in shown.splitlines()
        for part in (f"run folder: {folder}", "300/300 steps", "300 steps x 2 seeds"):
            assert part in SHOWN["err"]

    def test_algo_and_preset_decide_what_settings_there_are(self, trained: Path, capsys: pytest.CaptureFixture[str]):
        config = json.loads((trained / "mosac" / "config.json").read_text())
        assert config["algo"] == "mosac"
        assert config["agent"]["hidden"] == RUN["hidden"]
        assert "--push-period" in fail(capsys, "train", "DST2d", "--algo", "mosac", "--push-period", "100")
        assert "use qpensieve, mosac, sac" in fail(capsys, "train", "DST2d", "--algo=ppo")
        assert "use paper, quick" in fail(capsys, "train", "DST2d", "--preset", "fast")

    @pytest.mark.parametrize(
        ("arguments", "hints"),
        [
            (["DST2d", "--seed", "3"], ["--seed", "--seeds"]),
            (["DST2d", "--keep-replay", "no"], ["--keep-replay", "on", "off"]),
            (
                ["DST2d", "--steps=1.3e2", "--learning-rate-end=none"],
                ["steps must be a multiple of block (50), got 130"],
            ),
            (["dst2d"], ["unknown domain 'dst2d'; did you mean DST2d?"]),
            (["mo-mountaincarcontinous-v0"], ["did you mean", "mo-mountaincarcontinuous-v0"]),
            (["tests.envs.foreign:nothing"], ["nothing"]),
            ([], ["DOMAIN"]),
            (["tests.envs.foreign:FailingReset"], ["licence has run out"]),
            (["DST2d", "--max-eval-steps", "0"], ["max_eval_steps must be at least 1"]),
        ],
    )
    def test_what_cannot_be_is_refused_with_a_hint_and_nothing_is_created(
        self, arguments: list[str], hints: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ):
        said = fail(capsys, "train", *arguments, "--out", str(tmp_path / "runs"))
        assert [hint for hint in hints if hint not in said] == []
        assert "Traceback" not in said
        assert not (tmp_path / "runs").exists()

    @pytest.mark.parametrize("name", ["..", ".", "a/../..", "/elsewhere"])
    def test_a_name_stays_below_the_folder_of_runs(self, name: str, tmp_path: Path, capsys: Any):
        """`--name ..` would make a run of the working folder."""
        out = tmp_path / "runs"
        said = fail(capsys, "train", "DST2d", *words(RUN), "--out", str(out), "--name", name)
        assert f"name must be that of a folder below {out} (--out), got {name}" in said
        assert not any(tmp_path.iterdir())

    def test_a_run_does_not_begin_inside_another(self, trained: Path, capsys: pytest.CaptureFixture[str]):
        for out, name in ((trained / "ours", "run"), (trained, "ours/run")):
            said = fail(capsys, "train", "DST2d", *words(RUN), "--out", str(out), "--name", name)
            assert f"outside of other runs, but {trained / 'ours'} is one" in said
        assert not (trained / "ours" / "run").exists()

    def test_a_file_in_place_of_the_folder_of_runs_is_named(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        (tmp_path / "file").write_text("mine")
        said = fail(capsys, "train", "DST2d", "--out", str(tmp_path / "file"), "--name", "run")
        assert f"must be a folder, but {tmp_path / 'file'} is a file" in said

    def test_old_checkpoints_are_not_mixed_with_a_new_run(self, trained: Path, tmp_path: Path, capsys: Any):
        folder = shutil.copytree(trained / "ours", tmp_path / "run")
        (folder / "config.json").unlink()
        said = fail(capsys, "train", "DST2d", *words(RUN), "--out", str(tmp_path), "--name", "run")
        assert (
            "must not hold parts of another run, but it holds environment.json, metrics.jsonl, evaluations.npz" in said
        )

    def test_a_name_that_is_taken_is_refused(self, trained: Path, capsys: pytest.CaptureFixture[str]):
        log = (trained / "ours" / "metrics.jsonl").read_bytes()
        said = fail(capsys, "train", "DST2d", *words(RUN), "--out", str(trained), "--name", "ours")
        assert f"{trained / 'ours'} holds a run already: continue it with 'qpensieve resume" in said
        assert (trained / "ours" / "metrics.jsonl").read_bytes() == log


@pytest.mark.usefixtures("unrendered")
class TestResume:
    def test_a_finished_run_is_said_to_be_complete_and_left_as_it_is(
        self, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ):
        folder = shutil.copytree(trained / "ours", tmp_path / "run")
        cli.main(["resume", str(folder)])
        said = capsys.readouterr().err
        assert "the run is complete: all 300 steps are done" in said
        assert f"qpensieve resume {folder} --steps 600" in said
        assert "full evaluation" not in said
        assert_same_run(folder, trained / "ours")

    def test_more_steps_extend_a_run_as_if_it_had_been_longer_from_the_start(
        self, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ):
        folder = shutil.copytree(trained / "ours", tmp_path / "run")
        cli.main(["resume", str(folder), "--steps", "400", "--quiet"])
        assert json.loads((folder / "config.json").read_text())["steps"] == 400
        longer = words({**RUN, "steps": 400})
        cli.main(["train", "DST2d", *longer, "--out", str(tmp_path), "--name", "longer", "--quiet"])
        extended, whole = final_arrays(folder), final_arrays(tmp_path / "longer")
        assert [name for name in whole if extended[name].tobytes() != whole[name].tobytes()] == []
        assert set(rows(tmp_path / "longer")) <= set(rows(folder))
        cli.main(["resume", str(folder), "--quiet"])
        assert "all 400 steps are done" in capsys.readouterr().err

    def test_too_many_steps_asked_for_can_be_taken_back(self, trained: Path, tmp_path: Path):
        folder = shutil.copytree(trained / "ours", tmp_path / "run")
        path = folder / "config.json"
        path.write_text(path.read_text().replace('"steps": 300,', '"steps": 40000000,'))
        cli.main(["resume", str(folder), "--steps", "400", "--quiet"])
        assert json.loads(path.read_text())["steps"] == 400
        longer = shutil.copytree(trained / "ours", tmp_path / "longer")
        cli.main(["resume", str(longer), "--steps", "400", "--quiet"])
        ours, theirs = final_arrays(folder), final_arrays(longer)
        assert [name for name in theirs if ours[name].tobytes() != theirs[name].tobytes()] == []

    def test_steps_are_not_less_than_what_is_reached_and_whole_blocks(
        self, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ):
        folder = shutil.copytree(trained / "ours", tmp_path / "run")
        said = fail(capsys, "resume", str(folder), "--steps", "200")
        assert "steps must be at least 300, which the run has reached, got 200" in said
        assert "must be a multiple of block" in fail(capsys, "resume", str(folder), "--steps", "333")
        assert json.loads((folder / "config.json").read_text())["steps"] == 300

    def test_a_folder_that_is_no_run_is_refused(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        assert "is not a run folder" in fail(capsys, "resume", str(tmp_path))
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("command", ["resume", "evaluate", "export", "plot", "compare", "critic", "export-policy"])
    def test_a_folder_of_runs_names_those_it_holds(self, command: str, trained: Path, tmp_path: Path, capsys: Any):
        out = ["--out", str(tmp_path / "x")] if command == "export" else []
        assert "it holds several (mosac, ours): name one of them" in fail(capsys, command, str(trained), *out)

    def test_evaluations_that_are_gone_are_missed(self, trained: Path, tmp_path: Path, capsys: Any):
        folder = shutil.copytree(trained / "ours", tmp_path / "run")
        (folder / "evaluations.npz").unlink()
        cli.main(["resume", str(folder), "--quiet"])
        assert f"{folder / 'evaluations.npz'} is gone: " in capsys.readouterr().err
        cli.main(["resume", str(folder), "--quiet"])
        assert "is gone" not in capsys.readouterr().err

    def test_another_configuration_is_refused_by_field(
        self, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ):
        folder = shutil.copytree(trained / "ours", tmp_path / "run")
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"random_steps": 200}))
        assert "random_steps was 100, is 200" in fail(capsys, "resume", str(folder))

    def test_results_without_checkpoints_are_kept_unless_starting_over_is_asked_for(
        self, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ):
        folder = shutil.copytree(trained / "ours", tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
        table = (folder / "evaluations.npz").read_bytes()
        said = fail(capsys, "resume", str(folder))
        assert "no checkpoint to continue from, and starting over would remove them" in said
        assert f"qpensieve resume {folder} --start-over" in said
        assert (folder / "evaluations.npz").read_bytes() == table
        cli.main(["resume", str(folder), "--start-over", "--quiet"])
        assert_same_run(folder, trained / "ours")

    @pytest.mark.parametrize("command", ["resume", "evaluate"])
    def test_takes_a_saved_agent(self, command: str, trained: Path, tmp_path: Path):
        parts = {"config.json", "checkpoints", "replay"}
        others = [path.name for path in (trained / "ours").iterdir() if path.name not in parts]
        folder = shutil.copytree(trained / "ours", tmp_path / "agent", ignore=shutil.ignore_patterns(*others))
        cli.main([command, str(folder), *(["--quiet"] if command == "resume" else [])])
        cli.main(["export", str(folder), "--out", str(tmp_path / "run.json")])
        table, other = (evaluations.load(run / "evaluations.npz") for run in (folder, trained / "ours"))
        np.testing.assert_array_equal(table.full_returns, other.full_returns)
        cli.main(["resume", str(folder), "--quiet"])


@pytest.mark.usefixtures("unrendered")
class TestEvaluate:
    def test_a_damaged_checkpoint_costs_no_evaluation(self, trained: Path, tmp_path: Path, capsys: Any):
        folder = tmp_path / "run"
        options = ["--out", str(tmp_path), "--name", "run", "--quiet"]
        cli.main(["train", "DST2d", *words(RUN | {"eval_period": 100, "checkpoint_seconds": NEVER}), *options])
        capsys.readouterr()
        (folder / "checkpoints" / "step_000000300" / "arrays.npz").write_bytes(b"")
        cli.main(["evaluate", str(folder)])
        said = capsys.readouterr()
        assert said.err == ""  # they are in the parameters that were kept, and had been evaluated
        (folder / "parameters" / "step_000000300.npz").unlink()
        cli.main(["evaluate", str(folder)])
        said = capsys.readouterr()
        assert "evaluating the policies of step 200" in said.err
        assert "the full evaluation of step 300 is newer: it stays" in said.err
        assert "step 300" in said.out

    def test_scores_a_run_and_sets_it_beside_another(
        self, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ):
        folder = shutil.copytree(trained / "ours", tmp_path / "run")
        cli.main(["evaluate", str(folder), "--other", str(trained / "mosac")])
        out = capsys.readouterr().out
        assert "full protocol (100 preferences)" in out
        assert f"ED against {trained / 'mosac'}: " in out
        assert "over 2 seed pairs" in out
        assert rows(folder) == rows(trained / "ours")  # it had been evaluated before

    def test_what_cannot_be_compared_with_is_named_before_anything_is_evaluated(
        self, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
    ):
        monkeypatch.setattr(commands.runs, "evaluate", lambda *_: pytest.fail("it was evaluated first"))
        command = ("evaluate", str(trained / "ours"))
        assert f"{tmp_path} is not a run folder: it has no config.json" in fail(
            capsys, *command, "--other", str(tmp_path)
        )
        said = fail(capsys, *command, "--reference", "1")
        assert "reference must have 2 numbers, one per objective of DST2d (treasure, time), got 1" in said
        assert "reference must be finite" in fail(capsys, *command, "--reference", "1", "nan")

    def test_runs_evaluated_at_different_steps_say_so(self, trained: Path, monkeypatch: pytest.MonkeyPatch):
        read = commands.comparison.read
        at = lambda result, step: dataclasses.replace(result, played=dataclasses.replace(result.played, step=step))
        early = lambda path: at(read(path), 7 if path.name == "mosac" else 300)
        assert "evaluated" not in commands._dominance(trained / "ours", trained / "mosac")
        monkeypatch.setattr(commands.comparison, "read", early)
        said = commands._dominance(trained / "ours", trained / "mosac")
        assert said.endswith("preferences; it was evaluated at step 7, this run at 300")

    def test_a_run_without_a_full_evaluation_gets_one(self, trained: Path, tmp_path: Path, capsys: Any):
        folder = tmp_path / "run"
        options = ["--out", str(tmp_path), "--name", "run", "--quiet", "--no-final-evaluation"]
        cli.main(["train", "DST2d", *words(RUN), *options])
        assert not (folder / "summary.json").exists()
        said = fail(capsys, "evaluate", str(trained / "mosac"), "--other", str(folder))
        assert f"{folder} has no full evaluation yet: run 'qpensieve evaluate {folder}'" in said
        cli.main(["evaluate", str(folder)])
        assert_same_run(folder, trained / "ours")
        assert (folder / "summary.json").exists()

    def test_a_run_without_a_checkpoint_is_refused(
        self, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ):
        shutil.copy(trained / "ours" / "config.json", tmp_path)
        assert "holds no parameters yet: train it first" in fail(capsys, "evaluate", str(tmp_path))
        assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


class TestPlot:
    def test_compares_several(self, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        cli.main(["plot", str(trained / "ours"), str(trained / "mosac"), "--out", str(tmp_path / "both.png")])
        assert capsys.readouterr().out.split() == [str(tmp_path / "both.png")]
        assert (tmp_path / "both.png").stat().st_size > 1000

    @pytest.mark.usefixtures("unrendered")
    def test_out_is_obeyed_for_one_run_a_picture_of_the_front_or_a_folder_for_all(
        self, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ):
        cli.main(["plot", str(trained / "ours"), "--out", str(tmp_path / "x.png")])
        cli.main(["plot", str(trained / "ours"), "--out", str(tmp_path / "all")])
        names = ("front.png", "curves.png", "training.png")
        drawn = [tmp_path / "x.png", *(tmp_path / "all" / name for name in names)]
        assert capsys.readouterr().out.split() == list(map(str, drawn))
        assert drawn[0].read_text() == drawn[1].read_text()
        assert all(path.exists() for path in drawn)

    @pytest.mark.usefixtures("unrendered")
    def test_exported_files_are_drawn_too_alone_and_beside_folders(
        self, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ):
        file = tmp_path / "ours.json"
        cli.main(["export", str(trained / "ours"), "--out", str(file)])
        cli.main(["plot", str(file)])
        cli.main(["plot", str(file), str(trained / "mosac"), "--out", str(tmp_path / "both")])
        named = ["ours.json", "ours-front.png", "ours-curves.png", "both/compare.png"]
        assert capsys.readouterr().out.split() == [str(tmp_path / name) for name in named]
        assert all((tmp_path / name).exists() for name in named)
        (tmp_path / "other.json").write_text("{}")
        assert "as a file that 'qpensieve export' wrote: 'config' is missing" in fail(
            capsys, "plot", str(tmp_path / "other.json")
        )

    @pytest.mark.usefixtures("unrendered")
    def test_a_file_exported_before_the_first_full_evaluation_has_curves(
        self, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ):
        file = tmp_path / "half.json"
        cli.main(["export", str(trained / "ours"), "--out", str(file)])
        file.write_text(json.dumps(json.loads(file.read_text()) | {"full_protocol": []}))
        capsys.readouterr()
        cli.main(["plot", str(file)])
        said = capsys.readouterr()
        assert said.out.split() == [str(tmp_path / "half-curves.png")]
        assert said.err.startswith("no front.png: there is no full evaluation")
        assert "does not hold the returns of short ones: draw its curves" in fail(
            capsys, "plot", str(file), "--what", "front"
        )

    @pytest.mark.usefixtures("unrendered")
    def test_an_ending_of_another_kind_of_file_is_refused_with_those_of_pictures(
        self, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ):
        runs, picture = [str(trained / "ours"), str(trained / "mosac")], tmp_path / "x.gif"
        both = ["compare", *runs]
        for asked in (["plot", runs[0]], ["plot", *runs], ["plot", runs[0], "--what", "curves"], both):
            said = fail(capsys, *asked, "--out", str(picture))
            assert f"ends in .png, .pdf, .svg, .jpg, .jpeg, or a folder for pictures; got {picture}" in said
            assert not picture.exists()
        picture.mkdir()  # a folder of that name is one
        for folder in (tmp_path / "pictures.v2", picture):
            cli.main(["plot", runs[0], "--what", "curves", "--out", str(folder)])
            assert (folder / "curves.png").exists()
        cli.main([*both, "--out", str(picture)])
        assert capsys.readouterr().out.splitlines()[-1] == str(picture / "compare.png")
        assert f"{runs[0]} holds no curves of single preferences" in fail(capsys, *both, "--curves")

    def test_what_is_no_run_is_refused(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        assert "is not a run folder: it has no config.json" in fail(capsys, "plot", str(tmp_path))
        for command in ("plot", "compare"):
            assert "name at least one run folder, or a file written by" in fail(capsys, command)


@pytest.mark.usefixtures("unrendered")
class TestReference:
    """The point that HV is measured from, for every method and for what is measured afterwards."""

    def test_is_taken_by_any_method(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        place = ["--out", str(tmp_path), "--name", "run", "--quiet"]
        cli.main(["train", "DST2d", *words(RUN), *place, "--reference", "-1", "-60.5"])
        assert "HV is measured from (-1, -60.5), not from the domain's own (0, -50)" in capsys.readouterr().out
        assert json.loads((tmp_path / "run" / "config.json").read_text())["reference"] == [-1.0, -60.5]
        assert json.loads((tmp_path / "run" / "summary.json").read_text())["reference"] == [-1.0, -60.5]
        table = evaluations.load(tmp_path / "run" / "evaluations.npz")
        assert table.reference is not None
        assert table.reference.tolist() == [-1.0, -60.5]

    @pytest.mark.parametrize("algo", ["hybrid-sac", "pgmorl"])
    def test_has_a_number_for_each_objective(self, algo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        start = ["train", "DST2d", "--algo", algo, "--preset", "quick", "--out", str(tmp_path)]
        start += ["--preferences", "0.5,0.5"] if algo == "hybrid-sac" else []
        said = fail(capsys, *start, "--reference", "0", "-50", "3")
        assert "reference must have 2 numbers, one per objective of DST2d (treasure, time), got 3" in said
        assert "reference must be finite, got (nan, -50.0)" in fail(capsys, *start, "--reference", "nan", "-50")
        assert not any(tmp_path.iterdir())

    def test_of_another_measurement_leaves_the_run_as_it_is(self, trained: Path, capsys: pytest.CaptureFixture[str]):
        before = (trained / "ours" / "evaluations.npz").read_bytes()
        cli.main(["evaluate", str(trained / "ours"), "--reference", "0", "-50"])
        from_own = capsys.readouterr().out
        cli.main(["evaluate", str(trained / "ours"), "--reference", "-10", "-100"])
        from_other = capsys.readouterr().out
        line = lambda text: next(line for line in text.splitlines() if line.startswith("HV from"))
        assert line(from_own).startswith("HV from (0, -50): ")
        assert line(from_other).startswith("HV from (-10, -100): ")
        assert line(from_own).split(": ")[1] != line(from_other).split(": ")[1]
        assert (trained / "ours" / "evaluations.npz").read_bytes() == before

    def test_of_a_comparison_is_one(self, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        both = [str(trained / "ours"), str(tmp_path / "other")]
        shutil.copytree(trained / "mosac", tmp_path / "other")
        table = evaluations.load(tmp_path / "other" / "evaluations.npz")
        moved = dataclasses.replace(table, reference=np.array([-10.0, -100.0]))
        evaluations.save(tmp_path / "other" / "evaluations.npz", moved)
        said = fail(capsys, "compare", *both)
        assert "got ours: (0, -50), other: (-10, -100); --reference sets one" in said
        cli.main(["compare", *both, "--reference", "0", "-50"])
        first = capsys.readouterr().out
        cli.main(["compare", str(trained / "ours"), str(trained / "mosac")])
        assert first == capsys.readouterr().out
        assert "reference must have shape (2,)" in fail(capsys, "compare", *both, "--reference", "1", "2", "3")
        assert "reference must be finite" in fail(capsys, "compare", *both, "--reference", "inf", "2")
