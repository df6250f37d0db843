"""Runs: killed, interrupted, damaged, diverged, out of disk; they go on to the same numbers, or say why not."""

import json
import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import qpensieve
from qpensieve.config import RunConfig, default_config
from qpensieve.records import checkpoint, evaluations
from qpensieve.records.checkpoint import CheckpointError
from qpensieve.records.folder import EVALUATIONS, LOCK, FolderInUseError, lock
from qpensieve.report.results import export, read_run
from qpensieve.train import run as runs
from qpensieve.train.run_loop import Options, Run
from qpensieve.train.session import DivergedError, EnvFailedError
from qpensieve.train.trainer import Trainer
from tests.envs.foreign import PointMass
from tests.train.kill_run import (
    TINY,
    assert_same_arrays,
    assert_same_run,
    complete,
    contents,
    final_arrays,
    interrupt_at,
    no_space,
    refuse,
    rows,
    steps_saved,
    stop_at,
    tiny_run,
)

QUIET = Options(quiet=True)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, stopped by Ctrl-C in block 15; its checkpoints are those of the steps 200 and 300."""
    folder = tmp_path_factory.mktemp("runs") / "stopped"
    stop_at(runs.start(folder, tiny_run(), QUIET), 300)
    assert steps_saved(folder) == [200, 300]
    return folder


@pytest.fixture
def half(stopped: Path, tmp_path: Path) -> Path:
    """A copy of `stopped` to play with."""
    return shutil.copytree(stopped, tmp_path / "half")


class TestResumed:
    def test_a_resumed_run_ends_with_the_same_numbers(self, half: Path, whole: Path):
        complete(runs.resume(half, QUIET, refuse))
        assert_same_run(half, whole)

    def test_resuming_with_other_versions_warns_once_and_records_them(self, half: Path):
        record = json.loads((half / "environment.json").read_text())
        changed = record | {"packages": record["packages"] | {"jax": "0.0.1"}}
        (half / "environment.json").write_text(json.dumps(changed))
        warnings: list[str] = []
        runs.resume(half, QUIET, warnings.append).close()
        (warning,) = warnings
        assert f"same numbers only up to rounding: jax 0.0.1, now {record['packages']['jax']}" in warning
        after = json.loads((half / "environment.json").read_text())
        (later,) = after.pop("resumed_with")
        assert after == changed
        assert later["step"] == 300
        assert later["packages"] == record["packages"]
        runs.resume(half, QUIET, refuse).close()

    @pytest.mark.parametrize("content", ["{", "[]", '{"resumed_with": 3}', '{"resumed_with": [3]}'])
    def test_a_damaged_record_of_versions_is_left_alone(self, content: str, half: Path):
        (half / "environment.json").write_text(content)
        runs.resume(half, QUIET, refuse).close()
        assert (half / "environment.json").read_text() == content

    def test_another_length_says_again_whether_the_run_follows_the_recipe(self, half: Path):
        record = json.loads((half / "environment.json").read_text()) | {"recipe": "robust 1"}
        (half / "environment.json").write_text(json.dumps(record))
        runs.resume(half, QUIET, refuse).close()
        assert json.loads((half / "environment.json").read_text()) == record
        runs.resume(half, QUIET, refuse, steps=800).close()
        assert json.loads((half / "environment.json").read_text()) == record | {"recipe": None}

    def test_a_run_may_be_made_shorter_and_longer_again(self, half: Path, whole: Path):
        for steps in (440, 440, 600):  # as large a replay as before: other programs would round differently
            complete(runs.resume(half, QUIET, refuse, steps=steps))
            assert max(steps_saved(half)) == steps
        assert_same_arrays(final_arrays(half), final_arrays(whole))

    def test_resuming_writes_the_row_of_a_full_evaluation_that_is_missing(self, whole: Path, tmp_path: Path):
        folder = shutil.copytree(whole, tmp_path / "run")
        log = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
        assert '"full evaluation"' in log[-1]
        (folder / "metrics.jsonl").write_text("".join(log[:-1]))
        complete(runs.resume(folder, QUIET, refuse))
        assert_same_run(folder, whole)

    @pytest.mark.parametrize(
        ("file", "damage", "complaint"),
        [
            ("checkpoints/step_000000300/arrays.npz", "alter", r"arrays\.npz was altered"),
            ("replay/rows_200_300.npy", "remove", r"rows_200_300\.npy is missing"),
        ],
    )
    def test_a_damaged_checkpoint_is_named_and_the_one_before_leads_to_the_same_numbers(
        self, file: str, damage: str, complaint: str, half: Path, whole: Path
    ):
        hurt(half / file, damage)
        warnings: list[str] = []
        run = runs.resume(half, QUIET, warnings.append)
        assert len(warnings) == 1
        assert f"checkpoint {half / 'checkpoints' / 'step_000000300'} is damaged" in warnings[0]
        assert re.search(complaint, warnings[0])
        assert run.session.step == 200
        complete(run)
        assert_same_run(half, whole)

    def test_resuming_without_a_whole_checkpoint_touches_nothing(self, half: Path):
        for path in half.glob("checkpoints/*/arrays.npz"):
            hurt(path, "cut")
        log = (half / "metrics.jsonl").read_bytes()
        with pytest.raises(
            CheckpointError, match=f"no checkpoint of {half} can be read; start a new run in another folder"
        ):
            runs.resume(half, QUIET, lambda _: None)
        assert (half / "metrics.jsonl").read_bytes() == log
        assert steps_saved(half) == [200, 300]

    def test_resuming_without_the_replay_touches_nothing(self, half: Path):
        hurt(half / "replay" / "rows_0_200.npy", "cut")  # both checkpoints need it
        before = contents(half)
        lost = r"its replay is lost \(segment of the replay .*rows_0_200\.npy has .*policies of step 300 are whole: "
        with pytest.raises(CheckpointError, match=lost + "qpensieve evaluate"):
            runs.resume(half, QUIET, lambda _: None)
        assert contents(half) == before

    def test_parameters_later_than_the_resumed_checkpoint_are_removed(self, half: Path):
        """Without a replay the run takes another way: those of the old one would pass for its newest."""
        arrays = {"x": np.zeros(1)}
        kept = [checkpoint.save_parameters(half, step, arrays) for step in (200, 300, 400)]
        hurt(half / "checkpoints" / "step_000000300" / "arrays.npz", "cut")
        runs.resume(half, QUIET, lambda _: None).close()
        assert [path.exists() for path in kept] == [True, False, False]

    @pytest.mark.parametrize(
        ("field", "value", "complaint"),
        [
            ("seeds", 3, "seeds was 2, is 3"),
            ("agent.sac.tau", 0.01, "tau was 0.005, is 0.01"),
        ],
    )
    def test_another_configuration_is_refused_by_the_name_of_the_field(
        self, field: str, value: Any, complaint: str, half: Path
    ):
        edit_config(half, field, value)
        with pytest.raises(CheckpointError, match=f"the checkpoint is of another configuration: {complaint}"):
            runs.resume(half, QUIET, refuse)
        assert steps_saved(half) == [200, 300]

    def test_threads_and_time_between_checkpoints_may_change(self, half: Path):
        edit_config(half, "checkpoint_seconds", 5.0)
        run = runs.resume(half, QUIET, refuse, num_threads=1)
        assert (run.session.step, run.config.checkpoint_seconds, run.config.num_threads) == (300, 5.0, 1)
        run.close()


class TestNothingIsLost:
    @pytest.mark.parametrize("left", ["evaluations.npz", "metrics.jsonl", "summary.json"])
    def test_a_run_with_results_but_without_checkpoints_is_not_started_over(
        self, left: str, whole: Path, tmp_path: Path
    ):
        folder = shutil.copytree(whole, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
        (folder / "summary.json").write_text("{}")
        for name in {"evaluations.npz", "metrics.jsonl", "summary.json"} - {left}:
            (folder / name).unlink()
        before = contents(folder)
        complaint = rf"has results \({re.escape(left)}\) but no checkpoint .* qpensieve resume {folder} --start-over"
        with pytest.raises(CheckpointError, match=complaint):
            runs.resume(folder, QUIET, refuse)
        assert contents(folder) == before

    @pytest.mark.parametrize("damage", ["missing", "log"])
    def test_a_run_that_is_asked_to_starts_over_to_the_same_numbers(self, damage: str, whole: Path, tmp_path: Path):
        folder = shutil.copytree(whole, tmp_path / "run")
        if damage == "missing":
            shutil.rmtree(folder / "checkpoints")
        else:
            hurt(folder / "metrics.jsonl", "cut")
        said: list[str] = []
        run = runs.resume(folder, QUIET, said.append, start_over=True)
        assert said == [f"{folder} starts over: what it had reached is removed"]
        assert contents(folder).keys() == {"config.json", "environment.json"}
        complete(run)
        assert_same_run(folder, whole)

    def test_there_is_a_checkpoint_before_there_are_results(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        def killed(*_: Any) -> None:
            raise SystemExit

        run = runs.start(tmp_path / "run", tiny_run(), QUIET)
        monkeypatch.setattr(evaluations, "save", killed)
        with pytest.raises(SystemExit):
            complete(run)
        assert steps_saved(tmp_path / "run") == [200]

    def test_an_evaluation_of_a_damaged_run_adds_to_what_is_there(
        self, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        folder = shutil.copytree(whole, tmp_path / "run")
        hurt(folder / "checkpoints" / "step_000000600" / "arrays.npz", "alter")
        (folder / "parameters" / "step_000000600.npz").unlink()
        before, table = contents(folder), evaluations.load(folder / EVALUATIONS)
        said: list[str] = []
        runs.evaluate(folder, said.append)
        assert "step_000000600 is damaged" in said[0]
        assert said[1:] == [
            "evaluating the policies of step 400",
            "the full evaluation of step 600 is newer: it stays, and the scores shown are its",
        ]
        after, longer = contents(folder), evaluations.load(folder / EVALUATIONS)
        assert longer.full_steps.tolist() == [400, 600]
        np.testing.assert_array_equal(longer.full_returns[1:], table.full_returns)
        np.testing.assert_array_equal(longer.short_returns, table.short_returns)
        assert after["metrics.jsonl"].startswith(before["metrics.jsonl"])
        row = json.loads(after["metrics.jsonl"].splitlines()[-1])
        assert (row["event"], row["step"]) == ("full evaluation", 400)
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        assert changed == {"metrics.jsonl", "evaluations.npz"}
        runs.evaluate(folder, said.append)  # once more changes nothing
        assert contents(folder) == after

    @pytest.mark.parametrize("lost", ["replay", "checkpoints", "arrays"])
    def test_an_evaluation_needs_only_policies(self, lost: str, whole: Path, tmp_path: Path):
        folder = shutil.copytree(whole, tmp_path / "run")
        table = evaluations.load(folder / EVALUATIONS)
        (folder / EVALUATIONS).unlink()
        if lost == "arrays":
            for path in folder.glob("checkpoints/*/arrays.npz"):
                hurt(path, "alter")
        else:
            shutil.rmtree(folder / lost)
        said: list[str] = []
        runs.evaluate(folder, said.append)
        assert said[-1] == "evaluating the policies of step 600"
        assert len(said) == 1  # they are in the parameters that were kept
        found = evaluations.load(folder / EVALUATIONS)
        np.testing.assert_array_equal(found.full_returns, table.full_returns)
        for path in (folder / "parameters").iterdir():
            path.unlink()
        if lost != "replay":
            with pytest.raises(CheckpointError):
                runs.evaluate(folder, said.append)

    def test_an_evaluation_in_which_the_environment_fails_writes_nothing(
        self, half: Path, monkeypatch: pytest.MonkeyPatch
    ):
        before = contents(half)

        def fail(*_: Any) -> None:
            raise EnvFailedError("the environment failed")

        monkeypatch.setattr(runs, "play", fail)
        with pytest.raises(EnvFailedError, match=r"the environment failed$"):
            runs.evaluate(half, lambda _: None)
        assert contents(half) == before

    def test_reading_a_damaged_run_changes_nothing(self, whole: Path, tmp_path: Path):
        folder = shutil.copytree(whole, tmp_path / "run")
        hurt(folder / "checkpoints" / "step_000000600" / "arrays.npz", "cut")
        before = contents(folder)
        with pytest.warns(UserWarning, match="step_000000600 is damaged"):
            assert qpensieve.load(folder).num_steps == 400
        export(folder, tmp_path / "run.json")
        assert contents(folder) == before


def whole_and_stopped(folder: Path, config: RunConfig, step: int) -> tuple[Path, Path]:
    """The same run twice, the second one stopped at a step and resumed."""
    complete(runs.start(folder / "whole", config, QUIET))
    stop_at(runs.start(folder / "stopped", config, QUIET), step)
    complete(runs.resume(folder / "stopped", QUIET, refuse))
    return folder / "whole", folder / "stopped"


def test_a_run_whose_folder_was_taken_over_stops_before_its_next_save(half: Path):
    run = runs.resume(half, QUIET, refuse)

    def take_over() -> None:
        (half / LOCK).unlink()  # as where locks do not reach other machines
        lock(half).close()

    interrupt_at(run, 340, take_over)
    with pytest.raises(FolderInUseError, match="taken over"):
        complete(run)
    assert steps_saved(half) == [200, 300]
    assert max(evaluations.load(half / EVALUATIONS).short_steps) == 200


class TestStarted:
    @pytest.mark.parametrize("algo", ["qpensieve", "pgmorl"])
    @pytest.mark.parametrize("kind", ["FailingReset", "ScalarReward"])
    def test_an_environment_that_fails_at_once_leaves_no_folder(self, algo: str, kind: str, tmp_path: Path):
        config = default_config(f"tests.envs.foreign:{kind}", algo, "quick")
        with pytest.raises((EnvFailedError, ValueError, RuntimeError)):
            runs.start(tmp_path / "runs" / "run", config, QUIET)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("owner", ["run.write_json", "run.lock"])
    def test_a_start_that_fails_at_the_disk_leaves_no_folder(
        self, owner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(f"qpensieve.train.{owner}", no_space)
        with pytest.raises(OSError, match="No space left"):
            runs.start(tmp_path / "runs" / "run", tiny_run(), QUIET)
        assert list(tmp_path.iterdir()) == []

    def test_a_reader_finds_the_names_that_a_foreign_environment_gives_its_objectives(self, tmp_path: Path):
        runs.start(tmp_path / "run", tiny_run("tests.envs.foreign:PointMass"), QUIET).close()
        assert read_run(tmp_path / "run").named_objectives == ("x", "y")

    def test_the_folder_holds_what_a_reader_needs(self, whole: Path):
        assert {path.name for path in whole.iterdir()} == {
            *("config.json", "environment.json", "metrics.jsonl", "evaluations.npz"),
            *("checkpoints", "parameters", "replay", "run.lock"),
        }
        assert json.loads((whole / "environment.json").read_text())["packages"]["jax"]
        assert steps_saved(whole) == [400, 600]
        assert sorted(path.name for path in (whole / "parameters").iterdir()) == [
            f"step_{step:09d}.npz" for step in (200, 400, 600)
        ]

    def test_the_log_has_every_row_once_and_in_order(self, whole: Path):
        events = [(row["step"], row["event"]) for row in map(json.loads, rows(whole)) if row["event"] != "alarm"]
        train = [(step, "train") for step in range(120, 601, 40)]
        short = [(step, "evaluation") for step in (200, 400, 600)]
        assert sorted(events) == sorted([*train, *short, (600, "full evaluation")])
        assert [step for step, _ in events] == sorted(step for step, _ in events)
        assert events[-2:] == [(600, "evaluation"), (600, "full evaluation")]
        row = json.loads((whole / "metrics.jsonl").read_text().splitlines()[0])
        assert {"critic_loss", "policy_loss", "temperature", "snapshot_share", "time_seconds"} <= row.keys()
        assert len(row["critic_loss"]) == TINY["seeds"]

    def test_evaluations_are_the_short_ones_of_every_period_and_a_full_one(self, whole: Path):
        table = evaluations.load(whole / EVALUATIONS)
        assert table.short_steps.tolist() == [200, 400, 600]
        assert table.short_returns.shape == (3, 2, 20, 2, 2)
        assert table.curve_returns.shape == (3, 2, 3, 2, 2)
        assert table.full_steps.tolist() == [600]
        assert table.full_returns.shape == (1, 2, 100, 10, 2)

    def test_kept_parameters_are_those_of_the_run_without_optimisers(self, whole: Path):
        arrays, final = checkpoint.load_parameters(whole / "parameters" / "step_000000600.npz"), final_arrays(whole)
        assert any("snapshots" in name for name in arrays)
        assert not any("optimizers" in name for name in arrays)
        for name, value in arrays.items():
            np.testing.assert_array_equal(value, final[name if name.startswith("policy/") else f"state.agent{name}"])

    def test_full_evaluations_in_between_are_made_once_and_kept_over_a_stop(self, tmp_path: Path):
        whole, stopped = whole_and_stopped(tmp_path, tiny_run(steps=400, full_eval_period=200), 260)
        assert evaluations.load(whole / EVALUATIONS).full_steps.tolist() == [200, 400]
        assert_same_run(stopped, whole)


def test_a_run_without_kept_replay_refills_it(tmp_path: Path):
    folder = tmp_path / "run"
    stop_at(runs.start(folder, tiny_run(keep_replay="off", steps=500, eval_period=500), QUIET), 200)
    assert not (folder / "replay").exists()

    warnings: list[str] = []
    run = runs.resume(folder, QUIET, warnings.append)
    (warning,) = warnings
    assert warning.endswith("has no replay (keep_replay is off): training continues, but with other numbers")
    assert run.session.step == 200
    updates = {}
    interrupt_at(run, 300, lambda: updates.update({300: num_updates(run)}))
    complete(run)
    assert updates == {300: 100}  # as at step 200: the replay was being filled
    assert num_updates(run) == 300  # from step 300 on, one for every step
    assert final_arrays(folder)["state.replay.written"].tolist() == [300, 300]


class TestDiverged:
    def test_a_diverged_run_stops_and_resumes_from_its_last_good_checkpoint(self, tmp_path: Path, whole: Path):
        run = runs.start(tmp_path / "run", tiny_run(), QUIET)
        interrupt_at(run, 240, lambda: poison(run, ".critic", seed=1))
        with pytest.raises(DivergedError, match="of seed 1 is no longer finite at step 260"):
            complete(run)
        assert run.last_checkpoint_step == 200
        complete(runs.resume(tmp_path / "run", QUIET, refuse))
        assert_same_run(tmp_path / "run", whole)

    @pytest.mark.parametrize("part", [".critic", ".target", ".actor", ".snapshots"])
    def test_nothing_that_is_not_finite_is_ever_saved(self, part: str, half: Path):
        run = runs.resume(half, QUIET, refuse)
        poison(run, part, seed=0)
        with pytest.raises(DivergedError, match="of seed 0 is no longer finite at step 300"):
            run.save()
        run.close()
        assert checkpoint.load_latest(half, refuse) is not None


class Fragile(PointMass):
    """Breaks after so many steps of all its kind, in training or in an evaluation, until it is mended."""

    left: int | None = None
    in_evaluation = False

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict]:
        if Fragile.left is not None and self.is_evaluating() == Fragile.in_evaluation:
            Fragile.left -= 1
            if Fragile.left < 0:
                raise OSError("the simulator's licence has run out")
        return super().step(action)

    @staticmethod
    def is_evaluating() -> bool:
        frame = sys._getframe()
        while frame.f_back is not None:
            frame = frame.f_back
            if frame.f_code.co_name == "evaluate":
                return True
        return False


def make_fragile() -> gymnasium.Env:
    return Fragile()


FEW = {"eval_stride": 50, "full_eval_stride": 50, "full_eval_episodes": 1}
FRAGILE = tiny_run(f"{__name__}:make_fragile", steps=200, eval_period=100, parameters_period=100, **FEW)


@pytest.fixture(scope="module")
def mended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on an environment that did not break."""
    folder = tmp_path_factory.mktemp("runs") / "mended"
    complete(runs.start(folder, FRAGILE, QUIET))
    return folder


class Fault(NamedTuple):
    left: int
    """Steps until it breaks: 2 lanes in training; 2 seeds x 5 preferences x 2 episodes x 7 steps an evaluation."""
    in_evaluation: bool
    where: str
    saved: int


@pytest.mark.parametrize(
    "fault",
    [
        Fault(2 * 150, False, "failed after step 140: ", saved=140),
        Fault(0, False, "failed after step 0: ", saved=0),
        Fault(5, True, "failed in the evaluation at step 100: ", saved=100),
        Fault(2 * 5 * 2 * 7 + 5, True, "failed in the evaluation at step 200: ", saved=200),
    ],
)
def test_a_failing_environment_saves_the_run_first(
    fault: Fault, mended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "run"
    monkeypatch.setattr(Fragile, "in_evaluation", fault.in_evaluation)
    monkeypatch.setattr(Fragile, "left", fault.left)
    with pytest.raises(EnvFailedError) as failure:
        complete(runs.start(folder, FRAGILE, QUIET))
    kept = "the run is saved" if fault.saved else "nothing is learned yet"
    to_do = f"{kept}, continue with: qpensieve resume {folder}"
    for part in (fault.where, "make_fragile", "licence has run out", to_do):
        assert part in str(failure.value)
    assert max(steps_saved(folder), default=0) == fault.saved

    monkeypatch.setattr(Fragile, "left", None)
    warned: list[str] = []
    complete(runs.resume(folder, QUIET, warned.append, trust=True))
    assert len(warned) == int(fault.saved == 0)
    assert_same_run(folder, mended)


class TestFullDisk:
    def test_a_full_disk_leaves_the_earlier_checkpoint(
        self, tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
    ):
        folder = tmp_path / "run"
        run = runs.start(folder, tiny_run(), QUIET)

        def fill_disk() -> None:
            monkeypatch.setattr(np, "savez", no_space)

        interrupt_at(run, 380, fill_disk)
        with pytest.raises(CheckpointError) as failure:
            complete(run)
        for part in ("No space left on device", "the last good checkpoint is at step 200", "free disk space"):
            assert part in str(failure.value)
        assert steps_saved(folder) == [200]

        monkeypatch.undo()
        run = runs.resume(folder, QUIET, refuse)
        assert run.session.step == 200
        complete(run)
        assert_same_run(folder, whole)

    def test_a_replay_that_cannot_be_written_is_told_the_same_way(self, half: Path, monkeypatch: pytest.MonkeyPatch):
        run = runs.resume(half, QUIET, refuse)
        interrupt_at(run, 320, lambda: monkeypatch.setattr(os, "fsync", no_space))
        interrupt_at(run, 340)
        with pytest.raises(CheckpointError, match=r"cannot write .*rows_300_340\.npy: No space left on device"):
            complete(run)
        monkeypatch.undo()
        assert steps_saved(half) == [200, 300]
        assert not list((half / "replay").glob(".tmp-*"))


def hurt(path: Path, damage: str) -> None:
    content = path.read_bytes()
    if damage == "remove":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        place = len(content) // 2
        path.write_bytes(content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :])


def edit_config(folder: Path, field: str, value: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    *groups, name = field.split(".")
    part = config
    for group in groups:
        part = part[group]
    assert name in part
    part[name] = value
    (folder / "config.json").write_text(json.dumps(config))


def poison(run: Run, part: str, seed: int) -> None:
    """Make one parameter of one seed's networks NaN."""
    assert isinstance(run.session, Trainer)
    leaves, structure = jax.tree_util.tree_flatten_with_path(run.session._state)
    names = [jax.tree_util.keystr(path) for path, _ in leaves]
    values = [leaf for _, leaf in leaves]
    chosen = next(i for i, name in enumerate(names) if part in name and jnp.issubdtype(values[i].dtype, jnp.floating))
    values[chosen] = values[chosen].at[seed].set(jnp.nan)
    run.session._state = replace(jax.tree_util.tree_unflatten(structure, values))


def num_updates(run: Run) -> int:
    numbers = run.session.arrays()["state.num_updates"]
    assert (numbers == numbers[0]).all()
    return int(numbers[0])
