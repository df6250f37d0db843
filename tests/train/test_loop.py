"""Callbacks of real trainings: all methods tell them, no number depends on them, stopping and failing lose nothing."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qpensieve
from qpensieve import Agent
from qpensieve.callbacks import Callback, CallbackError, Evaluation, Metrics, StopTraining, Training
from qpensieve.config import RunConfig, default_config, override
from qpensieve.train import run as runs
from qpensieve.train.run_loop import Options, Stopped
from tests.callbacks import loggers
from tests.callbacks.loggers import shown
from tests.train.kill_run import (
    NEVER,
    POPULATION,
    TINY,
    assert_same_arrays,
    assert_same_run,
    assert_same_sessions,
    complete,
    everything,
)

OFF_POLICY: dict[str, Any] = {
    **{name: TINY[name] for name in ("block", "random_steps", "log_period", "batch_size")},
    "replay_capacity": 120,  # one compiled program whatever the number of steps
    "steps": 200,
}
NETS: dict[str, Any] = {"hidden": 16}
PENSIEVE: dict[str, Any] = {
    **{name: TINY[name] for name in ("num_snapshots", "push_after", "push_period")},
    "updates_per_step": 1,
    "learning_rate_end": None,  # the program of tests/test_api.py
}
METHODS: dict[str, dict[str, Any]] = {
    "qpensieve": OFF_POLICY | NETS | PENSIEVE,
    "mosac": OFF_POLICY | NETS,
    "sac": OFF_POLICY | NETS | {"preferences": ("0.9,0.1", "0.2,0.8")},
    "hybrid-sac": OFF_POLICY | NETS | PENSIEVE | {"preferences": ("0.9,0.1",), "switch_after": 100},
    "cnder": OFF_POLICY | NETS | {"replay_capacity": 120},
    "envelope": OFF_POLICY | {"num_preferences": 4, "bins": 5, "width_factors": (4, 4), "target_period": 30},
    "pgmorl": POPULATION | {"log_period": 96},
    "pfa": POPULATION | {"log_period": 96},
}
FAST = ("qpensieve", "sac", "pgmorl")
ALL = [pytest.param(algo, marks=[] if algo in FAST else pytest.mark.slow) for algo in METHODS]
"""One method of each kind in the default suite, all of them among the slow tests."""


class Witness(Callback):
    """Remembers everything; stops or fails where told."""

    def __init__(self, stop_at: int = -1, fail_at: int = -1):
        self.stop_at, self.fail_at = stop_at, fail_at
        self.steps: list[int] = []
        self.metrics: dict[int, Metrics] = {}
        self.evaluations: dict[int, Evaluation] = {}
        self.started: list[Training] = []
        self.ended: list[tuple[int, str]] = []

    def on_start(self, training: Training) -> None:
        self.started.append(training)

    def on_step(self, step: int) -> bool | None:
        self.steps.append(step)
        if step == self.fail_at:
            raise OSError("disk full")
        return step != self.stop_at

    def on_metrics(self, step: int, metrics: Metrics) -> None:
        assert step not in self.metrics
        self.metrics[step] = metrics

    def on_evaluation(self, step: int, evaluation: Evaluation) -> None:
        self.evaluations[step] = evaluation

    def on_end(self, step: int, end: str) -> None:
        self.ended.append((step, end))


def small(algo: str = "qpensieve", **changes: Any) -> Agent:
    settings = {name: value for name, value in METHODS[algo].items() if name != "steps" or algo in ("pgmorl", "pfa")}
    return Agent("DST2d", seeds=2, preset="quick", algo=algo, **settings | changes)


class TestLearn:
    @pytest.mark.parametrize("algo", ALL)
    def test_every_method_calls_callbacks_and_no_number_depends_on_them(self, algo: str):
        total, plain, heard = METHODS[algo]["steps"], small(algo), small(algo)
        witness = Witness()
        plain.learn(total)
        heard.learn(total, callback=[witness, lambda step, metrics: None], eval_period=total // 2)
        assert_same_sessions(plain, heard)
        block = heard.session.block
        assert witness.steps == list(range(block, total + 1, block))
        assert min(witness.evaluations) < total == max(witness.evaluations)
        ut = witness.evaluations[total].metrics.per_seed["eval/UT"]
        np.testing.assert_allclose(ut, witness.evaluations[total].summary.ut)
        assert max(witness.metrics) == total
        values = [value for metrics in witness.metrics.values() for value in metrics.per_seed.values()]
        assert all(value.shape == (2,) for value in values)
        assert all(name.startswith("train/") for name in witness.metrics[total])
        assert witness.ended == [(total, "done")]
        (started,) = witness.started
        assert (started.algo, started.step, started.goal, started.seeds) == (algo, 0, total, (0, 1))
        json.dumps(started.settings)
        plain.close()
        heard.close()

    @pytest.mark.parametrize("how", ["return", "raise"])
    def test_an_agent_stopped_by_a_callback_continues_exactly(self, how: str, tmp_path: Path):
        def stop(step: int, metrics: Metrics) -> bool:
            if how == "raise" and step >= 120:
                raise StopTraining
            return step < 120

        agent = small().learn(200, callback=stop)
        assert agent.num_steps == 140  # the row of step 120 comes one block later: the device works meanwhile
        agent.save(tmp_path / "agent")
        whole = small().learn(200)
        again = qpensieve.load(tmp_path / "agent").learn(60)
        assert_same_sessions(again, whole)

    @pytest.mark.parametrize("algo", ["qpensieve", "pgmorl"])
    def test_an_error_names_the_callback_and_keeps_the_agent(self, algo: str):
        agent, total = small(algo), METHODS[algo]["steps"]
        step = agent.session.block * 6
        witness = Witness(fail_at=step)
        with pytest.raises(
            CallbackError, match=f"the callback Witness failed in on_step at step {step}: OSError: disk"
        ):
            agent.learn(total, callback=[lambda step, metrics: None, witness])
        assert witness.ended == [(step, "failed")]
        assert agent.num_steps == step
        if algo == "qpensieve":
            assert_same_sessions(agent.learn(total - step), small(algo).learn(total))
        else:
            agent.learn(agent.session.block)
        agent.close()

    def test_an_error_at_the_start_changes_nothing(self):
        class Broken:
            def on_start(self, training: Training) -> None:
                raise RuntimeError("no network")

        agent = small()
        before, config = everything(agent.session), agent.config
        with pytest.raises(CallbackError, match="Broken failed in on_start at step 0: RuntimeError: no network"):
            agent.learn(200, callback=Broken())
        assert_same_arrays(everything(agent.session), before)
        assert agent.config == config

    def test_a_callback_may_ask_and_save_the_agent_meanwhile(self, tmp_path: Path):
        agent, whole = small(), small().learn(200)
        answers: list[np.ndarray] = []

        def ask(step: int, metrics: Metrics) -> None:
            answers.append(agent.predict(np.ones(2), [0.5, 0.5]))
            agent.save(tmp_path / "agent")

        agent.learn(200, callback=ask)
        assert (answers[0] != answers[1]).any()
        assert_same_sessions(agent, whole)
        assert qpensieve.load(tmp_path / "agent").num_steps == 200


def config() -> RunConfig:
    return override(default_config("DST2d"), {**TINY, "steps": 400, "checkpoint_seconds": NEVER})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody listens to."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    complete(runs.start(path, config(), Options(quiet=True)))
    return path


class TestRun:
    @pytest.fixture(autouse=True)
    def _stand_ins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WANDB_MODE", "offline")
        self.wandb = loggers.install(monkeypatch)

    def options(self, **changes: Any) -> Options:
        return replace(Options(quiet=True, tensorboard=True, wandb="boats"), **changes)

    def steps(self, path: Path) -> dict[str, list[int]]:
        """Name -> the steps that TensorBoard shows."""
        return {name: [step for step, _ in found] for name, found in shown(path / "tensorboard").items()}

    def test_a_resumed_run_logs_no_step_twice_and_ends_the_same(self, whole: Path, tmp_path: Path):
        path = tmp_path / "run"
        run = runs.start(path, config(), self.options())
        advance = run.session.advance

        def fail() -> Any:
            if run.session.step == 320:  # as if it were killed: the last checkpoint is that of 200
                raise ZeroDivisionError
            return advance()

        run.session.advance = fail  # pyright: ignore[reportAttributeAccessIssue]
        with pytest.raises(ZeroDivisionError):
            complete(run)
        assert max(self.steps(path)["train/critic_loss"]) == 280
        complete(runs.resume(path, self.options(), warn=lambda message: None))
        assert_same_run(path, whole)
        expected = list(range(120, 401, 40))
        assert self.steps(path)["train/critic_loss"] == expected
        assert self.steps(path)["eval/UT"] == self.steps(path)["seed_1/eval/HV"] == [200, 400]
        assert self.steps(path)["eval_full/UT"] == [400]
        assert [run.id for run in self.wandb] == ["id0", "id0"]
        sent = [row["step"] for run in self.wandb for row in run.rows if "train/critic_loss" in row]
        assert sent == expected

    def test_a_callback_of_ones_own_stops_it_and_the_run_goes_on_to_the_same(self, whole: Path, tmp_path: Path):
        run = runs.start(tmp_path / "run", config(), self.options(callback=("tests.train.test_loop:stop_at_240",)))
        with pytest.raises(Stopped, match="stopped by stop_at_240 at step 260; continue with: qpensieve resume"):
            complete(run)
        assert self.wandb[0].exit_code == 0
        complete(runs.resume(tmp_path / "run", self.options(), warn=lambda message: None))
        assert_same_run(tmp_path / "run", whole)
        assert self.steps(tmp_path / "run")["train/critic_loss"] == list(range(120, 401, 40))

    @pytest.mark.parametrize("name", ["fail_at_240", "FailAtEvaluation"])
    def test_an_error_of_a_callback_saves_the_run_first(self, name: str, whole: Path, tmp_path: Path):
        options = self.options(callback=(f"tests.train.test_loop:{name}",))
        run = runs.start(tmp_path / "run", config(), options)
        place = rf"\({re.escape(__file__)}, line \d+, in .*\)"
        with pytest.raises(
            CallbackError, match=rf"{name} failed in on_.*: KeyError: 'mine' {place}; continue with: qpens"
        ):
            complete(run)
        complete(runs.resume(tmp_path / "run", Options(quiet=True), warn=lambda message: None))
        assert_same_run(tmp_path / "run", whole)

    def test_loggers_that_come_later_get_what_was_before(self, whole: Path, tmp_path: Path):
        late, path = tmp_path / "late", tmp_path / "run"
        shutil.copytree(whole, late)
        complete(runs.resume(late, self.options(), warn=lambda message: None))
        complete(runs.start(path, config(), self.options()))
        assert shown(late / "tensorboard") == shown(path / "tensorboard")
        assert self.wandb[0].rows == self.wandb[1].rows

    def test_starting_over_empties_the_loggers(self, tmp_path: Path):
        path = tmp_path / "run"
        run = runs.start(path, config(), self.options(callback=("tests.train.test_loop:stop_at_240",)))
        with pytest.raises(Stopped):
            complete(run)
        complete(runs.resume(path, self.options(), warn=lambda message: None, start_over=True))
        assert self.steps(path)["eval/UT"] == [200, 400]
        assert [run.id for run in self.wandb] == ["id0", "id1"]


def stop_at_240(step: int, metrics: Metrics) -> bool:
    return step < 240


def fail_at_240(step: int, metrics: Metrics) -> None:
    if step >= 240:
        raise KeyError("mine")


class FailAtEvaluation:
    def on_evaluation(self, step: int, evaluation: Evaluation) -> None:
        raise KeyError("mine")
