"""Runs on a Ray cluster of two nodes, 127.0.0.2 and 127.0.0.3; all that is started is ended by its own id.

`make test-ray` installs Ray and runs these; without Ray they are skipped. They are slow: a cluster takes long to start.
"""

import importlib.util
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from qpensieve.config import default_config, override
from qpensieve.experiments import tasks
from qpensieve.experiments.ray import make_token, pack, replace_folder, unpack
from qpensieve.experiments.tasks import Task
from qpensieve.records.folder import FolderInUseError, lock
from qpensieve.train import run as runs
from tests.experiments.struck import TINY, num_started
from tests.train.kill_run import CACHE, ROOT, assert_same_run, complete

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed: make test-ray")
CONFIG = override(default_config("DST2d"), TINY)
RAY = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--num-cpus=1"]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.2", 0))
        return one.getsockname()[1]


def wait_until(is_so: Callable[[], bool], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)


def end(process: subprocess.Popen[bytes]) -> None:
    """End what we have started, with all processes of its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    token = tmp_path / "token"
    token.write_text(secrets.token_hex(32))
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}
    return os.environ | CACHE | own | {"PYTHONPATH": paths}


@pytest.fixture
def address(variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    head = f"127.0.0.2:{free_port()}"
    folder = Path("/tmp") / f"qray-{secrets.token_hex(3)}"  # the paths of its sockets must be short
    started = []
    nodes = [
        ["--head", "--node-ip-address=127.0.0.2", f"--port={head.split(':')[1]}", f"--temp-dir={folder}"],
        [f"--address={head}", "--node-ip-address=127.0.0.3"],
    ]
    try:
        for words in nodes:
            log = open(tmp_path_factory.mktemp("ray") / "log", "wb")  # noqa: SIM115 (its owner is the process)
            options = ["--include-dashboard=false"] if "--head" in words else []
            started.append(
                subprocess.Popen(
                    [*RAY, *words, *options], env=variables, stdout=log, stderr=log, start_new_session=True
                )
            )
            log.close()
            wait_until(lambda log=log: b"Ray runtime started" in Path(log.name).read_bytes())
        yield head
    finally:
        for process in reversed(started):
            end(process)
        subprocess.run(["rm", "-rf", str(folder)], check=False)


def start_driver(variables: dict[str, str], *words: str) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-m", "tests.experiments.struck", "drive", *words]
    return subprocess.Popen(program, env=variables, cwd=ROOT, start_new_session=True)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    complete(runs.start(folder, CONFIG, runs.Options(quiet=True)))
    return folder


class TestWithoutRay:
    def run(self, folder: Path, step: int, text: str) -> Path:
        (folder / "checkpoints" / f"step_{step:09d}").mkdir(parents=True)
        (folder / "config.json").write_text(text)
        return folder

    def test_a_folder_that_has_got_further_takes_the_place_of_the_one_at_home(self, tmp_path: Path):
        home = self.run(tmp_path / "runs" / "a", 100, "old")
        away = self.run(tmp_path / "away", 200, "new")
        (away / ".tmp-checkpoint").touch()
        (away / "run.lock").touch()
        replace_folder(pack(away), home)
        assert (home / "config.json").read_text() == "new"
        assert tasks.saved_step(Task(home, CONFIG)) == 200
        assert [path.name for path in home.parent.iterdir()] == ["a"]
        assert not (home / "run.lock").exists()
        replace_folder(pack(self.run(tmp_path / "late", 150, "late")), home)  # a node that was thought lost
        assert (home / "config.json").read_text() == "new"
        assert [path.name for path in home.parent.iterdir()] == ["a"]

    def test_a_folder_that_is_in_use_stays(self, tmp_path: Path):
        home = self.run(tmp_path / "a", 100, "old")
        held = lock(home)
        with pytest.raises(FolderInUseError):
            replace_folder(pack(self.run(tmp_path / "away", 200, "new")), home)
        assert (home / "config.json").read_text() == "old"
        held.close()

    def test_nothing_is_unpacked_outside_the_folder(self, tmp_path: Path):
        (tmp_path / "outside").write_text("secret")
        away = self.run(tmp_path / "away", 100, "new")
        (away / "link").symlink_to(tmp_path / "outside")
        with pytest.raises(tarfile.FilterError):
            unpack(pack(away), tmp_path / "home")

    def test_a_token_is_made_once_and_only_for_this_user(self, tmp_path: Path):
        path = tmp_path / ".ray" / "auth_token"
        make_token(path)
        before = path.read_text()
        make_token(path)
        assert path.read_text() == before
        assert len(before) == 64
        assert path.stat().st_mode & 0o777 == 0o600


@needs_ray
@pytest.mark.slow
def test_lost_workers_nodes_and_drivers_are_gone_on_from(
    tmp_path: Path, variables: dict[str, str], address: str, undisturbed: Path
):
    """One worker is killed, the raylet of the other one's node too; then the driver, and it is started again."""
    root, blows = tmp_path / "runs", json.dumps({1: ("block", 300, "ray")})
    both = [Task(root / name, CONFIG) for name in "ab"]
    first = start_driver(variables, str(root), blows, "ab", address)
    try:
        wait_until(lambda: all(num_started(task.folder) == 2 for task in both) or any(map(tasks.is_done, both)))
        wait_until(lambda: any(tasks.saved_step(task) > 300 or tasks.is_done(task) for task in both))
    finally:
        end(first)
    assert not all(map(tasks.is_done, both))
    second = start_driver(variables, str(root), blows, "ab", address)
    try:
        assert second.wait(240) == 0
    finally:
        end(second)
    # On a busy machine one of them may have waited until the other was done.
    assert sum(num_started(task.folder) for task in both) >= 3
    for task in both:
        assert_same_run(task.folder, undisturbed)


@needs_ray
@pytest.mark.slow
def test_folders_travel_where_there_is_no_shared_file_system(
    tmp_path: Path, variables: dict[str, str], address: str, undisturbed: Path
):
    driver = start_driver(variables, str(tmp_path / "runs"), "{}", "a", address, "fetch")
    try:
        assert driver.wait(240) == 0
    finally:
        end(driver)
    assert_same_run(tmp_path / "runs" / "a", undisturbed)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["a"]


@needs_ray
@pytest.mark.slow
def test_another_token_is_refused(tmp_path: Path, variables: dict[str, str], address: str):
    (tmp_path / "other").write_text(secrets.token_hex(32))
    other = variables | {"RAY_AUTH_TOKEN_PATH": str(tmp_path / "other")}
    program = [sys.executable, "-m", "tests.experiments.struck", "drive", str(tmp_path / "runs"), "{}", "a", address]
    found = subprocess.run(program, env=other, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert found.returncode != 0
    assert "no Ray cluster answers" in found.stderr
