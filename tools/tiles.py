"""tiles.py FOLDER [ARM...] [--domain NAME] [--trace | --check]: how long updates take with kernels cut in other ways.

Compiles all arms at once (words as in `cuts.py`, in quotes; without any: `FIRST`), writes FOLDER/ready, waits for
FOLDER/go, measures the arms in turns and writes FOLDER/times.json. With --trace each arm runs once under the profiler,
without CUDA graphs, and FOLDER/kernels.json has calls and microseconds of every kernel. With --check nothing waits, and
FOLDER/errors.json has how far one update of each arm ends from the plain one's, over the way of that (half precision
is allowed 0.03 in tests). SMALL=1 tries it on a CPU.
"""

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

if "--trace" in sys.argv:  # kernels of a CUDA graph have no names
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_enable_command_buffer="

import cuts
import jax

from benchmarks import update
from benchmarks.timing import interleave
from qpensieve.algos import fused
from qpensieve.envs import get_domain

IS_SMALL = bool(os.environ.get("SMALL"))
BEFORE = "learn=32,256,4,1 score=128,64,8,1 climb=128,64,8,1 split=1"
"""How `fused.SOME` was cut before `results/h200/tiles.json`, which has five seeds of `robust` only."""
NEW, WIDE, AFTER = "score_new=128,256,8,1,128", "score=128,256,8,2,64 split=0", "climbs_beside=0"
FIRST = (
    *("robust 5", f"robust 5 {BEFORE}", f"robust 5 {NEW}", f"robust 5 {NEW} split_new=0", f"robust 5 {WIDE}"),
    *("robust 10", f"robust 10 {BEFORE}", "paper 5", f"paper 5 {BEFORE}", f"paper 5 {AFTER}"),
    *("paper 10", f"paper 10 {BEFORE}"),
)
SMALL_SETTINGS = {"hidden": 64, "batch_size": 64, "num_preferences": 2, "num_snapshots": 1}


def compiled(arm: cuts.Arm, algorithm: Any, spec: Any) -> Callable[[], float] | None:
    """A timer that has run once; None if there is no such kernel."""
    of_blocks = update.Settings(block=1, blocks=1) if IS_SMALL else update.Settings(block=50, blocks=12)
    try:
        timer = update.make_timer(algorithm, spec, arm.seeds, of_blocks)
        timer()
    except Exception as error:  # one cut that does not fit on the chip is no reason to lose the others
        print("failed", arm.words, str(error)[:200], flush=True)
        return None
    print("compiled", arm.words, flush=True)
    return timer


def traced(folder: Path, timer: Callable[[], float]) -> dict[str, Any]:
    """Calls and microseconds of each kernel, longest first; by line of the trace, as lines may agree."""
    with jax.profiler.trace(str(folder)):
        timer()
    data = jax.profiler.ProfileData.from_file(str(next(folder.rglob("*.xplane.pb"))))
    planes = [plane for plane in data.planes if IS_SMALL or plane.name.startswith("/device:GPU")]
    return {line.name: sums_of(line.events) for plane in planes for line in plane.lines}


def sums_of(events: Any) -> dict[str, Any]:
    sums: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for event in events:
        sums[event.name][0] += 1
        sums[event.name][1] += event.duration_ns / 1e3
    most = sorted(sums.items(), key=lambda item: -item[1][1])[:40]
    return {name: {"calls": num, "us of a call": round(total / num, 2)} for name, (num, total) in most}


def checked(arm: cuts.Arm, spec: Any) -> float:
    """The error of an arm, printed."""
    settings = SMALL_SETTINGS if IS_SMALL else {}
    make = cuts.make(arm, spec, settings), cuts.plain(arm, spec, settings)
    error = update.movement_between(*make, spec, arm.seeds)
    print(f"{error:.2g}", arm.words, flush=True)
    return error


def measured(timers: dict[str, Callable[[], float]]) -> list[dict[str, Any]]:
    for timer in timers.values():
        timer()
    times = interleave(list(timers.values()), 1 if IS_SMALL else 5)
    us = [[round(1e6 * second, 1) for second in of_arm] for of_arm in times]
    return [{"arm": words, "us": median(of_arm), "all": of_arm} for words, of_arm in zip(timers, us, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("arms", nargs="*")
    parser.add_argument("--domain", default="HalfCheetah2d")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--trace", action="store_true")
    instead.add_argument("--check", action="store_true")
    given = parser.parse_intermixed_args()
    spec, words = get_domain(given.domain).spec, given.arms or (FIRST[4:9:4] if IS_SMALL else FIRST)
    arms = [cuts.parse(one) for one in words]
    if not IS_SMALL and fused.unavailable():
        sys.exit(f"no kernels here: {fused.unavailable()}")
    threads = 1 if IS_SMALL else len(arms)
    if given.check:
        with ThreadPoolExecutor(threads) as pool:
            errors = list(pool.map(partial(checked, spec=spec), arms))
        (given.folder / "errors.json").write_text(json.dumps(dict(zip(words, errors, strict=True)), indent=1))
        return
    algorithms = [cuts.make(arm, spec, SMALL_SETTINGS if IS_SMALL else {}) for arm in arms]
    assert len(set(algorithms)) == len(arms)  # equal ones would share one compiled program
    with ThreadPoolExecutor(threads) as pool:
        timers = list(pool.map(partial(compiled, spec=spec), arms, algorithms))
    ready = {one: timer for one, timer in zip(words, timers, strict=True) if timer is not None}
    when_told(given.folder, ready, given.trace)
    os._exit(0)


def when_told(folder: Path, timers: dict[str, Callable[[], float]], is_traced: bool) -> None:
    """Say that all is compiled, wait, and measure or trace."""
    (folder / "ready").touch()
    while not (folder / "go").exists():
        time.sleep(0.02)
    if is_traced:
        sums = {words: traced(folder / f"trace-{i}", timer) for i, (words, timer) in enumerate(timers.items())}
        (folder / "kernels.json").write_text(json.dumps(sums, indent=1))
        return
    rows = measured(timers)
    print(*map(json.dumps, rows), sep="\n", flush=True)
    (folder / "times.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
