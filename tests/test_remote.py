"""Helper processes."""

import signal
import subprocess
import sys

import pytest

from qpensieve import remote
from qpensieve.errors import EnvError, UserError
from qpensieve.remote import START, Program
from tests import faults

PLAIN = "print(1, flush=True); input()"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_only_starts_does_not_hear_ctrl_c_and_its_parent_does_again(number: signal.Signals):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with remote.deaf_to_interrupts():
        child = subprocess.Popen([sys.executable, "-I", "-c", PLAIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    assert child.stdout is not None
    child.stdout.readline()
    child.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.2)
    child.communicate(b"\n")
    assert child.returncode == 0


SAID = {
    "module": (EnvError, "the tester cannot work: No module named 'no_such_simulator'"),
    "option": (UserError, "gravity must be below 0, got 9.81"),
    "killed": (EnvError, "the tester was killed by SIGKILL, as the system does where memory runs out"),
    "memory": (
        EnvError,
        "the tester has run out of memory (Unable to allocate 256. PiB",
    ),
    "reset": (EnvError, "the environment failed in lane 0 at reset with seed 3: OSError: the licence has run out"),
    "bug": (RuntimeError, "ValueError: operands could not be broadcast together with shapes (2,) (3,)"),
}
"""Fault -> type and beginning of the error."""


@pytest.mark.parametrize("fault", SAID)
def test_a_program_that_fails_says_why_and_nothing_else(
    fault: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setenv(faults.FAULT, fault)
    kind, said = SAID[fault]
    program = Program("tests.faults", "the tester")
    program.send(START)
    with pytest.raises(kind) as caught:  # noqa: PT012 (it may have ended before the second command, or not)
        program.send(START)
        program.answer()
    program.close()
    assert type(caught.value) is kind
    assert str(caught.value).startswith(said)
    assert (fault == "killed") == (caught.value.__cause__ is None)
    assert capfd.readouterr().err == ""


def test_a_process_that_cannot_be_started_is_an_error_of_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(EnvError, match="the tester cannot be started: No such file or directory"):
        Program("tests.faults", "the tester")
