"""Workers on this machine: a pool of processes that keeps its cards and cores full."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from qpensieve import machine
from qpensieve.experiments.attempt import END_SECONDS
from qpensieve.experiments.executors.protocol import Ended, Needs

RUNS_PER_GPU = 4
"""Runs that share a card, where there are cores for them: one alone does not fill it (docs/results.md)."""
CORES_PER_GPU_RUN = 2
"""Cores that a run on a card needs: one to learn, one to collect."""
GPU_SHARE = 0.9
"""The part of a card's memory that runs may use; the rest is for what XLA does not count."""
POLL_SECONDS = 0.1
PROGRAM = (sys.executable, "-m", "qpensieve.experiments.attempt")


def environment(cores: int, gpu: str | None, share: float) -> dict[str, str]:
    """Variables that size a worker: its cores, and its card and part of the card's memory, if it has one.

    Several workers share a card, so none takes memory before it needs it.
    """
    sized = {machine.CORES_VARIABLE: str(cores), "NPROC": str(cores), "OPENBLAS_NUM_THREADS": "1"}
    if gpu is None:
        return sized | {"JAX_PLATFORMS": "cpu"}
    memory = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{GPU_SHARE * share:.3f}"}
    return sized | memory | {"CUDA_VISIBLE_DEVICES": gpu}


def runs_per_gpu(cores: int, num_gpus: int) -> int:
    """How many runs share a card by default."""
    return max(1, min(RUNS_PER_GPU, cores // (CORES_PER_GPU_RUN * num_gpus)))


@dataclass
class _Worker:
    folder: Path
    process: subprocess.Popen[bytes]
    said: IO[bytes]
    cores: int
    gpu: str | None
    at_once: int
    """How many could run when it was started."""


class Local:
    """A pool of processes.

    With cards, so many runs share each of them, and the cores are divided among all. Without, a worker gets one core
    while there are more tasks than cores, and more of them (up to one per seed) when there are fewer.

    Args:
        at_once: How many workers run side by side; None: as many as fill the machine.
        cores: Cores to use; None: all that this process may use.
        gpus: Cards to use, as CUDA_VISIBLE_DEVICES names them; None: all that this process may use.
        program: What to start; the folder of the task is added.
    """

    def __init__(
        self,
        at_once: int | None = None,
        cores: int | None = None,
        gpus: list[str] | None = None,
        program: tuple[str, ...] = PROGRAM,
    ):
        self._cores = cores or machine.available_cores()
        self._gpus = machine.gpus() if gpus is None else gpus
        full = len(self._gpus) * runs_per_gpu(self._cores, len(self._gpus)) if self._gpus else self._cores
        self.at_once = at_once or full
        self._program = program
        self._workers: list[_Worker] = []
        self._last: dict[Path, int] = {}

    def has_room(self) -> bool:
        return len(self._workers) < self.at_once

    def start(self, folder: Path, needs: Needs) -> None:
        cores, gpu = self._cores_for(needs), self._next_gpu()
        at_once = -(-self.at_once // max(1, len(self._gpus)))
        words = [*self._program, *(["--trust"] if needs.is_trusted else []), str(folder)]
        said = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the worker)
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,  # its other end closes with this process, however that ends
            stdout=said,
            stderr=said,
            env=os.environ | environment(cores, gpu, 1 / at_once),
            start_new_session=True,  # Ctrl-C is for us; we tell the workers
        )
        self._workers.append(_Worker(folder, process, said, cores, gpu, self.at_once))

    def _cores_for(self, needs: Needs) -> int:
        free = self._cores - sum(worker.cores for worker in self._workers)
        beside = min(self.at_once - len(self._workers), max(1, needs.num_waiting))
        most = needs.seeds + (1 if self._gpus else 0)  # on a card one core learns and the others collect
        return max(1, min(free // max(1, beside), most))

    def _next_gpu(self) -> str | None:
        used = Counter(worker.gpu for worker in self._workers)
        return min(self._gpus, key=lambda gpu: used[gpu], default=None)

    def ended(self, timeout: float) -> list[Ended]:
        until = time.monotonic() + timeout
        while True:
            gone = [worker for worker in self._workers if worker.process.poll() is not None]
            if gone or time.monotonic() >= until:
                break
            time.sleep(POLL_SECONDS)
        self._last |= {worker.folder: worker.at_once for worker in gone}
        self._workers = [worker for worker in self._workers if worker not in gone]
        return [_describe(worker) for worker in gone]

    def shrink(self, folder: Path) -> bool:
        had, alone = self._last.get(folder, self.at_once), max(1, len(self._gpus))
        if had <= alone:
            return False
        if had <= self.at_once:  # else it was started before the last halving
            self.at_once = max(alone, self.at_once // 2)
        return True

    def close(self) -> None:
        workers, self._workers = self._workers, []
        try:
            for worker in workers:
                _close_input(worker)
            until = time.monotonic() + END_SECONDS
            for worker in workers:
                with suppress(subprocess.TimeoutExpired):
                    worker.process.wait(max(0.0, until - time.monotonic()))
        finally:  # also at a second Ctrl-C; what is on disk is whole at any time
            for worker in workers:
                _kill(worker)


def _describe(worker: _Worker) -> Ended:
    _close_input(worker)
    code = worker.process.returncode
    worker.said.seek(0)
    said = worker.said.read().decode(errors="replace").strip()
    worker.said.close()
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return Ended(worker.folder, code, f"{how}: {said}" if said else how)


def _close_input(worker: _Worker) -> None:
    assert worker.process.stdin is not None
    with suppress(BrokenPipeError):
        worker.process.stdin.close()


def _kill(worker: _Worker) -> None:
    if worker.process.poll() is None:
        worker.process.kill()
        worker.process.wait()
    worker.said.close()
