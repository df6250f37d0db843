"""Tasks in their folders: what is refused, and what a folder tells of its progress."""

import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import pytest

from qpensieve import config as configs
from qpensieve.config import RunConfig, override
from qpensieve.experiments import fence, pulse, then
from qpensieve.experiments.pulse import Heart, Pulse
from qpensieve.experiments.tasks import Store, Task, check_unique, read_task
from qpensieve.experiments.then import THEN, Then
from qpensieve.presets import default_config
from qpensieve.records.atomic import write_json
from qpensieve.records.trust import UntrustedError


def tiny(**settings: Any) -> RunConfig:
    return override(default_config("DST2d"), {"steps": 600, "random_steps": 100, **settings})


def publish(store: Store, task: Task) -> Path:
    attempt = fence.claim(store.folder(task), lambda _: False)
    assert attempt is not None
    write_json(attempt / "config.json", {"steps": task.config.steps})
    return fence.publish(attempt)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


class TestPrepare:
    def test_writes_what_a_worker_reads(self, store: Store):
        task = Task("DST2d-qpensieve", tiny(reference=(0.0, -100.0)))
        store.prepare(task)
        store.prepare(task)
        assert read_task(store.folder(task), trusted=False) == task

    def test_refuses_other_settings_and_names_them(self, store: Store):
        store.prepare(Task("a", tiny()))
        with pytest.raises(ValueError, match=r"a is of a task with other settings: agent\.sac\.hidden was .*, is 8"):
            store.prepare(Task("a", tiny(hidden=8)))

    def test_refuses_a_run_of_other_settings_that_somebody_put_there(self, store: Store):
        run = store.root / "a" / "run"
        run.mkdir(parents=True)
        configs.save(configs.resolve(tiny(hidden=8)), run / "config.json")
        before = (run / "config.json").read_bytes()
        with pytest.raises(ValueError, match=r"a is of a task with other settings: agent\.sac\.hidden was 8, is 256"):
            store.prepare(Task("a", tiny()))
        assert (run / "config.json").read_bytes() == before
        assert not (store.root / "a" / "task.json").exists()
        with pytest.raises(ValueError, match=r"settings: first_seed was 0, is 5\."):
            store.prepare(Task("a", tiny(hidden=8, first_seed=5)))
        store.prepare(Task("a", tiny(hidden=8)))
        assert store.is_done(Task("a", tiny(hidden=8)))

    def test_takes_a_folder_of_an_earlier_version_that_lacks_settings(self, store: Store):
        task = Task("a", tiny())
        store.prepare(task)
        path = store.folder(task) / "task.json"
        content = json.loads(path.read_text())
        del content["config"]["random_noise"], content["config"]["agent"]["sac"]["bounded_targets"]
        for name in ("acting_share", "critic_blocks", "critic_hidden"):
            del content["config"]["agent"]["sac"][name]
        path.write_text(json.dumps(content))
        store.prepare(task)
        assert read_task(store.folder(task), trusted=False) == task

    def test_steps_may_grow_but_not_shrink(self, store: Store):
        store.prepare(Task("a", tiny()))
        store.prepare(Task("a", tiny(steps=700, num_threads=2)))
        assert read_task(store.root / "a", trusted=False).config == tiny(steps=700, num_threads=2)
        run = store.root / "a" / "attempt-0001"
        run.mkdir()
        write_json(run / "config.json", {"steps": 700})
        with pytest.raises(ValueError, match=r"^[^:]*a is of a task with other settings: steps was 700, is 600"):
            store.prepare(Task("a", tiny()))

    def test_steps_that_nothing_was_trained_with_can_be_taken_back(self, store: Store):
        store.prepare(Task("a", tiny(steps=700)))
        store.prepare(Task("a", tiny()))
        assert read_task(store.root / "a", trusted=False).config == tiny()

    def test_what_comes_after_training_may_be_added(self, store: Store, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setitem(THEN, "one", Then(lambda _: None, "one.json"))
        monkeypatch.setitem(THEN, "two", Then(lambda _: None, "two.json"))
        store.prepare(Task("a", tiny(), ("one",)))
        store.prepare(Task("a", tiny(), ("two",)))
        assert set(read_task(store.root / "a", trusted=False).then) == {"one", "two"}

    @pytest.mark.parametrize(
        ("task", "said"),
        [
            (Task("a/b", tiny()), "the name of a task must be that of a folder, got 'a/b'"),
            (Task(".tmp-a", tiny()), "must be that of a folder"),
            (Task("a", RunConfig("DST2d", steps=130)), "steps must be a multiple of block"),
            (Task("a", tiny(), ("dance",)), "what is computed after training must be one of .*; got 'dance'"),
        ],
    )
    def test_refuses_what_cannot_run(self, store: Store, task: Task, said: str):
        with pytest.raises(ValueError, match=said):
            store.prepare(task)
        assert not store.root.exists()

    def test_two_tasks_do_not_share_a_folder(self):
        with pytest.raises(ValueError, match="several called a"):
            check_unique([Task("a", tiny()), Task("b", tiny()), Task("a", tiny())])

    def test_code_of_others_is_imported_only_where_it_is_allowed(self, store: Store):
        task = Task("a", RunConfig("tests.envs.foreign:PointMass", steps=100, random_steps=50))
        store.prepare(task)
        assert read_task(store.folder(task), trusted=False) == task  # our own
        (store.folder(task) / "trusted.json").unlink()
        with pytest.raises(UntrustedError):
            read_task(store.folder(task), trusted=False)
        assert read_task(store.folder(task), trusted=True) == task


class TestProgress:
    def test_from_nothing_over_attempts_to_done(self, store: Store):
        task = Task("a", tiny())
        store.prepare(task)
        assert store.progress(task).state == "waiting"
        assert store.run_folder(task) is None
        attempt = fence.claim(store.folder(task), lambda _: False)
        assert attempt is not None
        heart = Heart(attempt, 1, lambda before: Pulse(**(vars(before) | {"step": 40, "goal": 600, "rate": 20.0})))
        (attempt / "checkpoints" / "step_000000020").mkdir(parents=True)
        assert store.progress(task).step == 20  # where it will go on
        heart.beat(seconds_left=28.0)
        found = store.progress(task)
        assert (found.state, found.step, found.goal, found.rate, found.seconds_left) == ("running", 40, 600, 20.0, 28.0)
        assert found.machine == platform.node()
        assert store.run_folder(task) == attempt
        heart.beat(code=75, message="stopped")
        assert store.progress(task).state == "waiting"
        assert store.progress(task).message == "stopped"
        publish(store, task)
        assert store.progress(task).state == "done"
        assert store.run_folder(task) == store.folder(task) / "run"

    def test_more_steps_or_more_to_compute_make_it_undone(self, store: Store, monkeypatch: pytest.MonkeyPatch):
        store.prepare(Task("a", tiny()))
        run = publish(store, Task("a", tiny()))
        assert store.is_done(Task("a", tiny()))
        assert not store.is_done(Task("a", tiny(steps=700)))
        monkeypatch.setitem(THEN, "one", Then(lambda _: None, "one.json"))
        assert not store.is_done(Task("a", tiny(), ("one",)))
        (run / "one.json").write_text("{}")
        assert not store.is_done(Task("a", tiny(), ("one",)))  # perhaps a part of it
        then.note(run, "one")
        assert store.is_done(Task("a", tiny(), ("one",)))
        write_json(run / "config.json", {"steps": 700})  # the run was gone on with
        assert not store.is_done(Task("a", tiny(steps=700), ("one",)))

    def test_a_worker_is_alive_while_it_says_so_and_its_process_is_there(self, store: Store):
        task = Task("a", tiny())
        store.prepare(task)
        attempt = fence.claim(store.folder(task), lambda _: False)
        assert attempt is not None
        assert store.is_running(task)
        old = time.time() - pulse.STALE - 1
        os.utime(attempt / "worker.json", (old, old))
        assert not store.is_running(task)
        dead = {"number": 1, "machine": platform.node(), "pid": 2**22 + 1}  # larger than any
        write_json(attempt / "worker.json", dead)
        assert not store.is_running(task)
        write_json(attempt / "worker.json", dead | {"machine": "another machine"})
        assert store.is_running(task)

    @pytest.mark.parametrize("content", ["", "[]", '{"number": "x", "step": 1.5, "rate": "fast", "machine": 3}'])
    def test_a_pulse_that_cannot_be_read_says_nothing(self, tmp_path: Path, content: str):
        (tmp_path / "worker.json").write_text(content)
        assert pulse.read(tmp_path) == Pulse()

    def test_failed_is_remembered_until_it_is_tried_again(self, store: Store):
        task = Task("a", tiny())
        store.prepare(task)
        store.give_up(task, "the disk is full")
        assert (store.progress(task).state, store.progress(task).message) == ("failed", "the disk is full")
        store.forgive(task)
        assert store.progress(task).state == "waiting"

    def test_the_newest_log_is_the_one_shown(self, store: Store):
        task = Task("a", tiny())
        store.prepare(task)
        assert store.log_tail(task) == ""
        (store.folder(task) / "log-0001.txt").write_text("first\n")
        (store.folder(task) / "log-0002.txt").write_text("".join(f"line {i}\n" for i in range(50)))
        assert store.log_tail(task).splitlines()[-1] == "line 49"
        assert "line 20" not in store.log_tail(task)
        assert store.progress(task).attempts == 2


def test_a_heart_that_lost_its_attempt_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pulse, "PERIOD", 0.01)
    attempt, lost = tmp_path / "attempt-0001", []
    attempt.mkdir()
    with Heart(attempt, 1, lambda before: before).beating(lambda: lost.append(True)):
        attempt.rename(tmp_path / "attempt-0001.left")
        time.sleep(0.2)
    assert lost == [True]
    assert json.loads((tmp_path / "attempt-0001.left" / "worker.json").read_text())["pid"] == os.getpid()


def test_names_of_what_comes_after_training_are_those_of_the_table():
    with pytest.raises(ValueError, match="one of one; got 'two'"):
        then.check_names(("two",), {"one": Then(lambda _: None, "x")})
