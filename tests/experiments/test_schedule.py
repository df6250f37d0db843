"""The loop over run folders, with workers that only pretend; and the pool of this machine."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qpensieve.config import RunConfig, override
from qpensieve.experiments import schedule, tasks
from qpensieve.experiments.local import Code, Ended, Local, LocalJob
from qpensieve.experiments.schedule import train_all
from qpensieve.experiments.tasks import Task, TaskProgress
from qpensieve.records.files import write_json
from qpensieve.records.folder import CHECKPOINTS, SUMMARY, WORKER_LOG, LinkError, lock

Work = Callable[[Path], int]
Pool = Callable[..., Local]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "LOOK_SECONDS", 0.0)


@pytest.fixture
def task(tmp_path: Path) -> Callable[..., Task]:
    """Makes tasks of a name and settings."""

    def make(name: str, **settings: Any) -> Task:
        return Task(tmp_path / name, override(RunConfig("DST2d", steps=600, random_steps=100), settings))

    return make


def finish(folder: Path) -> int:
    write_json(folder / SUMMARY, {"step": 600})
    return Code.DONE


def save(step: int, code: int) -> Work:
    """A worker that gets as far as a checkpoint."""

    def work(folder: Path) -> int:
        (folder / CHECKPOINTS / f"step_{step:09d}").mkdir(parents=True)
        return code

    return work


@dataclass
class PretendedJob:
    """A job that does its work when it is asked how it has ended."""

    engine: "Pretended"
    folder: Path
    work: Work | int

    def poll(self) -> Ended:
        self.engine.num_running -= 1
        return Ended(self.work(self.folder) if callable(self.work) else self.work, "did what it was told")

    def shrink(self) -> bool:
        self.engine.room //= 2
        return self.engine.room > 0


class Pretended:
    """An engine whose workers do what they are told, one after the other, and then `last`."""

    pause = 0.0

    def __init__(self, room: int = 1, last: Work = finish, **works: Sequence[Work | int]):
        self.room, self._last, self._works = room, last, {name: list(work) for name, work in works.items()}
        self.started: list[str] = []
        self.num_running = 0
        self.is_closed = False

    def start(self, waiting: Sequence[Task]) -> list[PretendedJob]:
        chosen = waiting[: max(0, self.room - self.num_running)]
        self.started += [task.name for task in chosen]
        self.num_running += len(chosen)
        return [PretendedJob(self, task.folder, self._next(task.name)) for task in chosen]

    def _next(self, name: str) -> Work | int:
        works = self._works.get(name, [])
        return works.pop(0) if works else self._last

    def close(self) -> None:
        self.is_closed = True


def test_all_are_done_in_their_order_and_what_is_done_is_skipped(task: Callable[..., Task]):
    every = [task("a"), task("b", seeds=3), task("c")]
    tasks.prepare(every[0])
    finish(every[0].folder)
    engine = Pretended()
    summary = train_all(every, engine)
    assert (summary.done, summary.failed, summary.left, summary.is_stopped) == (["a", "b", "c"], {}, [], False)
    assert engine.started == ["b", "c"]
    assert engine.is_closed


def test_five_tries_without_progress_are_a_failure_with_its_cause(task: Callable[..., Task]):
    engine = Pretended(a=[-9] * 4 + [Code.FAILED])
    tasks.prepare(task("a"))
    (task("a").folder / WORKER_LOG).write_text("where\nValueError: why\n")
    summary = train_all([task("a"), task("b")], engine)
    assert engine.started == ["a"] * 5 + ["b"]
    assert summary.done == ["b"]
    why = "5 tries brought it no further; the last did what it was told: ValueError: why"
    assert summary.failed["a"] == f"{why}\nwhere\nValueError: why"
    assert tasks.progress(task("a")) == TaskProgress(task("a"), "failed", 0, message=why)
    assert train_all([task("a")], Pretended()).done == ["a"]  # the next call tries it again


def test_tries_that_get_further_do_not_count(task: Callable[..., Task]):
    further = [save(step, Code.INTERRUPTED) for step in range(100, 800, 100)]
    engine = Pretended(a=[1, 1, *further, 1, 1, 1, 1])
    assert train_all([task("a")], engine).done == ["a"]
    assert len(engine.started) == 2 + len(further) + 5


def test_out_of_memory_shares_less_until_one_alone_has_too_little(task: Callable[..., Task]):
    engine = Pretended(room=4, a=[Code.OUT_OF_MEMORY])
    assert train_all([task(name) for name in "abcd"], engine, tries=1).done == ["a", "b", "c", "d"]  # no failed try
    engine = Pretended(room=4, e=[Code.OUT_OF_MEMORY] * 3)
    summary = train_all([task("e")], engine)
    assert engine.started == ["e"] * 3
    assert "out of memory, with no other run on its card" in summary.failed["e"]


def test_a_folder_that_another_process_holds_is_taken_when_it_is_free(task: Callable[..., Task]):
    tasks.prepare(task("a"))
    held, seen = lock(task("a").folder), list[TaskProgress]()

    def show(rows: Sequence[TaskProgress]) -> None:
        seen.append(rows[0])
        if len(seen) == 5:
            held.close()

    engine = Pretended(a=[Code.IN_USE])
    assert train_all([task("a")], engine, tries=1, show=show).done == ["a"]
    assert [progress.state for progress in seen[:5]] == ["running"] * 5
    assert engine.started == ["a", "a"]  # in use once more: no failed try


def test_a_run_that_a_job_has_given_up_has_failed(task: Callable[..., Task]):
    def give_up(folder: Path) -> int:
        tasks.record_failure(task("a"), "5 tries brought it no further")
        return -1

    engine = Pretended(a=[give_up])
    assert train_all([task("a")], engine).failed["a"].startswith("5 tries brought it no further")
    assert engine.started == ["a"]


def test_ctrl_c_closes_the_engine_and_says_what_is_left(task: Callable[..., Task]):
    def interrupt(folder: Path) -> int:
        raise KeyboardInterrupt

    engine, said = Pretended(b=[interrupt]), []
    summary = train_all([task("a"), task("b"), task("c")], engine, say=said.append)
    assert len(said) == 1
    assert (summary.done, summary.left, summary.is_stopped) == (["a"], ["b", "c"], True)
    assert engine.is_closed


def test_nothing_is_started_where_one_task_cannot_run(task: Callable[..., Task]):
    tasks.prepare(task("b"))
    engine = Pretended()
    with pytest.raises(ValueError, match="seeds was 5, is 3"):
        train_all([task("a"), task("b", seeds=3)], engine)
    assert engine.started == []


@pytest.fixture
def pool() -> Iterator[Pool]:
    """Makes pools of workers that run a script; `$folder` is their run folder."""
    made: list[Local] = []

    def make(script: str = "true", **limits: Any) -> Local:
        made.append(Local(program=("sh", "-c", f"for folder; do :; done; {script}", "sh"), **limits))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


class TestLocal:
    def start(self, engine: Local, path: Path, num: int = 1, seeds: int = 5) -> list[LocalJob]:
        """Start as many of `num` runs as there is room for."""
        waiting = [Task(path / str(i), RunConfig("DST2d", seeds=seeds)) for i in range(num)]
        for one in waiting:
            one.folder.mkdir(parents=True, exist_ok=True)
        return engine.start(waiting)

    def wait(self, job: LocalJob) -> Ended:
        job.process.wait(20)
        ended = job.poll()
        assert ended is not None
        return ended

    def test_the_local_pool_says_how_a_worker_died_and_keeps_its_log(self, tmp_path: Path, pool: Pool):
        engine = pool("echo 'no such module' >&2; kill -9 $$", cores=1, gpus=[])
        (job,) = self.start(engine, tmp_path, 2)
        assert self.wait(job) == Ended(-9, "was killed by SIGKILL, as the system does where memory runs out")
        assert (tmp_path / "0" / WORKER_LOG).read_text().endswith("\nno such module\n")
        assert len(self.start(engine, tmp_path, 2)) == 1  # there is room again
        (tmp_path / "0" / WORKER_LOG).unlink()
        (tmp_path / "0" / WORKER_LOG).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(LinkError):
            self.start(pool(cores=1, gpus=[]), tmp_path)
        assert not (tmp_path / "elsewhere").exists()

    def test_the_local_pool_ends_or_kills_its_workers_when_closed(
        self, tmp_path: Path, pool: Pool, monkeypatch: pytest.MonkeyPatch
    ):
        for script, code in ((f"cat >/dev/null; touch {tmp_path}/saved", 0), ("exec sleep 100", -9)):
            engine = pool(script, cores=1, gpus=[])
            (job,) = self.start(engine, tmp_path)
            engine.close()
            assert self.wait(job).code == code
            monkeypatch.setattr("qpensieve.experiments.local.END_SECONDS", 0.2)
        assert (tmp_path / "saved").exists()

    @pytest.mark.parametrize(
        ("cores", "waiting", "given"),
        [
            (8, 20, [1] * 8),  # more runs than cores: one each
            (8, 2, [4, 4]),
            (8, 1, [5]),  # more than one per seed is no use
            (8, 3, [2, 3, 3]),
        ],
    )
    def test_cores_are_divided_among_runs(self, tmp_path: Path, pool: Pool, cores: int, waiting: int, given: list[int]):
        assert [job.cores for job in self.start(pool(cores=cores, gpus=[]), tmp_path, waiting)] == given

    def test_cards_are_shared_by_runs(self, tmp_path: Path, pool: Pool):
        found = self.start(pool(cores=16, gpus=["3", "5"]), tmp_path, 9)
        assert sorted((str(job.device.gpu), job.cores) for job in found) == [("3", 2)] * 4 + [("5", 2)] * 4
        for limits, num in (((4, ["0"], None), 2), ((1, ["0"], None), 1), ((16, ["0", "1"], 3), 3)):
            cores, gpus, at_once = limits
            assert len(self.start(pool(cores=cores, gpus=gpus, at_once=at_once), tmp_path, 9)) == num

    @pytest.mark.parametrize(
        ("gpus", "expected"),
        [
            (["3"], {"CUDA_VISIBLE_DEVICES": "3", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.450", "NPROC": "2"}),
            ([], {"JAX_PLATFORMS": "cpu", "QPENSIEVE_CORES": "2", "NPROC": "2"}),
        ],
    )
    def test_workers_are_told_their_part_of_the_machine(
        self, tmp_path: Path, pool: Pool, gpus: list[str], expected: dict
    ):
        (job, *_) = self.start(pool('env >"$folder/environment"', cores=4, gpus=gpus), tmp_path, 2)
        self.wait(job)
        lines = (tmp_path / "0" / "environment").read_text().splitlines()
        assert dict(line.split("=", 1) for line in lines if "=" in line).items() >= expected.items()

    def test_too_little_memory_halves_the_runs_of_a_card_once_for_all_that_failed(self, tmp_path: Path, pool: Pool):
        engine = pool("exit 76", cores=32, gpus=["0", "1"])
        for num in (8, 6, 5):
            jobs = [job for job in self.start(engine, tmp_path, 20) if self.wait(job)]
            assert len(jobs) == num
            assert all(job.shrink() is (num > 5) for job in jobs if job.device.gpu == "0")
