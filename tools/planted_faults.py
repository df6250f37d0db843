"""Plant faults, one at a time, and see which test catches each: python tools/planted_faults.py [ID ...] [--wide].

The faults are in `tests/planted/faults.toml`: a sentence, a text and its replacement, and the tests that should catch
it. Each fault is planted in a copy of the tree. In the end every test that caught one is run on the copy without it.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FAULTS = ROOT / "tests" / "planted" / "faults.toml"
QUICK = "--xla_cpu_parallel_codegen_split_count=1 --xla_backend_optimization_level=0"
QUICK += " --xla_cpu_use_fusion_emitters=false"
"""The flags of `make test`."""
TIME_LIMIT = 1200
"""Seconds that the tests of one fault may take."""


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        id: Its name.
        sentence: What is wrong, in words.
        file: The file it is in; if that has moved, the text is looked for in all of `src`.
        old: The right text; white space does not count.
        new: The wrong text.
        tests: Files or names of tests, as for pytest.
    """

    id: str
    sentence: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of a fault: the test that caught it, or why none did."""

    fault: Fault
    said: str
    seconds: float = 0.0
    test: str = ""


class Copy:
    """A copy of the tree in which faults are planted.

    Args:
        folder: Where to put it.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
        for name in names:
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        (ROOT / ".cache").mkdir(exist_ok=True)
        (folder / ".cache").symlink_to(ROOT / ".cache")  # programs compiled before

    def places(self, fault: Fault) -> list[Path]:
        """Return the files with the right text of a fault: the named file, or else files of `src`."""
        own = self.folder / fault.file
        if own.is_file() and _pattern(fault.old).search(own.read_text()):
            return [own]
        return [path for path in (self.folder / "src").rglob("*.py") if _pattern(fault.old).search(path.read_text())]

    def pytest(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run tests of the copy."""
        flags = f"{os.environ.get('XLA_FLAGS', '')} {QUICK}".strip()
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder / "src"), "XLA_FLAGS": flags},
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
        )

    def try_out(self, fault: Fault, is_wide: bool) -> Outcome:
        """Plant a fault, run its tests, and take it out again."""
        places = self.places(fault)
        if len(places) != 1 or len(_pattern(fault.old).findall(places[0].read_text())) != 1:
            where = ", ".join(str(path.relative_to(self.folder)) for path in places) or "nowhere"
            return Outcome(fault, f"WRITE IT AGAIN: its text must be there once, it is in {where}")
        tests = [test for test in fault.tests if (self.folder / test.split("::")[0]).exists()]
        if not tests and not is_wide:
            return Outcome(fault, f"NAME ITS TESTS: {', '.join(fault.tests) or 'none'} does not exist")
        path, began = places[0], time.monotonic()
        text = path.read_text()
        try:
            path.write_text(_pattern(fault.old).sub(lambda _: fault.new, text))
            _forget_compiled(path)
            ended = self.pytest(*tests) if tests else None
            if (ended is None or ended.returncode == 0) and is_wide:
                ended = self.pytest("tests", "--ignore=tests/planted")
        finally:
            path.write_text(text)
            _forget_compiled(path)
        assert ended is not None
        return _read(fault, ended, time.monotonic() - began)

    def is_clean(self, tests: list[str]) -> bool:
        """Return whether these tests pass without a fault."""
        ended = self.pytest(*tests)
        if ended.returncode:
            print(ended.stdout[-3000:], file=sys.stderr)
        return ended.returncode == 0


def read_faults(path: Path = FAULTS) -> list[Fault]:
    """Return the faults of the file; ValueError names what is missing."""
    found = []
    for entry in tomllib.loads(path.read_text())["fault"]:
        values: dict[str, Any] = {"tests": (), **entry}
        try:
            found.append(Fault(**{**values, "tests": tuple(values["tests"])}))
        except TypeError as error:
            raise ValueError(f"{path}, fault {entry.get('id')}: {error}") from error
    return found


def _pattern(text: str) -> re.Pattern[str]:
    """Return a pattern that matches a text with any white space."""
    return re.compile(r"\s+".join(map(re.escape, text.split())))


def _forget_compiled(path: Path) -> None:
    """Remove the bytecode of a file: within a second a changed file of the same length looks the same."""
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()


def _read(fault: Fault, ended: subprocess.CompletedProcess[str], seconds: float) -> Outcome:
    if ended.returncode == 0:
        return Outcome(fault, "NOT CAUGHT", seconds)
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", ended.stdout, re.MULTILINE)
    if failed is None:
        return Outcome(fault, f"NO TEST FAILED: pytest ended with {ended.returncode}: {ended.stdout[-300:]}", seconds)
    return Outcome(fault, "caught", seconds, failed[1])


def main() -> None:
    parser = argparse.ArgumentParser(description="Plant faults, one at a time, and see which test catches each.")
    parser.add_argument("ids", nargs="*", metavar="ID", help="faults to plant; default: all")
    parser.add_argument("--wide", action="store_true", help="run all tests where those named catch nothing")
    given = parser.parse_args()
    faults = read_faults()
    unknown = set(given.ids) - {fault.id for fault in faults}
    if unknown:
        parser.error(f"unknown faults: {', '.join(sorted(unknown))}")
    chosen = [fault for fault in faults if not given.ids or fault.id in given.ids]
    with tempfile.TemporaryDirectory() as folder:
        copy, outcomes = Copy(Path(folder)), list[Outcome]()
        for fault in chosen:
            outcomes.append(copy.try_out(fault, given.wide))
            one = outcomes[-1]
            print(f"{fault.id:36} {one.seconds:6.1f} s  {one.test or one.said}", flush=True)
        caught = [one.test for one in outcomes if one.test]
        is_clean = not caught or copy.is_clean(sorted(set(caught)))
    print(f"\n{len(caught)} of {len(chosen)} faults are caught, in {sum(one.seconds for one in outcomes):.0f} s")
    if not is_clean:
        print("a test that caught a fault fails without it too: see above", file=sys.stderr)
    sys.exit(0 if is_clean and len(caught) == len(chosen) else 1)


if __name__ == "__main__":
    main()
