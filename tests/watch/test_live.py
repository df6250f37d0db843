"""What a page sees of the simulation behind it."""

import sys
import threading
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed

from qpensieve import config as configs
from qpensieve.deploy.exported import open_policies
from qpensieve.envs import draw
from qpensieve.records import folder
from qpensieve.train.evaluate import evaluate
from qpensieve.train.saved import SavedPolicies
from qpensieve.watch import robot as robots
from qpensieve.watch.messages import Command
from qpensieve.watch.runs import WatchedRun
from qpensieve.watch.server import Server
from qpensieve.watch.simulation import Simulation
from qpensieve.watch.world import World
from tests.watch.client import about, page, serving, simulations, wait_for_silence
from tests.watch.conftest import make_run

FIRST, LAST, PAUSED, ANSWER = 2, 1, 4, 8
FAST = 16


def test_a_page_gets_its_state_and_then_frames_that_move(server: Server):
    with page(server) as mine:
        first = mine.frame()
        assert (first.flags & FIRST, first.steps, first.t) == (FIRST, 0, 0)
        assert np.isnan(first.action).all()
        assert mine.events[0] == {"event": "ready", "side": 0, "run": 0, "archive": None, "seed": 0, "at": 2000}
        later = mine.frame(lambda frame: frame.steps >= 4)
        assert later.payload != first.payload
        assert len(later.payload) == 4 * (3 + 7 * len(about(server)["runs"][0]["scene"]["geoms"]))
        assert np.isfinite(later.action).all()
        assert later.t == pytest.approx(later.steps * 0.008, abs=0.008)


def test_physics_is_not_faster_than_real_time_and_frames_are_not_too_many(server: Server):
    with page(server) as mine:
        first, start = mine.frame(), time.monotonic()
        frames = [mine.frame() for _ in range(12)]
        passed = time.monotonic() - start
    gaps = [b.t - a.t for a, b in pairwise(frames) if a.episode == b.episode]
    assert np.median(gaps) == pytest.approx(0.016, abs=1e-6)  # every other control step: 62 frames a second
    same = [frame for frame in frames if frame.episode == first.episode]
    assert same[-1].t - first.t <= passed + 0.05


def test_returns_are_those_of_an_evaluation(server: Server, hopper: Path):
    """Exactly those of an evaluation that acts on one row at a time, as the page does."""
    policy = SavedPolicies(hopper).predictor(1000)
    alone = lambda obs, lam: policy.act(1, obs[None], lam[None])
    act = lambda obs, lam: np.stack([alone(*row) for row in zip(obs[0], lam[0], strict=True)], axis=1)
    expected = evaluate("Hopper2d", [1], act, np.array([[0.7, 0.3]]), 2)[0, 0]
    with page(server) as mine:
        mine.say(seed=1, at=1000, w=[0.7, 0.3], speed=FAST, seq=1)
        for number in range(2):
            ended = mine.event("episode", seed=1, at=1000, episode=number)
            assert ended["returns"] == expected[number].tolist()
            assert (ended["is_mixed"], ended["w"], ended["ended"]) == (False, [0.7, 0.3], "terminated")


def test_touching_an_episode_is_told_with_it(server: Server):
    with page(server) as mine:
        mine.say(paused=True, reset="same", seq=1)
        mine.say(step=2, seq=2)
        mine.frame(lambda frame: frame.seq == 2 and frame.steps == 2)
        mine.say(w=[1, 0], paused=False, speed=FAST, seq=3)
        mine.event("state", seq=3)
        assert mine.event("episode", episode=0)["is_mixed"]
        assert not mine.event("episode", episode=1)["is_mixed"]
        mine.say(paused=True, reset="same", seq=4)
        mine.say(w=[0.4, 0.6], at=1000, paused=False, seq=5)  # before its first step: that is no touch
        mine.event("state", seq=5)
        assert not mine.event("episode", w=[0.4, 0.6])["is_mixed"]
        mine.say(paused=True, reset="same", seq=6)
        mine.say(push=True, paused=False, seq=7)  # a push is one
        mine.event("state", seq=7)
        assert mine.event("episode")["is_mixed"]


def test_a_reset_is_the_next_start_and_same_is_this_one(server: Server):
    with page(server) as mine:
        start = mine.frame()
        mine.say(reset=True, seq=1)
        second = mine.frame(lambda frame: frame.episode == 1 and frame.flags & FIRST)
        mine.say(reset="same", seq=2)
        again = mine.frame(lambda frame: frame.seq == 2 and frame.flags & FIRST)
        mine.say(seed=0, seq=3)  # also the seed that plays already
        back = mine.frame(lambda frame: frame.seq == 3 and frame.flags & FIRST)
    assert start.payload != second.payload == again.payload
    assert (again.episode, back.episode, back.payload) == (1, 0, start.payload)


def test_pause_step_and_answer(server: Server):
    with page(server) as mine:
        mine.frame(lambda frame: frame.steps > 1)
        mine.say(paused=True, reset="same", seq=1)  # far from the episode's end, however slow this machine is
        still = mine.frame(lambda frame: frame.seq == 1 and frame.flags & PAUSED)
        time.sleep(0.1)
        mine.say(w=[1, 0], seq=2)
        answer = mine.frame(lambda frame: frame.seq == 2)
        assert (answer.flags & ANSWER, answer.steps) == (ANSWER, still.steps)
        assert answer.w.tolist() == [1, 0]
        mine.say(step=3, seq=3)
        assert mine.frame(lambda frame: frame.steps == still.steps + 3)
        time.sleep(0.1)
        mine.say(seq=4)
        assert mine.frame(lambda frame: frame.seq == 4).steps == still.steps + 3


def test_what_is_wrong_is_refused_and_the_page_goes_on(server: Server):
    with page(server) as mine:
        mine.frame()
        for text, reason in (
            ('{"seq": 5, "w": [0.2, 0.2]}', "sum to 1"),
            ('{"seq": 5, "w": [0.2, 0.2, 0.6]}', "2 numbers"),
            ('{"seq": 5, "seed": 7}', "one of 0, 1"),
            ('{"seq": 5, "at": 7}', "one of 1000, 2000"),
            ('{"seq": 5, "open": 7}', "below 2"),
            ('{"seq": 5, "close": true}', "side 0 stays"),
        ):
            mine.socket.send(text)
            refused = mine.event("refused", seq=5)
            assert reason in refused["reason"]
        mine.socket.send("nonsense")
        assert "JSON" in mine.event("refused", seq=None)["reason"]
        mine.say(side=1, paused=True)
        assert "not open" in mine.event("refused", side=1)["reason"]
        mine.socket.send(b"\x00")
        assert "bytes" in mine.event("refused")["reason"]
        assert mine.frame(lambda frame: frame.seq == 0)


def test_a_page_disturbs_no_other_and_its_simulation_ends_with_it(server: Server):
    wait_for_silence()
    with page(server) as first, page(server) as second:
        first.say(paused=True, seq=1)
        first.event("state", seq=1)
        second.say(seed=1, w=[1, 0], speed=FAST, seq=9)
        second.frame(lambda frame: frame.seq == 9 and frame.steps > 5)
        first.say(seq=2)
        seen = first.frame(lambda frame: frame.seq == 2)
        assert (seen.w.tolist(), seen.flags & PAUSED) == ([0.5, 0.5], PAUSED)
        assert not [event for event in first.events if event.get("seq") == 9]
        assert len(simulations()) == 2
        second.socket.close()
        wait_for_silence(1)
        first.say(paused=False)
        assert first.frame()
    wait_for_silence()


def test_an_archive_says_which_policy_serves(server: Server):
    with page(server) as mine:
        mine.say(open=1)
        ready = mine.event("ready", run=1)
        assert ready["archive"] == [[1, 0], [0, 1]]
        mine.say(w=[0.9, 0.1], seq=1)
        assert mine.frame(lambda frame: frame.seq == 1 and frame.steps > 0).served == 0
        mine.say(w=[0.1, 0.9], seq=2)
        assert mine.frame(lambda frame: frame.seq == 2 and frame.steps > 0).served == 1


def test_slow_worlds_answer_at_once_and_tell_what_stands_still(sea: Path):
    with serving(sea) as server, page(server) as mine:
        ground = mine.event("ground")
        roles = [shape["role"] for shape in ground["shapes"]]
        assert (roles.count("treasure"), roles.count("water")) == (10, 1)
        assert {
            "shape": "disc",
            "role": "treasure",
            "centre": [0.5, 1.5],
            "radius": 0.5,
            "value": 0.7,
            "label": "0.7",
        } in (ground["shapes"])
        mine.frame()
        mine.say(w=[1, 0], seq=1)
        answer = mine.frame(lambda frame: frame.seq == 1)
        assert answer.flags & ANSWER  # a step takes 0.2 s; it was not waited for
        assert np.frombuffer(answer.payload, "<f4").shape == (3,)


def test_what_is_said_during_the_last_step_is_answered_before_the_next_episode(hopper: Path):
    said: list[Any] = []
    robot = robots.Robot(WatchedRun(hopper), 0, 0, said.append)
    frames: list[Any] = []
    while not robot.world.is_over:
        robot.act()
        frames = robot.frames()
    robot.obey(Command(seq=7, w=(1.0, 0.0)))
    for _, send in frames:
        send()
    robot.finish()
    robot.world.close()
    assert said[-2]["event"] == "episode"
    seq, flags = np.frombuffer(said[-1][:12], "<f4")[1:]
    assert (seq, int(flags) & ANSWER) == (7, ANSWER)


def test_a_failing_environment_is_told_and_can_be_tried_again(tmp_path: Path):
    run = make_run(tmp_path / "foreign", "tests.watch.foreign:Fragile", steps=(1000,))
    with serving(run, trust=True) as server, page(server) as mine:
        scene = about(server)["runs"][0]["scene"]
        assert (scene["kind"], scene["width"], scene["height"], scene["dt"]) == ("image", 6, 4, 0.02)
        assert mine.frame().payload[:3] == b"\xff\xd8\xff"  # a JPEG
        failed = mine.event("failed")
        assert "it broke" in failed["reason"]
        mine.say(reset=True)
        assert mine.frame(lambda frame: frame.steps > 0)


@pytest.mark.parametrize("found", ["egl", None])
def test_a_robot_of_someone_else_needs_opengl_for_its_picture_alone(
    found: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv(draw.VARIABLE, raising=False)
    monkeypatch.setattr(draw, "find_platform", lambda names: found)
    run = make_run(tmp_path / "robot", "tests.watch.foreign:Robot", steps=(1000,))
    with serving(run, trust=True) as server, page(server) as mine:
        scene = about(server)["runs"][0]["scene"]
        assert bool(mine.frame(lambda frame: frame.steps > 0).payload) == (found is not None)
        mine.say(w=[0.9, 0.1], seq=1)
        assert mine.frame(lambda frame: frame.seq == 1).w[0] == pytest.approx(0.9)
    assert (scene["note"] or "").endswith("" if found else draw.MISSING)
    assert bool(scene["note"]) == (found is None)


def test_an_episode_is_cut_where_an_evaluation_would_cut_it(tmp_path: Path):
    run = make_run(tmp_path / "short")
    config = replace(configs.load(run / folder.CONFIG), max_eval_steps=3)
    configs.save(config, run / folder.CONFIG)
    with serving(run) as server, page(server) as mine:
        ended = mine.event("episode")
    assert (ended["steps"], ended["ended"]) == (3, "truncated")


def test_a_simulation_that_was_closed_says_no_more(hopper: Path, monkeypatch: pytest.MonkeyPatch):
    """Its world comes late here; what it says then would be taken for that of the run that was opened instead."""
    said: list[Any] = []
    may_go = threading.Event()
    monkeypatch.setattr(robots, "World", lambda *given: (may_go.wait(10), World(*given))[1])
    simulation = Simulation(WatchedRun(hopper), 0, 0, said.append)
    simulation.close()
    may_go.set()
    simulation.join()
    assert not simulation.is_alive
    assert said == []


def test_a_bug_while_sending_ends_the_page_and_says_so(server: Server, monkeypatch: pytest.MonkeyPatch, capfd):
    monkeypatch.setattr(robots, "rounded", lambda points: [float("nan")])
    with page(server) as mine:
        mine.say(open=1)
        with pytest.raises(ConnectionClosed) as closed:
            mine.until(lambda got: False)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1011
    assert "ValueError" in capfd.readouterr().err


def test_a_calibrated_policy_is_asked_for_the_preference_of_its_calibration():
    policies = open_policies(Path("zoo:DST2d"))
    calibration = policies.calibration
    assert calibration is not None
    row = int(np.flatnonzero(calibration.asks[0] != np.arange(len(calibration.asks[0])))[0])
    own, better = calibration.preferences[row], calibration.preferences[calibration.asks[0, row]]
    with serving(Path("zoo:DST2d")) as running, page(running) as one:
        act = lambda lam, calibrated: one.one_step(w=lam.tolist(), calibrated=calibrated)
        asked, calibrated, other = act(own, False), act(own, True), act(better, False)
    np.testing.assert_allclose(calibrated.w, own, atol=1e-6)
    np.testing.assert_array_equal(calibrated.action, other.action)
    assert not np.array_equal(asked.action, calibrated.action)


def test_without_a_calibration_nothing_is_calibrated(server: Server):
    with page(server) as one:
        one.say(calibrated=True, seq=4)
        assert "calibrated needs a calibration" in one.event("refused", seq=4)["reason"]
