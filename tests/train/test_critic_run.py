"""`qpensieve critic RUN`: which parameters of a run are measured, what is written, and what is refused."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qpensieve
from qpensieve import cli
from qpensieve.algos.mosac import SacConfig
from qpensieve.config import RunConfig
from qpensieve.records import checkpoint, critic_errors
from qpensieve.records.checkpoint import CheckpointError
from qpensieve.records.critic_errors import CriticRow
from qpensieve.records.folder import CRITIC
from qpensieve.train import run as runs
from qpensieve.train.critic_error import CriticMeter, Sampling, measure_run
from qpensieve.train.run_loop import Options

FEW = Sampling(pairs=2, rollouts=2)
CONFIGURED = RunConfig(
    *("DST2d", "mosac"),
    seeds=2,
    steps=30,
    random_steps=10,
    block=10,
    eval_period=30,
    eval_stride=50,
    parameters_period=20,
    agent=SacConfig(hidden=8, batch_size=4, discount=0.5),
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with parameters of step 20 and a checkpoint of step 30."""
    path = tmp_path_factory.mktemp("runs") / "run"
    run = runs.start(path, CONFIGURED, Options(quiet=True, final_evaluation=False))
    run.train()
    run.close()
    return path


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def test_measurements_are_added_to_the_folder_and_nothing_else_changes(folder: Path):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    path = folder / CRITIC
    newest, written = measure_run(folder, sampling=FEW, quiet=True)
    assert written == path
    assert [row.step for row in newest.rows] == [30] * 5
    assert newest == critic_errors.load(path)
    kept, _ = measure_run(folder, steps=(20,), preferences=["0.5,0.5"], sampling=FEW, quiet=True)
    assert [(row.step, row.preference) for row in kept.rows] == [(20, [0.5, 0.5])]
    assert critic_errors.load(path).rows == [*kept.rows, *newest.rows]
    assert {path: path.read_bytes() for path in before} == before


def test_the_parameters_are_those_of_the_step(folder: Path):
    path = checkpoint.parameter_steps(folder)[20]
    arrays = checkpoint.load_parameters(path)
    measured, _ = measure_run(folder, all_steps=True, preferences=[(0.5, 0.5)], sampling=FEW, quiet=True)
    arrays[".critic.net.last.bias"] += np.float32(100.0)
    checkpoint.save_parameters(folder, 20, arrays)
    moved, _ = measure_run(folder, all_steps=True, preferences=[(0.5, 0.5)], sampling=FEW, quiet=True)
    bias = lambda errors, i: np.array(errors.rows[i].bias)
    np.testing.assert_allclose(bias(moved, 0) - bias(measured, 0), 100.0, atol=1e-3)
    assert moved.rows[1] == measured.rows[1]


def test_what_cannot_be_measured_is_said(folder: Path, tmp_path: Path):
    with pytest.raises(ValueError, match=r"step must be one that .* kept: 20, 30; got 25"):
        measure_run(folder, steps=(20, 25), sampling=FEW)
    with pytest.raises(ValueError, match=r"preference '0.5,0.6': preference must sum to 1"):
        measure_run(folder, preferences=["0.5,0.6"], sampling=FEW)
    with pytest.raises(FileNotFoundError, match=r"is not a run folder: it holds one \(run\): name"):
        measure_run(tmp_path)
    shutil.rmtree(folder / "parameters")
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(CheckpointError, match="holds no parameters to measure"):
        measure_run(folder)
    assert not (folder / CRITIC).exists()


def test_the_command_shows_a_table(folder: Path, capsys: pytest.CaptureFixture[str]):
    cli.main(["critic", str(folder), "--pairs", "2", "--rollouts", "2", "--preferences", "0.3,0.7", "--quiet"])
    shown = capsys.readouterr()
    assert "DST2d, mosac: 1 step x 2 seeds x 1 preference x 2 pairs x 2 rollouts" in shown.err
    assert "L_critic" in shown.out
    assert "30, 0.3,0.7" in shown.out
    assert shown.out.rstrip().endswith(str(folder / CRITIC))


def test_an_agent_is_measured_as_its_run_is(folder: Path, tmp_path: Path):
    measured, _ = measure_run(folder, preferences=[(0.5, 0.5)], sampling=FEW, quiet=True)
    agent = qpensieve.load(folder)
    assert agent.critic_error([(0.5, 0.5)], pairs=2, rollouts=2) == measured
    saved = agent.save(tmp_path / "agent")
    agent.close()
    again, path = measure_run(saved, preferences=[(0.5, 0.5)], sampling=FEW, quiet=True)
    assert (again, path) == (measured, saved / CRITIC)


def test_a_run_that_goes_back_forgets_what_was_measured_later(folder: Path):
    """As where the checkpoint of step 40 is damaged: what follows need not be what was measured."""
    measured, path = measure_run(folder, preferences=[(0.5, 0.5)], sampling=FEW, quiet=True)
    critic_errors.add(path, replace(measured, rows=[replace(measured.rows[0], step=40)]))
    assert [row.step for row in critic_errors.load(path).rows] == [30, 40]
    runs.resume(folder, Options(quiet=True), lambda _: None).close()
    assert critic_errors.load(path) == measured
    path.write_text("{")  # damaged: no reason not to train
    runs.resume(folder, Options(quiet=True), lambda _: None).close()
    assert path.read_text() == "{"


def test_what_is_measured_is_written_before_the_next_step(folder: Path, monkeypatch: pytest.MonkeyPatch):
    measure, measured = CriticMeter.measure, []

    def stop_at_the_second(self: CriticMeter, *given: Any) -> list[CriticRow]:
        if measured:
            raise KeyboardInterrupt
        measured.extend(measure(self, *given))
        return measured

    monkeypatch.setattr(CriticMeter, "measure", stop_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        measure_run(folder, all_steps=True, preferences=[(0.5, 0.5)], sampling=FEW, quiet=True)
    assert critic_errors.load(folder / CRITIC).rows == measured
