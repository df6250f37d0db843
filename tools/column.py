r"""Many runs at once on one machine, so that its card and its cores are never idle; called again, it goes on.

    python3 tools/column.py OUT --domains Hopper2d Walker2d --algos qpensieve mosac --at-once 5 --seconds 540 -- \
        --eval-period 100000

Every domain with every algorithm is a run, OUT/runs/DOMAIN-ALGO. At most `--at-once` train at a time, each a process in
a session of its own that outlasts this script; the next starts when one ends. A run that was interrupted is resumed.
Every minute the script reports what each run makes in seed-steps/s (evaluations included) and all together. It
returns when nothing is left, or after `--seconds`. What follows `--` is given to every `qpensieve train`.

    python3 tools/column.py OUT --plan arms.txt --at-once 4 --seconds 540 -- --eval-period 100000

Runs that differ in more than domain and algorithm stand in a file, one a line, in the order in which they start: a
name, then the words of `qpensieve train`; words like NAME=VALUE before the domain are set in its environment. Two of
them are rules, so that nobody has to decide between two calls, while a borrowed machine waits:

    until=500000          stop there: the first part of a longer run, with that one's schedules
    behind=600000:OTHER   stop if mean and lowest UT of the first short evaluation from there on are below OTHER's

A run that a rule has stopped is saved and stays stopped. A line that is gone in a later call leaves its run alone.

    cheetah  CUDA_MPS_CLIENT_PRIORITY=0 HalfCheetah2d --preset robust --first-seed 5
    other    behind=600000:cheetah HalfCheetah2d --preset robust --first-seed 5 --learning-rate 1e-3
    mosac    until=500000 HalfCheetah2d --algo mosac --preset robust

With a GPU, NVIDIA's MPS is started if the machine has it: without it two processes make less than one
(results/QUEUE.md).
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
import time
from pathlib import Path
from statistics import mean
from typing import Any

COMMAND = [sys.executable, "-c", "from qpensieve.cli import main; main()"]
REPORT_SECONDS = 60
RULES = ("until", "behind")


class Run:
    """One run folder and the process that trains it, if there is one."""

    def __init__(self, out: Path, name: str, words: list[str]):
        """`words`: NAME=VALUE for its environment, then those of `qpensieve train`."""
        self.name, self.folder, self.log = name, out / "runs" / name, out / f"{name}.log"
        assigned = list(itertools.takewhile(lambda word: "=" in word, words))
        given = dict(word.split("=", 1) for word in assigned)
        self.rules = {name: value for name, value in given.items() if name in RULES}
        self._environment = {name: value for name, value in given.items() if name not in RULES}
        self._train = ["train", *words[len(assigned) :], "--out", str(out / "runs"), "--name", name]
        suffixed = lambda suffix: out.resolve() / f"{name}{suffix}"  # names have dots; processes are known by theirs
        self._pid_file, self._status_file, self._why_file = map(suffixed, (".pid", ".status", ".why"))
        self._seen: list[tuple[float, int]] = []
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = ["resume", str(self.folder)] if (self.folder / "config.json").exists() else self._train
        # A shell writes how it ended: the process may outlast this script.
        line = 'trap : INT; echo $$ >"$0"; status=$1; shift; "$@"; echo $? >"$status"'
        with self.log.open("a") as log:
            for path in (self._status_file, self._pid_file):  # of the process before
                path.unlink(missing_ok=True)
            names = [str(self._pid_file), str(self._status_file)]
            self._process = subprocess.Popen(
                ["sh", "-c", line, *names, *COMMAND, *words],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | self._environment,
            )
        while not self._pid_file.exists():
            time.sleep(0.05)

    @property
    def status(self) -> int | None:
        """The exit status of the newest process that ended; None: it runs, or never did."""
        written = self._status_file.read_text() if self._status_file.exists() else ""
        return int(written) if written.strip() else None  # empty while it is written

    @property
    def is_running(self) -> bool:
        if self._process is not None:
            self._process.poll()
        if not self._pid_file.exists() or self.status is not None:
            return False
        try:
            pid = int(self._pid_file.read_text())
            os.kill(pid, 0)
        except (ProcessLookupError, PermissionError, ValueError):
            return False
        # After a machine was lost, or started anew, the number may be that of another process.
        said = Path(f"/proc/{pid}/cmdline")
        return not said.exists() or os.fsencode(self._pid_file) in said.read_bytes().split(b"\0")

    @property
    def why_stopped(self) -> str:
        """The rule that stopped it, if one did."""
        return self._why_file.read_text() if self._why_file.exists() else ""

    def stop(self, why: str) -> None:
        """As Ctrl-C does: it saves and ends. One that has just ended by itself is left as it is."""
        if self.is_running:
            self._why_file.write_text(why)
            os.killpg(int(self._pid_file.read_text()), signal.SIGINT)

    def rows(self) -> list[dict[str, Any]]:
        """The log; its last line may be half written."""
        path = self.folder / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def step(self) -> int:
        """The newest step in the log."""
        return max((row.get("step", 0) for row in self.rows()), default=0)

    def utilities(self) -> dict[int, list[float]]:
        """Step -> UT of its short evaluation, by seed."""
        return {row["step"]: row["ut_short"] for row in self.rows() if "ut_short" in row}

    def score(self) -> str:
        """UT of the newest short evaluation: its mean, then that of each seed."""
        found = list(self.utilities().values())
        return f"UT {mean(found[-1]):.4g} ({' '.join(f'{ut:.4g}' for ut in found[-1])})" if found else ""

    def rate(self) -> float:
        """Seed-steps/s since the last call but one."""
        seeds = json.loads((self.folder / "config.json").read_text())["seeds"] if self.step() else 0
        self._seen = [*self._seen[-2:], (time.monotonic(), self.step())]
        (then, before), (now, after) = self._seen[0], self._seen[-1]
        return seeds * (after - before) / (now - then) if now > then else 0.0


def start_mps(out: Path) -> None:
    """Let processes share the card; harmless where it runs already or is not there."""
    if shutil.which("nvidia-cuda-mps-control") is None:
        return
    for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
        os.environ.setdefault(name, str((out / "mps").resolve()))
    (out / "mps").mkdir(exist_ok=True)
    subprocess.run(["nvidia-cuda-mps-control", "-d"], capture_output=True, check=False)


def tend(runs: list[Run], at_once: int, until: float) -> None:
    """Keep `at_once` runs going until all are done or the time is over."""
    reported = time.monotonic()
    while time.monotonic() < until:
        waiting = [run for run in runs if not run.is_running and run.status != 0 and not run.why_stopped]
        failed = [run for run in waiting if run.status not in (None, 130)]
        running = [run for run in runs if run.is_running]
        for run in [run for run in waiting if run not in failed][: max(0, at_once - len(running))]:
            run.start()
        for run in running:
            if not run.why_stopped and (why := broken_rule(run, runs)):
                run.stop(why)
        if not running and not [run for run in waiting if run not in failed]:
            break
        if time.monotonic() - reported >= REPORT_SECONDS:
            report(runs)
            reported = time.monotonic()
        time.sleep(1)
    report(runs)


def broken_rule(run: Run, runs: list[Run]) -> str:
    """The rule by which a run must stop now, if there is one."""
    if "until" in run.rules and run.step() >= int(run.rules["until"]):
        return f"until {run.rules['until']}"
    if "behind" not in run.rules:
        return ""
    start, _, name = run.rules["behind"].partition(":")
    other = next(each for each in runs if each.name == name).utilities()
    both = {step: (ut, other[step]) for step, ut in run.utilities().items() if step >= int(start) and step in other}
    if not both:
        return ""
    step = min(both)
    mine, others = both[step]
    is_behind = mean(mine) < mean(others) and min(mine) < min(others)
    return f"behind {name} at {step}" if is_behind else ""


def read_plan(path: Path) -> list[list[str]]:
    """The words of every line that has any; names must differ, because they are folders."""
    lines = [words for line in path.read_text().splitlines() if (words := shlex.split(line, comments=True))]
    names = [name for name, *_ in lines]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SystemExit(f"{path}: names of runs must differ, got {', '.join(twice)} more than once")
    for name, *words in lines:
        for rule in (word.partition("=")[2] for word in words if word.startswith("behind=")):
            start, _, other = rule.partition(":")
            if not start.isdigit() or other not in names or other == name:
                raise SystemExit(
                    f"{path}: behind= must name a step and another run of the plan, got {rule!r} for {name}"
                )
    return lines


def report(runs: list[Run]) -> None:
    rates = {run: run.rate() for run in runs if run.is_running}
    for run in runs:
        ended = {None: "waits", 0: "done", 130: "stopped"}.get(run.status, f"failed ({run.status}), see {run.log}")
        ended = f"stopped: {run.why_stopped}" if run.why_stopped else ended
        state = f"{rates[run]:,.0f} seed-steps/s" if run in rates else ended
        print(f"{run.name:24} {run.step():>10,} steps  {state:22} {run.score()}")
    print(f"{'all':24} {'':>10}        {sum(rates.values()):,.0f} seed-steps/s", flush=True)


def main() -> None:
    words = sys.argv[1:]
    own, options = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--domains", nargs="+", default=[])
    parser.add_argument("--plan", type=Path)
    parser.add_argument("--algos", nargs="+", default=["qpensieve"])
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    given = parser.parse_args(own)
    if bool(given.domains) == bool(given.plan):
        parser.error("either --domains or --plan says what runs")
    (given.out / "runs").mkdir(parents=True, exist_ok=True)
    start_mps(given.out)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the runs share the card's memory
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    plan = [[f"{domain}-{algo}", domain, "--algo", algo] for domain in given.domains for algo in given.algos]
    runs = [
        Run(given.out, name, [*words, *options]) for name, *words in (read_plan(given.plan) if given.plan else plan)
    ]
    tend(runs, given.at_once, time.monotonic() + given.seconds)


if __name__ == "__main__":
    main()
