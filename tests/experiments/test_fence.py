"""The fence: who may publish, whatever is killed or stopped between two steps."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from qpensieve.experiments import fence
from qpensieve.experiments.fence import TakenOverError
from qpensieve.records.atomic import write_json, write_text

never = lambda _: False
always = lambda _: True


class DeadError(Exception):
    """Stands for kill -9."""


def claim(task: Path) -> Path:
    found = fence.claim(task, never)
    assert found is not None
    return found


def names(task: Path) -> list[str]:
    return sorted(path.name for path in task.iterdir())


def fill(attempt: Path) -> None:
    """The kinds of files that a run folder has."""
    (attempt / "checkpoints" / "step_000000100").mkdir(parents=True)
    (attempt / "checkpoints" / "step_000000100" / "arrays.npz").write_bytes(b"arrays")
    (attempt / "checkpoints" / ".tmp-200-1").mkdir()
    (attempt / "metrics.jsonl").write_text('{"event": "train", "step": 100}\n')
    (attempt / "run.lock").write_text("1\n")
    (attempt / ".tmp-evaluations.npz-1").write_bytes(b"half")
    write_json(attempt / "config.json", {"steps": 100})


def test_an_attempt_is_published_by_one_rename_and_the_next_finds_it_done(tmp_path: Path):
    first = claim(tmp_path)
    assert first.name == "attempt-0001"
    fill(first)
    assert fence.publish(first) == tmp_path / "run"
    assert names(tmp_path) == ["run"]
    assert fence.claim(tmp_path, always) is None
    assert fence.newest(tmp_path) == tmp_path / "run"


def test_a_later_attempt_goes_on_with_a_folder_of_its_own(tmp_path: Path):
    first = claim(tmp_path)
    fill(first)
    second = claim(tmp_path)
    assert names(tmp_path) == ["attempt-0001.left", "attempt-0002"]
    assert (second / "checkpoints" / "step_000000100" / "arrays.npz").read_bytes() == b"arrays"
    assert json.loads((second / "config.json").read_text()) == {"steps": 100}
    assert json.loads((second / "worker.json").read_text())["number"] == 2
    assert names(second) == ["checkpoints", "config.json", "metrics.jsonl", "worker.json"]  # nothing half, no lock
    assert names(second / "checkpoints") == ["step_000000100"]
    fence.publish(second)
    assert names(tmp_path) == ["run"]


def test_an_orphan_can_neither_write_nor_publish(tmp_path: Path):
    orphan = claim(tmp_path)
    fill(orphan)
    with open(orphan / "metrics.jsonl", "a") as log:
        second = claim(tmp_path)
        log.write("of the orphan\n")
    assert "orphan" not in (second / "metrics.jsonl").read_text()
    with pytest.raises(FileNotFoundError):
        write_text(orphan / "summary.json", "{}")
    with pytest.raises(TakenOverError, match="another attempt has taken over"):
        fence.publish(orphan)
    assert names(tmp_path) == ["attempt-0001.left", "attempt-0002"]
    fence.publish(second)
    with pytest.raises(TakenOverError):
        fence.publish(orphan)
    assert names(tmp_path) == ["run"]


def test_large_files_are_shared_and_the_log_is_not(tmp_path: Path):
    first = claim(tmp_path)
    fill(first)
    second, left = claim(tmp_path), tmp_path / "attempt-0001.left"
    arrays, log = Path("checkpoints", "step_000000100", "arrays.npz"), "metrics.jsonl"
    assert (second / arrays).stat().st_ino == (left / arrays).stat().st_ino
    assert (second / log).stat().st_ino != (left / log).stat().st_ino


def test_without_hard_links_files_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no hard links here")

    fill(claim(tmp_path))
    monkeypatch.setattr(os, "link", refuse)
    second = claim(tmp_path)
    assert (second / "checkpoints" / "step_000000100" / "arrays.npz").read_bytes() == b"arrays"


def test_of_two_takers_one_wins_and_the_other_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fill(claim(tmp_path))
    rename, won = os.rename, []

    def slow(source: Path, target: Path) -> None:
        """While the first is about to put its attempt into place, a second one does the whole of it."""
        if Path(target).name == "attempt-0002" and not won:
            won.append(target)
            won[:] = [claim(tmp_path)]
        rename(source, target)

    monkeypatch.setattr(os, "rename", slow)
    with pytest.raises(TakenOverError):
        claim(tmp_path)
    assert won == [tmp_path / "attempt-0002"]
    assert names(tmp_path) == ["attempt-0001.left", "attempt-0002"]
    fence.publish(won[0])


@pytest.mark.parametrize("do", ["leave", "publish"])
def test_a_taker_that_slept_through_later_attempts_withdraws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, do: str):
    """Its number is free again when it wakes, because that attempt was taken away or published."""
    fill(claim(tmp_path))
    rename, others = os.rename, []

    def sleepy(source: Path, target: Path) -> None:
        if Path(target).name == "attempt-0002" and not others:
            others.append(target)
            second = claim(tmp_path)
            others.append(claim(tmp_path) if do == "leave" else fence.publish(second))
        rename(source, target)

    monkeypatch.setattr(os, "rename", sleepy)
    if do == "leave":
        with pytest.raises(TakenOverError):
            claim(tmp_path)
    else:
        assert fence.claim(tmp_path, always) is None
    kept = ["attempt-0001.left", "attempt-0002.left", "attempt-0003"] if do == "leave" else ["run"]
    assert names(tmp_path) == kept


@pytest.mark.parametrize("struck", range(1, 5))
@pytest.mark.parametrize("function", ["rename", "mkdir", "link", "replace"])
def test_killed_between_any_two_steps_the_next_attempt_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, struck: int
):
    fill(claim(tmp_path))
    die_at(monkeypatch, function, struck)
    try:
        fence.publish(claim(tmp_path))
    except DeadError:
        pass
    finally:
        monkeypatch.undo()
    last = fence.claim(tmp_path, lambda run: (run / "config.json").exists())
    run = tmp_path / "run" if last is None else fence.publish(last)
    assert (run / "checkpoints" / "step_000000100" / "arrays.npz").read_bytes() == b"arrays"
    fence.clean(tmp_path)
    assert names(tmp_path) == ["run"]


def die_at(monkeypatch: pytest.MonkeyPatch, function: str, call: int) -> None:
    """Have the so manieth call of a function of `os` be the last thing that happens; nothing is tidied up after it."""
    plain: Callable[..., None] = getattr(os, function)
    calls = 0

    def counted(*arguments: object, **named: object) -> None:
        nonlocal calls
        calls += 1
        if calls >= call:
            raise DeadError
        plain(*arguments, **named)

    monkeypatch.setattr(os, function, counted)
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)


def test_a_run_that_is_not_all_that_is_wanted_is_gone_on_with_under_a_new_number(tmp_path: Path):
    claim(tmp_path)
    second = claim(tmp_path)
    fill(second)
    fence.publish(second)
    third = claim(tmp_path)  # more steps are asked for
    assert names(tmp_path) == ["attempt-0002.left", "attempt-0003"]
    assert (third / "metrics.jsonl").exists()
    fence.publish(third)
    assert fence.number_of(tmp_path / "run") == 3


def test_a_run_of_elsewhere_can_be_gone_on_with(tmp_path: Path):
    (tmp_path / "run").mkdir()
    fill(tmp_path / "run")
    assert fence.number_of(tmp_path / "run") == 0
    assert claim(tmp_path).name == "attempt-0001"


def test_what_is_newer_than_the_run_is_not_tidied_away(tmp_path: Path):
    """Another worker may have begun to go on with the run while its publisher still removes what came before."""
    fence.publish(claim(tmp_path))
    for name in ("attempt-0001.left", "attempt-0002", ".tmp-attempt-0002-x", ".tmp-attempt-0001-x", "attempt-0000"):
        (tmp_path / name).mkdir()
    fence.clean(tmp_path)
    assert names(tmp_path) == [".tmp-attempt-0002-x", "attempt-0001.left", "attempt-0002", "run"]
