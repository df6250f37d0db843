"""The command `watch`: what it prints, what it opens, what it refuses, and how it ends."""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from websockets.sync.client import connect

from qpensieve import cli, zoo
from qpensieve.envs import draw
from qpensieve.records import folder
from qpensieve.watch import commands
from qpensieve.watch.server import Server, bind
from tests.watch.conftest import make_run

MAIN = "import sys; sys.argv[0] = 'qpensieve'; from qpensieve.cli import main; main()"


def fail(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    with pytest.raises(SystemExit) as exit_:
        cli.main([*map(str, words)])
    assert exit_.value.code == 1
    return capsys.readouterr().err


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that the browser was opened with; the server itself ends as soon as that is done."""
    found: list[str] = []
    done = threading.Event()

    def run(server: Server) -> None:
        server.is_up.set()
        done.wait(5)

    monkeypatch.setattr(Server, "run", run)
    monkeypatch.setattr("webbrowser.open", lambda address: (found.append(address), done.set()))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(commands, "PORT", 0)
    return found


def test_the_address_is_printed_and_opened_by_a_ticket(opened: list[str], hopper: Path, capsys):
    cli.main(["watch", str(hopper)])
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{hopper}: Hopper2d, mosac, step 2,000"
    assert said[1].startswith("http://127.0.0.1:")
    assert len(opened) == 1
    assert opened[0].rsplit("/", 2)[0] == said[1].rsplit("/", 2)[0]
    assert opened[0] != said[1]


def test_without_a_run_all_policies_that_come_with_it_are_shown(
    opened: list[str], capsys, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(zoo, "names", lambda: ["zoo:Gone", "zoo:DST2d"])
    cli.main(["watch"])
    said = capsys.readouterr()
    assert said.out.splitlines()[0] == "zoo:DST2d: DST2d, qpensieve, step 120,000"
    assert "zoo:Gone is left out" in said.err


def test_without_a_screen_no_browser_takes_over_the_terminal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not commands.can_open()
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert commands.can_open()


def test_a_usual_port_that_is_taken_gives_way(opened: list[str], hopper: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    with contextlib.closing(bind(0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setattr(commands, "PORT", port)
        cli.main(["watch", str(hopper)])
        assert f":{port}/" not in capsys.readouterr().out
        said = fail(capsys, "watch", hopper, "--port", port, "--no-browser")
    assert f"port {port} of 127.0.0.1 is in use: choose another, or --port 0 for any that is free" in said
    assert "port must be from 0 to 65535, got 70000" in fail(capsys, "watch", hopper, "--port", 70000)


@pytest.mark.parametrize(
    ("command", "module", "package"), [("watch", "uvicorn", "uvicorn"), ("video", "PIL", "pillow")]
)
def test_a_missing_extra_is_named(command: str, module: str, package: str, hopper: Path, capsys, monkeypatch):  # noqa: PLR0913
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == module else found(name))
    said = fail(capsys, command, hopper)
    assert f"qpensieve {command} needs {package}: pip install 'qpensieve[watch]'" in said


def test_a_folder_that_would_import_code_asks_for_trust(hopper: Path, tmp_path: Path, capsys):
    content = (hopper / folder.CONFIG).read_text().replace('"Hopper2d"', '"unknown_module:Env"')
    (tmp_path / folder.CONFIG).write_text(content)
    for command in ("watch", "video"):
        assert "would import the Python module 'unknown_module'" in fail(capsys, command, tmp_path)


def test_a_signal_ends_it_at_once_even_while_a_renderer_hangs(tmp_path: Path):
    has_opengl = draw.find_platform(("egl", "osmesa")) is not None
    number, renderer = (signal.SIGTERM, "HangingRobot") if has_opengl else (signal.SIGINT, "Hanging")
    run = make_run(tmp_path / "hanging", f"tests.watch.foreign:{renderer}", steps=(1000,))
    words = [sys.executable, "-c", MAIN, "watch", str(run), "--trust", "--no-browser", "--port", "0"]
    there = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=there)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        _, address, _ = (process.stdout.readline().strip() for _ in range(3))
        origin = address.rsplit("/", 2)[0]
        with connect(address.replace("http:", "ws:") + "live", origin=origin, close_timeout=0) as socket:  # pyright: ignore
            with contextlib.suppress(TimeoutError):
                while socket.recv(1):  # until it hangs and no frame comes
                    pass
            # A thread of low priority would have to be scheduled to end: on a busy machine that takes long.
            if sys.platform == "linux":
                threads = os.listdir(f"/proc/{process.pid}/task")
                priorities = [os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in threads]
                assert max(priorities) == priorities[0]
            process.send_signal(number)
            assert process.wait(2) == -number
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.stdout.close()
        process.stderr.close()
        process.wait()
