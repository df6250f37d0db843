import errno
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from qpensieve.records.checkpoint import CheckpointError, kept_metas, load_latest, save
from qpensieve.replay.log import ReplayLog

LANES, WIDTH, BLOCK = 2, 3, 10


def make_log(run: Path, capacity: int = 100) -> ReplayLog:
    return ReplayLog(run, WIDTH, LANES, capacity)


def block(index: int) -> np.ndarray:
    """Rows index * BLOCK onward; each number says its lane, row and column."""
    rows = np.arange(index * BLOCK, (index + 1) * BLOCK, dtype=np.float32)
    return rows[None, :, None] + np.float32(10_000) * np.arange(LANES)[:, None, None] + np.arange(WIDTH) / 4


def blocks(first: int, last: int) -> np.ndarray:
    return np.concatenate([block(index).astype(np.float32) for index in range(first, last)], axis=1)


def fill(log: ReplayLog, first: int, last: int):
    for index in range(first, last):
        log.append(block(index).astype(np.float32))


def files(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "replay").iterdir())


def checkpoint_at(run: Path, log: ReplayLog, step: int):
    save(run, step, {}, {"replay": log.flush()})
    log.prune(meta["replay"] for _, meta in kept_metas(run))


def test_rows_come_back_in_the_order_written(tmp_path: Path):
    log = make_log(tmp_path)
    fill(log, 0, 3)
    log.flush()
    fill(log, 3, 4)
    rows, first = log.load(log.flush())
    assert first == 0
    np.testing.assert_array_equal(rows, blocks(0, 4))


def test_rows_are_copied_whatever_their_order_and_an_empty_log_has_none(tmp_path: Path):
    log, rows = make_log(tmp_path), np.asfortranarray(blocks(0, 1))
    assert log.flush() == []
    assert log.load([])[0].shape == (LANES, 0, WIDTH)
    log.append(rows[:, ::2])
    rows[:] = 0
    np.testing.assert_array_equal(log.load(log.flush())[0], blocks(0, 1)[:, ::2])


def test_a_flush_writes_only_what_is_new(tmp_path: Path):
    log = make_log(tmp_path)
    fill(log, 0, 5)
    log.flush()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "replay").iterdir()}
    fill(log, 5, 6)
    manifest = log.flush()
    assert [(segment["file"], segment["start"], segment["end"]) for segment in manifest] == [
        ("rows_0_50.npy", 0, 50),
        ("rows_50_60.npy", 50, 60),
    ]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    header = 128
    assert (tmp_path / "replay" / "rows_50_60.npy").stat().st_size == header + LANES * BLOCK * WIDTH * 4
    assert log.flush() == manifest


def test_of_a_run_longer_than_the_ring_the_newest_rows_come_back(tmp_path: Path):
    log = make_log(tmp_path, capacity=50)
    for index in range(0, 12, 3):
        fill(log, index, index + 3)
        log.flush()
    manifest = log.flush()
    assert [segment["start"] for segment in manifest] == [60, 90]
    rows, first = log.load(manifest)
    assert first == 70
    np.testing.assert_array_equal(rows, blocks(7, 12))
    fill(log, 12, 19)  # more in one file than the ring holds
    rows, first = log.load(log.flush())
    assert first == 140
    np.testing.assert_array_equal(rows, blocks(14, 19))


def test_files_go_only_when_no_kept_checkpoint_needs_them(tmp_path: Path):
    log = make_log(tmp_path, capacity=20)
    for index in range(6):
        fill(log, index, index + 1)
        checkpoint_at(tmp_path, log, (index + 1) * BLOCK)
    assert files(tmp_path) == ["rows_30_40.npy", "rows_40_50.npy", "rows_50_60.npy"]
    (_, newer), (_, older) = kept_metas(tmp_path)
    np.testing.assert_array_equal(log.load(newer["replay"])[0], blocks(4, 6))
    np.testing.assert_array_equal(log.load(older["replay"])[0], blocks(3, 5))


def test_a_resumed_log_goes_on_after_the_manifest_and_deletes_what_a_killed_run_left(tmp_path: Path):
    log = make_log(tmp_path, capacity=30)
    for index in range(5):
        fill(log, index, index + 1)
        log.flush()
    manifest = log.flush()
    fill(log, 5, 7)
    log.flush()
    (tmp_path / "replay" / ".tmp-rows_70_80.npy-1").write_bytes(b"half")

    resumed = make_log(tmp_path, capacity=30)
    resumed.resume(manifest)
    assert resumed.written == 50
    assert files(tmp_path) == [f"rows_{start}_{start + 10}.npy" for start in range(0, 50, 10)]
    fill(resumed, 5, 6)
    rows, first = resumed.load(resumed.flush())
    assert first == 30
    np.testing.assert_array_equal(rows, blocks(3, 6))
    resumed.resume([])  # of a run that was killed before its first checkpoint
    assert (files(tmp_path), resumed.written) == ([], 0)


def flip_middle(path: Path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES = [Path.unlink, lambda path: os.truncate(path, 200), flip_middle]


@pytest.mark.parametrize("damage", DAMAGES, ids=["missing", "truncated", "altered"])
def test_a_damaged_segment_is_named(damage, tmp_path: Path):
    log = make_log(tmp_path)
    fill(log, 0, 2)
    log.flush()
    fill(log, 2, 4)
    manifest = log.flush()
    assert log.verify(manifest) is None
    damage(tmp_path / "replay" / "rows_20_40.npy")
    problem = log.verify(manifest)
    assert problem is not None
    assert "rows_20_40.npy" in problem
    with pytest.raises(CheckpointError, match="rows_20_40"):
        log.load(manifest)


def test_a_damaged_segment_makes_its_checkpoint_fall_back_to_the_one_before(tmp_path: Path):
    log = make_log(tmp_path)
    for index in range(2):
        fill(log, index, index + 1)
        checkpoint_at(tmp_path, log, (index + 1) * BLOCK)
    flip_middle(tmp_path / "replay" / "rows_10_20.npy")
    warnings: list[str] = []
    found = load_latest(tmp_path, warnings.append, check=lambda checkpoint: log.verify(checkpoint.meta["replay"]))
    assert found is not None
    assert found.step == 10
    assert "rows_10_20.npy" in warnings[0]
    np.testing.assert_array_equal(log.load(found.meta["replay"])[0], blocks(0, 1))


def test_a_manifest_with_a_gap_or_a_name_outside_the_folder_is_refused(tmp_path: Path):
    log = make_log(tmp_path)
    for index in range(3):
        fill(log, index, index + 1)
        log.flush()
    manifest = log.flush()
    assert "no rows between" in str(log.verify([manifest[0], manifest[2]]))
    assert "no rows before" in str(log.verify(manifest[1:]))
    outside = manifest[0].copy()
    outside["file"] = "../replay/rows_0_10.npy"
    assert "name does not fit" in str(log.verify([outside]))


def test_rows_outlive_a_full_disk_in_memory(tmp_path: Path, monkeypatch):
    def fail(*_args):
        raise OSError(errno.ENOSPC, "No space left on device")

    log = make_log(tmp_path)
    fill(log, 0, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(CheckpointError, match=r"rows_0_10\.npy: No space left on device"):
            log.flush()
    assert files(tmp_path) == []
    fill(log, 1, 2)
    np.testing.assert_array_equal(log.load(log.flush())[0], blocks(0, 2))


def test_neither_flushing_nor_loading_copies_the_rows_more_than_once(tmp_path: Path):
    log, big = ReplayLog(tmp_path, 100, 2, 10_000), np.ones((2, 5_000, 100), np.float32)
    log.append(big)
    log.append(big)
    slack = 4 << 20
    tracemalloc.start()
    try:
        manifest = log.flush()
        assert tracemalloc.get_traced_memory()[1] < slack
        tracemalloc.reset_peak()
        rows, _ = log.load(manifest)
        assert tracemalloc.get_traced_memory()[1] < rows.nbytes + slack
    finally:
        tracemalloc.stop()
