"""Folders that travel: what goes out, and what comes home."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from qpensieve.experiments import fence, parcels
from qpensieve.experiments.fence import TakenOverError


def claim(folder: Path) -> Path:
    attempt = fence.claim(folder, lambda _: False)
    assert attempt is not None
    return attempt


def pieces(parcel: parcels.Parcel) -> Iterable[bytes]:
    return [parcels.read_piece(parcel.path, start) for start in range(0, parcel.size, parcels.PIECE)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(parcels, "PIECE", 4096)  # several of them
    away = tmp_path / "away"
    away.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(away))
    folder = tmp_path / "home" / "a"
    folder.mkdir(parents=True)
    (folder / "task.json").write_text("{}")
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_run_comes_home_complete(home: Path, tmp_path: Path):
    away = parcels.unpack_away(parcels.pack_task(home), "a")
    assert names(away) == ["task.json"]
    attempt = claim(away)
    (attempt / "arrays.npz").write_bytes(bytes(range(256)) * 100)
    (attempt / ".tmp-half").write_text("")
    (away / "log-0001.txt").write_text("said")
    fence.publish(attempt)
    parcel = parcels.pack_run(away, "node")
    parcels.unpack_home(pieces(parcel), home)
    assert names(home) == ["log-0001.txt", "run", "task.json"]
    assert (home / "run" / "arrays.npz").read_bytes() == bytes(range(256)) * 100
    assert not (home / "run" / ".tmp-half").exists()
    parcels.discard(parcel.path)
    assert list((tmp_path / "away").iterdir()) == []


def test_what_was_interrupted_comes_home_and_goes_out_again(home: Path):
    away = parcels.unpack_away(parcels.pack_task(home), "a")
    (claim(away) / "step").write_text("100")
    (away / "log-0001.txt").write_text("first")
    parcels.unpack_home(pieces(parcels.pack_run(away, "node")), home)
    assert names(home) == ["attempt-0001.left", "log-0001.txt", "task.json"]
    other = parcels.unpack_away(parcels.pack_task(home), "a")
    attempt = claim(other)
    assert attempt.name == "attempt-0002"
    assert (attempt / "step").read_text() == "100"
    (other / "log-0001.txt").write_text("second")
    fence.publish(attempt)
    parcels.unpack_home(pieces(parcels.pack_run(other, "node")), home)
    assert names(home) == ["log-0001.txt", "log-0002.txt", "run", "task.json"]
    assert (home / "log-0002.txt").read_text() == "second"


def test_an_orphan_that_comes_home_late_changes_nothing(home: Path):
    first, second = (parcels.unpack_away(parcels.pack_task(home), "a") for _ in range(2))
    for away, result in ((first, "first"), (second, "second")):
        attempt = claim(away)
        (attempt / "result").write_text(result)
        fence.publish(attempt)
    parcels.unpack_home(pieces(parcels.pack_run(second, "node")), home)
    with pytest.raises(TakenOverError):
        parcels.unpack_home(pieces(parcels.pack_run(first, "node")), home)
    assert (home / "run" / "result").read_text() == "second"
    assert names(home) == ["run", "task.json"]


def test_a_run_that_was_gone_on_with_replaces_the_shorter_one(home: Path):
    attempt = claim(home)
    (attempt / "steps").write_text("100")
    fence.publish(attempt)
    away = parcels.unpack_away(parcels.pack_task(home), "a")
    longer = claim(away)
    (longer / "steps").write_text("200")
    fence.publish(longer)
    parcels.unpack_home(pieces(parcels.pack_run(away, "node")), home)
    assert (home / "run" / "steps").read_text() == "200"
    assert json.loads((home / "run" / "worker.json").read_text())["number"] == 2
    assert names(home) == ["run", "task.json"]
