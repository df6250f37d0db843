"""The engine of a Ray cluster. A Ray task starts a worker on its node; Ray restarts it elsewhere if a node is lost.

Run folders must be on a file system that all nodes share. Without one, `OnRay(..., fetch=True)` sends a folder to its
node and brings it home. A cluster without tokens runs the code of anyone who reaches its ports, so tokens are always
used.
"""

import importlib
import io
import os
import secrets
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qpensieve.errors import MissingPackageError, UserError
from qpensieve.experiments import local
from qpensieve.experiments.local import Code, Device, Ended, JobOnDevice
from qpensieve.records import checkpoint
from qpensieve.records.files import TEMPORARY
from qpensieve.records.folder import LOCK, FolderInUseError, lock
from qpensieve.remote import how_it_ended

if TYPE_CHECKING:
    from qpensieve.experiments.tasks import Task

SETTINGS = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
TOKEN_VARIABLES = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
TOKEN_PATH = Path(".ray") / "auth_token"
"""Path of Ray's token below the home folder."""
MOVES = 5
"""Number of times that Ray itself restarts a task after it has lost the node or process."""


def prepare() -> Any:
    """Return the module `ray`, set up with tokens (a new one if there is none) and without usage statistics.

    Raises:
        ImportError: Ray is not installed; the message says how to install it.
    """
    os.environ.update(SETTINGS)
    if not any(os.environ.get(name) for name in TOKEN_VARIABLES):
        make_token(Path.home() / TOKEN_PATH)
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise MissingPackageError("running on Ray needs its package: pip install 'qpensieve[ray]'") from error


def make_token(path: Path) -> None:
    """Write a new token that only this user can read, unless there is one."""
    if path.exists():
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError), open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))


def run_worker(folder: Path, options: Sequence[str], cores: int, share: float, program: Sequence[str] | None) -> int:
    """Run a worker on the node, which ends when this process does; returns its exit code.

    Args:
        folder: The run folder.
        options: Options of the worker.
        cores: Number of cores of the worker.
        share: Share of a card for the worker; 0: no card.
        program: Command of the worker. None: `local.PROGRAM`.
    """
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0") if share else None  # Ray has chosen the card
    worker = local.start_worker(folder, options, local.environment(cores, gpu, share), program or local.PROGRAM)
    try:
        return worker.wait()
    finally:
        local.end_workers([worker])


def run_on_copy(folder: Path, *how: Any, content: bytes) -> tuple[int, bytes]:
    """Run a worker on a copy of the folder on the node; return its exit code and the packed copy."""
    with tempfile.TemporaryDirectory(prefix="qpensieve-") as scratch:
        copy = Path(scratch) / folder.name
        unpack(content, copy)
        return run_worker(copy, *how), pack(copy)


def pack(folder: Path) -> bytes:
    """Return a folder as a tar file, without its lock and without unfinished files."""
    is_left_out = lambda entry: Path(entry.name).name.startswith(TEMPORARY) or Path(entry.name).name == LOCK
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.add(folder, ".", filter=lambda entry: None if is_left_out(entry) else entry)
    return file.getvalue()


def unpack(content: bytes, folder: Path) -> None:
    """Make the folder of a tar file."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(folder, filter="data")  # plain files and folders, none outside


def replace_folder(content: bytes, folder: Path) -> None:
    """Replace a run folder by a copy, unless the copy is behind it.

    Raises:
        FolderInUseError: A process works on the folder.
    """
    new, old = (folder.with_name(f"{TEMPORARY}{folder.name}-{secrets.token_hex(4)}") for _ in range(2))
    step = lambda run: max(checkpoint.kept_steps(run), default=-1)
    try:
        with closing(lock(folder)):
            unpack(content, new)
            if step(new) >= step(folder):
                os.rename(folder, old)
                os.rename(new, folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@dataclass
class RayJob(JobOnDevice):
    """A Ray task.

    Attributes:
        ray: The module.
        reference: The result that Ray promises.
        folder: The run folder.
    """

    ray: Any
    reference: Any
    folder: Path

    @property
    def is_over(self) -> bool:
        return bool(self.ray.wait([self.reference], timeout=0)[0])

    def poll(self) -> Ended | None:
        if not self.is_over:
            return None
        try:
            found = self.ray.get(self.reference)
            if isinstance(found, tuple):
                found, content = found
                replace_folder(content, self.folder)
        except FolderInUseError as error:
            return Ended(Code.IN_USE, str(error))
        except self.ray.exceptions.RayError as error:
            return Ended(None, f"was lost: {str(error).strip().splitlines()[0]}")
        return Ended(found, how_it_ended(found))


class OnRay:
    """Workers on a Ray cluster.

    Args:
        address: The head, HOST:PORT; `auto`: the cluster of this machine.
        at_once: Most runs side by side. None: as many as fill the cluster.
        runs_per_gpu: Runs that share a card.
        fetch: Send folders to the nodes and bring them home, because there is no shared file system.
        program: Command of a worker. None: `local.PROGRAM`.
    """

    pause = 0.5

    def __init__(
        self,
        address: str = "auto",
        at_once: int | None = None,
        runs_per_gpu: int = local.RUNS_PER_GPU,
        fetch: bool = False,
        program: Sequence[str] | None = None,
    ):
        self._ray, self._program, self._fetch, self._at_once = prepare(), program, fetch, at_once
        self._jobs: list[RayJob] = []
        try:
            self._ray.init(address=address, log_to_driver=False, include_dashboard=False, configure_logging=False)
        except Exception as error:
            raise UserError(_no_cluster(address, error)) from error
        cores, gpus, _ = self._size()
        self._device = Device("a card", runs_per_gpu) if gpus else Device(None, at_once or cores)

    def start(self, waiting: "Sequence[Task]") -> list[RayJob]:
        self._jobs = [job for job in self._jobs if not job.is_over]
        cores, gpus, smallest = self._size()
        most = int(gpus * self._device.slots) if self._device.gpu else min(cores, self._device.slots)
        room = max(0, min(most, self._at_once or most) - len(self._jobs))
        started = []
        for i, task in enumerate(waiting[:room]):
            free = cores - sum(job.cores for job in self._jobs)
            if self._device.gpu:
                num = min(cores // most, task.config.seeds + 1)
            else:
                num = min(free // (len(waiting) - i), task.config.seeds)
            started.append(self._submit(task, max(1, min(num, smallest))))
            self._jobs.append(started[-1])
        return started

    def _submit(self, task: "Task", cores: int) -> RayJob:
        share = 1 / self._device.slots if self._device.gpu else 0.0
        how = (task.folder.resolve(), task.worker_options, cores, share, self._program)
        on_node = self._ray.remote(num_cpus=cores, num_gpus=share, max_retries=MOVES)
        if self._fetch:
            reference = on_node(run_on_copy).remote(*how, content=pack(task.folder))
        else:
            reference = on_node(run_worker).remote(*how)
        return RayJob(self._device, self._device.slots, cores, self._ray, reference, task.folder)

    def _size(self) -> tuple[int, float, int]:
        """Return cores and cards of the whole cluster now, and cores of its smallest node."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        cores = [int(node.get("CPU", 0)) for node in nodes]
        return sum(cores), sum(node.get("GPU", 0.0) for node in nodes), min(filter(None, cores), default=1)

    def close(self) -> None:
        references = [job.reference for job in self._jobs]
        try:
            for reference in references:
                self._ray.cancel(reference)
            if references:
                self._ray.wait(references, num_returns=len(references), timeout=local.END_SECONDS)
        finally:
            self._jobs.clear()
            self._ray.shutdown()


def _no_cluster(address: str, error: Exception) -> str:
    why = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
    return (
        f"no Ray cluster answers at {address!r}: {why}. Start one "
        "with 'RAY_AUTH_MODE=token ray start --head', and give all machines the same token (docs/running.md)"
    )
