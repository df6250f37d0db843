"""Jobs of Slurm: real ones of submitit on this machine, and programs that stand for Slurm's to see what is asked."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import submitit
from submitit.slurm.slurm import SlurmInfoWatcher

from qpensieve.config import RunConfig
from qpensieve.experiments import schedule, tasks
from qpensieve.experiments.local import END_SECONDS
from qpensieve.experiments.schedule import train_all
from qpensieve.experiments.slurm import Request, Slurm, SlurmJob, minutes
from qpensieve.experiments.tasks import Task

SBATCH = """#!/bin/bash
# Starts every element of a job array; each notes its process, and that it has ended.
script="${@: -1}"
number=$((100 + $(ls "$STANDIN" | grep -c script)))
cp "$script" "$STANDIN/script-$number"
last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$script")
for i in $(seq 0 "${last:-0}"); do
  element=$number${last:+_$i}
  touch "$STANDIN/running-$element"
  export SLURM_JOB_ID=$number SLURM_PROCID=0
  if [ -n "$last" ]; then export SLURM_ARRAY_JOB_ID=$number SLURM_ARRAY_TASK_ID=$i; fi
  ( setsid bash "$script" >/dev/null 2>&1 &
    echo $! >"$STANDIN/pid-$element"; wait; rm "$STANDIN/running-$element" ) >/dev/null 2>&1 &
done
echo "Submitted batch job $number"
"""
SBATCH_IDLE = """#!/bin/bash
# Notes a job that never starts.
number=$((100 + $(ls "$STANDIN" | grep -c script)))
cp "${@: -1}" "$STANDIN/script-$number"
echo "Submitted batch job $number"
"""
SRUN = """#!/bin/bash
# Runs the command behind the options of submitit.
while [ "${1:0:2}" = "--" ]; do case "$1" in --output|--error) shift 2;; *) shift;; esac; done
exec "$@"
"""
SACCT = """#!/bin/bash
echo "JobID|State|NodeList"
for path in "$STANDIN"/pid-*; do
  element=${path##*pid-}
  if [ -e "$STANDIN/running-$element" ]; then echo "$element|RUNNING|here"; else echo "$element|FAILED|here"; fi
done
"""
FINISH = 'echo \'{"step": 600}\' >"$folder/summary.json"'
"""A worker that finishes its run at once."""


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(Slurm, "pause", 0.1)
    monkeypatch.setattr(submitit.SlurmJob, "watcher", SlurmInfoWatcher(delay_s=0))


def sh(script: str) -> tuple[str, ...]:
    """A worker that runs a script; `$folder` is its run folder."""
    return ("sh", "-c", f"for folder; do :; done; {script}", "sh")


def make(root: Path, names: str) -> list[Task]:
    return [Task(root / name, RunConfig("DST2d", steps=600, random_steps=100)) for name in names]


def wait_until(is_so: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)


class TestOnThisMachine:
    """Jobs as submitit runs them without Slurm."""

    def test_jobs_train_their_share_and_note_what_has_failed(self, tmp_path: Path):
        root = tmp_path / "my runs"
        program = sh(f'case "$folder" in *c) echo why >&2; exit 1;; esac; {FINISH}')
        engine = Slurm(root, Request(2, 0), runs_per_job=2, tries=2, program=program, cluster="local")
        summary = train_all(make(root, "abc"), engine, tries=2)
        assert summary.done == ["a", "b"]
        assert summary.failed["c"].startswith("2 tries brought it no further; the last ended with exit code 1: why")
        numbers = json.loads((root / "slurm" / "jobs.json").read_text())
        assert numbers["a"] == numbers["b"] != numbers["c"]

    def test_a_job_saves_before_its_time_limit_and_queues_itself_again(self, tmp_path: Path):
        save = 'touch "$folder/ready"; cat; touch "$folder/saved"; exit 75'
        program = sh(f'if [ -e "$folder/saved" ]; then {FINISH}; else {save}; fi')
        (task,) = make(tmp_path, "a")
        tasks.prepare(task)
        engine = Slurm(tmp_path, Request(1, 0), program=program, cluster="local")
        (job,) = engine.start([task])
        wait_until((task.folder / "ready").exists)
        _signal_task(job, signal.SIGUSR2)  # as Slurm does
        wait_until(lambda: tasks.is_done(task))
        wait_until(lambda: job.poll() is not None)
        assert (task.folder / "saved").exists()


def _signal_task(job: SlurmJob, number: signal.Signals) -> None:
    """Send a signal to the process in which submitit has called the pool: a child of the process of the job."""
    children = Path(f"/proc/{job.job.job_id}/task/{job.job.job_id}/children").read_text().split()
    os.kill(int(children[0]), number)


@dataclass
class StandIn:
    """The programs that stand for Slurm, and what they note."""

    programs: Path
    notes: Path

    def idle(self) -> None:
        """Start no job from now on."""
        (self.programs / "sbatch").write_text(SBATCH_IDLE)

    @property
    def scripts(self) -> list[str]:
        return [path.read_text() for path in sorted(self.notes.glob("script-*"))]

    def pids(self) -> list[int]:
        """Leaders of the jobs' process groups: a process that has just started is none yet."""
        noted = [int(path.read_text()) for path in self.notes.glob("pid-*") if path.read_text().strip()]
        return [pid for pid in noted if Path(f"/proc/{pid}").exists() and os.getpgid(pid) == pid]


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    programs, notes = tmp_path / "programs", tmp_path / "notes"
    for folder in (programs, notes):
        folder.mkdir()
    for name, text in (("sbatch", SBATCH), ("srun", SRUN), ("sacct", SACCT)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setenv("STANDIN", str(notes))
    here = StandIn(programs, notes)
    yield here
    for pid in here.pids():
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


class TestParameters:
    def test_a_job_array_asks_for_what_its_jobs_need(self, tmp_path: Path, stand_in: StandIn):
        stand_in.idle()
        options = ("partition=gpu", "--mem=32G", "exclusive")
        request = Request(job_cores=8, job_gpus=1, job_time="2:00:00", job_options=options)
        engine = Slurm(tmp_path / "runs", request, at_once=10, runs_per_job=4)
        assert len(engine.start(make(tmp_path / "runs", "abcdefghi"))) == 9
        (script,) = stand_in.scripts
        for option in ("array=0-2%3", "cpus-per-task=8", "gres=gpu:1", "time=120", "partition=gpu", "mem=32G"):
            assert f"#SBATCH --{option}\n" in script
        assert "#SBATCH --exclusive\n" in script
        assert "#SBATCH --signal=USR2@120\n" in script
        assert END_SECONDS < 120

    @pytest.mark.parametrize(
        ("text", "number"),
        [("90", 90), ("90:30", 91), ("2:00:00", 120), ("1-12", 2160), ("1-12:30", 2190), ("1-0:0:1", 1441)],
    )
    def test_time_limits_are_those_of_slurm(self, text: str, number: int):
        assert minutes(text) == number


class TestQueue:
    def test_jobs_of_an_earlier_call_are_found_again(
        self, tmp_path: Path, stand_in: StandIn, capsys: pytest.CaptureFixture[str]
    ):
        root = tmp_path / "runs"
        program = sh(f'while [ ! -e "$folder/go" ]; do sleep 0.05; done; {FINISH}')
        every, first = make(root, "ab"), Slurm(root, Request(job_gpus=0), runs_per_job=2, program=program)
        for task in every:
            tasks.prepare(task)
        assert [job.poll() for job in first.start(every)] == [None, None]
        first.close()  # they continue
        assert "jobs of Slurm continue: 100 (to end them, saving: scancel 100)" in capsys.readouterr().err
        for task in every:
            (task.folder / "go").touch()
        assert train_all(every, Slurm(root, Request(job_gpus=0))).done == ["a", "b"]
        assert len(stand_in.scripts) == 1

    def test_a_run_whose_job_was_lost_is_submitted_again(self, tmp_path: Path, stand_in: StandIn):
        (task,) = make(tmp_path / "runs", "a")
        tasks.prepare(task)
        (job,) = Slurm(tmp_path / "runs", Request(job_gpus=0), program=sh("exec sleep 100")).start([task])
        wait_until(lambda: bool(stand_in.pids()))
        os.killpg(stand_in.pids()[0], signal.SIGKILL)
        wait_until(lambda: (ended := job.poll()) is not None and ended.code is None)
        stand_in.idle()
        Slurm(tmp_path / "runs", Request(job_gpus=0)).start([task])
        assert len(stand_in.scripts) == 2

    def test_at_sigterm_a_job_saves_and_ends(self, tmp_path: Path, stand_in: StandIn):
        program = sh('touch "$folder/ready"; cat; touch "$folder/saved"; exit 75')
        (task,) = make(tmp_path / "runs", "a")
        tasks.prepare(task)
        (job,) = Slurm(tmp_path / "runs", Request(job_gpus=0), program=program).start([task])
        wait_until((task.folder / "ready").exists)
        os.killpg(stand_in.pids()[0], signal.SIGTERM)  # as scancel does
        wait_until(lambda: job.poll() is not None)
        wait_until((task.folder / "saved").exists)  # the stand-in's job may end before its worker

    def test_what_sbatch_refuses_is_said(self, tmp_path: Path, stand_in: StandIn):
        (tmp_path / "programs" / "sbatch").write_text("#!/bin/sh\necho 'invalid partition specified' >&2\nexit 1\n")
        with pytest.raises(OSError, match=r"sbatch has refused .*invalid partition specified"):
            Slurm(tmp_path, Request()).start(make(tmp_path, "a"))
