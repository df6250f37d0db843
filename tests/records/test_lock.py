"""One process at a time in a run folder."""

import os

import pytest

from qpensieve.records.lock import FolderInUseError, lock


def test_a_second_holder_is_told_who_holds_the_folder(tmp_path):
    held = lock(tmp_path)
    with pytest.raises(FolderInUseError, match=f"in use by process {os.getpid()}"):
        lock(tmp_path)
    held.close()


def test_a_folder_that_was_let_go_can_be_held_again(tmp_path):
    lock(tmp_path).close()
    again = lock(tmp_path)
    assert (tmp_path / "run.lock").read_text() == f"{os.getpid()}\n"
    again.close()
