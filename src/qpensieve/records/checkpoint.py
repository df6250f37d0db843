"""Checkpoints of a run: named arrays (npz) and JSON with checksums, written whole or not at all, without pickle.

A run folder holds `checkpoints/step_000050000/` with `arrays.npz` and `meta.json` (the last two are kept),
`parameters/step_000100000.npz` (all are kept) and the rows of the replay (`replay/log.py`). All of it is written
whole or not at all (`files.py`). docs/architecture.md lists what a resumed run does with each file.
"""

import errno
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from qpensieve.errors import ShownError
from qpensieve.records.files import (
    TEMPORARY,
    Expected,
    FileError,
    checksum_of,
    find_damage,
    headers_of,
    parse,
    read_bytes,
    read_npz,
    sync_folder,
    write_file,
    write_npz,
)
from qpensieve.records.folder import CHECKPOINTS, PARAMETERS

FORMAT_VERSION = 1
"""Increased when files, names of arrays or columns of the replay's rows change. `checksum` and `format_version` of
`meta.json` stay."""
ARRAYS, META = "arrays.npz", "meta.json"
POLICY = "policy/"
"""Prefix of the names of the arrays that acting needs, in checkpoints and in files of parameters."""


class CheckpointError(ShownError, RuntimeError):
    """A checkpoint or file of parameters cannot be written, read or used; the message names it and says why."""


class NoneWholeError(CheckpointError):
    """There are checkpoints, but none of them is whole."""


class DamageError(CheckpointError):
    """One checkpoint cannot be used; an earlier one may be whole."""


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint."""

    step: int
    arrays: dict[str, np.ndarray]
    meta: dict[str, Any]
    path: Path


def write_error(path: Path, run: Path, error: OSError) -> CheckpointError:
    """Return the error to raise because `path` of `run` could not be written."""
    step = last_good_step(run)
    last = "there is no earlier checkpoint" if step is None else f"the last good checkpoint is at step {step}"
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = "free disk space" if is_full else "check that the folder is writable"
    return CheckpointError(
        f"cannot write {path}: {error.strerror or error}; {last}; {advice} and resume the run from its folder {run}"
    )


def last_good_step(run: Path) -> int | None:
    """Return the step of the newest checkpoint with a readable `meta.json`, None if there is none; reads no arrays."""
    return next((step for step, _ in kept_metas(run)), None)


def save(run: Path, step: int, arrays: Mapping[str, np.ndarray], meta: Mapping[str, object]) -> Path:
    """Write the checkpoint of `step`, drop all but the last two up to it, and return its folder.

    Checkpoints after `step` stay (see `discard_after`).

    Args:
        run: The run folder.
        step: Steps done.
        arrays: Everything large.
        meta: Everything else, as JSON.

    Raises:
        CheckpointError: The disk is full or cannot be written; the earlier checkpoints are unchanged.
    """
    folder = folder_of(run, step)
    temporary = folder.with_name(f"{TEMPORARY}{step}-{os.getpid()}")
    try:
        folder.parent.mkdir(exist_ok=True)
        _clear_temporaries(run)
        temporary.mkdir()
        checksums = {ARRAYS: write_npz(temporary / ARRAYS, arrays)}
        body = {"format_version": FORMAT_VERSION, "step": step, "checksums": checksums, "meta": dict(meta)}
        write_file(temporary / META, lambda file: file.write(_render(body)))
        if not folder.exists():  # a run that was saved at this step already has the same numbers
            os.rename(temporary, folder)
            sync_folder(folder.parent)
        for older in [other for other in reversed(kept_steps(run)) if other <= step][2:]:
            _remove(folder_of(run, older))
    except OSError as error:
        raise write_error(folder, run, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def load_latest(
    run: Path,
    warn: Callable[[str], None],
    check: Callable[[Checkpoint], str | None] | None = None,
    expected: Expected | None = None,
) -> Checkpoint | None:
    """Load the newest checkpoint that is whole; None if none was ever written.

    Args:
        run: The run folder.
        warn: Called with a message for each damaged checkpoint that is skipped.
        check: Returns what else is wrong with a checkpoint (a damaged segment of the replay), or None; called before
            its arrays are read. None: no such check.
        expected: Names, shapes and types that its arrays must have. None: any.

    Raises:
        NoneWholeError: There are checkpoints but none is whole.
        CheckpointError: A checkpoint was written by a later version or does not hold what is expected.
    """
    problems = []
    for step in reversed(kept_steps(run)):
        try:
            return load_step(run, step, check, expected)
        except DamageError as damage:
            problems.append(str(damage))
            warn(problems[-1])
    if problems:
        kept = "Policies of steps that were kept still can be: qpensieve evaluate, export-policy --step. "
        left = kept if any((run / PARAMETERS).glob("step_*")) else ""
        start = f"no checkpoint of {run} can be read; start a new run in another folder. "
        raise NoneWholeError(start + left + "; ".join(problems))
    return None


def load_step(
    run: Path,
    step: int,
    check: Callable[[Checkpoint], str | None] | None = None,
    expected: Expected | None = None,
) -> Checkpoint:
    """Load the checkpoint of one step; `check` and `expected` as in `load_latest`.

    Raises:
        DamageError: The checkpoint is damaged.
        CheckpointError: The checkpoint is gone, was written by a later version or does not hold what is expected.
    """
    folder = folder_of(run, step)
    if not folder.is_dir():
        raise CheckpointError(f"the checkpoint of step {step} of {run} is gone: a run that continues drops it")
    try:
        body = _read_meta(folder)
        problem = f"it was written for step {body['step']}" if body["step"] != step else None
        problem = problem or find_damage(folder / ARRAYS, body["checksums"][ARRAYS])
        saved = Checkpoint(step, {}, body["meta"], folder)
        if problem := problem or (None if check is None else check(saved)):
            raise ValueError(problem)
        arrays = read_npz(folder / ARRAYS)
    except (ValueError, OSError) as error:
        raise DamageError(f"checkpoint {folder} is damaged: {error}") from error
    if expected is not None and (unfit := expected.problems(headers_of(arrays))):
        raise CheckpointError(f"{folder / ARRAYS} does not fit this program's state: {'; '.join(unfit)}")
    return replace(saved, arrays=arrays)


def folder_of(run: Path, step: int) -> Path:
    """Return the folder of the checkpoint of a step."""
    return run / CHECKPOINTS / f"step_{step:09d}"


def kept_steps(run: Path) -> list[int]:
    """Return the steps of the checkpoints, oldest first."""
    names = [re.fullmatch(r"step_(\d+)", path.name) for path in (run / CHECKPOINTS).glob("step_*")]
    return sorted(int(name[1]) for name in names if name)


def parameter_steps(run: Path) -> dict[int, Path]:
    """Return step -> file of the kept parameters, oldest first."""
    found = [(re.fullmatch(r"step_(\d+)\.npz", path.name), path) for path in (run / PARAMETERS).glob("step_*")]
    return dict(sorted((int(name[1]), path) for name, path in found if name))


def kept_metas(run: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield step and `meta` of every checkpoint with a readable `meta.json`, newest first; reads no arrays."""
    for step in reversed(kept_steps(run)):
        with suppress(ValueError, CheckpointError, OSError):
            yield step, _read_meta(folder_of(run, step))["meta"]


def discard_after(run: Path, step: int) -> None:
    """Remove checkpoints and kept parameters of steps after `step`, because the run goes back to `step`.

    Later checkpoints are damaged and were skipped; the resumed run writes them again. Later parameters would pass for
    the newest of a run that continues with other numbers (without its replay).
    """
    _clear_temporaries(run)
    for later in kept_steps(run):
        if later > step:
            _remove(folder_of(run, later))
    for later, path in parameter_steps(run).items():
        if later > step:
            path.unlink(missing_ok=True)


def _remove(folder: Path) -> None:
    """Delete a checkpoint under a temporary name, so that half a checkpoint never has the name of a whole one."""
    doomed = folder.with_name(f"{TEMPORARY}gone-{folder.name}-{os.getpid()}")
    os.rename(folder, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _clear_temporaries(run: Path) -> None:
    for path in (run / CHECKPOINTS).glob(f"{TEMPORARY}*"):
        shutil.rmtree(path, ignore_errors=True)


def _render(body: Mapping[str, object]) -> bytes:
    """Return the bytes of `meta.json`: the body and its checksum."""
    checksum = checksum_of(io.BytesIO(json.dumps(body).encode()))
    return json.dumps({**body, "checksum": checksum}, indent=1).encode() + b"\n"


def _read_meta(folder: Path) -> dict[str, Any]:
    """Read the body of `meta.json`; ValueError if checksum, version or types are wrong."""
    path = folder / META
    if not path.is_file():
        raise ValueError(f"{META} is missing")
    try:
        data = read_bytes(path)
        body = parse(path, data)
    except FileError as error:
        raise ValueError(f"{META} is not JSON, perhaps cut short: {error}") from error
    if not isinstance(body, dict) or body.pop("checksum", None) is None or _render(body) != data:
        raise ValueError(f"{META} was altered: its checksum is not the one written")
    version = body.get("format_version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        known = f"this program knows up to {FORMAT_VERSION}; use a newer qpensieve"
        raise CheckpointError(f"checkpoint {folder} has format version {version}, {known}")
    if version != FORMAT_VERSION:
        raise ValueError(f"its format version {version!r} is unknown")
    # A right checksum does not mean that the rest is right.
    kinds = {"step": int, "checksums": dict, "meta": dict}
    wrong = [name for name, kind in kinds.items() if not isinstance(body.get(name), kind)]
    if wrong or not isinstance(body["checksums"].get(ARRAYS), str):
        raise ValueError(f"{META} must say {(wrong or ['the checksum of ' + ARRAYS])[0]}")
    return body


def save_parameters(run: Path, step: int, arrays: Mapping[str, np.ndarray]) -> Path:
    """Write the parameters of a step into a file of its own; returns the file."""
    path = run / PARAMETERS / f"step_{step:09d}.npz"
    try:
        path.parent.mkdir(exist_ok=True)
        write_npz(path, arrays)
    except OSError as error:
        raise write_error(path, run, error) from error
    return path


def load_parameters(path: Path, names: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """Read the arrays (None: all) that `save_parameters` wrote; CheckpointError if the file is damaged."""
    try:
        return read_npz(path, names)
    except (ValueError, OSError) as error:
        raise CheckpointError(f"cannot read the parameters in {path}: {error}") from error
