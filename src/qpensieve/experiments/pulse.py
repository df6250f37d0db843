"""The sign of life of a worker: a small file in its attempt, written anew every two seconds."""

import json
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from qpensieve.experiments.fence import WORKER
from qpensieve.records.atomic import TEMPORARY
from qpensieve.records.reading import FileError, read_object

PERIOD = 2.0
STALE = 30.0
"""Seconds after which a worker without a sign of life is taken for dead. If it is not, it is fenced off."""


@dataclass(frozen=True)
class Pulse:
    """Who works in an attempt, and how far it is."""

    number: int = 0
    machine: str = ""
    pid: int = 0
    step: int = 0
    goal: int = 0
    rate: float | None = None
    """Steps per second."""
    seconds_left: float | None = None
    code: int | None = None
    """How it ended; None while it works."""
    message: str = ""


def read(attempt: Path) -> Pulse:
    """The newest sign of life in an attempt; fields that cannot be read are as if nothing was known."""
    try:
        found = read_object(attempt / WORKER)
    except (FileError, OSError):
        return Pulse()
    return Pulse(**{field.name: found[field.name] for field in fields(Pulse) if _fits(field.name, found)})


def _fits(name: str, found: dict[str, Any]) -> bool:
    if name in ("machine", "message"):
        return isinstance(found.get(name), str)
    is_number = isinstance(found.get(name), int | float) and not isinstance(found.get(name), bool)
    return is_number and (name in ("rate", "seconds_left") or isinstance(found[name], int))


def is_alive(attempt: Path) -> bool:
    """Whether a worker writes into an attempt: it said so lately, and on this machine its process is there."""
    try:
        age = time.time() - (attempt / WORKER).stat().st_mtime
    except FileNotFoundError:
        return False
    pulse = read(attempt)
    if pulse.code is not None or age > STALE:
        return False
    return pulse.machine not in ("", platform.node()) or pulse.pid == 0 or _is_process(pulse.pid)


def _is_process(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        with suppress(PermissionError):
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return False
        return True
    return state not in "ZX"


class Heart:
    """Writes the pulse of this process into its attempt.

    Args:
        attempt: The folder of the attempt.
        number: Its number.
        measure: Step, goal, steps per second and seconds left, as far as known.
    """

    def __init__(self, attempt: Path, number: int, measure: Callable[[Pulse], Pulse]):
        self._attempt, self._measure = attempt, measure
        self._pulse = Pulse(number, platform.node(), os.getpid())
        self._turn = threading.Lock()

    def beat(self, **changes: Any) -> None:
        """Write the pulse; by path, as everything in an attempt.

        Raises:
            FileNotFoundError: The attempt was taken away.
        """
        with self._turn:
            self._pulse = replace(self._measure(self._pulse), **changes)
            temporary = self._attempt / f"{TEMPORARY}{WORKER}-{os.getpid()}"
            temporary.write_text(json.dumps(asdict(self._pulse), indent=2) + "\n")
            os.replace(temporary, self._attempt / WORKER)

    @contextmanager
    def beating(self, lost: Callable[[], None]) -> Iterator[None]:
        """Beat in a thread; `lost` is called once if the attempt was taken away."""
        rest = threading.Event()

        def work() -> None:
            while not rest.wait(PERIOD):
                try:
                    self.beat()
                except FileNotFoundError:
                    lost()
                    return
                except OSError:  # a full disk: the run itself will say so
                    continue

        thread = threading.Thread(target=work, daemon=True)
        self.beat()
        thread.start()
        try:
            yield
        finally:
            rest.set()
            thread.join()
