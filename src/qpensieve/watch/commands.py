"""The commands `watch` and `video`."""

import contextlib
import errno
import importlib.util
import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

import qpensieve
from qpensieve.envs.mujoco import quiet_mujoco
from qpensieve.errors import MissingPackageError, UserError
from qpensieve.train.saved import SavedPolicies

if TYPE_CHECKING:  # needs packages of the extra
    from qpensieve.watch.server import Server

RunFolder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
PORT = 8765
"""Port where nobody names one; any free one where it is taken."""
PACKAGES = {"starlette": "starlette", "uvicorn": "uvicorn", "websockets": "websockets", "PIL": "pillow"}
"""Modules of the page's server, and what installs them."""
MESA_CACHE_OFF = "MESA_SHADER_CACHE_DISABLE"
"""Environment variable of Mesa, a library that draws in software or on some cards."""


def watch(
    run: RunFolder,
    second: tuple[Path, ...] = (),
    port: int | None = None,
    browser: bool = True,
    trust: bool = False,
) -> None:
    """Turn the preference and see the policy act: a page in the browser, for runs, saved agents and archives.

    The page draws the robot while the policy acts in real time, shows where on the front it lands, and lets you choose
    the preference, the seed, the step of training and the speed. A run that still trains is followed. Nothing is
    trained or written, no GPU is used, and only this machine can open the page: the address it prints holds a secret.
    Ctrl-C ends it.

    Args:
        run: The run folder, or the folder of a saved agent.
        second: Other runs or agents, to be shown side by side with the first.
        port: Port on 127.0.0.1; 0 takes any that is free. Default: 8765, or any other if that is taken.
        browser: Open the page in the browser.
        trust: Import the code that a run's domain names.
    """
    require("watch", PACKAGES)
    with _ending_at_once(), quiet_mujoco():
        from qpensieve.watch.runs import WatchedRun
        from qpensieve.watch.server import Server

        runs = [WatchedRun(path, trust, _warn) for path in (run, *second)]
        with contextlib.closing(_listen(port)) as listener:
            server = Server(runs, qpensieve.__version__, listener)
            for each in runs:
                print(f"{each.policies.source}: {each.config.domain_id}, {each.config.algo}, step {each.shown:,}")
            print(f"{server.address}\nCtrl-C ends it", flush=True)
            if browser and can_open():
                threading.Thread(target=_open_page, args=(server,), daemon=True).start()
            server.run()


def video(  # noqa: PLR0913 (each argument is an option)
    run: RunFolder,
    preference: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
    out: Path | None = None,
    seed: int | None = None,
    at: int | None = None,
    seconds: float = 10.0,
    steps: int | None = None,
    fps: float | None = None,
    width: int = 240,
    trust: bool = False,
    quiet: bool = False,
) -> None:
    """Write a film of a policy, a panel for each preference, side by side: GIF, or MP4 with imageio-ffmpeg.

    Deterministic actions, in real time, all panels from the same start: that of the seed's first evaluation episode.

    Args:
        run: The run folder, or the folder of a saved agent.
        preference: Such as 0.7,0.3: a weight for each objective, in all 1. Again for another panel. Default: those of
            the paper's learning curves, or every objective the same.
        out: The file, .gif or .mp4. Default: the name of the run, .gif, in the working folder.
        seed: Number of the seed. Default: the first.
        at: Step of a checkpoint or of kept parameters. Default: the newest.
        seconds: Length; less where all episodes end before.
        steps: Length in steps of the environment, in place of seconds.
        fps: Frames of a second. Default: 25, or fewer where the environment has fewer steps.
        width: Pixels of a panel.
        trust: Import the code that the run's domain names.
        quiet: No progress line.
    """
    require("video", {"PIL": "pillow"})
    from qpensieve.watch import direct
    from qpensieve.watch import video as files

    target = Path(f"{run.resolve().name}.gif") if out is None else out
    files.check_target(target)
    with quiet_mujoco():
        wish = direct.Wish(preference, seed, at, seconds, steps, fps, width)
        print(files.write(direct.script_of(SavedPolicies(run, trust), wish, _warn), target, quiet))


@contextlib.contextmanager
def _ending_at_once() -> Iterator[None]:
    """Let the system end the process at Ctrl-C and SIGTERM: while a renderer hangs, Python may not run its handlers.

    A process ends when its last thread does. Mesa's shader cache has a thread of lowest priority: on a busy machine it
    took 40 seconds to end, even after SIGKILL. Mesa starts without that thread where its cache is off.
    """
    handlers = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)}
    before = os.environ.get(MESA_CACHE_OFF)
    os.environ[MESA_CACHE_OFF] = "true"
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.environ.pop(MESA_CACHE_OFF)
        os.environ.update({} if before is None else {MESA_CACHE_OFF: before})


def _warn(message: str) -> None:
    print(message, file=sys.stderr)


def require(command: str, packages: dict[str, str]) -> None:
    """ImportError that says what to install, where a module is missing."""
    missing = [name for module, name in packages.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise MissingPackageError(f"qpensieve {command} needs {', '.join(missing)}: pip install 'qpensieve[watch]'")


def _open_page(server: "Server") -> None:
    """Open the browser once the server answers."""
    server.is_up.wait()
    webbrowser.open(server.address_for_once())


def can_open() -> bool:
    """Whether there is a screen: without one, a browser would take over the terminal."""
    is_x11 = sys.platform not in ("darwin", "win32")
    return not is_x11 or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _listen(port: int | None) -> socket.socket:
    """The socket to serve on; ValueError where the port cannot be had."""
    from qpensieve.watch.guard import HOST
    from qpensieve.watch.server import bind

    if port is not None and not 0 <= port <= 65535:
        raise UserError(f"port must be from 0 to 65535, got {port}")
    try:
        return bind(PORT if port is None else port)
    except OSError as error:
        if port is None:
            return bind(0)
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
        raise UserError(f"port {port} of {HOST} {why}: choose another, or --port 0 for any that is free") from error
