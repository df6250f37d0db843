"""What may be computed once a run is trained, by name; a worker does it before it publishes the run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qpensieve.errors import UserError
from qpensieve.records.atomic import write_json
from qpensieve.records.folder import CONFIG, CRITIC
from qpensieve.records.reading import FileError, read_object

COMPUTED = "then.json"
"""In a run folder: what was computed, and at how many steps."""


@dataclass(frozen=True)
class Then:
    """One such thing."""

    compute: Callable[[Path], object]
    """Computes it for a run folder; what it writes is whole or not at all (`records.atomic`). Where a worker was killed
    in between, it is called again and finds what it has written."""
    file: str
    """A file of the run folder that it writes."""


def _measure_critics(run: Path) -> None:
    from qpensieve.experiments.critics import measure  # it needs JAX

    measure(run)


THEN: dict[str, Then] = {"critic": Then(_measure_critics, CRITIC)}
"""Name -> what it stands for."""


def check_names(names: tuple[str, ...], known: Mapping[str, Then] = THEN) -> None:
    """ValueError if something is not known."""
    for name in names:
        if name not in known:
            raise UserError(f"what is computed after training must be one of {', '.join(known)}; got {name!r}")


def missing(run: Path, names: tuple[str, ...]) -> list[str]:
    """Which of them a run folder does not have yet, for all of its steps."""
    steps, computed = _read(run / CONFIG).get("steps"), _read(run / COMPUTED)
    return [name for name in names if computed.get(name, -1) != steps or not (run / THEN[name].file).is_file()]


def note(run: Path, name: str) -> None:
    """Remember that something was computed: its file may hold a part only, or be of when the run was shorter."""
    write_json(run / COMPUTED, _read(run / COMPUTED) | {name: _read(run / CONFIG).get("steps")})


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_object(path)
    except (FileError, OSError):
        return {}
