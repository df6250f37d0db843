"""The loop over tasks, with workers that only pretend."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from qpensieve.config import RunConfig, override
from qpensieve.experiments import drive as drives
from qpensieve.experiments import fence
from qpensieve.experiments.codes import Code
from qpensieve.experiments.drive import drive
from qpensieve.experiments.executors.local import Local
from qpensieve.experiments.executors.protocol import Ended, Needs
from qpensieve.experiments.tasks import Progress, Store, Task
from qpensieve.presets import default_config
from qpensieve.records.atomic import write_json

Work = Callable[[Path], int]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drives, "WAIT_SECONDS", 0.0)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def task(name: str, **settings: Any) -> Task:
    config = RunConfig("DST2d", steps=600, random_steps=100, **settings)
    return Task(name, override(config, {}))


def publish(folder: Path) -> int:
    attempt = fence.claim(folder, lambda _: False)
    assert attempt is not None
    write_json(attempt / "config.json", {"steps": 600})
    fence.publish(attempt)
    return Code.DONE


def save(step: int, code: int) -> Work:
    """A worker that gets as far as a checkpoint."""

    def work(folder: Path) -> int:
        attempt = fence.claim(folder, lambda _: False)
        assert attempt is not None
        (attempt / "checkpoints" / f"step_{step:09d}").mkdir(parents=True, exist_ok=True)
        return code

    return work


class Pretended:
    """An executor whose workers do what they are told, one after the other, and then publish."""

    def __init__(self, room: int = 1, **works: Sequence[Work | int]):
        self._room, self._works, self._running = room, {name: list(work) for name, work in works.items()}, []
        self.started: list[tuple[str, Needs]] = []
        self.most = 0
        self.is_closed = False

    def has_room(self) -> bool:
        return len(self._running) < self._room

    def start(self, folder: Path, needs: Needs) -> None:
        self.started.append((folder.name, needs))
        self._running.append(folder)
        self.most = max(self.most, len(self._running))

    def ended(self, timeout: float) -> list[Ended]:
        folders, self._running = self._running, []
        return [Ended(folder, self._work(folder), "did what it was told") for folder in folders]

    def _work(self, folder: Path) -> int:
        works = self._works.get(folder.name, [])
        work = works.pop(0) if works else publish
        return work(folder) if callable(work) else work

    def shrink(self, folder: Path) -> bool:
        self._room //= 2
        return self._room > 0

    def close(self) -> None:
        self.is_closed = True


def names(executor: Pretended) -> list[str]:
    return [name for name, _ in executor.started]


def test_all_are_done_in_their_order_and_what_is_done_is_skipped(store: Store):
    tasks = [task("a"), task("b", seeds=3), task("c")]
    store.prepare(tasks[0])
    publish(store.folder(tasks[0]))
    executor = Pretended()
    summary = drive(store, tasks, executor)
    assert (summary.done, summary.failed, summary.left, summary.is_stopped) == (["a", "b", "c"], {}, [], False)
    assert executor.started == [("b", Needs(3, 2)), ("c", Needs(5, 1))]
    assert executor.is_closed


def test_five_tries_without_progress_and_it_has_failed_with_its_log(store: Store):
    executor = Pretended(a=[-9] * 5)
    store.prepare(task("a"))
    (store.root / "a" / "log-0005.txt").write_text("what it said\n")
    summary = drive(store, [task("a"), task("b")], executor)
    assert names(executor) == ["a"] * 5 + ["b"]
    assert summary.done == ["b"]
    assert "5 attempts brought it no further; the last did what it was told" in summary.failed["a"]
    assert summary.failed["a"].endswith("\nwhat it said")
    assert store.progress(task("a")).state == "failed"
    assert drive(store, [task("a")], Pretended()).done == ["a"]  # the next invocation tries again


def test_attempts_that_got_further_do_not_count(store: Store):
    further = [save(step, Code.INTERRUPTED) for step in range(100, 800, 100)]
    executor = Pretended(a=[*further, 1, 1, 1, 1])
    assert drive(store, [task("a")], executor).done == ["a"]
    assert len(executor.started) == len(further) + 5


def test_out_of_memory_halves_and_goes_on_until_one_alone_has_too_little(store: Store):
    tasks = [task(name) for name in "abcd"]
    executor = Pretended(room=4, a=[Code.OUT_OF_MEMORY])
    assert drive(store, tasks, executor, tries=1).done == ["a", "b", "c", "d"]  # this is no failed try
    executor = Pretended(room=4, e=[Code.OUT_OF_MEMORY] * 3)
    summary = drive(store, [task("e")], executor)
    assert len(executor.started) == 3
    assert "out of memory, with no other run beside it" in summary.failed["e"]


def test_what_another_program_works_on_is_left_alone_and_taken_when_its_worker_is_dead(store: Store):
    store.prepare(task("a"))
    attempt = fence.claim(store.root / "a", lambda _: False)  # our process stands for the other's worker
    assert attempt is not None
    seen: list[Sequence[tuple[Task, Progress]]] = []

    def show(rows: Sequence[tuple[Task, Progress]]) -> None:
        seen.append(rows)
        if len(seen) == 5:
            write_json(attempt / "worker.json", {"number": 1, "code": 75})

    executor = Pretended()
    assert drive(store, [task("a")], executor, show=show).done == ["a"]
    assert names(executor) == ["a"]
    assert [rows[0][1].state for rows in seen[:5]] == ["running"] * 5


def test_who_was_taken_over_does_not_take_it_back(store: Store):
    """Another program's worker has it: that one is waited for."""

    def lose(folder: Path) -> int:
        assert fence.claim(folder, lambda _: False) is not None
        return Code.TAKEN_OVER

    executor, seen = Pretended(a=[lose]), []

    def show(rows: object) -> None:
        seen.append(rows)
        if len(seen) == 5:
            publish(store.root / "a")

    assert drive(store, [task("a")], executor, show=show).done == ["a"]
    assert names(executor) == ["a"]


def test_ctrl_c_closes_the_executor_and_says_what_is_left(store: Store):
    def interrupt(folder: Path) -> int:
        raise KeyboardInterrupt

    executor, said = Pretended(b=[interrupt]), []
    summary = drive(store, [task("a"), task("b"), task("c")], executor, say=said.append)
    assert said == ["stopping: workers save what they have; press again to end them at once"]
    assert (summary.done, summary.left, summary.is_stopped) == (["a"], ["b", "c"], True)
    assert executor.is_closed


def test_nothing_is_started_where_one_task_cannot_run(store: Store):
    store.prepare(task("b"))
    executor = Pretended()
    with pytest.raises(ValueError, match="seeds was 5, is 3"):
        drive(store, [task("a"), task("b", seeds=3)], executor)
    assert executor.started == []


class TestLocal:
    def script(self, text: str) -> tuple[str, ...]:
        return ("sh", "-c", text, "sh")

    def until_ended(self, executor: Local) -> list[Ended]:
        return executor.ended(timeout=20.0)

    def test_says_how_a_worker_died_and_what_it_said(self, tmp_path: Path):
        executor = Local(cores=1, gpus=[], program=self.script("echo 'no such module' >&2; kill -9 $$"))
        executor.start(tmp_path, Needs(1, 1))
        assert not executor.has_room()
        assert self.until_ended(executor) == [Ended(tmp_path, -9, "killed by SIGKILL: no such module")]
        assert executor.has_room()
        executor.close()

    def test_ends_its_workers_by_the_end_of_their_input(self, tmp_path: Path):
        executor = Local(cores=1, gpus=[], program=self.script('cat >/dev/null; touch "$1/saved"'))
        executor.start(tmp_path, Needs(1, 1))
        executor.close()
        assert (tmp_path / "saved").exists()

    def test_a_worker_that_does_not_end_is_killed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("qpensieve.experiments.executors.local.END_SECONDS", 0.2)
        executor = Local(cores=1, gpus=[], program=self.script("exec sleep 100"))
        executor.start(tmp_path, Needs(1, 1))
        executor.close()

    @pytest.mark.parametrize(
        ("cores", "waiting", "seeds", "given"),
        [
            (8, 20, 5, [1] * 8),  # more tasks than cores: one each
            (8, 2, 5, [4, 4]),
            (8, 1, 5, [5]),  # more than one per seed is no use
            (8, 3, 5, [2, 3, 3]),
            (2, 1, 5, [2]),
        ],
    )
    def test_cores_are_divided_among_those_that_can_run(
        self, tmp_path: Path, cores: int, waiting: int, seeds: int, given: list[int]
    ):
        assert started_with(Local(cores=cores, gpus=[], program=SHOW), waiting, seeds, tmp_path, "QPENSIEVE_CORES") == [
            str(num) for num in given
        ]

    def test_cards_are_shared_and_their_memory_with_them(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        executor = Local(cores=16, gpus=["3", "5"], program=SHOW)
        assert executor.at_once == 8
        found = started_with(
            executor, 8, 5, tmp_path, "CUDA_VISIBLE_DEVICES", "XLA_PYTHON_CLIENT_MEM_FRACTION", "NPROC"
        )
        assert sorted(found) == ["3 0.225 2"] * 4 + ["5 0.225 2"] * 4
        assert Local(cores=4, gpus=["0"]).at_once == 2  # a run needs two cores
        assert Local(cores=1, gpus=["0"]).at_once == 1

    def test_without_cards_jax_is_told_so(self, tmp_path: Path):
        assert started_with(Local(cores=1, gpus=[], program=SHOW), 1, 1, tmp_path, "JAX_PLATFORMS") == ["cpu"]

    def test_too_little_memory_halves_the_runs_per_card_once_for_all_that_failed_together(self, tmp_path: Path):
        executor = Local(cores=16, gpus=["0"], program=self.script("exit 76"))
        folders = [tmp_path / str(i) for i in range(4)]

        def fail_together(num: int) -> list[bool]:
            for folder in folders[:num]:
                executor.start(folder, Needs(1, num))
            ended: list[Ended] = []
            while len(ended) < num:
                ended += executor.ended(5.0)
            return [executor.shrink(one.folder) for one in ended]

        assert fail_together(4) == [True] * 4
        assert executor.at_once == 2
        assert fail_together(2) == [True] * 2
        assert executor.at_once == 1
        assert fail_together(1) == [False]
        executor.close()


SHOW = ("sh", "-c", 'env >"$1/environment"', "sh")


def started_with(executor: Local, waiting: int, seeds: int, path: Path, *variables: str) -> list[str]:
    """The variables of all workers that an executor starts before it is full."""
    folders: list[Path] = []
    while executor.has_room() and waiting:
        folders.append(path / str(len(folders)))
        folders[-1].mkdir()
        executor.start(folders[-1], Needs(seeds, waiting))
        waiting -= 1
    ended: list[Ended] = []
    while len(ended) < len(folders):
        ended += executor.ended(5.0)
    executor.close()
    read = lambda folder: dict(
        line.split("=", 1) for line in (folder / "environment").read_text().splitlines() if "=" in line
    )
    return [" ".join(read(folder)[name] for name in variables) for folder in folders]


def test_default_settings_are_accepted_as_they_are(store: Store):
    store.prepare(Task("paper", default_config("DST2d")))
