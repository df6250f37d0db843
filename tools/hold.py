"""One hold of a borrowed machine: the runs of a plan share its card, and what they made is packed for the way home.

    python3 tools/hold.py plan.txt --at-once 8 --seconds 545 -- --kernels off --keep-replay off

Start it in a folder with src/ and wheels/. Everything lives below $Q (/tmp/q): processes and files outlast a call, and
the next call continues. $OUT gets what comes home: every 20 seconds the run folders without replay, checkpoints and
pictures; at the end of a call the networks of each run's newest saved step. Words after `--` are given to every run.

A line of the plan has a name, then the words of `qpensieve train`; words like NAME=VALUE before the domain are set in
its environment. `until=400000` among them ends the run as soon as its evaluation at that step is complete: the first
part of a longer run, with that one's schedules.

    cheetah  CUDA_MPS_CLIENT_PRIORITY=1 HalfCheetah2d --preset robust --first-seed 5
    ant      until=400000 Ant3d --algo mosac --preset robust
"""

import argparse
import itertools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any

Q, OUT = Path(os.environ.get("Q", "/tmp/q")), Path(os.environ.get("OUT", "out"))
COMMAND = [sys.executable, "-c", "from qpensieve.cli import main; main()"]
HEAVY = ("checkpoints", "checkpoint.npz", "replay", "parameters")
"""What stays on the machine."""
ROOM, MOST, SEEDS = int(15.9 * 2**20), 3, 5
"""Bytes of a file of networks, how many of them come home, and of how many seeds stored critics do."""
TELL, BRING = 60, 20
"""Seconds between two reports, and between two packs of run folders."""


class Run:
    """One line of the plan, its folder and its process."""

    def __init__(self, name: str, words: list[str], options: list[str]):
        assigned = dict(word.split("=", 1) for word in itertools.takewhile(lambda word: "=" in word, words))
        self.until = int(assigned.pop("until", 0))
        self.environment = assigned
        train = words[len(assigned) + bool(self.until) :]
        self.words = ["train", *train, *options, "--out", str(Q / "runs"), "--name", name]
        self.name, self.folder = name, Q / "runs" / name
        self.log, self._pid, self._status = (Q / f"{name}.{kind}" for kind in ("log", "pid", "status"))
        self.process: subprocess.Popen[bytes] | None = None
        self._then = (0.0, 0)

    @property
    def state(self) -> str:
        """One of waits, runs, done, or failed with the exit status; one that was ended on purpose is done."""
        if self._status.exists() and (status := self._status.read_text().strip()):
            return "done" if status in ("0", "130") else f"failed ({status})"
        return "runs" if self._pid.exists() else "waits"

    def start(self) -> None:
        """Start it in a session of its own; a shell writes how it ended, because it may outlast this script."""
        line = 'trap : INT; echo $$ >"$0"; status=$1; shift; "$@"; echo $? >"$status"'
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", line, str(self._pid), str(self._status), *COMMAND, *self.words],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | self.environment,
            )
        while not self._pid.exists():
            time.sleep(0.02)

    def stop(self) -> None:
        os.killpg(int(self._pid.read_text()), signal.SIGINT)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the log, whose last line may be half written."""
        path = self.folder / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def report(self, rows: list[dict[str, Any]]) -> tuple[str, float]:
        """Return a line about the run, and its seed-steps/s since the last report."""
        step, now = max((row.get("step", 0) for row in rows), default=0), time.monotonic()
        seeds = json.loads((self.folder / "config.json").read_text())["seeds"] if rows else 0
        (then, before), self._then = self._then, (now, step)
        rate = seeds * (step - before) / (now - then) if then and self.state == "runs" else 0.0
        short = [row["ut_short"] for row in rows if "ut_short" in row]
        score = f"UT {mean(short[-1]):.4g} ({' '.join(f'{ut:.4g}' for ut in short[-1])})" if short else ""
        return f"{self.name:20} {self.state:12} {step:>9,} steps {rate:>8,.0f}/s {score}", rate


def read_plan(path: Path, options: list[str]) -> list[Run]:
    """Return a run for every line with words. The names must differ, because they are folders."""
    lines = [words for line in path.read_text().splitlines() if (words := shlex.split(line, comments=True))]
    names = [name for name, *_ in lines]
    if len(set(names)) < len(names):
        raise SystemExit(f"{path}: names of runs must differ, got {' '.join(names)}")
    return [Run(name, words, options) for name, *words in lines]


def install() -> None:
    """Unpack the wheels, copy the source and start NVIDIA's MPS: once on a machine."""
    os.environ |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    os.environ |= {"PYTHONPATH": f"{Q / 'src'}:{Q / 'site'}"}
    os.environ |= {name: str(Q / "mps") for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")}
    OUT.mkdir(parents=True, exist_ok=True)
    if (Q / "src").exists():
        return
    for folder in ("runs", "mps", "site"):
        (Q / folder).mkdir(parents=True)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda wheel: zipfile.ZipFile(wheel).extractall(Q / "site"), Path("wheels").glob("*.whl")))
    shutil.copytree("src", Q / "src")
    if shutil.which("nvidia-cuda-mps-control"):
        subprocess.run(["nvidia-cuda-mps-control", "-d"], capture_output=True, check=False)
    versions = "import jax, numpy, qpensieve; print(jax.__version__, numpy.__version__, jax.devices())"
    said = subprocess.run([sys.executable, "-c", versions], capture_output=True, text=True, check=False)
    (Q / "machine.txt").write_text(said.stdout + said.stderr)
    print(said.stdout, said.stderr[-500:], flush=True)


def bring() -> None:
    """Pack run folders without what is heavy, and logs; whole or not at all."""
    light = lambda info: None if Path(info.name).name in HEAVY or info.name.endswith(".png") else info
    part = OUT / ".part"
    with tarfile.open(part, "w:gz") as tar:
        for path in sorted(Q.glob("*")):
            if path.name == "runs" or path.suffix in (".log", ".txt"):
                tar.add(path, path.name, filter=light)
    part.rename(OUT / "runs.tgz")


def bring_networks(everything: tuple[str, ...]) -> None:
    """Pack policies and critics of the newest saved step of each run.

    Runs in `everything` come first, with stored critics, of five seeds: those of ten exceed a file.
    """
    import numpy as np

    number, room = 0, 0
    for run in sorted((Q / "runs").iterdir(), key=lambda run: (run.name not in everything, run.name)):
        for newest in sorted(run.glob("parameters/step_*.npz"))[-1:]:
            is_whole = run.name in everything
            wanted = lambda key, whole=is_whole: whole if "snapshots" in key else ".actor" in key or ".critic" in key
            packed = Q / f"{run.name}-{newest.name}"
            with np.load(newest) as file:
                seeds = SEEDS if is_whole else None
                np.savez_compressed(packed, **{key: file[key][:seeds] for key in file if wanted(key)})
            room += packed.stat().st_size
            if room > ROOM:
                number, room = number + 1, packed.stat().st_size
            if number >= MOST or room > ROOM:
                print(f"no room for {packed.name}")
                continue
            with tarfile.open(OUT / f"networks-{number}.tar", "a") as tar:
                tar.add(packed, packed.name)


def tend(runs: list[Run], at_once: int, end: float) -> None:
    """Keep `at_once` runs going until all are done or the time is over."""
    told = brought = 0.0
    stopped: set[str] = set()
    while time.monotonic() < end:
        running = [run for run in runs if run.state == "runs"]
        waiting = [run for run in runs if run.state == "waits"]
        if not running and not waiting:
            break
        for run in waiting[: max(0, at_once - len(running))]:
            run.start()
        for run in running:
            is_reached = lambda row, until=run.until: row.get("step", 0) >= until and "ut_short" in row
            if run.until and run.name not in stopped and any(map(is_reached, run.rows())):
                run.stop()
                stopped.add(run.name)
        now = time.monotonic()
        if now - brought >= BRING:
            bring()
            brought = time.monotonic()
        if now - told >= TELL:
            report(runs)
            told = now
        time.sleep(1)
    report(runs)


def report(runs: list[Run]) -> None:
    lines = [run.report(run.rows()) for run in runs]
    print(
        "\n".join(line for line, _ in lines), f"\nall: {sum(rate for _, rate in lines):,.0f} seed-steps/s", flush=True
    )
    if shutil.which("nvidia-smi"):
        subprocess.run(["nvidia-smi", "--query-gpu=utilization.gpu,power.draw", "--format=csv,noheader"], check=False)


def main() -> None:
    words = sys.argv[1:]
    own, options = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--seconds", type=float, required=True, help="of this call; packing takes some ten more")
    parser.add_argument("--snapshots", nargs="*", default=[], help="runs whose stored critics come home too")
    given = parser.parse_args(own)
    end = time.monotonic() + given.seconds
    install()
    runs = read_plan(given.plan, options)
    tend(runs, given.at_once, end)
    for run in runs:
        if run.state.startswith("failed"):
            print(f"== {run.name}", run.log.read_text()[-2000:], sep="\n")
    bring()
    bring_networks(tuple(given.snapshots))


if __name__ == "__main__":
    main()
