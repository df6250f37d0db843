"""A worker that is struck at a chosen moment: python -m tests.experiments.struck BLOWS [options] FOLDER.

BLOWS is JSON: number of the worker -> [moment, step, what happens], moments as in `tests.train.kill_run`. Others
work undisturbed. Run as `python -m tests.experiments.struck drive ROOT BLOWS [NAMES [ADDRESS [fetch]]]` it trains all.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.train import kill_run

TINY: dict[str, Any] = {
    **kill_run.TINY,
    "eval_stride": 50,
    "full_eval_stride": 50,
    "full_eval_episodes": 1,
}


def blow(what: str) -> None:
    """die: kill -9. orphan: kill -9 of the driver. both: of both. ray: see below."""
    if what == "ray":
        _kill_raylet_or_ourselves()
    if what in ("orphan", "both"):
        os.kill(os.getppid(), signal.SIGKILL)
    if what in ("die", "both"):
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)


def _kill_raylet_or_ourselves() -> None:
    """On the second node of the tests the raylet, the parent of who started us, is killed; on the head this worker."""
    parent = lambda pid: int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    raylet = parent(os.getppid())
    is_second = b"127.0.0.3" in Path(f"/proc/{raylet}/cmdline").read_bytes()
    os.kill(raylet if is_second else os.getpid(), signal.SIGKILL)


def program(blows: dict[int, tuple[str, int, str]]) -> tuple[str, ...]:
    return (sys.executable, "-m", "tests.experiments.struck", json.dumps(blows))


def num_started(folder: Path) -> int:
    """Number of workers that were started for a run folder: each begins its log with a date and a machine."""
    log = folder / "worker.log"
    return sum(line[:2] == "20" and " on " in line for line in log.read_text().splitlines()) if log.exists() else 0


def work(blows: dict[str, tuple[str, int, str]], words: list[str]) -> int:
    from qpensieve.experiments import worker

    number = str(num_started(Path(words[-1])))
    if number in blows:
        moment, step, what = blows[number]
        kill_run._strike = lambda: blow(what)
        kill_run.prepare(moment, step)
    return worker.main(words)


def drive(root: Path, blows: str, names: str = "a", address: str = "", fetch: str = "") -> None:
    from qpensieve.config import default_config, override
    from qpensieve.experiments.local import Local
    from qpensieve.experiments.ray import OnRay
    from qpensieve.experiments.schedule import train_all
    from qpensieve.experiments.tasks import Task

    tasks = [Task(root / name, override(default_config("DST2d"), TINY)) for name in names]
    words = (sys.executable, "-m", "tests.experiments.struck", blows)
    engine = OnRay(address, fetch=bool(fetch), program=words) if address else Local(program=words)
    print(train_all(tasks, engine))


if __name__ == "__main__":
    if sys.argv[1] == "drive":
        drive(Path(sys.argv[2]), *sys.argv[3:])
    else:
        sys.exit(work(json.loads(sys.argv[1]), sys.argv[2:]))
