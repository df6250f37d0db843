"""Strikes a process of the contract tests at a file event. Python runs this at its start: it is on PYTHONPATH.

The environment variable `CONTRACT_STRIKE` says how, as JSON: see `support.Strike`. Events are those of Python's audit
hooks, which come before what they name: a file is opened for writing, renamed or removed, a folder is made or removed.
"""

import json
import os
import re
import signal
import sys
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
EVENTS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate")


class Hook:
    """Counts file events whose path fits a pattern, and acts at one of them."""

    def __init__(self, what: str, at: int, path: str, file: str):
        self._what, self._at, self._fits, self._file = what, at, re.compile(path).search, file
        self._seen, self._is_busy = 0, False

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in EVENTS or self._is_busy or not self._is_meant(event, args):
            return
        self._seen += 1
        if self._what == "count" or self._seen == self._at:
            self._is_busy = True
            try:
                self._act()
            finally:
                self._is_busy = False
        elif self._what == "fail" and self._seen > self._at:
            self._act()

    def _is_meant(self, event: str, args: tuple[Any, ...]) -> bool:
        if event == "open" and not (isinstance(args[2], int) and args[2] & WRITING):
            return False
        paths = [os.fspath(arg) for arg in args[:2] if isinstance(arg, str | os.PathLike)]
        return any(isinstance(path, str) and self._fits(path) for path in paths)

    def _act(self) -> None:
        if self._what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self._what == "fail":
            raise OSError(28, "No space left on device")
        elif self._what == "count":
            with open(self._file, "w") as file:
                file.write(str(self._seen))
        else:  # hold: say who we are, and wait for whoever kills us
            with open(self._file, "w") as file:
                file.write(f"{os.getpid()}\n")
            signal.pause()


if "CONTRACT_STRIKE" in os.environ:
    sys.addaudithook(Hook(**json.loads(os.environ["CONTRACT_STRIKE"])))
if "CONTRACT_PLAIN" in os.environ:  # as where matplotlib is not installed: drawing takes longer than these runs
    sys.modules["matplotlib"] = None  # pyright: ignore[reportArgumentType]
