"""TensorBoard and Weights & Biases, against stand-ins: what they are given, and that no step comes twice."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qpensieve.callbacks import CallbackError, TensorBoard, WandB
from qpensieve.callbacks.group import Callbacks
from qpensieve.records.folder import LinkError
from tests.callbacks import loggers
from tests.callbacks.loggers import WandbRun, shown
from tests.callbacks.test_group import EVALUATION, ROW, TRAINING

NEW = replace(TRAINING, step=0)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[WandbRun]:
    return loggers.install(monkeypatch)


def train(callback: Any, start: int, *rows: int, evaluated: int | None = None, folder: Path | None = None) -> None:
    group = Callbacks(callback)
    with group.during(replace(TRAINING, step=start, folder=folder)):
        for step in rows:
            group.tell("on_step", step)
            group.tell("on_metrics", step, ROW)
        if evaluated is not None:
            group.tell("on_evaluation", evaluated, EVALUATION)


@pytest.mark.usefixtures("made")
class TestTensorBoard:
    def test_tensorboard_gets_means_and_the_values_of_each_seed(self, tmp_path: Path):
        train(TensorBoard(tmp_path / "tb"), 0, 40, evaluated=60)
        found = shown(tmp_path / "tb")
        assert found["train/loss"] == [(40, 2.0)]
        assert found["seed_3/train/loss"] == [(40, 1.0)]
        assert found["seed_4/train/loss"] == [(40, 3.0)]
        assert found["eval/UT"] == [(60, EVALUATION.metrics["eval/UT"])]

    def test_tensorboard_shows_no_step_twice_after_a_resume(self, tmp_path: Path):
        board = TensorBoard(tmp_path)
        train(board, 0, 40, 80, 120)
        train(board, 120, 160)
        train(TensorBoard(tmp_path), 80, 120, 160, 200)  # was killed, and resumed from the checkpoint of 80
        assert [step for step, _ in shown(tmp_path)["train/loss"]] == [40, 80, 120, 160, 200]

    def test_a_run_that_was_begun_without_it_is_written_from_its_first_step(self, tmp_path: Path):
        history = ((40, ROW), (80, EVALUATION.metrics))
        for _ in range(2):  # the second time they are there
            board = TensorBoard(tmp_path)
            board.on_start(replace(TRAINING, step=80, history=history))
            board.on_end(80, "done")
        assert shown(tmp_path)["train/loss"] == [(40, 2.0)]
        assert [step for step, _ in shown(tmp_path)["eval/UT"]] == [80]

    def test_tensorboard_refuses_a_folder_of_another_training(self, tmp_path: Path):
        train(TensorBoard(tmp_path), 0, 40)
        with pytest.raises(CallbackError, match="holds TensorBoard files of another training"):
            train(TensorBoard(tmp_path), 0, 40)

    def test_tensorboard_does_not_write_through_a_link(self, tmp_path: Path):
        os.symlink(tmp_path, tmp_path / "link")
        with pytest.raises(CallbackError) as error:
            train(TensorBoard(tmp_path / "link"), 0, 40)
        assert isinstance(error.value.__cause__, LinkError)


class TestWandB:
    def test_wandb_gets_rows_with_their_step_and_the_settings(self, made: list[WandbRun]):
        train(WandB("boats", mode="offline", tags=["x"]), 0, 40, evaluated=40)
        (run,) = made
        assert run.asked["project"] == "boats"
        assert run.asked["mode"] == "offline"
        assert run.asked["tags"] == ["x"]
        assert run.asked["config"] == {"domain": "DST2d", "algo": "qpensieve", "seeds": 2}
        assert run.defined == [("step", None), ("*", "step")]
        assert [row["step"] for row in run.rows] == [40, 40]
        assert run.rows[0]["seed_4/train/loss"] == 3.0
        assert run.rows[1]["eval/UT"] == EVALUATION.metrics["eval/UT"]
        assert run.exit_code == 0

    def test_wandb_continues_its_run_without_a_step_twice(self, made: list[WandbRun], tmp_path: Path):
        train(WandB("boats"), 0, 40, 80, 120, folder=tmp_path)
        note = json.loads((tmp_path / "wandb.json").read_text())
        assert note == {"id": "id0", "sent": {"train": 120}, "is_open": False}
        # Another process, from the checkpoint of step 80: 120 was sent before, but its evaluation was not.
        train(WandB("boats"), 80, 120, evaluated=120, folder=tmp_path)
        train(WandB("boats", mode="offline"), 120, 160, folder=tmp_path)
        assert [run.id for run in made] == ["id0"] * 3
        assert [[row["step"] for row in run.rows] for run in made] == [[40, 80, 120], [120], [160]]
        assert "eval/UT" in made[1].rows[0]
        assert [run.asked.get("resume") for run in made] == [None, "allow", None]
        assert made[0].asked["name"] == tmp_path.name
        assert made[0].asked["dir"] == str(tmp_path)

    def test_wandb_sends_the_whole_run_again_after_a_kill(self, made: list[WandbRun], tmp_path: Path):
        killed = WandB("boats")
        killed.on_start(replace(NEW, folder=tmp_path))
        killed.on_metrics(40, ROW)
        killed.on_metrics(80, ROW)
        past = ((40, ROW),)
        WandB("boats").on_start(replace(TRAINING, step=40, folder=tmp_path, history=past))
        assert [run.id for run in made] == ["id0", "id1"]
        assert [row["step"] for row in made[1].rows] == [40]

    def test_wandb_is_told_of_a_failure(self, made: list[WandbRun]):
        group = Callbacks(WandB("boats"))
        with pytest.raises(ZeroDivisionError), group.during(NEW):
            raise ZeroDivisionError
        assert made[0].exit_code == 1


@pytest.mark.parametrize(
    ("module", "make", "extra"),
    [("tensorboardX", lambda: TensorBoard("x"), "tensorboard"), ("wandb", lambda: WandB("x"), "wandb")],
)
def test_a_missing_package_is_a_sentence(module: str, make: Any, extra: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"pip install 'qpensieve\[{extra}\]'"):
        make()
