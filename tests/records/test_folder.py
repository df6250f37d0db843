"""A run folder: one process at a time, and nothing is written through a symbolic link."""

import os
import platform
from pathlib import Path

import pytest

from qpensieve.records import files
from qpensieve.records.folder import (
    FILES,
    FOLDERS,
    LOCK,
    METRICS,
    FolderInUseError,
    Holder,
    LinkError,
    holder,
    lock,
    open_to_append,
    refuse_links,
)
from qpensieve.records.log import MetricsLog

PRECIOUS = "years of work"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder beside things that it must not touch."""
    (tmp_path / "precious.txt").write_text(PRECIOUS)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "rows_0_9.npy").write_text(PRECIOUS)
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def assert_untouched(run: Path) -> None:
    assert (run.parent / "precious.txt").read_text() == PRECIOUS
    assert (run.parent / "elsewhere" / "rows_0_9.npy").read_text() == PRECIOUS
    assert len(list((run.parent / "elsewhere").iterdir())) == 1


@pytest.mark.parametrize("target", ["../precious.txt", "../missing.txt", "../elsewhere", "."])
@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_a_folder_with_a_link_in_the_place_of_a_file_is_not_held(name: str, target: str, run: Path):
    (run / name).symlink_to(target)
    with pytest.raises(LinkError, match=rf"run/{name} is a symbolic link to .*Remove the link"):
        lock(run)
    assert_untouched(run)
    assert not (run.parent / "missing.txt").exists()
    assert [path.name for path in run.iterdir()] == [name]


@pytest.mark.parametrize("name", ["step_000000010", "step_000000010/arrays.npz", "a/b/c"])
@pytest.mark.parametrize("folder", FOLDERS)
def test_nor_one_with_a_link_deeper_in_a_folder(folder: str, name: str, run: Path):
    path = run / folder / name
    path.parent.mkdir(parents=True)
    path.symlink_to(run.parent / "elsewhere")
    with pytest.raises(LinkError, match=f"{path} is a symbolic link"):
        refuse_links(run)


def test_the_folder_itself_may_be_a_link_and_hold_links_of_other_names(run: Path):
    (run / "notes").symlink_to("../precious.txt")
    (run.parent / "latest").symlink_to("run")
    lock(run.parent / "latest").close()
    assert (run / LOCK).is_file()


@pytest.mark.parametrize("target", ["../precious.txt", "../missing.txt"])
def test_a_log_is_not_appended_through_a_link(target: str, run: Path):
    (run / METRICS).symlink_to(target)
    with pytest.raises(LinkError, match=METRICS):
        MetricsLog(run / METRICS).write("train", 1, {})
    assert_untouched(run)
    assert not (run.parent / "missing.txt").exists()


def test_a_pipe_is_refused_and_does_not_hang(run: Path):
    os.mkfifo(run / METRICS)
    with pytest.raises(LinkError, match=r"metrics\.jsonl is not a plain file"):
        open_to_append(run / METRICS)


@pytest.mark.parametrize("target", ["../precious.txt", "../missing.txt", "../elsewhere"])
def test_what_is_written_whole_replaces_a_link_and_leaves_its_target(target: str, run: Path):
    path = run / "file"
    path.symlink_to(target)
    files.write_text(path, "new")
    assert not path.is_symlink()
    assert path.is_file()
    assert_untouched(run)
    assert not (run.parent / "missing.txt").exists()


def test_a_link_with_the_name_of_a_temporary_file_is_not_followed(run: Path):
    (run / f"{files.TEMPORARY}file-{os.getpid()}").symlink_to("../precious.txt")
    files.write_text(run / "file", "new")
    assert_untouched(run)
    assert (run / "file").read_text() == "new"


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
