"""Files written whole or not at all."""

import errno
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qpensieve.errors import MissingFileError, UserFileError
from qpensieve.records import files
from qpensieve.records.files import read_npz

ARRAYS = {"a": np.arange(12.0).reshape(3, 4), "b": np.array(7)}


def assert_same(found: dict[str, np.ndarray]) -> None:
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)


def test_arrays_come_back_and_the_checksum_is_that_of_the_file(tmp_path: Path):
    path = tmp_path / "x.npz"
    checksum = files.write_npz(path, ARRAYS)
    assert_same(read_npz(path))
    assert checksum == f"{path.stat().st_size}-crc32-{zlib.crc32(path.read_bytes()):08x}"
    assert files.find_damage(path, checksum) is None
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_is_gone_does_not_come_back(tmp_path: Path):
    """A process whose folder was renamed must not make another one of that name (experiments/ray.py)."""
    with pytest.raises(MissingFileError):
        files.write_text(tmp_path / "gone" / "x.json", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", [files.check_can_write, lambda path: files.write_text(path, "")])
def test_a_folder_that_cannot_be_written_is_told_by_the_name_that_was_asked_for(write, tmp_path: Path, monkeypatch):
    def refuse(path: Any, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(UserFileError, match=rf"Permission denied: '{re.escape(str(tmp_path))}/x\.json'$"):
        write(tmp_path / "x.json")


def test_what_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path):
    path = tmp_path / "x.npz"
    files.write_npz(path, ARRAYS)
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        files.write_npz(path, {"bad": np.array([object()])})
    assert_same(read_npz(path))
    assert list(tmp_path.iterdir()) == [path]


def test_every_kind_of_damage_is_named(tmp_path: Path):
    path = tmp_path / "x.txt"
    checksum = files.write_text(path, "hello")
    path.write_text("hallo")
    assert "was altered" in (files.find_damage(path, checksum) or "")
    path.write_text("hell")
    assert "has 4 bytes" in (files.find_damage(path, checksum) or "")
    path.unlink()
    assert "is missing" in (files.find_damage(path, checksum) or "")
