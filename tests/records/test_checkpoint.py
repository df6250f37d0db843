import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qpensieve.records import checkpoint
from qpensieve.records.checkpoint import CheckpointError, load_latest, save

ARRAYS = {".net.weight": np.arange(600, dtype=np.float32).reshape(20, 30), ".count": np.array(7, dtype=np.int32)}
META = {"config": {"seed": 3, "rate": 3e-4}, "lanes": [1, 2.5, None], "state": 2**127 + 1}


def refuse_to_warn(message: str):
    raise AssertionError(message)


def flip(path: Path, offset: int):
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x11
    path.write_bytes(data)


def steps_kept(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def assert_same_arrays(left: dict[str, np.ndarray], right: dict[str, np.ndarray]):
    assert left.keys() == right.keys()
    for name in left:
        assert left[name].dtype == right[name].dtype
        np.testing.assert_array_equal(left[name], right[name])


def test_a_checkpoint_comes_back_as_saved(tmp_path: Path):
    folder = save(tmp_path, 50_000, ARRAYS, META)
    assert folder == tmp_path / "checkpoints" / "step_000050000"
    loaded = load_latest(tmp_path, refuse_to_warn)
    assert loaded is not None
    assert (loaded.step, loaded.meta, loaded.path) == (50_000, META, folder)
    assert_same_arrays(loaded.arrays, ARRAYS)


def test_the_last_two_are_kept(tmp_path: Path):
    for step in (10, 20, 30):
        save(tmp_path, step, ARRAYS, {"at": step})
    assert steps_kept(tmp_path) == ["step_000000020", "step_000000030"]
    assert list(checkpoint.kept_metas(tmp_path)) == [(30, {"at": 30}), (20, {"at": 20})]


def test_a_step_saved_again_keeps_the_earlier_one(tmp_path: Path):
    """A run has the same numbers at a step, however often it gets there; replacing a folder takes two renames."""
    folder = save(tmp_path, 10, ARRAYS, META)
    before = folder.stat().st_ino
    assert save(tmp_path, 10, ARRAYS, META) == folder
    assert folder.stat().st_ino == before
    assert steps_kept(tmp_path) == ["step_000000010"]


def test_later_checkpoints_stay_until_they_are_discarded(tmp_path: Path):
    for step in (10, 40, 20, 30):
        save(tmp_path, step, ARRAYS, META)
    assert steps_kept(tmp_path) == ["step_000000020", "step_000000030", "step_000000040"]
    checkpoint.discard_after(tmp_path, 20)
    assert steps_kept(tmp_path) == ["step_000000020"]


def test_what_a_killed_save_has_left_is_cleared_by_the_next(tmp_path: Path):
    save(tmp_path, 10, ARRAYS, META)
    (tmp_path / "checkpoints" / ".tmp-20-1").mkdir()
    loaded = load_latest(tmp_path, refuse_to_warn)
    assert loaded is not None
    assert loaded.step == 10
    save(tmp_path, 30, ARRAYS, META)
    assert steps_kept(tmp_path) == ["step_000000010", "step_000000030"]


@pytest.mark.parametrize("failing", ["savez", "fsync", "rename"])
def test_a_full_disk_leaves_everything_as_it_was_and_says_so(failing: str, tmp_path: Path, monkeypatch):
    def fail(*_args, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    save(tmp_path, 10, ARRAYS, META)
    monkeypatch.setattr(np if failing == "savez" else os, failing, fail)
    with pytest.raises(CheckpointError) as caught:
        save(tmp_path, 20, ARRAYS, META)
    for words in ("step_000000020", "No space left on device", "last good checkpoint is at step 10", "free disk space"):
        assert words in str(caught.value)
    assert steps_kept(tmp_path) == ["step_000000010"]


def test_what_json_or_plain_arrays_cannot_hold_is_refused_without_leftovers(tmp_path: Path):
    with pytest.raises(TypeError, match="JSON"):
        save(tmp_path, 10, ARRAYS, {"bad": object()})
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        save(tmp_path, 10, {"bad": np.array([object()])}, {})
    assert steps_kept(tmp_path) == []


def truncate(path: Path):
    os.truncate(path, path.stat().st_size // 2)


def flip_middle(path: Path):
    flip(path, path.stat().st_size // 2)


def make_garbage(path: Path):
    path.write_bytes(b"garbage")


DAMAGES = [Path.unlink, truncate, lambda path: os.truncate(path, 0), flip_middle, make_garbage]


@pytest.mark.parametrize("damage", DAMAGES, ids=["missing", "truncated", "empty", "altered", "garbage"])
@pytest.mark.parametrize("file", ["arrays.npz", "meta.json"])
def test_a_damaged_checkpoint_is_reported_and_the_one_before_is_used(file: str, damage, tmp_path: Path):
    save(tmp_path, 10, ARRAYS, META)
    folder = save(tmp_path, 20, ARRAYS, META)
    damage(folder / file)
    warnings: list[str] = []
    loaded = load_latest(tmp_path, warnings.append)
    assert loaded is not None
    assert loaded.step == 10
    assert len(warnings) == 1
    assert str(folder) in warnings[0]
    assert file in warnings[0]


@pytest.mark.parametrize("file", ["arrays.npz", "meta.json"])
def test_one_altered_byte_is_detected_wherever_it_is(file: str, tmp_path: Path):
    folder = save(tmp_path, 10, ARRAYS, META)
    size = (folder / file).stat().st_size
    for offset in {*range(0, size, 97), *range(min(size, 30)), *range(size - 30, size)}:
        flip(folder / file, offset)
        with pytest.raises(CheckpointError, match=r"no checkpoint of .* can be read"):
            load_latest(tmp_path, lambda _: None)
        flip(folder / file, offset)
    assert load_latest(tmp_path, refuse_to_warn) is not None


def rewrite_meta(folder: Path, **changes):
    body = json.loads((folder / "meta.json").read_text())
    del body["checksum"]
    (folder / "meta.json").write_bytes(checkpoint._render(body | changes))


def test_a_newer_format_is_refused_and_not_passed_over(tmp_path: Path):
    save(tmp_path, 10, ARRAYS, META)
    rewrite_meta(save(tmp_path, 20, ARRAYS, META), format_version=checkpoint.FORMAT_VERSION + 1)
    with pytest.raises(CheckpointError, match="use a newer qpensieve"):
        load_latest(tmp_path, refuse_to_warn)


@pytest.mark.parametrize("changes", [{"format_version": None}, {"step": 21}], ids=str)
def test_an_unknown_format_or_another_step_counts_as_damage(changes: dict[str, Any], tmp_path: Path):
    save(tmp_path, 10, ARRAYS, META)
    rewrite_meta(save(tmp_path, 20, ARRAYS, META), **changes)
    warnings: list[str] = []
    loaded = load_latest(tmp_path, warnings.append)
    assert loaded is not None
    assert loaded.step == 10
    assert len(warnings) == 1


def test_parameters_are_kept_for_good(tmp_path: Path):
    paths = [checkpoint.save_parameters(tmp_path, step, ARRAYS) for step in (100_000, 200_000, 300_000)]
    assert paths[0] == tmp_path / "parameters" / "step_000100000.npz"
    for path in paths:
        assert_same_arrays(checkpoint.load_parameters(path), ARRAYS)
    assert sorted(tmp_path.glob("parameters/*")) == paths


@pytest.mark.parametrize("damage", DAMAGES, ids=["missing", "truncated", "empty", "altered", "garbage"])
def test_damaged_parameters_are_refused_by_name(damage, tmp_path: Path):
    path = checkpoint.save_parameters(tmp_path, 1, ARRAYS)
    damage(path)
    with pytest.raises(CheckpointError, match=r"step_000000001\.npz"):
        checkpoint.load_parameters(path)
