"""What the contract tests share: the command as a real process that can be struck, and what users see of a run."""

import json
import os
import select
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
HOOKS = Path(__file__).parent / "hooks"
TOY = "contract_toy:make"
"""The environment of `hooks/contract_toy.py`."""
SMALL: dict[str, Any] = {
    "seeds": 2,
    "steps": 300,
    "random_steps": 60,
    "block": 20,
    "replay_capacity": 100,
    "eval_period": 100,
    "log_period": 40,
    "parameters_period": 100,
    "full_eval_episodes": 1,
    "checkpoint_seconds": 0,
    "hidden": 8,
    "batch_size": 8,
    "num_snapshots": 2,
    "push_after": 40,
    "push_period": 40,
}
"""A run of seconds in which everything happens: the replay wraps around, snapshots are dropped, each block is saved."""
SMALL_POPULATION: dict[str, Any] = {
    "seeds": 2,
    "steps": 480,
    "rollout_steps": 4,
    "minibatches": 2,
    "epochs": 1,
    "hidden": 8,
    "warmup_iterations": 2,
    "generation_iterations": 1,
    "fitness_episodes": 1,
    "eval_period": 160,
    "log_period": 80,
    "parameters_period": 160,
    "full_eval_episodes": 1,
    "checkpoint_seconds": 0,
}
"""The same of a population: five tasks, a warm-up and generations."""


@dataclass(frozen=True)
class Strike:
    """What happens to a process at one of its file events.

    Attributes:
        what: kill: by SIGKILL, just before the event. fail: this event and all later ones find a full disk. hold: wait
            until someone kills it. count: nothing; `file` gets the number of events.
        at: Number of the event among those that fit, from 1.
        path: Regular expression that fits the paths that count.
        file: Where to write the number of events, or, of a process that is held, its id (a named pipe).
    """

    what: str
    at: int = 1
    path: str = ""
    file: str = ""


def environment(strike: Strike | None = None, **variables: Any) -> dict[str, str]:
    """Environment variables of a process of the command."""
    paths = [str(HOOKS), *filter(None, [os.environ.get("PYTHONPATH")])]
    ours = {"PYTHONPATH": os.pathsep.join(paths), "CONTRACT_PLAIN": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    struck = {} if strike is None else {"CONTRACT_STRIKE": json.dumps(asdict(strike))}
    return {**os.environ, **ours, **struck, **{name: str(value) for name, value in variables.items()}}


def start(*words: str | Path, strike: Strike | None = None, **variables: Any) -> "subprocess.Popen[str]":
    """Start `qpensieve` as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "qpensieve", *map(str, words)],
        cwd=ROOT,
        env=environment(strike, **variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(*words: str | Path, strike: Strike | None = None, **variables: Any) -> "subprocess.CompletedProcess[str]":
    """Run `qpensieve` as a process of its own until it ends."""
    process = start(*words, strike=strike, **variables)
    out, err = process.communicate(timeout=280)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def options(settings: dict[str, Any]) -> list[str]:
    """The settings as options of the command line."""
    return [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def train(folder: Path, domain: str, algo: str, settings: dict[str, Any]) -> list[str | Path]:
    """The words that train a run in a folder."""
    where = ["--algo", algo, "--out", folder.parent, "--name", folder.name, "--quiet"]
    return ["train", domain, *where, *options(settings)]


def was_killed(ended: "subprocess.CompletedProcess[str]") -> bool:
    """Whether a process was killed, and not ended by itself."""
    return ended.returncode == -signal.SIGKILL


def make_pipe(folder: Path) -> Path:
    """A named pipe for a process that will be held."""
    path = folder / "held"
    os.mkfifo(path)
    return path


def wait_until_held(pipe: Path, process: "subprocess.Popen[str]") -> int:
    """Wait until a process, or one that it has started, is held; returns the id of that one."""
    descriptor = os.open(pipe, os.O_RDWR)  # not for reading alone: that would wait for a writer that may have died
    try:
        while not select.select([descriptor], [], [], 1.0)[0]:
            if process.poll() is not None:
                raise AssertionError(f"it ended with {process.returncode} before it was held: {process.communicate()}")
        return int(os.read(descriptor, 100))
    finally:
        os.close(descriptor)


def kill(process: "subprocess.Popen[str]", *others: int) -> None:
    """Kill -9 a process, and others by their ids."""
    for pid in (process.pid, *others):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.communicate()


def evaluations(folder: Path) -> dict[str, bytes]:
    """Every array of a run's evaluations."""
    with np.load(folder / "evaluations.npz") as arrays:
        return {name: arrays[name].tobytes() for name in arrays.files}


def log(folder: Path) -> Counter[str]:
    """The rows of a run's log without times: how often each is there, in no order."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    plain = [{name: value for name, value in row.items() if not name.startswith("time_")} for row in rows]
    return Counter(json.dumps(row, sort_keys=True) for row in plain)


def assert_same_results(folder: Path, other: Path) -> None:
    """Evaluations are equal bit for bit, and the logs have the same rows, each as often."""
    ours, theirs = evaluations(folder), evaluations(other)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []
    assert log(folder) == log(other)


def files(folder: Path) -> dict[str, bytes]:
    """All files below a folder but its lock: who holds it is no result."""
    there = [path for path in folder.rglob("*") if path.is_file() and path.name != "run.lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in there}
