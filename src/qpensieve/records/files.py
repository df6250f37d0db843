"""Files of a folder: written whole or not at all, and read with care, because their source may be unknown.

A file is written under a temporary name, synced and renamed, so a reader sees the old file or the new one. A small file
can claim, or unpack to, terabytes: sizes are checked before arrays are made, and only plain arrays are read, without
pickle. Errors of reading name the file.
"""

import io
import json
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_args

import numpy as np

from qpensieve.errors import MissingFileError, UserError, file_errors

Record = TypeVar("Record")
JSON_LIMIT = 64 << 20
"""Most bytes of a JSON file; its parsed content takes many times as much."""


class FileError(UserError):
    """A file does not hold what it should; the message names it."""


def parse(path: Path, content: bytes | str) -> Any:
    """Parse the JSON of a file; FileError if it is not JSON."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise FileError(f"cannot read {path}: its JSON is nested too deeply") from error
    except (ValueError, MemoryError) as error:
        raise FileError(f"cannot read {path}: it is not JSON ({error})") from error


def read_bytes(path: Path) -> bytes:
    """Return the content of a file; MissingFileError without a file, FileError if it is too large or no plain file."""
    with file_errors(path):
        if not path.exists():
            raise MissingFileError(f"{path} is missing")
        if not path.is_file():
            raise FileError(f"cannot read {path}: it is not a file")
        if path.stat().st_size > JSON_LIMIT:
            raise FileError(
                f"cannot read {path}: it has {path.stat().st_size:,} bytes, at most {JSON_LIMIT:,} are read"
            )
        return path.read_bytes()


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; FileError if the file holds anything else."""
    content = parse(path, read_bytes(path))
    if not isinstance(content, dict):
        raise FileError(f"cannot read {path}: it holds a {type(content).__name__}, not a JSON object")
    return content


@contextmanager
def interpreting(path: Path, kind: str) -> Iterator[None]:
    """Turn errors of interpreting the content of a file into a FileError that names the file.

    Args:
        path: The file.
        kind: What it should hold, such as `a configuration`.
    """
    try:
        yield
    except (FileError, OSError):
        raise
    except KeyError as error:
        raise FileError(f"cannot read {path} as {kind}: {error.args[0]!r} is missing") from error
    except (ValueError, TypeError, AttributeError, IndexError, OverflowError, RecursionError, MemoryError) as error:
        raise FileError(f"cannot read {path} as {kind}: {error}") from error


TEMPORARY = ".tmp-"
"""Prefix of the names of files and folders that are still being written."""
CHUNK = 1 << 20
"""Bytes read at a time when a file is checked."""


def write_file(path: Path, write: Callable[[io.BufferedIOBase], object]) -> str:
    """Write `path` through `write`, whole or not at all; returns the checksum of the content.

    A symbolic link of that name is replaced, and its target is unchanged. The folder must exist: a folder that was
    renamed while a process wrote into it (`experiments/ray.py`) must not come back.

    Raises:
        UserFileError: The file cannot be written.
    """
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}")
    with file_errors(path, temporary):
        temporary.unlink(missing_ok=True)  # left by an earlier attempt
        try:
            with open(temporary, "xb+") as file:  # a new file, never the target of a link
                write(file)
                file.flush()
                os.fsync(file.fileno())
                file.seek(0)
                checksum = checksum_of(file)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(path.parent)
    return checksum


def check_can_write(path: Path) -> None:
    """Raise the error that `write_file` would raise if the folder of `path` cannot be written; leaves no file."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}")
    with file_errors(path, temporary):
        temporary.unlink(missing_ok=True)
        temporary.touch(exist_ok=False)
        temporary.unlink()


def write_text(path: Path, text: str) -> str:
    """Write `text` to `path`; returns its checksum."""
    return write_file(path, lambda file: file.write(text.encode()))


def write_json(path: Path, content: Any) -> str:
    """Write `content` to `path` as indented JSON; returns its checksum."""
    return write_text(path, json.dumps(content, indent=2) + "\n")


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Write named arrays to `path`; returns its checksum."""
    return write_file(path, lambda file: np.savez(file, allow_pickle=False, **arrays))  # pyright: ignore[reportArgumentType]


def sync_folder(folder: Path) -> None:
    """Make the newest renames in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum_of(file: io.BufferedIOBase) -> str:
    """Return the checksum of a file's content from its position to the end."""
    size = crc = 0
    while data := file.read(CHUNK):
        size, crc = size + len(data), zlib.crc32(data, crc)
    return f"{size}-crc32-{crc:08x}"


def find_damage(path: Path, checksum: str) -> str | None:
    """Return what is wrong with a file that was written with this checksum; None if nothing is."""
    if not path.is_file():
        return f"{path.name} is missing"
    size, written = path.stat().st_size, checksum.split("-")[0]
    if str(size) != written:
        return f"{path.name} has {size} bytes, but {written} were written"
    with open(path, "rb") as file:
        is_same = checksum_of(file) == checksum
    return None if is_same else f"{path.name} was altered: its checksum is not the one written"


LIMIT = 1 << 30
"""Most bytes that the arrays of a compressed file may take in memory: hundreds of full evaluations of 50 seeds."""
KINDS = "biufcSU"
"""Kinds of plain arrays: numbers, and texts of a fixed length."""
SUFFIX = ".npy"


@dataclass(frozen=True)
class Header:
    """Shape and type of an array in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


Headers = Mapping[str, Header]
"""Name -> header."""


def headers_of(arrays: Mapping[str, np.ndarray]) -> dict[str, Header]:
    """Return the headers of arrays."""
    return {name: Header(array.shape, array.dtype) for name, array in arrays.items()}


@dataclass(frozen=True)
class Expected:
    """Arrays that a file has to hold.

    Attributes:
        like: Names, shapes and types.
        growing: Prefixes of names whose arrays may have other lengths, but not another number of axes.
        free: Prefixes of names that the file may have although `like` does not list them.
    """

    like: Headers
    growing: tuple[str, ...] = ()
    free: tuple[str, ...] = ()

    def problems(self, found: Headers) -> list[str]:
        """Return a sentence for each array that is missing, unexpected or different."""
        problems = [f"leaf {name} is missing" for name in self.like if name not in found]
        for name in (name for name in self.like if name in found):
            has, wanted = found[name], self.like[name]
            if name.startswith(self.growing):
                if (len(has.shape), has.dtype.kind) != (len(wanted.shape), wanted.dtype.kind):
                    problems.append(f"leaf {name} is {has.dtype} {has.shape}, not like {wanted.shape}")
            elif has.shape != wanted.shape:
                problems.append(f"leaf {name} has shape {has.shape}, not {wanted.shape}")
            elif has.dtype != wanted.dtype:
                problems.append(f"leaf {name} has dtype {has.dtype}, not {wanted.dtype}")
        extra = [name for name in found if name not in self.like and not name.startswith(self.free)]
        return problems + [f"unexpected leaf {name}" for name in extra]


def save_record(path: Path, record: Any) -> None:
    """Write a dataclass of arrays, compressed; fields that are None are left out. Equal arrays make equal bytes."""
    named = {one.name: value for one in fields(record) if (value := getattr(record, one.name)) is not None}
    write_file(path, lambda file: np.savez_compressed(file, allow_pickle=False, **named))  # pyright: ignore[reportArgumentType]


def empty_record(kind: type[Record], **lengths: int) -> Record:
    """Return a dataclass of arrays of zeros; an axis of its annotations that is not in `lengths` has length 0."""
    firsts: dict[str, Any] = {name: (get_args(given) or (given,))[0] for name, given in kind.__annotations__.items()}
    shape_of = lambda annotation: tuple(lengths.get(axis, 0) for axis in annotation.dim_str.split())
    return kind(**{name: np.zeros(shape_of(first), first.dtypes[0]) for name, first in firsts.items()})


def load_record(path: Path, kind: type[Record]) -> Record:
    """Read a dataclass of arrays that `save_record` wrote; arrays that may be None may be missing.

    Raises:
        OSError: The file cannot be opened.
        ValueError: An array is missing, or types and shapes do not fit the annotations, in which an axis has the same
            length wherever it is named.
    """
    all_of = {name: (get_args(given) or (given,)) for name, given in kind.__annotations__.items()}
    optional = {name for name, (_, *others) in all_of.items() if others}

    def check(found: Headers) -> None:
        lengths: dict[str, int] = {}
        for name in [name for name in all_of if name in found or name not in optional]:
            annotation: Any = all_of[name][0]
            if name not in found:
                raise ValueError(f"array {name} is missing")
            shape, dtype, axes = found[name].shape, found[name].dtype, annotation.dim_str.split()
            if dtype.name not in annotation.dtypes:
                raise ValueError(f"{name} must be {' or '.join(annotation.dtypes)}, got {dtype}")
            if len(shape) != len(axes):
                raise ValueError(f"{name} must be [{', '.join(axes)}], got shape {shape}")
            for axis, length in zip(axes, shape, strict=True):
                if lengths.setdefault(axis, length) != length:
                    others = f"other arrays have {lengths[axis]}"
                    raise ValueError(f"{name} has {length} along its axis {axis!r}, {others}")

    return kind(**(dict.fromkeys(optional) | read_npz(path, all_of, check, LIMIT)))


def read_npz(
    path: Path,
    names: Collection[str] | None = None,
    check: Callable[[Headers], object] | None = None,
    most: int | None = None,
) -> dict[str, np.ndarray]:
    """Read named arrays from a file.

    Args:
        path: The file.
        names: Names of the arrays to read; missing ones are left out. None: all.
        check: Called with the headers before any array is read; it raises ValueError if they are wrong. None: no check.
        most: Bytes that the arrays may take together. None: the size of the file, which is then not compressed.

    Raises:
        OSError: The file cannot be opened.
        ValueError: The file is no archive of plain arrays, its arrays take more than `most`, or `check` raised; the
            message names the file.
    """
    with file_errors(path), open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                found = _read_directory(archive, names)
                total, limit = sum(header.num_bytes for header in found.values()), most or path.stat().st_size
                if total > limit:
                    raise ValueError(f"its arrays would take {total:,} bytes, but {limit:,} is the most that they may")
                if check is not None:
                    check(found)
                read = lambda name: np.lib.format.read_array(archive.open(name + SUFFIX), allow_pickle=False)
                return {name: read(name) for name in found}
        # An altered file makes zipfile and NumPy's header parser raise nearly anything.
        except Exception as error:
            raise UserError(f"{path.name} is not a file of the arrays expected: {_reason(error)}") from error


def read_header(path: Path) -> Header:
    """Read the header of a .npy file.

    Raises:
        OSError: The file cannot be opened.
        ValueError: The file is no .npy file, or its size is not the one in its header.
    """
    with file_errors(path), open(path, "rb") as file:
        try:
            return _read_header(file, path.stat().st_size)
        except Exception as error:
            raise UserError(f"{path.name} is not a file of a plain array: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, zipfile.BadZipFile):
        return f"it is not a whole .npz archive ({error})"
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__} {error}".rstrip()


def _read_directory(archive: zipfile.ZipFile, names: Collection[str] | None) -> dict[str, Header]:
    """Read the headers of the wanted arrays, in the order of the file."""
    found: dict[str, Header] = {}
    for entry in archive.infolist():
        name = entry.filename.removesuffix(SUFFIX)
        if names is not None and name not in names:
            continue
        if not entry.filename.endswith(SUFFIX) or name in found:
            raise ValueError(f"it holds {entry.filename!r}, which is no array or there twice")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{name} is compressed in a way that NumPy never does")
        with archive.open(entry) as file:
            found[name] = _read_header(file, entry.file_size)
    return found


def _read_header(file: Any, size: int) -> Header:
    """Read the header of an array; ValueError unless header and array together have `size` bytes."""
    version = np.lib.format.read_magic(file)
    if version != (1, 0):  # later ones have headers of up to 4 GB, and no array here needs one
        raise ValueError(f"its format has version {version}, expected (1, 0)")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded: they could run code")
    if dtype.kind not in KINDS or min((dtype.itemsize, *shape)) < 0 or dtype.itemsize == 0:
        raise ValueError(f"an array of type {dtype} and shape {shape} is none that this program writes")
    header = Header(shape, dtype)
    if header.num_bytes != size - file.tell():
        raise ValueError(f"an array says {dtype} {shape}, {header.num_bytes:,} bytes, but has {size - file.tell():,}")
    return header
