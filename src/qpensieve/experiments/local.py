"""The engine of this machine, a pool of processes that keeps its cards and cores full, and the start of one worker.

This module does not import JAX: Ray starts workers by it on its nodes.
"""

import enum
import os
import platform
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from qpensieve import machine
from qpensieve.records.folder import WORKER_LOG, open_to_append
from qpensieve.remote import how_it_ended

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qpensieve.experiments.tasks import Task

RUNS_PER_GPU = 4
"""Runs that share a card if there are cores for them: a single run does not fill a card (docs/scale.md)."""
CORES_PER_GPU_RUN = 2
"""Cores that a run on a card needs: one to learn, one to collect."""
GPU_SHARE = 0.9
"""Share of a card's memory that runs may use; the rest is for memory that XLA does not count."""
END_SECONDS = 100.0
"""Seconds after which a worker that saves and ends is killed. Files on disk are whole at any time."""
PROGRAM = (sys.executable, "-m", "qpensieve.experiments.worker")


class Code(enum.IntEnum):
    """Exit codes of a worker. Any other number means that the worker died."""

    DONE = 0
    FAILED = 1
    INTERRUPTED = 75
    """The worker was stopped and has saved the run."""
    OUT_OF_MEMORY = 76
    IN_USE = 77
    """Another process holds the run folder, or has taken it over."""


class Ended(NamedTuple):
    """The end of a worker."""

    code: int | None
    """Exit code. None: the worker was lost."""
    how: str
    """How it ended, in words that follow the name of the run."""


def environment(cores: int, gpu: str | None, share: float) -> dict[str, str]:
    """Return environment variables that limit a worker to cores, a card (None: no card) and a share of its memory.

    Several workers share a card, so none takes memory before it needs it.
    """
    sized = {machine.CORES_VARIABLE: str(cores), "NPROC": str(cores), "OPENBLAS_NUM_THREADS": "1"}
    if gpu is None:
        return sized | {"JAX_PLATFORMS": "cpu"}
    memory = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{GPU_SHARE * share:.3f}"}
    return sized | memory | {"CUDA_VISIBLE_DEVICES": gpu}


def start_worker(
    folder: Path, options: "Sequence[str]", variables: dict[str, str], program: "Sequence[str]" = PROGRAM
) -> "subprocess.Popen[bytes]":
    """Start the worker of a run folder. It saves and ends when its input ends, so also when this process dies."""
    with open_to_append(folder / WORKER_LOG) as log:
        log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} on {platform.node()}\n")
        log.flush()
        return subprocess.Popen(
            [*program, *options, str(folder)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=os.environ | variables,
            start_new_session=True,  # a terminal's Ctrl-C reaches this process alone, which ends the workers
        )


def end_workers(processes: "Sequence[subprocess.Popen[bytes]]") -> None:
    """Let workers save and end; kill those that take longer than `END_SECONDS`, and all of them at Ctrl-C."""
    until = time.monotonic() + END_SECONDS
    try:
        for process in processes:
            _close_input(process)
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
    finally:
        for process in processes:
            process.kill()  # does nothing if the process has ended
            process.wait()


def _close_input(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()


@dataclass
class Device:
    """A card, or this machine if it has no card.

    Attributes:
        gpu: The card as CUDA_VISIBLE_DEVICES names it; None: this machine.
        slots: Runs that may share its memory.
    """

    gpu: str | None
    slots: int


@dataclass
class JobOnDevice:
    """A run with its share of memory and cores.

    Attributes:
        device: The card or machine of the run.
        slots: Runs that could share the device when this run was started.
        cores: Number of cores of the run.
    """

    device: Device
    slots: int
    cores: int

    def shrink(self) -> bool:
        """Halve the slots of the device, because this run had too little memory; return False if it had one slot.

        Runs that fail together were started with the same number of slots, so they halve it only once.
        """
        if self.slots == 1:
            return False
        self.device.slots = min(self.device.slots, self.slots // 2)
        return True


@dataclass
class LocalJob(JobOnDevice):
    """A worker of this machine."""

    process: "subprocess.Popen[bytes]"

    def poll(self) -> Ended | None:
        code = self.process.poll()
        if code is None:
            return None
        _close_input(self.process)
        return Ended(code, how_it_ended(code))


class Local:
    """A pool of worker processes.

    With cards, runs share each of them and the cores are divided among all runs. Without cards, a run gets one core
    while there are more runs than cores, and up to one core per seed when there are fewer.

    Args:
        at_once: Number of runs side by side. None: as many as fill the machine.
        cores: Number of cores to use. None: all that this process may use.
        gpus: Cards to use, as CUDA_VISIBLE_DEVICES names them. None: all that this process may use.
        program: Command of a worker, before its options and folder.
    """

    pause = 0.1

    def __init__(
        self,
        at_once: int | None = None,
        cores: int | None = None,
        gpus: list[str] | None = None,
        program: "Sequence[str]" = PROGRAM,
    ):
        self._cores = cores or machine.available_cores()
        gpus = machine.gpus() if gpus is None else gpus
        per_gpu = min(RUNS_PER_GPU, self._cores // (CORES_PER_GPU_RUN * len(gpus))) if gpus else 0
        total = at_once or (len(gpus) * max(1, per_gpu) if gpus else self._cores)
        names = gpus or [None]
        self._devices = [Device(name, total // len(names) + (i < total % len(names))) for i, name in enumerate(names)]
        self._program, self._jobs = program, list[LocalJob]()

    def start(self, waiting: "Sequence[Task]") -> list[LocalJob]:
        self._jobs = [job for job in self._jobs if job.process.returncode is None]
        started: list[LocalJob] = []
        for i, task in enumerate(waiting):
            device = max(self._devices, key=self._room)
            if self._room(device) <= 0:
                break
            cores = self._cores_for(task.config.seeds, len(waiting) - i)
            variables = environment(cores, device.gpu, 1 / device.slots)
            process = start_worker(task.folder, task.worker_options, variables, self._program)
            started.append(LocalJob(device, device.slots, cores, process))
            self._jobs.append(started[-1])
        return started

    def _room(self, device: Device) -> int:
        return device.slots - sum(job.device is device for job in self._jobs)

    def _cores_for(self, seeds: int, num_waiting: int) -> int:
        free = self._cores - sum(job.cores for job in self._jobs)
        to_start = min(sum(map(self._room, self._devices)), num_waiting)
        most = seeds + any(device.gpu for device in self._devices)  # one core for the card, the others collect
        return max(1, min(free // to_start, most))

    def close(self) -> None:
        jobs, self._jobs = self._jobs, []
        end_workers([job.process for job in jobs])
