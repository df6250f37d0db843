"""Named arrays read from a file. What they take is known from its directory and headers before any of them is read.

A small file can claim, or unpack to, terabytes. So sizes are checked first, only arrays that were asked for are read,
and what is no plain array (an object, which would have to be unpickled) is refused.
"""

import math
import zipfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from qpensieve.errors import UserError, file_errors

LIMIT = 1 << 30
"""Bytes that the arrays of a compressed file may take in memory: hundreds of full evaluations of 50 seeds."""
KINDS = "biufcSU"
"""Kinds of plain arrays: numbers, and texts of a fixed length."""
SUFFIX = ".npy"


@dataclass(frozen=True)
class Header:
    """What a file says of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


Headers = Mapping[str, Header]
"""Name -> header."""


def headers_of(arrays: Mapping[str, np.ndarray]) -> dict[str, Header]:
    """What a file of these arrays would say of them."""
    return {name: Header(array.shape, array.dtype) for name, array in arrays.items()}


@dataclass(frozen=True)
class Expected:
    """Arrays that a file has to hold.

    Attributes:
        like: Names, shapes and types.
        growing: Beginnings of names whose arrays may have other lengths, but not another number of axes.
        free: Beginnings of names that need not be there, and may be any.
    """

    like: Headers
    growing: tuple[str, ...] = ()
    free: tuple[str, ...] = field(default=())

    def problems(self, found: Headers) -> list[str]:
        """One sentence for every array that is missing, too many or different."""
        missing = [f"leaf {name} is missing" for name in self.like if name not in found]
        extra = [
            f"unexpected leaf {name}" for name in found if name not in self.like and not name.startswith(self.free)
        ]
        both = [(name, found[name], header) for name, header in self.like.items() if name in found]
        return missing + [text for each in both if (text := self._difference(*each))] + extra

    def _difference(self, name: str, found: Header, wanted: Header) -> str | None:
        if name.startswith(self.growing):
            is_same = len(found.shape) == len(wanted.shape) and found.dtype.kind == wanted.dtype.kind
            return None if is_same else f"leaf {name} is {found.dtype} {found.shape}, not like {wanted.shape}"
        if found.shape != wanted.shape:
            return f"leaf {name} has shape {found.shape}, not {wanted.shape}"
        return None if found.dtype == wanted.dtype else f"leaf {name} has dtype {found.dtype}, not {wanted.dtype}"


def check_axes(found: Headers, axes: Mapping[str, str]) -> None:
    """Check that shapes fit each other.

    Args:
        found: The arrays.
        axes: Name -> its axes, such as `t seed d`; an axis has the same length wherever it is named.

    Raises:
        ValueError: An array is missing or does not fit those before it.
    """
    lengths: dict[str, int] = {}
    for name, words in axes.items():
        if name not in found:
            raise ValueError(f"array {name} is missing")
        shape, wanted = found[name].shape, words.split()
        if len(shape) != len(wanted):
            raise ValueError(f"{name} must be [{', '.join(wanted)}], got shape {shape}")
        for axis, length in zip(wanted, shape, strict=True):
            if lengths.setdefault(axis, length) != length:
                raise ValueError(f"{name} has {length} along its axis {axis!r}, other arrays have {lengths[axis]}")


def read_npz(
    path: Path,
    names: Collection[str] | None = None,
    check: Callable[[Headers], object] | None = None,
    most: int | None = None,
) -> dict[str, np.ndarray]:
    """The named arrays of a file.

    Args:
        path: The file.
        names: Which arrays to read, as far as they are there; None: all.
        check: Is shown the headers before any array is read, to raise ValueError where they are not right.
        most: Bytes that the arrays may take together; None: no more than the file, as where nothing is compressed.

    Raises:
        OSError: If the file cannot be opened.
        ValueError: If it is no archive of plain arrays, takes more than `most`, or `check` says so; names the file.
    """
    with file_errors(path), open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                found = _read_directory(archive, names)
                _check_total(found, path.stat().st_size if most is None else most)
                if check is not None:
                    check(found)
                return {name: _read_array(archive, name) for name in found}
        # An altered file makes zipfile and NumPy's header parser raise nearly anything.
        except Exception as error:
            raise UserError(f"{path.name} is not a file of the arrays expected: {_reason(error)}") from error


def read_header(path: Path) -> Header:
    """What a .npy file says of its array.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is none, or has not as many bytes as it says.
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
    """Headers of the arrays wanted, in the order of the file."""
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
    """The header of an array that takes `size` bytes with it."""
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


def _check_total(found: Headers, most: int) -> None:
    total = sum(header.num_bytes for header in found.values())
    if total > most:
        raise ValueError(f"its arrays would take {total:,} bytes, but {most:,} is the most that they may")


def _read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(name + SUFFIX) as file:
        return np.lib.format.read_array(file, allow_pickle=False)
