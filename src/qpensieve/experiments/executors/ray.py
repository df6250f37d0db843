"""Workers on a Ray cluster. A Ray task only starts the program of a worker on its node and waits for it.

Ray keeps nothing that is needed to go on: where a node, the head or this program is lost, call it again. Run folders
must be on a file system that all nodes share; without one, `OnRay(..., fetch=True)` sends them to the node and brings
them home (`parcels.py`).

A cluster without tokens runs the code of anyone who reaches its ports, so tokens are always used.
"""

import importlib
import os
import secrets
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from qpensieve.errors import MissingPackageError, UserError
from qpensieve.experiments import parcels
from qpensieve.experiments.attempt import END_SECONDS
from qpensieve.experiments.codes import Code
from qpensieve.experiments.executors.local import PROGRAM, RUNS_PER_GPU, environment
from qpensieve.experiments.executors.protocol import Ended, Needs
from qpensieve.experiments.fence import TakenOverError

SETTINGS = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
TOKEN_VARIABLES = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
TOKEN_PATH = Path(".ray") / "auth_token"
"""Below the home folder: where Ray looks for the token."""
TINY = 1e-6
LOST = -1
"""Code of a worker that was lost with its node."""


def prepare() -> Any:
    """The module `ray`, set up: tokens on (one is made if there is none), no usage statistics.

    Raises:
        ImportError: Ray is not installed; says how to.
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


@dataclass(frozen=True)
class _Place:
    """What a worker was given."""

    folder: Path
    cores: int
    share: float
    """Of a card; 0: none."""
    at_once: int
    """How many could share a card, or the cluster, when it was started."""


class OnRay:
    """Workers on a Ray cluster.

    Args:
        address: The head, HOST:PORT; `auto`: the cluster of this machine.
        at_once: At most so many workers; None: as many as fill the cluster.
        runs_per_gpu: How many of them share a card.
        fetch: Whether folders are sent to the nodes and brought home, because there is no shared file system.
        program: What to start on a node; None: the program of a worker.
    """

    def __init__(
        self,
        address: str = "auto",
        at_once: int | None = None,
        runs_per_gpu: int = RUNS_PER_GPU,
        fetch: bool = False,
        program: tuple[str, ...] | None = None,
    ):
        self._ray, self._program = prepare(), program
        self._fetch, self._at_once, self._per_gpu = fetch, at_once, runs_per_gpu
        self._places: dict[Any, _Place] = {}
        self._last: dict[Path, int] = {}
        try:
            self._ray.init(address=address, log_to_driver=False, include_dashboard=False, configure_logging=False)
        except Exception as error:
            raise UserError(_no_cluster(address, error)) from error

    def has_room(self) -> bool:
        if self._at_once is not None and len(self._places) >= self._at_once:
            return False
        cores, gpus, *_ = self._size()
        if gpus:
            return gpus - sum(place.share for place in self._places.values()) >= 1 / self._per_gpu - TINY
        return cores - sum(place.cores for place in self._places.values()) >= 1

    def start(self, folder: Path, needs: Needs) -> None:
        total, gpus, most = self._size()
        share = 1 / self._per_gpu if gpus else 0.0
        place = _Place(folder, self._cores_for(needs, total, gpus, most), share, self._limit())
        options = {"num_cpus": place.cores, "num_gpus": share, "max_retries": 0}  # `drive` tries again
        words = [*(self._program or ()), *(["--trust"] if needs.is_trusted else []), str(folder.resolve())]
        order = Order(words, self._program is None, place.cores, share)
        if self._fetch:
            parcel = [self._ray.put(piece) for piece in parcels.pack_task(folder)]
            work = self._ray.remote(**options)(attend_parcel)
            self._places[work.remote(order, parcel)] = place
        else:
            work = self._ray.remote(**options)(attend)
            self._places[work.remote(order)] = place

    def _size(self) -> tuple[int, float, int]:
        """Cores and cards of the whole cluster, and cores of its smallest node: nodes come and go."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        cores = [int(node.get("CPU", 0)) for node in nodes]
        return sum(cores), sum(node.get("GPU", 0.0) for node in nodes), min(filter(None, cores), default=1)

    def _cores_for(self, needs: Needs, total: int, gpus: float, most: int) -> int:
        if gpus:
            return max(1, min(int(total / (gpus * self._per_gpu)), most, needs.seeds + 1))
        free = total - sum(place.cores for place in self._places.values())
        return max(1, min(free // max(1, needs.num_waiting), most, needs.seeds))

    def ended(self, timeout: float) -> list[Ended]:
        if not self._places:
            time.sleep(timeout)
            return []
        ready, _ = self._ray.wait(list(self._places), num_returns=1, timeout=timeout)
        found = []
        for work in ready:
            place = self._places.pop(work)
            self._last[place.folder] = place.at_once
            found.append(self._describe(work, place.folder))
        return found

    def _describe(self, work: Any, folder: Path) -> Ended:
        try:
            code, parcel = self._ray.get(work)
            if parcel is not None:
                self._bring_home(parcel, folder)
        except TakenOverError:
            return Ended(folder, Code.TAKEN_OVER, "came home after another attempt")
        except self._ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)  # what went wrong on the node, if it could still tell
            why = str(error).strip().splitlines()[0] if cause is None else f"{type(cause).__name__}: {cause}"
            return Ended(folder, LOST, f"was lost: {why}")
        if code < 0:
            return Ended(folder, code, f"was killed by {signal.Signals(-code).name}")
        return Ended(folder, code, f"ended with code {code}")

    def _bring_home(self, parcel: parcels.Parcel, folder: Path) -> None:
        """Fetch a folder from the node piece by piece, and remove it there."""
        there = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        at = {"num_cpus": 0, "scheduling_strategy": there(parcel.node, soft=False)}
        read, remove = self._ray.remote(**at)(parcels.read_piece), self._ray.remote(**at)(parcels.discard)
        pieces = (self._ray.get(read.remote(parcel.path, start)) for start in range(0, parcel.size, parcels.PIECE))
        parcels.unpack_home(pieces, folder)
        remove.remote(parcel.path)

    def shrink(self, folder: Path) -> bool:
        had = self._last.get(folder, self._limit())
        if had == 1:
            return False
        if had <= self._limit():  # else it was started before the last halving
            if self._size()[1]:
                self._per_gpu //= 2
            else:
                self._at_once = had // 2
        return True

    def _limit(self) -> int:
        """How many may share a card, or without cards the cluster."""
        cores, gpus, _ = self._size()
        return self._per_gpu if gpus else min(self._at_once or cores, cores)

    def close(self) -> None:
        try:
            for work in self._places:
                self._ray.cancel(work)
            if self._places:
                self._ray.wait(list(self._places), num_returns=len(self._places), timeout=END_SECONDS)
        finally:
            self._places.clear()
            self._ray.shutdown()


class Order(NamedTuple):
    """What a node is to do."""

    words: list[str]
    """The command; its last word is the folder of the task."""
    is_ours: bool
    """Whether the program of a worker goes before them, with the Python of the node."""
    cores: int
    share: float


def attend(order: Order) -> tuple[int, parcels.Parcel | None]:
    """On the node: start a worker and wait for it; it ends when this process does. Returns its exit code."""
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0") if order.share else None  # Ray has chosen the card
    variables = os.environ | environment(order.cores, gpu, order.share)
    words = [*PROGRAM, *order.words] if order.is_ours else order.words
    with subprocess.Popen(words, stdin=subprocess.PIPE, env=variables, start_new_session=True) as worker:
        assert worker.stdin is not None
        try:
            return worker.wait(), None
        finally:
            worker.stdin.close()
            try:
                worker.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                worker.kill()


def attend_parcel(order: Order, pieces: list[Any]) -> tuple[int, parcels.Parcel | None]:
    """The same for a task whose folder is not here: it comes in pieces, and is packed to be fetched."""
    ray = importlib.import_module("ray")
    *words, name = order.words
    folder = parcels.unpack_away((ray.get(piece) for piece in pieces), Path(name).name)
    code, _ = attend(order._replace(words=[*words, str(folder)]))
    return code, parcels.pack_run(folder, ray.get_runtime_context().get_node_id())


def _no_cluster(address: str, error: Exception) -> str:
    why = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
    return (
        f"no Ray cluster answers at {address!r}: {why}. Start one "
        "with 'RAY_AUTH_MODE=token ray start --head', and give all machines the same token (docs/running.md)"
    )
