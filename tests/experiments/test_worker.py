"""The worker of a run folder; and workers and drivers that are killed: the numbers are those of an undisturbed run."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from qpensieve.config import default_config, override
from qpensieve.experiments import tasks, worker
from qpensieve.experiments.local import Code, Local, end_workers, start_worker
from qpensieve.experiments.schedule import train_all
from qpensieve.experiments.tasks import Task
from qpensieve.records.folder import CRITIC, PROVENANCE, FolderInUseError, lock
from qpensieve.train import run as runs
from qpensieve.train.run_loop import Stopped
from tests.experiments.struck import TINY, num_started, program
from tests.train.kill_run import CACHE, ROOT, assert_same_run, complete

CONFIG = override(default_config("DST2d"), TINY)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run as it is when nothing happens."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    complete(runs.start(folder, CONFIG, runs.Options(quiet=True)))
    return folder


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    for name, value in CACHE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(ROOT)
    task = Task(tmp_path / "a", CONFIG)
    tasks.prepare(task)
    return task


def test_a_prepared_folder_becomes_the_run_and_more_steps_and_critics_continue_it(tmp_path: Path, undisturbed: Path):
    short, whole = (Task(tmp_path / "a", override(CONFIG, {"steps": steps})) for steps in (400, 600))
    tasks.prepare(short)
    assert worker.work(short.folder, 400) == Code.DONE
    assert (tasks.is_done(short), tasks.is_done(whole)) == (True, False)
    tasks.prepare(whole)
    assert worker.work(whole.folder, 600, critic=True) == Code.DONE
    measured = Task(whole.folder, whole.config, critic=True)
    assert all(map(tasks.is_done, (short, whole, measured)))
    assert (whole.folder / PROVENANCE).exists()
    (whole.folder / CRITIC).unlink()
    assert (tasks.is_done(whole), tasks.is_done(measured)) == (True, False)
    one, other = (path / "parameters" / "step_000000600.npz" for path in (whole.folder, undisturbed))
    assert one.read_bytes() == other.read_bytes()


def test_a_folder_that_another_process_holds_is_left_alone(task: Task):
    held = lock(task.folder)
    before = {path: path.read_bytes() for path in task.folder.iterdir()}
    assert worker.work(task.folder) == Code.IN_USE
    assert {path: path.read_bytes() for path in task.folder.iterdir()} == before
    held.close()


@pytest.mark.parametrize(
    "case",
    [
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory while"), Code.OUT_OF_MEMORY, "out of memory"),
        (MemoryError(), Code.OUT_OF_MEMORY, "out of memory: on the host"),
        (KeyboardInterrupt(), Code.INTERRUPTED, "stopped"),
        (Stopped("stopped at step 20"), Code.INTERRUPTED, "stopped"),
        (FolderInUseError("taken over"), Code.IN_USE, "taken over"),
        (ValueError("no such thing"), Code.FAILED, "ValueError: no such thing"),
    ],
)
def test_how_it_ended_is_its_code_and_its_last_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    case: tuple[BaseException, Code, str],
):
    error, code, said = case

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(runs, "resume", fail)
    assert worker.work(tmp_path) == code
    assert said in capfd.readouterr().err.splitlines()[-1]


def test_a_worker_saves_when_its_input_ends(task: Task):
    process = start_worker(task.folder, task.worker_options, CACHE)
    until = time.monotonic() + 120
    while tasks.saved_step(task) < 0 and process.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert tasks.progress(task).state == "running"
    assert tasks.progress(task).message == f"process {process.pid} on {os.uname().nodename}"
    end_workers([process])
    assert process.returncode in (Code.INTERRUPTED, Code.DONE)
    assert "the program that started this worker has ended: saving" in tasks.log_tail(task)


@pytest.mark.slow
def test_killed_workers_and_drivers_are_continued(task: Task, undisturbed: Path):
    """The first worker dies in a checkpoint; the second and its driver die at once; the third loses its driver."""
    blows = {1: ("writing", 200, "die"), 2: ("block", 300, "both"), 3: ("block", 400, "orphan")}
    for killed in (1, 2):
        words = [sys.executable, "-m", "tests.experiments.struck", "drive", str(task.folder.parent), json.dumps(blows)]
        driver = subprocess.run(words, timeout=200, check=False, start_new_session=True)
        assert driver.returncode == -signal.SIGKILL, killed
        assert tasks.progress(task).state != "done"
    summary = train_all([task], Local(program=program(blows)))
    assert (summary.done, summary.failed) == (["a"], {})
    assert num_started(task.folder) == 4
    assert "the program that started this worker has ended: saving" in (task.folder / "worker.log").read_text()
    assert_same_run(task.folder, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments_the_numbers_are_the_same(task: Task, tmp_path: Path, seed: int):
    """Six times the driver, a worker or both are killed, wherever they are; then it may end."""
    random, both = Random(seed), [task, Task(task.folder.with_name("b"), CONFIG)]
    drive = lambda folder: [sys.executable, "-m", "tests.experiments.struck", "drive", str(folder), "{}", "ab"]
    whole = tmp_path / "whole"  # by the same pool: a run that has all cores for itself has another program
    whole.mkdir()
    subprocess.run(drive(whole), check=True, timeout=200)
    words = drive(task.folder.parent)
    driver = subprocess.Popen(words, start_new_session=True)
    for _ in range(6):
        time.sleep(random.uniform(2, 12))
        if (what := random.choice(["driver", "worker", "both"])) != "driver":
            _kill_worker(random.choice(both))
        if what != "worker" or driver.poll() is not None:
            driver.kill()
            driver.wait()
            driver = subprocess.Popen(words, start_new_session=True)
    assert driver.wait(200) == 0
    for one in both:
        assert_same_run(one.folder, whole / one.folder.name)


def _kill_worker(task: Task) -> None:
    if tasks.progress(task).state == "running":
        pid = json.loads((task.folder / "run.lock").read_text())["pid"]
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
