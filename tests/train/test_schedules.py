"""Schedules follow the length of a run, the same in Python and on the command line."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from qpensieve import QPensieve, load
from qpensieve.config import default_config, override
from qpensieve.records.folder import CONFIG
from qpensieve.settings import flat
from qpensieve.train import run as runs
from qpensieve.train.run_loop import Options
from tests.train.kill_run import assert_same_sessions, complete

SMALL: dict[str, Any] = {
    "seeds": 1,
    "block": 10,
    "hidden": 8,
    "batch_size": 8,
    "num_snapshots": 2,
    "num_preferences": 2,
    "eval_stride": 50,
}
STEPS, LONGER = 400, 600
QUIET = Options(quiet=True, final_evaluation=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of `STEPS` steps with the preset `robust`."""
    tmp_path = tmp_path_factory.mktemp("runs")
    config = override(default_config("DST2d", preset="robust"), SMALL | {"steps": STEPS, "keep_replay": "on"})
    complete(runs.start(tmp_path / "run", config, QUIET))
    return tmp_path / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


def test_learn_is_the_run_of_the_same_length(run: Path):
    agent = QPensieve("DST2d", preset="robust", **SMALL).learn(STEPS)
    assert settings_of(run) == json.loads(json.dumps(schedule(agent)))
    assert schedule(agent) | {"steps": 0} == {
        **{"steps": 0, "random_steps": 40, "eval_period": 40, "parameters_period": 80, "log_period": 20},
        **{"push_after": 60, "push_period": 20, "anneal_updates": 720},
    }
    assert_same_sessions(load(run), agent)
    taken, pushed = agent.session.arrays(), "state.agent.snapshots.filled"
    assert taken[next(name for name in taken if pushed.removeprefix("state") in name)].all()


def test_a_call_for_one_block_is_planned_too():
    agent = QPensieve("DST2d", preset="robust", **SMALL)
    with pytest.warns(UserWarning, match="nothing is learned"):
        agent.learn(SMALL["block"])
    assert agent.num_steps == schedule(agent)["random_steps"] == SMALL["block"]


def schedule(agent: Any) -> dict[str, Any]:
    return scheduled_of(flat(agent.config))


def settings_of(run: Path) -> dict[str, Any]:
    content = json.loads((run / CONFIG).read_text())
    agent = content.pop("agent")
    return scheduled_of(content | agent | agent.pop("sac"))


def scheduled_of(values: dict[str, Any]) -> dict[str, Any]:
    named = ("steps", "random_steps", "eval_period", "parameters_period", "log_period")
    return {name: values[name] for name in (*named, "push_after", "push_period", "anneal_updates")}
