"""A save over a save is the old agent or the new one at any moment, and what is renamed into place is on the disk."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.contracts import support

PROGRAM = '''
"""Saves an agent over an earlier save; before each file event of that, the folder is copied to MOMENTS/number."""

import json, os, shutil, stat, sys, tempfile
from pathlib import Path

import numpy as np

import qpensieve

work = Path(sys.argv[1])
target, moments, unsynced = work / "agent", work / "moments", []
obs, lam = np.array([[3.0, 4.0], [0.0, 0.0]], np.float32), [0.3, 0.7]
agent = qpensieve.QPensieve("DST2d", seeds=1, hidden=8, batch_size=8, random_steps=20, block=20, replay_capacity=60)


def seen(of):
    return of.num_steps, of.predict(obs, lam).tolist()


agent.learn(40)
old = seen(agent)
agent.save(target)
agent.learn(40)
new = seen(agent)
assert old[1] != new[1]

is_on, is_busy, synced, sync = False, False, set(), os.fsync
number = 0


def remember(descriptor):
    """os.fsync, in this process alone: a test cannot cut the power, but it can see what was synced before."""
    state = os.fstat(descriptor)
    synced.add((state.st_dev, state.st_ino, state.st_size))
    sync(descriptor)


def is_synced(path):
    state = os.stat(path)
    return (state.st_dev, state.st_ino, state.st_size) in synced


def hook(event, args):
    global number, is_busy
    if not is_on or is_busy or event not in ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link"):
        return
    if event == "open" and not (isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
        return
    is_busy = True
    try:
        if event == "os.rename" and str(target) in os.fspath(args[0]):
            source = Path(args[0])
            inside = [path for path in source.rglob("*") if path.is_file()] if source.is_dir() else [source]
            unsynced.extend(str(path) for path in inside if not is_synced(path))
        shutil.copytree(target, moments / f"{number:03d}", symlinks=True)
        number += 1
    finally:
        is_busy = False


os.fsync = remember
os.environ["TMPDIR"] = str(work)
sys.addaudithook(hook)
for path in target.rglob("*"):
    state = path.stat()
    synced.add((state.st_dev, state.st_ino, state.st_size))
is_on = True
agent.save(target)
is_on = False
shutil.copytree(target, moments / f"{number:03d}")
agent.close()

found = []
for moment in sorted(moments.iterdir()):
    loaded = qpensieve.load(moment)
    found.append({"old": seen(loaded) == old, "new": seen(loaded) == new})
    loaded.close()
print(json.dumps({"found": found, "unsynced": sorted(set(unsynced))}))
'''


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What one process saw that saved an agent over another one."""
    work = tmp_path_factory.mktemp("saving")
    (work / "moments").mkdir()
    ended = python(PROGRAM, work)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def test_whenever_it_is_killed_the_old_or_the_new_agent_loads(told: dict):
    found = told["found"]
    assert len(found) > 5
    assert [number for number, moment in enumerate(found) if not (moment["old"] or moment["new"])] == []
    assert found[0]["old"]
    assert found[-1]["new"]
    first_new = next(number for number, moment in enumerate(found) if moment["new"])
    assert all(moment["new"] for moment in found[first_new:]), "what was replaced came back"


def test_all_that_is_renamed_into_place_was_synced_before(told: dict):
    assert told["unsynced"] == []


TRAIN = """
import sys, qpensieve
agent = qpensieve.QPensieve("DST2d", seeds=1, hidden=8, batch_size=8, random_steps=20, block=20)
agent.learn(int(sys.argv[2]))
agent.save(sys.argv[1])
"""
LOOK = "import sys, qpensieve; print(qpensieve.load(sys.argv[1]).num_steps)"


@pytest.mark.slow
@pytest.mark.parametrize("at", range(1, 40, 3))
def test_killed_for_real(at: int, tmp_path: Path):
    """The same with SIGKILL in a process of its own, at an event of the save."""
    folder = tmp_path / "agent"
    assert python(TRAIN, folder, 40).returncode == 0
    struck = python(TRAIN, folder, 60, strike=support.Strike("kill", at, path="/agent"))
    seen = python(LOOK, folder)
    assert seen.stdout.strip() in (("40", "60") if support.was_killed(struck) else ("60",)), seen.stderr


def python(program: str, *words: Any, strike: support.Strike | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a program of a user."""
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        cwd=support.ROOT,
        env=support.environment(strike),
        capture_output=True,
        text=True,
        timeout=280,
    )
