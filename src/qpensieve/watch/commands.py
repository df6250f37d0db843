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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import tyro
from jaxtyping import Float64

import qpensieve
from qpensieve import zoo
from qpensieve.deploy.exported import open_policies
from qpensieve.envs.mujoco import quiet_mujoco
from qpensieve.errors import EnvError, MissingPackageError, UserError
from qpensieve.preferences import parse_preference
from qpensieve.train.evaluate import curve_preferences
from qpensieve.train.saved import SavedPolicies

if TYPE_CHECKING:  # needs packages of the extra
    from qpensieve.watch.film import Script
    from qpensieve.watch.runs import WatchedRun
    from qpensieve.watch.server import Server

RunFolder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
RunFolders = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[RUN ...]")]
PORT = 8765
"""Default port; if it is taken, any free port."""
PACKAGES = {"starlette": "starlette", "uvicorn": "uvicorn", "websockets": "websockets", "PIL": "pillow"}
"""Module of the page's server -> package that holds it."""
MOST_FPS, MOST_SECONDS, WIDTHS, MOST_PANELS = 60.0, 600.0, (80.0, 1920.0), 12
USUAL_FPS = 25.0
MESA_CACHE_OFF = "MESA_SHADER_CACHE_DISABLE"
"""Environment variable of Mesa, a library that draws in software or on some cards."""


def watch(
    run: RunFolders = (),
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
        run: A run folder, the folder of a saved agent, a policy file, or zoo:NAME, a policy that comes with qpensieve.
            If there are several, the page has a list to pick from. Default: all policies that come with qpensieve.
        second: Other runs or agents, to be shown side by side with the first.
        port: Port on 127.0.0.1; 0 takes any that is free. Default: 8765, or any other if that is taken.
        browser: Open the page in the browser.
        trust: Import the code that a run's domain names.
    """
    require("watch", PACKAGES)
    with _ending_at_once(), quiet_mujoco():
        from qpensieve.watch.runs import WatchedRun
        from qpensieve.watch.server import Server

        runs = [WatchedRun(path, trust, _warn) for path in (*run, *second)] or _all_shipped()
        with contextlib.closing(_listen(port)) as listener:
            server = Server(runs, qpensieve.__version__, listener)
            for each in runs:
                print(f"{each.policies}: {each.config.domain_id}, {each.config.algo}, step {each.shown:,}")
            print(f"{server.address}\nCtrl-C ends it", flush=True)
            if browser and can_open():
                threading.Thread(target=_open_page, args=(server,), daemon=True).start()
            server.run()


def _all_shipped() -> "list[WatchedRun]":
    """Return the policies that come with the package; a warning names those whose environment cannot be made."""
    from qpensieve.watch.runs import WatchedRun

    runs: list[WatchedRun] = []
    for name in zoo.names():
        try:
            runs.append(WatchedRun(Path(name)))
        except (UserError, EnvError) as error:
            _warn(f"{name} is left out: {error}")
    return runs


@dataclass(frozen=True)
class Film:
    """The content of a film and its size."""

    preference: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A weight for each objective, in all 1, such as 0.7,0.3; repeat the option for further panels. Default: the
    preferences of the paper's learning curves, or equal weights."""
    seed: int | None = None
    """Number of the seed. Default: the first."""
    at: int | None = None
    """Step of a checkpoint or of kept parameters. Default: the newest."""
    seconds: float = 10.0
    """Most seconds of the film; it is shorter if all episodes end before."""
    steps: int | None = None
    """Length in steps of the environment, in place of seconds."""
    fps: float | None = None
    """Frames per second. Default: 25, or fewer if the environment has fewer steps per second."""
    width: int = 240
    """Width of a panel, pixels."""


def video(
    run: RunFolder,
    film: Film = Film(),
    out: Path | None = None,
    trust: bool = False,
    quiet: bool = False,
) -> None:
    """Write a film of a policy, a panel for each preference, side by side: GIF, or MP4 with imageio-ffmpeg.

    Actions are deterministic, and the film runs in real time. All panels begin as the seed's first evaluation episode.

    Args:
        run: A run folder, the folder of a saved agent, a policy file, or zoo:NAME, a policy that comes with qpensieve.
        film: What it shows.
        out: The file, .gif or .mp4. Default: the name of the run, .gif, in the working folder.
        trust: Import the code that the run's domain names.
        quiet: No progress line.
    """
    require("video", {"PIL": "pillow"})
    from qpensieve.watch import film as films

    saved = open_policies(run, trust)
    target = Path(f"{saved.name.removeprefix(zoo.PREFIX)}.gif") if out is None else out
    films.check_target(target)
    with quiet_mujoco():
        print(films.write(script_of(saved, film, _warn), target, quiet))


def script_of(saved: SavedPolicies, film: Film, warn: Callable[[str], None] = lambda message: None) -> "Script":
    """Return the script of a film.

    Args:
        saved: The folder whose policies act.
        film: The options of the film.
        warn: Gets a message about newer policies that cannot be read.

    Raises:
        ValueError: There is no such seed or step, or a number is out of bounds; names it.
        CheckpointError: The run has no policies.
    """
    from qpensieve.watch.film import Script
    from qpensieve.watch.world import World

    world = World(saved.config.domain)
    dt = world.dt
    world.close()
    fps = min(USUAL_FPS, 1.0 / dt) if film.fps is None else film.fps
    seconds = film.seconds if film.steps is None else film.steps * dt
    seed = saved.config.first_seed if film.seed is None else film.seed
    length = (dt, seconds, MOST_SECONDS) if film.steps is None else (1, film.steps, MOST_SECONDS / dt)
    bounded = {"fps": (0.1, fps, MOST_FPS), "seconds" if film.steps is None else "steps": length}
    bounded["width"] = (WIDTHS[0], film.width, WIDTHS[1])
    for name, (low, value, high) in bounded.items():
        if not low <= value <= high:  # also for NaN
            raise UserError(f"{name} must be from {low:g} to {high:g}, got {value:g}")
    row = saved.row_of(seed)
    preferences = _preferences(film.preference, saved.spec.num_objectives)
    policy = saved.newest(warn)[0] if film.at is None else saved.predictor(film.at)
    limit = saved.config.max_eval_steps
    return Script(saved.config.domain, policy, row, seed, preferences, seconds, fps, film.width, limit)


def _preferences(words: tuple[str, ...], num_objectives: int) -> Float64[np.ndarray, "p d"]:
    if len(words) > MOST_PANELS:
        raise UserError(f"preference may be given at most {MOST_PANELS} times, a panel each; got {len(words)}")
    if words:
        return np.stack([parse_preference(word, num_objectives) for word in words])
    usual = curve_preferences(num_objectives)
    return usual if len(usual) else np.full((1, num_objectives), 1.0 / num_objectives)


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
    """Raise ImportError, which says what to install, if a module is missing."""
    missing = [name for module, name in packages.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise MissingPackageError(f"qpensieve {command} needs {', '.join(missing)}: pip install 'qpensieve[watch]'")


def _open_page(server: "Server") -> None:
    """Open the browser once the server answers."""
    server.is_up.wait()
    webbrowser.open(server.address_for_once())


def can_open() -> bool:
    """Return whether there is a screen: without a screen, a browser would take over the terminal."""
    is_x11 = sys.platform not in ("darwin", "win32")
    return not is_x11 or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _listen(port: int | None) -> socket.socket:
    """Return the socket to serve on; ValueError if the port cannot be used."""
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
