"""The program that trains one run folder to its end: python -m qpensieve.experiments.worker [options] FOLDER.

It resumes the run, writes its summary and, with --critic, measures its critics. It saves and ends at SIGTERM and when
its input ends, which happens when the program that started it ends. Its exit code is a `local.Code`.
"""

import argparse
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from qpensieve import config as configs
from qpensieve.console import plain_warnings
from qpensieve.errors import UserError
from qpensieve.experiments.local import END_SECONDS, Code
from qpensieve.experiments.tasks import critic_steps
from qpensieve.records.folder import CONFIG, FolderInUseError, lock
from qpensieve.report.summary import write_summary
from qpensieve.train import run as runs
from qpensieve.train.critic_error import Sampling, measure_run
from qpensieve.train.interrupts import termination
from qpensieve.train.run_loop import Stopped

SMALL_RUN = 10_000
"""Steps below which a run is a trial, whose critics are measured on a few pairs (s, a)."""
FEW = Sampling(pairs=2, rollouts=2)


@plain_warnings()
def main(words: list[str] | None = None) -> int:
    """Train one run folder; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m qpensieve.experiments.worker", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--steps", type=int, help="train up to this many steps; default: as configured")
    parser.add_argument("--critic", action="store_true", help="measure L_critic in the end")
    parser.add_argument("--trust", action="store_true", help="import the code that the domain names")
    given = parser.parse_args(words)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # Slurm may send it to all processes of a job before its time limit
    with termination():
        threading.Thread(target=_end_with_input, daemon=True).start()
        return work(given.folder, given.steps, given.critic, given.trust)


def _end_with_input() -> None:
    with suppress(OSError):
        while os.read(sys.stdin.fileno(), 4096):
            pass
    _say("the program that started this worker has ended: saving")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(END_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def work(folder: Path, steps: int | None = None, critic: bool = False, trust: bool = False) -> Code:
    """Train, summarize and measure; print on stderr how it ended, and return the exit code."""
    try:
        _complete(folder, steps, critic, trust)
    except FolderInUseError as error:
        _say(str(error))
        return Code.IN_USE
    except (KeyboardInterrupt, Stopped):
        _say("stopped; the next worker continues")
        return Code.INTERRUPTED
    except Exception as error:
        if is_out_of_memory(error):
            _say(f"out of memory: {str(error).splitlines()[0] if str(error) else 'on the host'}")
            return Code.OUT_OF_MEMORY
        traceback.print_exc()  # its last line is the cause
        return Code.FAILED
    return Code.DONE


def _complete(folder: Path, steps: int | None, critic: bool, trust: bool) -> None:
    changes: dict[str, Any] = {} if steps is None else {"steps": steps}
    with closing(runs.resume(folder, runs.Options(), _say, trust, **changes)) as run:
        run.train()
    with closing(lock(folder)):
        write_summary(folder)
        if critic:
            measure_critics(folder)


def measure_critics(folder: Path) -> None:
    """Measure L_critic at the paper's steps, or at the same parts of a run of another length; writes `critic.json`."""
    total = configs.load(folder / CONFIG, trust=True).steps  # the run has just been trained
    steps = critic_steps(folder)
    if not steps:
        raise UserError(f"{folder} has kept no parameters: set parameters_period to {total} or less")
    sampling = FEW if total < SMALL_RUN else Sampling()
    measure_run(folder, tuple(steps), sampling=sampling, trust=True, say=_say, quiet=True)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Return whether an error or one of its causes is a lack of memory, on the card (as XLA says it) or the machine."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
