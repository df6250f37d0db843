"""A remote object that fails as it is told: the name of a fault is in the environment variable `FAULT`."""

import importlib
import os
import signal
import time
from typing import Any

import numpy as np

from qpensieve.errors import EnvError, UserError

FAULT = "QPENSIEVE_FAULT"


class Faulty:
    """Fails when it is made, or when any method is called."""

    def __init__(self, *arguments: Any):
        self._fault = os.environ.get(FAULT)
        if self._fault == "module":
            importlib.import_module("no_such_simulator")
        if self._fault == "option":
            raise UserError("gravity must be below 0, got 9.81")

    def start(self, *arguments: Any) -> Any:
        if self._fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault == "memory":
            np.zeros(1 << 58, np.uint8)
        if self._fault == "reset":
            raise EnvError("the environment failed in lane 0 at reset with seed 3: OSError: the licence has run out")
        if self._fault == "diverged":
            raise FloatingPointError("Hopper2d: action[0] is nan in lane 3")
        raise ValueError("operands could not be broadcast together with shapes (2,) (3,)")


class Adder:
    """Adds to a number, slowly if told."""

    def __init__(self, first: float):
        self._sum = first

    def add(self, number: float, seconds: float = 0.0) -> float:
        time.sleep(seconds)
        self._sum += number
        return self._sum

    def fork(self) -> int:
        """Start a process that holds all pipes of this one for a minute, and end."""
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        print(child, file=open(os.environ[FAULT], "w"))  # noqa: SIM115
        os._exit(3)

    def giver(self) -> Any:
        """Return what cannot be pickled."""
        return lambda: self._sum

    def divide(self, number: float) -> float:
        return self._sum / number
