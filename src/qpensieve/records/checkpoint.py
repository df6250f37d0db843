"""Checkpoints of a run: named arrays (npz) beside JSON, checksummed, written whole or not at all, no pickle.

A run's folder holds `checkpoints/step_000050000/` with `arrays.npz` and `meta.json` (the last two are kept),
`parameters/step_000100000.npz` (kept for good) and the rows of the replay (`replay_log`). Everything is written under a
temporary name, synced and renamed, so a name that does not start with `.tmp-` belongs to something complete.

To resume: `load_latest`, `check_config`, `arrays_to_tree`, then `discard_after`, `ReplayLog.resume` and `cut_jsonl`,
which take back what a killed run did after that checkpoint.
"""

import errno
import io
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

FORMAT_VERSION = 1
"""Raised with every change of the layout. `meta.json` keeps its `checksum` and `format_version` in all versions."""
TEMPORARY = ".tmp-"
ARRAYS, META = "arrays.npz", "meta.json"
CHUNK = 1 << 20
"""Bytes read at a time when a file is checked."""

Tree = TypeVar("Tree")


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written, read or used; the message says which, why and what to do."""


class _DamageError(Exception):
    """Why one checkpoint cannot be used; the one before it may do."""


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint as read back."""

    step: int
    arrays: dict[str, np.ndarray]
    meta: dict[str, Any]
    path: Path


def tree_to_arrays(tree: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """Name -> array for every leaf, such as `.agent.critic.net.first.weight`; random keys as their raw data.

    The arrays are copies: a view would keep JAX from donating the state to the next step.
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {name: _leaf_to_array(name, leaf) for name, leaf in _named(leaves, prefix)}


def arrays_to_tree(like: Tree, arrays: Mapping[str, np.ndarray], prefix: str = "") -> Tree:
    """A tree of the structure of `like` with its leaves taken from `arrays`.

    Args:
        like: A tree of arrays or of `jax.ShapeDtypeStruct`; its NumPy leaves come back as NumPy, others as JAX arrays.
        arrays: What `tree_to_arrays` gave, perhaps beside arrays under other prefixes.
        prefix: The prefix given there.

    Raises:
        CheckpointError: A leaf is missing, has another shape or dtype, or there is one too many; every such is named.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    named = list(_named(leaves, prefix))
    problems = [problem for name, leaf in named if (problem := _mismatch(name, leaf, arrays))]
    extra = {name for name in arrays if _is_under(name, prefix)} - {name for name, _ in named}
    problems += [f"unexpected leaf {name}" for name in sorted(extra)]
    if problems:
        raise CheckpointError("the checkpoint does not fit this program's state: " + "; ".join(problems))
    return jax.tree_util.tree_unflatten(structure, [_array_to_leaf(leaf, arrays[name]) for name, leaf in named])


def under(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


def _named(leaves: list[tuple[Any, Any]], prefix: str) -> Iterator[tuple[str, Any]]:
    for path, leaf in leaves:
        yield prefix + jax.tree_util.keystr(path), leaf


def _is_under(name: str, prefix: str) -> bool:
    """Whether `name` is a leaf below `prefix`: `env.x` and `env[0]` are below `env`, `env2.x` is not."""
    return prefix == "" or name == prefix or name.startswith((prefix + ".", prefix + "["))


def _is_random_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _leaf_to_array(name: str, leaf: Any) -> np.ndarray:
    if not hasattr(leaf, "dtype"):
        raise TypeError(f"leaf {name} is a {type(leaf).__name__}, not an array")
    array = np.array(jax.random.key_data(leaf) if _is_random_key(leaf) else leaf)
    if array.dtype.kind not in "biufc":
        raise TypeError(f"leaf {name} has dtype {leaf.dtype}, which a .npy file cannot hold")
    return array


def _mismatch(name: str, leaf: Any, arrays: Mapping[str, np.ndarray]) -> str | None:
    if name not in arrays:
        return f"leaf {name} is missing"
    expected = jax.eval_shape(jax.random.key_data, leaf) if _is_random_key(leaf) else leaf
    array = arrays[name]
    if array.shape != expected.shape:
        return f"leaf {name} has shape {array.shape}, not {expected.shape}"
    if array.dtype != expected.dtype:
        return f"leaf {name} has dtype {array.dtype}, not {expected.dtype}"
    return None


def _array_to_leaf(leaf: Any, array: np.ndarray) -> Any:
    if _is_random_key(leaf):
        return jax.random.wrap_key_data(jnp.array(array), impl=_key_implementation(leaf))
    return np.array(array) if isinstance(leaf, np.ndarray) else jnp.array(array)


def _key_implementation(leaf: Any) -> Any:
    """The generator of a random key. Traced, because `key_impl` itself refuses a `ShapeDtypeStruct`."""
    found = []
    jax.eval_shape(lambda key: found.append(jax.random.key_impl(key)), leaf)
    return found[0]


class _Checksummed(io.RawIOBase):
    """A file that counts and sums what is written to it. It cannot seek, so no byte is ever changed afterwards."""

    def __init__(self, file: io.BufferedWriter):
        self._file, self._size, self._crc = file, 0, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        size = memoryview(data).nbytes
        self._crc, self._size = zlib.crc32(data, self._crc), self._size + size
        self._file.write(data)
        return size

    @property
    def checksum(self) -> str:
        return _format_checksum(self._size, self._crc)


def _format_checksum(size: int, crc: int) -> str:
    return f"{size}-crc32-{crc:08x}"


def write_file(path: Path, write: Callable[[io.RawIOBase], object]) -> str:
    """Write `path` through `write`, whole or not at all; gives the checksum of what was written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            stream = _Checksummed(file)
            write(stream)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return stream.checksum


def find_damage(path: Path, checksum: str) -> str | None:
    """What is wrong with a file that was written with this checksum, or None."""
    if not path.is_file():
        return f"{path.name} is missing"
    size = path.stat().st_size
    if str(size) != checksum.split("-")[0]:
        return f"{path.name} has {size} bytes, written were {checksum.split('-')[0]}"
    if _format_checksum(size, _crc(path)) != checksum:
        return f"{path.name} was altered: its checksum is not the one written"
    return None


def _crc(path: Path) -> int:
    crc, buffer = 0, memoryview(bytearray(CHUNK))
    with open(path, "rb", buffering=0) as file:
        while size := file.readinto(buffer):
            crc = zlib.crc32(buffer[:size], crc)
    return crc


def write_error(path: Path, run: Path, error: OSError) -> CheckpointError:
    """The error to raise when `path` of `run` could not be written."""
    step = last_good_step(run)
    last = "there is no earlier checkpoint" if step is None else f"the last good checkpoint is at step {step}"
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = "free disk space" if is_full else "see that the folder can be written"
    return CheckpointError(
        f"cannot write {path}: {error.strerror or error}; {last}; {advice} and resume the run from its folder {run}"
    )


def last_good_step(run: Path) -> int | None:
    for step, folder in _folders(run):
        try:
            _read_meta(folder)
        except (_DamageError, CheckpointError, OSError):
            continue
        return step
    return None


def _sync_folder(folder: Path) -> None:
    """Make renames in `folder` last through a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    return write_file(path, lambda file: np.savez(file, allow_pickle=False, **arrays))  # pyright: ignore[reportArgumentType]


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        # Opened here, since np.load leaves a file open that turns out to be no archive.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, MemoryError):
        raise
    # An altered file makes zipfile and NumPy's header parser raise nearly anything.
    except Exception as error:
        raise _DamageError(f"{path.name} is not a file of plain arrays: {error}") from error


def save(run: Path, step: int, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any], keep: int = 2) -> Path:
    """Write the checkpoint of `step` and drop older ones; gives its folder.

    Args:
        run: The run's folder.
        step: Steps done.
        arrays: Everything large.
        meta: Everything else, as JSON can hold it.
        keep: How many checkpoints stay, this one included. Later ones than `step` are left alone (`discard_after`).

    Raises:
        CheckpointError: The disk is full or cannot be written; the earlier checkpoints are as they were.
    """
    if keep < 1:
        raise ValueError(f"keep is {keep}, but the checkpoint being written has to stay")
    folder = run / "checkpoints" / f"step_{step:09d}"
    temporary = folder.with_name(f"{TEMPORARY}{step}-{os.getpid()}")
    try:
        _clear_temporaries(folder.parent)
        temporary.mkdir(parents=True)
        checksums = {ARRAYS: _write_npz(temporary / ARRAYS, arrays)}
        body = {"format_version": FORMAT_VERSION, "step": step, "checksums": checksums, "meta": dict(meta)}
        write_file(temporary / META, lambda file: file.write(_render(body)))
        _put_in_place(temporary, folder)
        _drop_older(run, step, keep)
    except OSError as error:
        raise write_error(folder, run, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def load_latest(
    run: Path, warn: Callable[[str], None], check: Callable[[Checkpoint], str | None] | None = None
) -> Checkpoint | None:
    """The newest checkpoint that is whole; None where none was ever written.

    Args:
        run: The run's folder.
        warn: Is told of each damaged checkpoint passed over: its path and what is wrong.
        check: Says what else is wrong with a checkpoint (a damaged segment of the replay), or None.

    Raises:
        CheckpointError: There are checkpoints but none is whole, or one was written by a later version.
    """
    problems = []
    for step, folder in _folders(run):
        try:
            return _read(folder, step, check)
        except (_DamageError, OSError) as damage:
            problems.append(f"checkpoint {folder} is damaged: {damage}")
            warn(problems[-1])
    if problems:
        raise CheckpointError(
            f"no checkpoint of {run} can be read; start the run anew in another folder. " + "; ".join(problems)
        )
    return None


def kept_metas(run: Path) -> list[dict[str, Any]]:
    """The `meta` of every checkpoint that is there and has a readable one, newest first; reads no arrays."""
    metas = []
    for _, folder in _folders(run):
        try:
            metas.append(_read_meta(folder)["meta"])
        except (_DamageError, OSError):
            continue
    return metas


def discard_after(run: Path, step: int) -> None:
    """Remove checkpoints later than `step`: damaged ones that were passed over, which the resumed run writes anew."""
    _clear_temporaries(run / "checkpoints")
    for later, folder in _folders(run):
        if later > step:
            _remove(folder)


def _folders(run: Path) -> list[tuple[int, Path]]:
    """Step and folder of every complete checkpoint, newest first.

    A run killed while it replaced the checkpoint of one step may have left the replaced one, named `.old`, alone.
    """
    found = [(re.fullmatch(r"step_(\d+)(\.old)?", path.name), path) for path in (run / "checkpoints").glob("step_*")]
    ranked = sorted(((int(match[1]), match[2] is None, path) for match, path in found if match), reverse=True)
    return [(step, path) for step, _, path in ranked]


def _put_in_place(temporary: Path, folder: Path) -> None:
    """Rename to `folder`. A folder cannot be renamed over another, so one of that name steps aside for the moment."""
    if folder.exists():
        aside = folder.with_name(folder.name + ".old")
        _remove(aside)
        os.rename(folder, aside)
    os.rename(temporary, folder)
    _sync_folder(folder.parent)


def _drop_older(run: Path, step: int, keep: int) -> None:
    folders = [(other, folder) for other, folder in _folders(run) if other <= step]
    kept_steps = sorted({other for other, _ in folders})[-keep:]
    names = {folder.name for _, folder in folders}
    for other, folder in folders:
        is_replaced = folder.suffix == ".old" and folder.stem in names
        if other not in kept_steps or is_replaced:
            _remove(folder)


def _remove(folder: Path) -> None:
    """Delete a checkpoint under a temporary name, so that half a checkpoint never bears a good one's."""
    if folder.exists():
        doomed = folder.with_name(f"{TEMPORARY}gone-{folder.name}-{os.getpid()}")
        os.rename(folder, doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def _clear_temporaries(folder: Path) -> None:
    for path in folder.glob(f"{TEMPORARY}*"):
        shutil.rmtree(path, ignore_errors=True)


def _render(body: Mapping[str, Any]) -> bytes:
    """The bytes of `meta.json`: the body and a checksum over it."""
    text = json.dumps(body).encode()
    checksum = _format_checksum(len(text), zlib.crc32(text))
    return json.dumps({**body, "checksum": checksum}, indent=1).encode() + b"\n"


def _read_meta(folder: Path) -> dict[str, Any]:
    """The body of `meta.json`, known to be as it was written."""
    path = folder / META
    if not path.is_file():
        raise _DamageError(f"{META} is missing")
    data = path.read_bytes()
    try:
        body = json.loads(data)
    except ValueError as error:
        raise _DamageError(f"{META} is not JSON, perhaps cut short: {error}") from error
    if not isinstance(body, dict) or body.pop("checksum", None) is None or _render(body) != data:
        raise _DamageError(f"{META} was altered: its checksum is not the one written")
    return body


def _read(folder: Path, step: int, check: Callable[[Checkpoint], str | None] | None) -> Checkpoint:
    body = _read_meta(folder)
    _check_version(body.get("format_version"), folder)
    if body["step"] != step:
        raise _DamageError(f"it was written for step {body['step']}")
    if problem := find_damage(folder / ARRAYS, body["checksums"][ARRAYS]):
        raise _DamageError(problem)
    checkpoint = Checkpoint(step, _read_npz(folder / ARRAYS), body["meta"], folder)
    if check is not None and (problem := check(checkpoint)):
        raise _DamageError(problem)
    return checkpoint


def _check_version(version: Any, folder: Path) -> None:
    if isinstance(version, int) and version > FORMAT_VERSION:
        known = f"this program knows up to {FORMAT_VERSION}; use a newer qpensieve"
        raise CheckpointError(f"checkpoint {folder} has format version {version}, {known}")
    if version != FORMAT_VERSION:
        raise _DamageError(f"its format version {version!r} is unknown")


def check_config(saved: Mapping[str, Any], current: Mapping[str, Any], ignore: Collection[str] = ()) -> None:
    """Refuse to resume with another configuration.

    Args:
        saved: The configuration in the checkpoint, as nested plain dicts.
        current: The one asked for now.
        ignore: Dotted names of fields, or of groups of fields, that may differ.

    Raises:
        CheckpointError: Names every field that differs, with both values.
    """
    before, now = _flatten(saved), _flatten(current)
    differences = [
        f"{name} was {before.get(name, 'absent')}, is {now.get(name, 'absent')}"
        for name in {**before, **now}
        if before.get(name) != now.get(name) and not any(_is_under(name, ignored) for ignored in ignore)
    ]
    if differences:
        raise CheckpointError(
            "the checkpoint is of another configuration: "
            + "; ".join(differences)
            + ". Resume with the saved one or choose another folder"
        )


def _flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Dotted name -> value as JSON, so that values compare and print alike; whole floats count as integers."""
    flat: dict[str, str] = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = json.dumps(
                int(value) if isinstance(value, float) and value.is_integer() else value
            )
    return flat


def save_parameters(run: Path, step: int, arrays: Mapping[str, np.ndarray]) -> Path:
    """Write parameters only, to be kept for good; gives the file."""
    path = run / "parameters" / f"step_{step:09d}.npz"
    try:
        _write_npz(path, arrays)
    except OSError as error:
        raise write_error(path, run, error) from error
    return path


def load_parameters(path: Path) -> dict[str, np.ndarray]:
    """The arrays that `save_parameters` wrote; a damaged file is a `CheckpointError`."""
    try:
        return _read_npz(path)
    except (_DamageError, OSError) as error:
        raise CheckpointError(f"cannot read the parameters in {path}: {error}") from error


def cut_jsonl(path: Path, step: int) -> None:
    """Keep only the rows of a log up to `step`, and drop a last line that a killed run left unfinished."""
    if path.exists():
        write_file(path, lambda file: _copy_rows(path, step, file))


def _copy_rows(path: Path, step: int, out: io.RawIOBase) -> None:
    lines = path.read_bytes().splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            is_kept = json.loads(line)["step"] <= step
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                break
            raise CheckpointError(f"line {number} of {path} is not a row with a step: {error!r}") from error
        if is_kept:
            out.write(line + b"\n")
