"""What the loop of `drive.py` needs of the place where workers run."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable


@dataclass(frozen=True)
class Needs:
    """What a worker can use."""

    seeds: int
    """Agents that train side by side: more cores than that help little."""
    num_waiting: int
    """Tasks that wait for room, this one included."""
    is_trusted: bool = False
    """Whether the code that its domain names may be imported: whoever made the plan has named it."""


class Ended(NamedTuple):
    """A worker that is no more."""

    folder: Path
    """Folder of its task."""
    code: int
    """Its exit code (`codes.Code`); a negative number or anything else: it died."""
    reason: str
    """How it died, in words."""


@runtime_checkable
class Executor(Protocol):
    """Starts workers and tells how they end. It holds nothing that is needed to go on."""

    def has_room(self) -> bool:
        """Whether another worker can be started now."""
        ...

    def start(self, folder: Path, needs: Needs) -> None:
        """Start a worker for the task of a folder."""
        ...

    def ended(self, timeout: float) -> list[Ended]:
        """Workers that have ended since the last call; waits for one, but not longer than `timeout` seconds."""
        ...

    def shrink(self, folder: Path) -> bool:
        """Let fewer workers share memory from now on, because that of `folder` had too little.

        Returns:
            False if it had all of it for itself already.
        """
        ...

    def close(self) -> None:
        """End all workers; they save. What must not end with this program goes on."""
        ...
