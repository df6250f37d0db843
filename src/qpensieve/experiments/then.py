"""What may be computed once a run is trained, by name; a worker does it before it publishes the run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from qpensieve.records.folder import CRITIC


@dataclass(frozen=True)
class Then:
    """One such thing."""

    compute: Callable[[Path], object]
    """Computes it for a run folder, and writes `file` last, under a temporary name first (`records.atomic`)."""
    file: str
    """A file of the run folder; once it is there, all is done."""


def _measure_critics(run: Path) -> None:
    from qpensieve.experiments.critics import measure  # it needs JAX

    measure(run)


THEN: dict[str, Then] = {"critic": Then(_measure_critics, CRITIC)}
"""Name -> what it stands for."""


def check_names(names: tuple[str, ...], known: Mapping[str, Then] = THEN) -> None:
    """ValueError if something is not known."""
    for name in names:
        if name not in known:
            raise ValueError(f"what is computed after training must be one of {', '.join(known)}; got {name!r}")


def missing(run: Path, names: tuple[str, ...]) -> list[str]:
    """Which of them a run folder does not have yet."""
    return [name for name in names if not (run / THEN[name].file).is_file()]
