"""Provenance of a result: versions, machine and commit, which every result file holds."""

import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from qpensieve import machine
from qpensieve.errors import make_folder
from qpensieve.machine import options_of_updates
from qpensieve.records.files import FileError, interpreting, read_object, write_json

RESUMED_WITH = "resumed_with"
"""Key in a run's record of versions: the versions that the run was resumed with."""
PACKAGES = ("qpensieve", "jax", "jaxlib", "numpy", "optax", "equinox", "mujoco", "box2d", "gymnasium", "moocore")


def describe() -> dict[str, object]:
    """Return Python and package versions, processor, core count, accelerator and commit, ready for JSON."""
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        **rounding(),
        "cores": machine.available_cores(),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "compiler_options": options_of_updates() or {},
        "commit": _commit(),
    }


def rounding() -> dict[str, object]:
    """Return package versions, processor and accelerator, on which the last digits of results depend."""
    versions = {name: _version(name) for name in PACKAGES}
    return {"packages": versions, "processor": machine.processor(), "device": machine.accelerator()}


def version_changes(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """List differences of two records of `rounding`, such as `jax 0.9.0, now 0.10.2`; unknown values are left out."""
    olds, news = ({**one, "packages": None, **_versions(one)} for one in (before, now))
    return [f"{name} {olds[name]}, now {new}" for name, new in news.items() if olds.get(name, new) != new]


def note_changes(path: Path, step: int, warn: Callable[[str], None]) -> None:
    """Warn, and record, if a run continues with other versions or on another machine, which round differently.

    Args:
        path: The run's record of versions; without a readable one nothing is done.
        step: Step from which the run continues.
        warn: Called with a message.
    """
    now = rounding()
    try:
        record = read_object(path)
        earlier = record.get(RESUMED_WITH, [])
        with interpreting(path, "a record of versions"):
            changed = version_changes({**record, **(earlier[-1] if earlier else {})}, now)
    except (FileNotFoundError, FileError):  # resuming does not need this file; readers that do report it
        return
    if changed:
        warn(f"{path.parent} continues with the same numbers only up to rounding: {'; '.join(changed)}")
        write_json(path, record | {RESUMED_WITH: [*earlier, {"step": step, **now}]})


def change(path: Path, **entries: object) -> None:
    """Change entries of a run's record of versions, if there is a readable one."""
    with suppress(FileNotFoundError, FileError):
        write_json(path, read_object(path) | entries)


def _versions(record: Mapping[str, object]) -> Mapping[str, object]:
    packages = record.get("packages")
    return packages if isinstance(packages, dict) else {}


def write_rows(
    path: Path, benchmark: str, rows: Sequence[Mapping[str, object]], settings: Mapping[str, object]
) -> None:
    """Write measured rows as JSON, with the settings of the measurement and `describe()`."""
    make_folder(path.parent)
    write_json(path, {"benchmark": benchmark, "settings": settings, "rows": list(rows), "provenance": describe()})


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit of the source tree that runs, with a + if files in it have changed; None outside a checkout."""
    here = Path(__file__)
    try:
        # A package installed below some other project's checkout is not part of that project's commit.
        _git(here.parent, "ls-files", "--error-unmatch", here.name)
        commit, changed = _git(here.parent, "rev-parse", "HEAD"), _git(here.parent, "status", "--porcelain")
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + ("+" if changed else "")


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=True).stdout.strip()
