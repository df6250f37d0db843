"""The description of a folder for the page."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qpensieve import config as configs
from qpensieve.api import Agent
from qpensieve.records import checkpoint, folder
from qpensieve.records.checkpoint import CheckpointError
from qpensieve.watch import server as servers
from qpensieve.watch.runs import WatchedRun
from tests.watch.client import about, page, serving
from tests.watch.conftest import actor, add_evaluation, make_run


def described(run: WatchedRun) -> dict[str, Any]:
    """The description of a run for the page."""
    return json.loads(run.description()[0])


def test_what_is_said_of_a_run(hopper: Path):
    run = WatchedRun(hopper)
    said = described(run)
    assert run.version == 1
    assert said["name"] == "hopper"
    assert (said["domain"], said["algo"], said["kind"]) == ("Hopper2d", "mosac", "run")
    assert (said["seeds"], said["steps"], said["done"], said["goal"]) == ([0, 1], [1000, 2000], 2000, 10_000)
    assert said["objectives"] == ["forward", "control"]
    one = said["evaluations"][0]
    assert (one["step"], one["kind"], one["episodes"]) == (1000, "short", 2)
    assert np.array(one["returns"]).shape == (2, 2, 2)  # seed, preference, objective
    assert one["returns"][0][0] == [1001, 1002]  # the mean of 1000, 1001 and of 1002, 1003
    assert said["preferences"][one["table"]] == [[1, 0], [0, 1]]
    assert said["curves"] == {"steps": [1000], "ut": [[1, 1]], "hv": [[1, 1]]}
    scene = said["scene"]
    assert (scene["kind"], scene["dt"], scene["can_push"], scene["action_size"]) == ("bodies", 0.008, True, 3)
    assert [geom["type"] for geom in scene["geoms"]] == ["plane", "capsule", "capsule", "capsule", "capsule"]


def test_a_growing_run_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(servers, "FOLLOW_SECONDS", 0.05)
    run = make_run(tmp_path / "growing")
    config = configs.load(run / folder.CONFIG)
    with serving(run) as server, page(server) as mine:
        assert about(server)["runs"][0]["is_training"]
        mine.frame()
        add_evaluation(run, config, 3000)
        grown = mine.event("run")["run"]
        while grown["curves"]["steps"] != [1000, 3000] or len(grown["evaluations"]) != 2:
            grown = mine.event("run")["run"]
        checkpoint.save_parameters(run, 3000, actor(config, 3000))
        while grown["steps"] != [1000, 2000, 3000]:
            grown = mine.event("run")["run"]
        ready = [event["at"] for event in mine.events if event["event"] == "ready"]
        assert ready == [2000]  # the step that is shown stays until a message names another
        mine.say(at="newest", seq=1)
        assert mine.event("ready", at=3000)
        assert mine.frame(lambda frame: frame.seq == 1 and frame.steps > 0)


def test_a_run_that_has_not_grown_for_long_is_not_training(tmp_path: Path):
    run = make_run(tmp_path / "old")
    watched = WatchedRun(run)
    assert described(watched)["is_training"]
    os.utime(run / folder.METRICS, (0, 0))
    assert not described(watched)["is_training"]


@pytest.mark.parametrize("name", [folder.EVALUATIONS, folder.METRICS, folder.CONFIG])
def test_a_file_that_cannot_be_read_for_a_moment_changes_nothing(name: str, tmp_path: Path):
    run = make_run(tmp_path / "torn")
    watched = WatchedRun(run)
    before, content = described(watched), (run / name).read_bytes()
    (run / name).unlink()
    if name == folder.EVALUATIONS:
        (run / name).write_bytes(content[:50])
    elif name == folder.METRICS:
        (run / name).write_text('{"event": "evaluation", "step": 5, "ut_short": ["x", {}]}\n')
    (run / folder.METRICS).touch()
    assert described(watched) == before
    (run / name).write_bytes(content)
    (run / folder.METRICS).touch()
    assert described(watched)["evaluations"] == before["evaluations"]


def test_parameters_that_were_written_anew_are_read_anew(tmp_path: Path):
    run = make_run(tmp_path / "again")
    watched = WatchedRun(run)
    before, _ = watched.predictor(1000)
    assert watched.predictor(1000)[0] is before
    checkpoint.save_parameters(run, 1000, actor(watched.config, 7))
    obs, lam = np.ones((1, 11), np.float32), np.full((1, 2), 0.5, np.float32)
    assert (watched.predictor(1000)[0].act(0, obs, lam) != before.act(0, obs, lam)).any()


def test_nothing_is_written_into_a_folder(tmp_path: Path):
    run = make_run(tmp_path / "read")
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in run.rglob("*")}
    with serving(run) as server, page(server) as mine:
        mine.say(at=1000, seed=1, seq=1)
        mine.frame(lambda frame: frame.seq == 1 and frame.steps > 0)
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in run.rglob("*")} == before


def test_a_saved_agent_is_watched(tmp_path: Path):
    agent = Agent("Hopper2d", seeds=1, preset="quick", algo="mosac", hidden=8)
    agent.save(tmp_path / "agent")
    with serving(tmp_path / "agent") as server, page(server) as mine:
        said = about(server)["runs"][0]
        assert (said["kind"], said["steps"], said["evaluations"]) == ("agent", [0], [])
        mine.say(paused=True, seq=1)
        mine.say(reset="same", step=1, seq=2)
        frame = mine.frame(lambda frame: frame.seq == 2 and frame.steps == 1)
    session = agent.session
    predictor = session.predictor()
    watched, _ = WatchedRun(tmp_path / "agent").predictor("newest")
    obs, lam = np.ones((3, 11), np.float32), np.full((3, 2), 0.5, np.float32)
    assert (watched.act(0, obs, lam) == predictor.act(0, obs, lam)).all()
    assert np.isfinite(frame.action).all()
    session.close()


def test_a_folder_without_policies_says_so(tmp_path: Path, hopper: Path):
    (tmp_path / folder.CONFIG).write_bytes((hopper / folder.CONFIG).read_bytes())
    with pytest.raises(CheckpointError, match="holds no parameters yet"):
        WatchedRun(tmp_path)
