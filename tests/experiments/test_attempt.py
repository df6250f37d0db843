"""Workers and drivers that are killed, stopped and continued: the run has the same numbers as if nothing had been."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from qpensieve.config import override
from qpensieve.experiments import attempt, fence, pulse
from qpensieve.experiments.codes import Code
from qpensieve.experiments.drive import drive
from qpensieve.experiments.executors.local import Local
from qpensieve.experiments.tasks import Store, Task, logs
from qpensieve.experiments.then import THEN, Then
from qpensieve.presets import default_config
from qpensieve.records.atomic import write_json
from qpensieve.train import run as runs
from tests.experiments.struck import TINY, program
from tests.train.kill_run import CACHE, ROOT, assert_same_run, complete

TASK = Task("a", override(default_config("DST2d"), TINY))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run as it is when nothing happens."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    complete(runs.start(folder, TASK.config, runs.Options(quiet=True)))
    return folder


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    for name, value in CACHE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(ROOT)
    store = Store(tmp_path)
    store.prepare(TASK)
    return store


@pytest.fixture
def start(store: Store) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts workers of the task; none is left behind."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*blow: object) -> subprocess.Popen[bytes]:
        words = [*program({len(started) + 1: blow} if blow else {}), str(store.folder(TASK))]  # pyright: ignore[reportArgumentType]
        started.append(subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()  # closes its input too


def wait_until_stopped(pid: int) -> None:
    until = time.monotonic() + 120
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < until
        time.sleep(0.02)


def fingerprint(folder: Path) -> dict[str, tuple[int, str]]:
    """Every file: when it was written, and what it holds."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files}


def test_a_worker_that_was_stopped_and_continues_is_fenced_off(store: Store, start: Callable, undisturbed: Path):
    """It is stopped in the middle of a checkpoint: all is on the disk but its name."""
    first = start("writing", 400, "stop")  # evaluations are saved: there is a checkpoint
    wait_until_stopped(first.pid)
    second = start()
    assert second.wait(120) == Code.DONE
    run = store.folder(TASK) / "run"
    before = fingerprint(store.folder(TASK))
    os.kill(first.pid, signal.SIGCONT)
    assert first.wait(120) == Code.TAKEN_OVER
    after = fingerprint(store.folder(TASK))
    log = str(logs(store.folder(TASK))[0])
    assert {name: value for name, value in after.items() if name != log} == {
        name: value for name, value in before.items() if name != log
    }
    assert "another attempt has taken over a: this one ends" in Path(log).read_text()
    assert sorted(path.name for path in store.folder(TASK).iterdir()) == [
        "log-0001.txt",
        "log-0002.txt",
        "run",
        "task.json",
    ]
    assert_same_run(run, undisturbed)
    assert json.loads((run / "worker.json").read_text())["number"] == 2


@pytest.mark.slow
def test_killed_workers_and_drivers_are_gone_on_from(store: Store, undisturbed: Path):
    """The first worker dies in a checkpoint; the second and its driver die at once; the third loses its driver."""
    blows = {1: ("writing", 200, "die"), 2: ("block", 300, "both"), 3: ("block", 400, "orphan")}
    for killed in (1, 2):
        words = [sys.executable, "-m", "tests.experiments.struck", "drive", str(store.root), json.dumps(blows)]
        driver = subprocess.run(words, timeout=200, check=False, start_new_session=True)
        assert driver.returncode == -signal.SIGKILL, killed
        assert store.progress(TASK).state != "done"
    summary = drive(store, [TASK], Local(program=program(blows)))
    assert summary.done == ["a"]
    assert not summary.failed
    assert len(logs(store.folder(TASK))) == 4
    assert "the program that started this worker has ended: saving" in logs(store.folder(TASK))[2].read_text()
    assert [path.name for path in store.folder(TASK).glob("attempt-*")] == []
    assert_same_run(store.folder(TASK) / "run", undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments_the_numbers_are_the_same(store: Store, undisturbed: Path, seed: int):
    """Six times the driver, a worker or both are killed, wherever they are; then it may end."""
    random, tasks = Random(seed), [Task(name, TASK.config) for name in "ab"]
    words = [sys.executable, "-m", "tests.experiments.struck", "drive", str(store.root), "{}", "ab"]
    driver = subprocess.Popen(words, start_new_session=True)
    for _ in range(6):
        time.sleep(random.uniform(2, 12))
        if (what := random.choice(["driver", "worker", "both"])) != "driver":
            _kill_worker(store, random.choice(tasks))
        if what != "worker" or driver.poll() is not None:
            driver.kill()
            driver.wait()
            driver = subprocess.Popen(words, start_new_session=True)
    assert driver.wait(200) == 0
    for task in tasks:
        assert_same_run(store.folder(task) / "run", undisturbed)
        assert list(store.folder(task).glob("attempt-*")) == []


def _kill_worker(store: Store, task: Task) -> None:
    attempt = store.run_folder(task)
    if attempt is not None and store.is_running(task):
        with suppress(ProcessLookupError):
            os.kill(pulse.read(attempt).pid, signal.SIGKILL)


class TestInThisProcess:
    """What a worker does, without a process of its own."""

    def work(self, store: Store) -> int:
        return attempt.Worker(store.folder(TASK), attempt.Ending(), trusted=False).work()

    def test_more_steps_and_more_to_compute_go_on_from_the_published_run(
        self, store: Store, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
    ):
        shorter = override(TASK.config, {"steps": 400})
        other = Store(store.root / "growing")
        other.prepare(Task("a", shorter))
        assert self.work(other) == Code.DONE
        other.prepare(TASK)
        assert not other.is_done(TASK)
        assert self.work(other) == Code.DONE
        assert other.is_done(TASK)
        assert self.work(other) == Code.DONE  # nothing is left to do
        assert fence.number_of(other.folder(TASK) / "run") == 2
        monkeypatch.setitem(THEN, "mark", Then(lambda run: write_json(run / "mark.json", {}), "mark.json"))
        marked = Task("a", TASK.config, ("mark",))
        other.prepare(marked)
        assert self.work(other) == Code.DONE
        assert other.is_done(marked)
        ours, theirs = (
            path / "parameters" / "step_000000600.npz" for path in (other.folder(TASK) / "run", undisturbed)
        )
        assert ours.read_bytes() == theirs.read_bytes()

    def test_what_was_to_be_computed_must_have_left_its_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setitem(THEN, "nothing", Then(lambda _: None, "nothing.json"))
        monkeypatch.setattr("qpensieve.report.summary.write_summary", lambda _: {})
        with pytest.raises(RuntimeError, match=r"nothing was computed, but has not written nothing\.json"):
            attempt.compute(tmp_path, Task("a", TASK.config, ("nothing",)))

    @pytest.mark.parametrize(
        ("error", "code", "said"),
        [
            (
                RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate"),
                Code.OUT_OF_MEMORY,
                "out of memory",
            ),
            (MemoryError(), Code.OUT_OF_MEMORY, "out of memory: on the host"),
            (KeyboardInterrupt(), Code.INTERRUPTED, "the next attempt goes on"),
            (runs.Stopped("stopped at step 20"), Code.INTERRUPTED, "the next attempt goes on"),
            (ValueError("no such thing"), Code.FAILED, "ValueError: no such thing"),
        ],
    )
    def test_how_it_ended_is_its_code_and_stands_in_the_attempt(
        self, store: Store, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: Code, said: str
    ):
        def fail(*_: object) -> None:
            raise error

        monkeypatch.setattr(runs, "start", fail)
        assert self.work(store) == code
        assert said in store.progress(TASK).message
        assert not store.is_running(TASK)

    def test_a_failure_is_taken_over_if_the_attempt_has_gone(
        self, store: Store, monkeypatch: pytest.MonkeyPatch, capfd
    ):
        def lose(path: Path, *_: object) -> None:
            assert fence.claim(path.parent, lambda _: False) is not None
            raise FileNotFoundError(path)

        monkeypatch.setattr(runs, "start", lose)
        assert self.work(store) == Code.TAKEN_OVER
        assert "another attempt has taken over" in capfd.readouterr().err


def test_lack_of_memory_is_found_behind_other_errors():
    error = ValueError("training failed")
    assert not attempt.is_out_of_memory(error)
    error.__cause__ = RuntimeError("RESOURCE_EXHAUSTED: 8 GB")
    assert attempt.is_out_of_memory(error)
