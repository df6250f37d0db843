"""What the folder of a task tells."""

import json
import os
import platform
from pathlib import Path
from typing import Any

import pytest

from qpensieve import config as configs
from qpensieve.config import RunConfig, default_config, override
from qpensieve.experiments import tasks
from qpensieve.experiments.tasks import Task, TaskProgress
from qpensieve.records.files import write_json
from qpensieve.records.folder import CHECKPOINTS, CONFIG, METRICS, SUMMARY, lock


def tiny(**settings: Any) -> RunConfig:
    return override(default_config("DST2d"), {"steps": 600, "random_steps": 100, **settings})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "a"


class TestPrepare:
    def test_prepare_writes_the_configuration_that_a_worker_resumes(self, folder: Path):
        task = Task(folder, tiny(reference=(0.0, -100.0)))
        tasks.prepare(task)
        tasks.prepare(Task(folder, override(task.config, {"num_threads": 2, "checkpoint_seconds": 1.0})))
        assert configs.load(folder / CONFIG) == task.config
        assert [path.name for path in folder.iterdir()] == [CONFIG]

    def test_prepare_refuses_a_run_of_other_settings_and_names_them(self, folder: Path):
        tasks.prepare(Task(folder, tiny(hidden=8)))
        before = (folder / CONFIG).read_bytes()
        with pytest.raises(ValueError, match=r"a holds a run with other settings: hidden was 8, is 256"):
            tasks.prepare(Task(folder, tiny()))
        with pytest.raises(ValueError, match=r"first_seed was 0, is 5\."):
            tasks.prepare(Task(folder, tiny(hidden=8, first_seed=5)))
        assert (folder / CONFIG).read_bytes() == before

    def test_steps_may_change_but_not_to_less_than_the_run_has_reached(self, folder: Path):
        tasks.prepare(Task(folder, tiny(steps=700)))
        tasks.prepare(Task(folder, tiny(steps=800)))  # the worker is told
        assert Task(folder, tiny(steps=800)).worker_options == ("--steps", "800")
        (folder / CHECKPOINTS / "step_000000600").mkdir(parents=True)
        tasks.prepare(Task(folder, tiny()))
        (folder / CHECKPOINTS / "step_000000650").mkdir(parents=True)
        with pytest.raises(ValueError, match="it has reached step 650"):
            tasks.prepare(Task(folder, tiny()))
        write_json(folder / SUMMARY, {"step": 700})
        tasks.prepare(Task(folder, tiny()))  # it has got further

    @pytest.mark.parametrize(
        ("name", "config", "said"),
        [
            (".tmp-a", tiny(), "must be a valid name of a folder"),
            ("a", RunConfig("DST2d", steps=130), "steps must be a multiple of block"),
        ],
    )
    def test_prepare_refuses_settings_that_cannot_run(self, folder: Path, name: str, config: RunConfig, said: str):
        with pytest.raises(ValueError, match=said):
            tasks.prepare(Task(folder.with_name(name), config))
        assert not folder.parent.exists()

    def test_a_configuration_that_cannot_be_read_is_another_run(self, folder: Path):
        tasks.prepare(Task(folder, tiny()))
        (folder / CONFIG).write_text("{")
        assert tasks.status(Task(folder, tiny())).state == "other settings"
        with pytest.raises(ValueError, match=r"config\.json"):
            tasks.prepare(Task(folder, tiny()))


def log(folder: Path, *rows: tuple[int, float]) -> None:
    lines = [{"event": "train", "step": step, "time_seconds": seconds} for step, seconds in rows]
    lines.append({"event": "evaluation", "step": 1})
    (folder / METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"event": "tr')


class TestProgress:
    def test_progress_from_nothing_to_done(self, folder: Path):
        task = Task(folder, tiny())
        assert tasks.progress(task) == TaskProgress(task, "waiting", 0)
        tasks.prepare(task)
        held = lock(folder)
        (folder / CHECKPOINTS / "step_000000020").mkdir(parents=True)
        who = f"process {os.getpid()} on {platform.node()}"
        assert tasks.progress(task) == TaskProgress(task, "running", 20, message=who)
        log(folder, (100, 50.0), (120, 2.0), (160, 4.0), (240, 8.0))  # the first row is of an earlier process
        found = tasks.progress(task)
        assert found == TaskProgress(task, "running", 240, 20.0, who)
        assert found.seconds_left == 18.0
        held.close()
        assert tasks.progress(task) == TaskProgress(task, "waiting", 20)
        write_json(folder / SUMMARY, {"step": 600})
        assert tasks.progress(task) == TaskProgress(task, "done", 600)
        for other in (Task(folder, tiny(steps=700)), Task(folder, tiny(), critic=True)):
            assert not tasks.is_done(other)

    def test_a_population_is_done_after_its_last_whole_iteration(self, folder: Path):
        config = default_config("DST2d", "pgmorl")
        last = tasks.last_step(config)
        assert config.steps - tasks.iteration_of(config) < last <= config.steps
        tasks.prepare(Task(folder, config))
        write_json(folder / SUMMARY, {"step": last})
        assert tasks.is_done(Task(folder, config))


def test_critics_are_measured_at_the_kept_steps_nearest_to_the_papers(folder: Path):
    tasks.prepare(Task(folder, tiny(steps=1_500)))
    (folder / "parameters").mkdir()
    assert tasks.critic_steps(folder) == []
    for step in (150, 450, 600, 1050, 1450):
        (folder / "parameters" / f"step_{step:09d}.npz").touch()
    assert tasks.critic_steps(folder) == [150, 450, 1050, 1450]
