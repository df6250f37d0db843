"""Run the tests under other instruction sets, BLAS kernels, cores and orders, and show what ran: a slow proof.

    python tools/portability.py                            # everything; takes hours
    python tools/portability.py --part blas -k crew        # one part, fewer tests; also isa, suite

A row is printed and written when it ends. A second call skips the rows that are in the folder of `--out`. Rows that
need more than the processor offers are not tried. The exit code is 1 if a test failed.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
COMPUTING = tuple(f"tests/{name}" for name in ("algos", "learning", "train", "population", "replay", "deploy"))
PATIENCE = "--timeout=3600"
"""Seconds that a test may take: rows run with low priority, and a test that is stopped would count as failed."""
NUMPY = (
    *("tests/learning/test_acting.py", "tests/watch/test_live.py"),
    *(
        f"tests/train/test_{name}.py"
        for name in ("evaluate", "collect", "collection_workers", "exploration", "evaluation_workers")
    ),
)
QUICK = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
"""Flags of tests that are not about compiled code, as in the Makefile: they compile in half of the time."""
SEED = "PORTABILITY_SEED"
"""Environment variable: seed of a random order of the tests."""
NEEDS = {
    **{"SSE4_2": "sse4_2", "AVX": "avx", "AVX2": "avx2", "AVX512": "avx512f", "128": "sse4_2", "512": "avx512f"},
    **{"Haswell": "avx2", "Zen": "avx2", "SkylakeX": "avx512f", "Sandybridge": "avx"},
}
"""What the processor must offer."""
ISA = tuple(f"--xla_cpu_max_isa={name}" for name in ("SSE4_2", "AVX", "AVX2", "AVX512")) + tuple(
    f"--xla_cpu_prefer_vector_width={width}" for width in (128, 512)
)
COLUMNS = ("part", "flags", "instructions", "blas", "passed", "failed", "skipped", "seconds")


@dataclass(frozen=True)
class Row:
    """One call of pytest."""

    part: str
    flags: str
    tests: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    needs: str = ""
    prefix: tuple[str, ...] = ()


def rows() -> Iterator[Row]:
    for flag, folder in product(ISA, COMPUTING):
        yield Row("isa", f"{flag} {folder}", (folder,), {"XLA_FLAGS": flag}, NEEDS[flag.split("=")[1]])
    for kernel, num in product(("Haswell", "Zen", "SkylakeX", "Sandybridge"), ("1", "2")):
        threads = {"OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": num}
        yield Row("blas", " ".join(f"{name}={value}" for name, value in threads.items()), NUMPY, threads, NEEDS[kernel])
    yield Row("suite", "one core", prefix=("taskset", "-c", "0"))
    for seed in ("1", "2"):
        yield Row("suite", f"random order {seed}", environment={SEED: seed})


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--part", choices=("isa", "blas", "suite"), help="only these rows")
    parser.add_argument("--only", default="", help="only rows whose flags contain this text")
    parser.add_argument("-k", dest="chosen", default="", help="only tests that match, as in pytest")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "portability", help="folder of rows and logs")
    given = parser.parse_args()
    print("|", " | ".join(COLUMNS), "|")
    print("|---" * len(COLUMNS) + "|", flush=True)
    wanted = [row for row in rows() if given.part in (None, row.part) and given.only.lower() in row.flags.lower()]
    return int(sum(run(row, given.chosen, given.out) for row in wanted) > 0)


def run(row: Row, chosen: str, out: Path) -> int:
    """Run the tests of a row, unless its result is there; print and write it, and return how many failed."""
    name = re.sub(r"\W+", "-", f"{row.part} {row.flags} {chosen}".lower()).strip("-")
    path, processor = out / f"{name}.json", Path("/proc/cpuinfo")
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        is_possible = row.needs in processor.read_text().split() if row.needs and processor.exists() else True
        result = tried(row, chosen, out / f"{name}.log") if is_possible else {"instructions": "not tried"}
        path.write_text(json.dumps({"part": row.part, "flags": row.flags, **result}, indent=1))
    result = json.loads(path.read_text())
    print("|", " | ".join(str(result.get(column, "")) for column in COLUMNS), "|", flush=True)
    return result.get("failed", 0)


def tried(row: Row, chosen: str, log: Path) -> dict[str, Any]:
    """Return what ran, and how many tests passed and failed; pytest's words are in the log."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS")}
    search_path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tools"), inherited.get("PYTHONPATH", "")])
    environment = inherited | {"PYTHONPATH": search_path, "XLA_FLAGS": QUICK, **row.environment}
    python, options = [*row.prefix, sys.executable], {"cwd": ROOT, "env": environment}
    said = subprocess.run([*python, __file__, "--probe"], stdout=subprocess.PIPE, check=True, **options).stdout
    workers = [] if row.prefix else ["-n", str(min(len(os.sched_getaffinity(0)), 8)), "--dist", "worksteal"]
    command = [*python, "-m", "pytest", "-q", "-p", "portability", PATIENCE, "-k", chosen, *workers, *row.tests]
    start = time.monotonic()
    with log.open("w") as file:
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False, **options).returncode
    text = log.read_text()
    summary = next((line for line in reversed(text.splitlines()) if re.search(r" in [\d.]+s", line)), "")
    counts = {word.rstrip("s"): int(num) for num, word in re.findall(r"(\d+) (passed|failed|skipped|errors?)", summary)}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    return json.loads(said) | {
        "passed": counts.get("passed", 0),
        "failed": failed or int(code not in ((0, 5) if chosen else (0,))),  # 5: no test was chosen
        "skipped": counts.get("skipped", 0),
        "seconds": round(time.monotonic() - start),
        "failures": re.findall(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE),
    }


def probe() -> None:
    """Print the instruction set that XLA compiles for and the kernels that OpenBLAS has chosen, in this environment."""
    import ctypes
    import importlib.util

    import jax

    compiled: Any = jax.jit(lambda x: x + 1).lower(1.0).compile().runtime_executable()
    has = re.findall(rb"\+(sse4\.2|avx512f|avx2|avx)\b", compiled.serialize())
    found = importlib.util.find_spec("numpy._core._multiarray_umath")
    library = ctypes.CDLL(None if found is None else found.origin)
    names = [f"{before}openblas_get_corename{after}" for before in ("scipy_", "") for after in ("64_", "")]
    corename = next((getattr(library, name) for name in names if hasattr(library, name)), None)
    if corename is not None:
        corename.restype = ctypes.c_char_p
    kernels = corename().decode() if corename is not None else "other"
    newest = max(has, key=lambda name: (name.startswith(b"avx"), name), default=b"unknown").decode()
    print(json.dumps({"instructions": newest, "blas": kernels}))


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Shuffle files, and the tests within each; this file is also a plugin of pytest."""
    if SEED in os.environ:
        draws = random.Random(os.environ[SEED])
        place = {path: draws.random() for path in dict.fromkeys(item.path for item in items)}
        items.sort(key=lambda item: (place[item.path], draws.random()))


if __name__ == "__main__":
    sys.exit(probe() if sys.argv[1:] == ["--probe"] else main())
