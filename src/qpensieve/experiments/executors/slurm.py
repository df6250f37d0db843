"""Workers as jobs of Slurm: written as job arrays, submitted by `sbatch`, watched by `squeue` and in the folders.

Jobs do not end with this program, and need not be watched: it may be stopped, and called again later, also while they
wait in the queue or run. It finds them by the files that it keeps beside the tasks, in `slurm/`.
"""

import getpass
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from qpensieve.errors import MissingFileError, UserFileError, make_folder
from qpensieve.experiments import fence, pulse
from qpensieve.experiments.codes import Code
from qpensieve.experiments.executors.local import PROGRAM, environment
from qpensieve.experiments.executors.protocol import Ended, Needs
from qpensieve.records.atomic import write_json, write_text
from qpensieve.records.reading import FileError, read_object

JOBS, LIST, SCRIPT, SUBMITTED = "slurm", "tasks.txt", "job.sh", "job.json"
"""Folder of all submissions; in each: its tasks, its script, its number at Slurm."""
POLL_SECONDS = 20.0
LOST = -1


@dataclass(frozen=True)
class Job:
    """What each job asks for.

    Attributes:
        cores: Cores.
        gpus: Cards: 1 or 0.
        runs_per_gpu: Runs that share a job, its card and its cores.
        time: Time limit, as Slurm writes it. Two minutes before it ends runs are saved, and gone on with in a new job.
        at_once: At most so many jobs of an array run at the same time; None: as many as there is room for.
        options: Further options of `sbatch`, such as `--partition=gpu`.
    """

    cores: int = 8
    gpus: int = 1
    runs_per_gpu: int = 1
    time: str = "24:00:00"
    at_once: int | None = None
    options: tuple[str, ...] = ()


class Slurm:
    """Workers as jobs of Slurm.

    Args:
        root: The folder of the store; all machines must see it under this path.
        job: What each job asks for.
        poll_seconds: Time between two looks at the queue.
        program: What a job starts; the folder of the task is added.
    """

    def __init__(self, root: Path, job: Job, poll_seconds: float = POLL_SECONDS, program: tuple[str, ...] = PROGRAM):
        self._root, self._job, self._poll, self._program = root.resolve(), job, poll_seconds, program
        self._pending: list[tuple[Path, bool]] = []
        self._running: dict[Path, str] = {}
        """Folder -> element of a job array."""
        self._gone: set[Path] = set()
        self._shares: dict[Path, int] = {}
        self._looked = 0.0
        self._adoptable = self._find_jobs()

    def has_room(self) -> bool:
        return True  # Slurm has the queue

    def start(self, folder: Path, needs: Needs) -> None:
        folder = folder.resolve()
        self._shares[folder] = self._job.runs_per_gpu
        element = self._adoptable.pop(folder, None)
        if element is not None:  # of an earlier call: it waits, or runs
            self._running[folder] = element
        else:
            self._pending.append((folder, needs.is_trusted))

    def ended(self, timeout: float) -> list[Ended]:
        if self._pending:
            self._submit()
        if not self._running:  # what there is runs in jobs of an earlier call
            time.sleep(timeout)
            return []
        time.sleep(min(timeout, max(0.0, self._looked + self._poll - time.monotonic())))
        if time.monotonic() < self._looked + self._poll or not self._running:
            return []
        self._looked = time.monotonic()
        queue = _queue()
        if queue is None:  # Slurm does not answer now
            return []
        missing = {folder for folder, element in self._running.items() if element not in queue}
        # Only at the second look: a shared file system may show the end of a job a little later.
        found, self._gone = missing & self._gone, missing
        for folder in found:
            del self._running[folder]
        return [_describe(folder) for folder in sorted(found)]

    def shrink(self, folder: Path) -> bool:
        had = self._shares.get(folder.resolve(), self._job.runs_per_gpu)
        if had == 1:
            return False
        if had <= self._job.runs_per_gpu:  # else it was submitted before the last halving
            self._job = replace(self._job, runs_per_gpu=self._job.runs_per_gpu // 2)
        return True

    def close(self) -> None:
        jobs = sorted({element.split("_")[0] for element in self._running.values()})
        if jobs:
            words = " ".join(jobs)
            print(f"jobs of Slurm go on: {words} (to end them, saving: scancel {words})", file=sys.stderr)

    def _submit(self) -> None:
        """Make one job array of all that waits."""
        pending, self._pending = self._pending, []
        folder = self._new_folder()
        lines = [shlex.join([*(["--trust"] if trusted else []), str(path)]) for path, trusted in pending]
        write_text(folder / LIST, "\n".join(lines) + "\n")
        write_text(folder / SCRIPT, script(self._job, self._program, folder, len(pending)))
        number = _sbatch(folder / SCRIPT)
        elements = {str(path): f"{number}_{i // self._job.runs_per_gpu}" for i, (path, _) in enumerate(pending)}
        write_json(folder / SUBMITTED, {"job": number, "elements": elements})
        self._running |= {Path(path): element for path, element in elements.items()}

    def _new_folder(self) -> Path:
        make_folder(self._root / JOBS)
        number = 1 + max((int(path.name) for path in (self._root / JOBS).glob("[0-9]*")), default=0)
        while True:
            folder = self._root / JOBS / f"{number:04d}"
            try:
                folder.mkdir()
            except FileExistsError:
                number += 1
                continue
            return folder

    def _find_jobs(self) -> dict[Path, str]:
        """Jobs of earlier calls that are still in the queue."""
        known: dict[Path, str] = {}
        for path in sorted((self._root / JOBS).glob(f"[0-9]*/{SUBMITTED}")):
            try:
                known |= {Path(folder): str(element) for folder, element in read_object(path)["elements"].items()}
            except (FileError, OSError, KeyError, AttributeError):
                continue
        queue = _queue() if known else set()
        return {folder: element for folder, element in known.items() if queue is not None and element in queue}


def script(job: Job, program: tuple[str, ...], folder: Path, num_tasks: int) -> str:
    """The script of a job array over the lines of a list of tasks, so many of them in each job."""
    share = max(1, job.runs_per_gpu)
    last = (num_tasks - 1) // share
    array = f"0-{last}" + (f"%{job.at_once}" if job.at_once else "")
    options = ["--job-name=qpensieve", f"--array={array}", "--ntasks=1", f"--cpus-per-task={job.cores}"]
    options += [f"--gres=gpu:{job.gpus}"] if job.gpus else []
    # A part of a job's runs may end sooner; at SIGTERM all of them save.
    options += [f"--time={job.time}", "--signal=B:TERM@120", f"--output={folder}/job-%a.txt", *job.options]
    gpu = "given by Slurm" if job.gpus else None
    variables = environment(max(1, job.cores // share), gpu, 1 / share)
    variables.pop("CUDA_VISIBLE_DEVICES", None)
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH {option}" for option in options),
            *(f"export {name}={shlex.quote(value)}" for name, value in variables.items()),
            f"cd {shlex.quote(os.getcwd())}",
            f"first=$((SLURM_ARRAY_TASK_ID * {share} + 1))",
            "workers=()",
            "trap 'kill -TERM \"${workers[@]}\" 2>/dev/null' TERM INT",
            "while read -r words; do",
            f'  eval "exec {_escape(shlex.join([*program, "--alone"]))} $words" </dev/null &',
            "  workers+=($!)",  # of the worker itself, thanks to exec: signals go to it
            f'done < <(tail -n "+$first" {shlex.quote(str(folder / LIST))} | head -n {share})',
            'for worker in "${workers[@]}"; do',
            '  while kill -0 "$worker" 2>/dev/null; do wait "$worker"; done  # a signal interrupts it',
            "done",
            "",
        ]
    )


def _escape(words: str) -> str:
    """The words as part of a text in double quotes."""
    return re.sub(r'(["$`\\])', r"\\\1", words)


def _sbatch(path: Path) -> str:
    """Submit a script; returns the number of the job."""
    try:
        done = subprocess.run(["sbatch", "--parsable", str(path)], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise MissingFileError("sbatch is not here: run this on a machine of the cluster that has Slurm") from error
    if done.returncode != 0:
        raise UserFileError(f"sbatch refused {path}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip().split(";")[0]  # the name of the cluster may follow


def _queue() -> set[str] | None:
    """All elements of job arrays of this user that wait or run; None where Slurm does not answer."""
    words = ["squeue", "--noheader", "--array", f"--user={getpass.getuser()}", "--format=%i"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return set(done.stdout.split()) if done.returncode == 0 else None


def _describe(folder: Path) -> Ended:
    """How a worker ended whose job is no longer there, as its folder tells."""
    newest = fence.newest(folder)
    if newest is not None and newest.name == fence.RUN:
        return Ended(folder, Code.DONE, "ended")
    code = None if newest is None else pulse.read(newest).code
    if code is None:
        return Ended(folder, LOST, "was lost: its job is no longer in the queue")
    return Ended(folder, code, f"ended with code {code}")
