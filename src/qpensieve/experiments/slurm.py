"""The engine of Slurm: job arrays by submitit. A job trains its share of run folders as a pool on its machine.

Shortly before its time limit a job saves its runs and puts itself back into the queue. So this program may be stopped,
and called again while jobs wait or run. `slurm/jobs.json` in the folder of the runs maps each run to its job.
"""

import importlib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from qpensieve.errors import MissingFileError, MissingPackageError, UserError, UserFileError, make_folder
from qpensieve.experiments.local import PROGRAM, Ended, Local
from qpensieve.experiments.schedule import TRIES, train_all
from qpensieve.experiments.tasks import Task
from qpensieve.records.files import FileError, read_object, write_json
from qpensieve.settings import at_least, from_to
from qpensieve.train.interrupts import termination

FOLDER, JOBS = "slurm", "jobs.json"
"""Folder of submitit's files in the folder of the runs, and its file with name of a run -> number of its job."""
SAVE_SECONDS = 120
"""Seconds before its time limit at which a job saves."""
REQUEUES = 1000
"""Number of times that a job may reach its time limit."""


@dataclass(frozen=True)
class Request:
    """The resources of each job of Slurm."""

    job_cores: Annotated[int, at_least(1)] = 8
    """slurm: cores of a job."""
    job_gpus: Annotated[int, from_to(0, 1)] = 1
    """slurm: cards of a job, 1 or 0."""
    job_time: str = "24:00:00"
    """slurm: time limit of a job; before it ends, the job saves and queues itself again."""
    job_options: tuple[str, ...] = ()
    """slurm: further options of sbatch, such as partition=gpu (without the dashes)."""

    def parameters(self, at_once: int | None = None) -> dict[str, object]:
        """Return these resources as submitit's parameters; `at_once`: most jobs at the same time. None: no limit."""
        pairs = [option.removeprefix("--").partition("=") for option in self.job_options]
        found = {
            "name": "qpensieve",
            "timeout_min": minutes(self.job_time),
            "cpus_per_task": self.job_cores,
            "slurm_gres": f"gpu:{self.job_gpus}" if self.job_gpus else None,
            "slurm_array_parallelism": at_once,
            "slurm_signal_delay_s": SAVE_SECONDS,
            "slurm_additional_parameters": {name: value if is_given else True for name, is_given, value in pairs},
        }
        return {name: value for name, value in found.items() if value is not None}


def minutes(text: str) -> int:
    """Return a time limit in minutes, from Slurm's notation: minutes, hours:minutes:seconds, days-hours and others.

    Raises:
        ValueError: The text is not a time limit.
    """
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if match is None:
        raise UserError(f"job-time must be as Slurm writes it, such as 2:00:00 or 1-12, got {text}")
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is None and len(numbers) < 3:  # minutes, or minutes:seconds
        numbers = [0, *numbers]
    hours, mins, secs = (*numbers, 0, 0)[:3]
    return max(1, (int(days or 0) * 24 + hours) * 60 + mins + -(-secs // 60))


@dataclass
class Pool:
    """The work of a job, called by submitit: train some run folders side by side.

    Attributes:
        cores: Cores of the job.
        has_gpu: Whether the job has a card.
        tries: Tries without progress after which a run has failed, as in `train_all`.
        program: Command of a worker.
        engine: The workers, while it runs.
    """

    cores: int
    has_gpu: bool
    tries: int
    program: Sequence[str]
    engine: Local | None = None

    def __call__(self, tasks: Sequence[Task]) -> None:
        self.engine = Local(len(tasks), self.cores, None if self.has_gpu else [], self.program)
        with termination():  # scancel sends SIGTERM
            train_all(tasks, self.engine, self.tries)

    def checkpoint(self, tasks: Sequence[Task]) -> Any:
        """Save the runs and return the job to put back into the queue; submitit calls this before the time limit."""
        if self.engine is not None:
            self.engine.close()
        return _submitit().helpers.DelayedSubmission(replace(self, engine=None), tasks)


@dataclass
class SlurmJob:
    """A run that a job of Slurm trains.

    Attributes:
        job: The job, which may have several runs.
    """

    job: Any

    def poll(self) -> Ended | None:
        return Ended(None, f"was left by its job {self.job.job_id}, which has ended") if self.job.done() else None

    def shrink(self) -> bool:
        return False  # the pool of the job does


class Slurm:
    """Workers in jobs of Slurm.

    Args:
        root: Folder of the runs; all machines must see it under this path.
        request: Resources of each job.
        at_once: Most jobs at the same time. None: as many as there is room for.
        runs_per_job: Runs that share a job, its card and its cores.
        tries: As in `train_all`.
        program: Command of a worker.
        cluster: `slurm`; `local`: jobs are processes of this machine, for tests.

    Raises:
        ImportError: submitit is not installed; says how to install it.
        ValueError: Slurm is not here, or an option is wrong.
    """

    pause = 5.0

    def __init__(  # noqa: PLR0913 (all but two have a default)
        self,
        root: Path,
        request: Request,
        at_once: int | None = None,
        runs_per_job: int = 1,
        tries: int = TRIES,
        program: Sequence[str] = PROGRAM,
        cluster: str = "slurm",
    ):
        self._folder, self._share = root.resolve() / FOLDER, runs_per_job
        self._pool = Pool(request.job_cores, bool(request.job_gpus), tries, program)
        self._submitit, self._running = _submitit(), dict[str, Any]()
        self._job_class = self._submitit.SlurmJob if cluster == "slurm" else self._submitit.LocalJob
        make_folder(self._folder)
        try:
            limit = {f"{cluster}_max_num_timeout": REQUEUES}
            self._executor = self._submitit.AutoExecutor(self._folder, cluster, **limit)
            self._executor.update_parameters(**request.parameters(at_once))
        except RuntimeError as error:
            raise MissingFileError("srun is not here: run this on a machine of the cluster that has Slurm") from error

    def start(self, waiting: Sequence[Task]) -> list[SlurmJob]:
        known = self._known()
        jobs = {task.name: job for task in waiting if (job := self._queued(known.get(task.name))) is not None}
        new = [task for task in waiting if task.name not in jobs]
        parts = [new[i : i + self._share] for i in range(0, len(new), self._share)]
        if parts:
            try:
                submitted = self._executor.map_array(self._pool, parts)
            except (self._submitit.core.utils.FailedJobError, OSError) as error:
                raise UserFileError(f"sbatch has refused the jobs: {error}") from error
            jobs |= {task.name: job for part, job in zip(parts, submitted, strict=True) for task in part}
            numbers = {name: job.job_id for name, job in jobs.items()}
            write_json(self._folder / JOBS, known | numbers)
        self._running |= jobs
        return [SlurmJob(jobs[task.name]) for task in waiting]

    def _known(self) -> dict[str, str]:
        """Return name of a run -> number of its newest job, also of earlier calls."""
        try:
            return {name: str(number) for name, number in read_object(self._folder / JOBS).items()}
        except (FileError, OSError):
            return {}

    def _queued(self, number: str | None) -> Any:
        """Return the Slurm job with this number while it waits or runs; else None."""
        if number is None:
            return None
        job = self._job_class(self._folder, number)
        return None if job.done() or job.state == "UNKNOWN" else job

    def close(self) -> None:
        left = sorted({job.job_id.partition("_")[0] for job in self._running.values() if not job.done()})
        if left:
            words = " ".join(left)
            print(f"jobs of Slurm continue: {words} (to end them, saving: scancel {words})", file=sys.stderr)


def _submitit() -> Any:
    try:
        return importlib.import_module("submitit")
    except ImportError as error:
        raise MissingPackageError("running on Slurm needs submitit: pip install 'qpensieve[slurm]'") from error
