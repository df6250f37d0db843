"""Jobs of Slurm, with programs that stand for it: they run the array on this machine, and list what runs."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from qpensieve.config import RunConfig
from qpensieve.experiments import drive as drives
from qpensieve.experiments.drive import drive
from qpensieve.experiments.executors.protocol import Ended, Needs
from qpensieve.experiments.executors.slurm import Job, Slurm, script
from qpensieve.experiments.tasks import Store, Task

SBATCH = """#!/bin/bash
# Starts every element of a job array; each notes that it runs, and that it has ended.
script="${@: -1}"
number=$((100 + $(ls "$STANDIN" | grep -c started)))
touch "$STANDIN/started-$number"
last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$script")
for i in $(seq 0 "$last"); do
  touch "$STANDIN/queued-${number}_$i"
  ( SLURM_ARRAY_TASK_ID=$i setsid bash "$script" >"$STANDIN/output-${number}_$i" 2>&1 &
    echo $! >"$STANDIN/pid-${number}_$i"; wait; rm "$STANDIN/queued-${number}_$i" ) >/dev/null 2>&1 &
done
echo "$number;cluster"
"""
SQUEUE = """#!/bin/bash
if [ -e "$STANDIN/down" ]; then echo "slurm_load_jobs error" >&2; exit 1; fi
ls "$STANDIN" | sed -n 's/^queued-//p'
"""
DONE = 'mkdir "$2/run" && echo "{\\"steps\\": 600}" >"$2/run/config.json"'
"""A worker that has done its task at once; $1 is --alone."""


@dataclass
class StandIn:
    """The programs that stand for Slurm, and what they note."""

    notes: Path

    def pids(self) -> list[int]:
        return [int(path.read_text()) for path in self.notes.glob("pid-*") if path.read_text().strip()]

    @property
    def submitted(self) -> int:
        return len(list(self.notes.glob("started-*")))


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    programs, notes = tmp_path / "programs", tmp_path / "notes"
    for folder in (programs, notes):
        folder.mkdir()
    for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setenv("STANDIN", str(notes))
    monkeypatch.setattr(drives, "WAIT_SECONDS", 0.05)
    here = StandIn(notes)
    yield here
    for pid in here.pids():
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "my store")  # a path that needs quotes


def tasks(names: str) -> list[Task]:
    return [Task(name, RunConfig("DST2d", steps=600, random_steps=100)) for name in names]


def slurm(store: Store, text: str = DONE, job: Job | None = None) -> Slurm:
    return Slurm(store.root, job or Job(gpus=0, cores=2), poll_seconds=0.05, program=("sh", "-c", text, "sh"))


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_all_tasks_are_one_job_array(store: Store, stand_in: StandIn):
    assert drive(store, tasks("abc"), slurm(store)).done == ["a", "b", "c"]
    assert stand_in.submitted == 1
    assert len((store.root / "slurm" / "0001" / "tasks.txt").read_text().splitlines()) == 3


def test_what_died_is_submitted_again(store: Store, stand_in: StandIn):
    once = f'[ -e "$2/tried" ] && {DONE} || {{ touch "$2/tried"; kill -9 $$; }}'
    assert drive(store, tasks("ab"), slurm(store, once)).done == ["a", "b"]
    assert stand_in.submitted >= 2
    summary = drive(store, tasks("c"), slurm(store, "exit 1"), tries=2)
    assert (
        "2 attempts brought it no further; the last was lost: its job is no longer in the queue" in summary.failed["c"]
    )


def test_jobs_of_an_earlier_call_are_found_again(store: Store, stand_in: StandIn, capsys: pytest.CaptureFixture[str]):
    wait = f'while [ ! -e "$2/go" ]; do sleep 0.05; done; {DONE}'
    first = slurm(store, wait)
    for task in tasks("ab"):
        store.prepare(task)
        first.start(store.folder(task), Needs(5, 2))
    assert first.ended(0.1) == []
    first.close()  # they go on
    assert "jobs of Slurm go on: 100 (to end them, saving: scancel 100)" in capsys.readouterr().err
    for name in "ab":
        (store.root / name / "go").touch()
    assert drive(store, tasks("ab"), slurm(store, "exit 1")).done == ["a", "b"]
    assert stand_in.submitted == 1


def test_while_slurm_does_not_answer_nothing_is_taken_for_dead(store: Store, stand_in: StandIn):
    executor = slurm(store, "sleep 100")
    store.prepare(tasks("a")[0])
    executor.start(store.root / "a", Needs(1, 1))
    (stand_in.notes / "down").touch()
    for _ in range(4):
        assert executor.ended(0.1) == []
    (stand_in.notes / "down").unlink()
    os.killpg(stand_in.pids()[0], signal.SIGKILL)
    found: list[Ended] = []
    wait_until(lambda: bool(found.extend(executor.ended(0.1)) or found))
    assert found == [Ended(store.root / "a", -1, "was lost: its job is no longer in the queue")]


def test_a_job_must_be_missing_at_two_looks(store: Store, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch):
    """A shared file system may show the end of a job a little later than the queue."""
    monkeypatch.setattr("qpensieve.experiments.executors.slurm._queue", lambda: set())
    executor = slurm(store)
    store.prepare(tasks("a")[0])
    executor.start(store.root / "a", Needs(1, 1))
    looks: list[list[Ended]] = []
    wait_until(lambda: bool(looks.append(executor.ended(0.1)) or looks[-1]))
    assert len(looks) >= 2


def test_runs_share_a_job_and_all_are_told_to_save(store: Store, stand_in: StandIn):
    """At the end of its time Slurm sends SIGTERM to the script alone."""
    wait = 'trap "touch \\"$2/saved\\"; exit 75" TERM; touch "$2/ready"; while true; do sleep 0.05; done'
    executor = slurm(store, wait, Job(gpus=0, runs_per_gpu=2))
    for task in tasks("abc"):
        store.prepare(task)
        executor.start(store.folder(task), Needs(1, 3))
    executor.ended(0.1)
    wait_until(lambda: all((store.root / name / "ready").exists() for name in "abc"))
    assert len(stand_in.pids()) == 2
    os.kill(int((stand_in.notes / "pid-100_0").read_text()), signal.SIGTERM)
    wait_until(lambda: not (stand_in.notes / "queued-100_0").exists())
    assert [name for name in "abc" if (store.root / name / "saved").exists()] == ["a", "b"]


def test_the_script_asks_for_what_a_job_needs(tmp_path: Path):
    job = Job(cores=8, gpus=1, runs_per_gpu=4, time="2:00:00", at_once=10, options=("--partition=gpu", "--mem=32G"))
    lines = script(job, (sys.executable, "-m", "x"), tmp_path, 9).splitlines()
    for option in (
        "--array=0-2%10",
        "--cpus-per-task=8",
        "--gres=gpu:1",
        "--time=2:00:00",
        "--partition=gpu",
        "--mem=32G",
    ):
        assert f"#SBATCH {option}" in lines
    assert "export QPENSIEVE_CORES=2" in lines
    assert "export XLA_PYTHON_CLIENT_MEM_FRACTION=0.225" in lines
    assert not [line for line in lines if "CUDA_VISIBLE_DEVICES" in line or "JAX_PLATFORMS" in line]
    without = script(Job(gpus=0), ("x",), tmp_path, 1)
    assert "export JAX_PLATFORMS=cpu" in without
    assert "gres" not in without


def test_memory_is_shared_by_fewer_after_a_lack_of_it(store: Store):
    executor = slurm(store, job=Job(runs_per_gpu=4))
    for name in "abc":
        executor.start(store.root / name, Needs(1, 1))
    assert [executor.shrink(store.root / name) for name in "ab"] == [True, True]
    executor.start(store.root / "c", Needs(1, 1))  # with two now
    assert executor.shrink(store.root / "c")
    executor.start(store.root / "c", Needs(1, 1))
    assert not executor.shrink(store.root / "c")


def test_without_slurm_one_is_told_so(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    executor = slurm(store)
    executor.start(store.root / "a", Needs(1, 1))
    with pytest.raises(FileNotFoundError, match="sbatch is not here"):
        executor.ended(0.0)


def test_a_refused_script_is_said(store: Store, stand_in: StandIn, tmp_path: Path):
    (tmp_path / "programs" / "sbatch").write_text("#!/bin/sh\necho 'invalid partition specified' >&2\nexit 1\n")
    executor = slurm(store)
    executor.start(store.root / "a", Needs(1, 1))
    with pytest.raises(OSError, match=r"sbatch refused .*invalid partition specified"):
        executor.ended(0.0)


def test_the_script_is_what_bash_understands(tmp_path: Path):
    path = tmp_path / "job.sh"
    path.write_text(script(Job(), ("a 'strange' $program",), tmp_path, 1))
    assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0
