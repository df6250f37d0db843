"""One process at a time in a run folder."""

import os
import platform
from pathlib import Path

import pytest

from qpensieve.records.folder import LOCK, FolderInUseError, Holder, holder, lock


def test_a_second_process_is_told_who_holds_the_folder(tmp_path: Path):
    held = lock(tmp_path)
    with pytest.raises(FolderInUseError, match=f"in use by process {os.getpid()} on {platform.node()}"):
        lock(tmp_path)
    held.close()


def test_holder_names_the_process_while_it_holds_the_folder(tmp_path: Path):
    assert holder(tmp_path) is None
    held = lock(tmp_path)
    assert holder(tmp_path) == Holder(platform.node(), os.getpid())
    held.close()
    assert holder(tmp_path) is None


@pytest.mark.parametrize("content", ["", "12345\n", "[1]", '{"host": 1}'])
def test_holder_of_an_unreadable_lock_file_is_unknown(content: str, tmp_path: Path):
    held = lock(tmp_path)
    (tmp_path / LOCK).write_text(content)
    assert holder(tmp_path) == Holder()
    held.close()


def test_the_older_of_two_owners_stops(tmp_path: Path):
    """Some file systems lock for one machine only: a process on another one gets the lock too."""
    older = lock(tmp_path)
    (tmp_path / LOCK).rename(tmp_path / "moved")  # another file: its lock is free
    newer = lock(tmp_path)
    newer.check()
    with pytest.raises(FolderInUseError, match="taken over"):
        older.check()
    newer.close()
    older.close()


def test_an_owner_whose_lock_file_is_gone_stops(tmp_path: Path):
    held = lock(tmp_path)
    (tmp_path / LOCK).unlink()
    with pytest.raises(FolderInUseError, match="taken over"):
        held.check()
    held.close()
