"""A helper program that fails as it is told: the name of a fault is in the environment variable `FAULT`."""

import importlib
import os
import signal

import numpy as np

from qpensieve.errors import EnvError, UserError
from qpensieve.remote import Obey

FAULT = "QPENSIEVE_FAULT"


def begin(content: bytes) -> Obey:
    fault = os.environ[FAULT]
    if fault == "module":
        importlib.import_module("no_such_simulator")
    if fault == "option":
        raise UserError("gravity must be below 0, got 9.81")
    return lambda command, content: _fail(fault)


def _fail(fault: str) -> bytes:
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "memory":
        np.zeros(1 << 58, np.uint8)
    if fault == "reset":
        raise EnvError("the environment failed in lane 0 at reset with seed 3: OSError: the licence has run out")
    raise ValueError("operands could not be broadcast together with shapes (2,) (3,)")
