"""Objects in processes of their own."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qpensieve import remote
from qpensieve.errors import EnvError, UserError
from qpensieve.remote import RemoteObject, RemoteObjects, SharedMemory
from tests.faults import FAULT, Adder, Faulty

PLAIN = "print(1, flush=True); input()"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_only_starts_does_not_hear_ctrl_c_and_its_parent_does_again(number: signal.Signals):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with remote.without_interrupts():
        child = subprocess.Popen([sys.executable, "-I", "-c", PLAIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    assert child.stdout is not None
    child.stdout.readline()
    child.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.2)
    child.communicate(b"\n")
    assert child.returncode == 0


MESSAGES = {
    "module": (EnvError, "the tester cannot work: No module named 'no_such_simulator'"),
    "option": (UserError, "gravity must be below 0, got 9.81"),
    "killed": (EnvError, "the tester was killed by SIGKILL, as the system does where memory runs out"),
    "memory": (EnvError, "the tester has run out of memory (Unable to allocate 256. PiB"),
    "reset": (EnvError, "the environment failed in lane 0 at reset with seed 3: OSError: the licence has run out"),
    "diverged": (FloatingPointError, "Hopper2d: action[0] is nan in lane 3"),
    "bug": (RuntimeError, "ValueError: operands could not be broadcast together with shapes (2,) (3,)"),
}
"""Fault -> type and beginning of the error."""


@pytest.mark.parametrize("fault", MESSAGES)
def test_an_object_that_fails_says_why_and_nothing_else(
    fault: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setenv(FAULT, fault)
    kind, message = MESSAGES[fault]
    tester = RemoteObject("the tester", Faulty, ())
    tester.send("start")
    with pytest.raises(kind) as caught:
        tester.receive()
    tester.close()
    assert type(caught.value) is kind
    assert str(caught.value).startswith(message)
    assert (fault == "killed") == (caught.value.__cause__ is None)
    assert capfd.readouterr().err == ""


def test_a_process_that_cannot_be_started_is_an_error_of_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(EnvError, match="the tester cannot be started: No such file or directory"):
        RemoteObject("the tester", Adder, (1,))


def test_an_object_keeps_its_state_and_works_on_after_an_error():
    adder = RemoteObject("the adder", Adder, (1,))
    adder.send("divide", 0)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        adder.receive()
    adder.send("add", 2)
    assert adder.receive() == 3
    adder.close()
    adder.close()
    adder.send("add", 2)
    with pytest.raises(EnvError, match="the adder is closed"):
        adder.receive()
    assert adder.process.returncode == 0


class Unreadable:
    """Can be pickled, but not read again."""

    def __reduce__(self) -> Any:
        return getattr, ("", "no_such_name")


def test_what_cannot_be_read_or_answered_is_said_and_the_object_works_on():
    adder = RemoteObject("the adder", Adder, (1,))
    adder.send("add", Unreadable())
    with pytest.raises(EnvError, match=r"the adder cannot unpickle its request \(AttributeError: "):
        adder.receive()
    adder.send("giver")
    with pytest.raises(RuntimeError, match="lambda"):
        adder.receive()
    adder.send("add", 2)
    assert adder.receive() == 3
    adder.close()


def test_an_answer_is_ready_once_it_is_there():
    adder = RemoteObject("the adder", Adder, (1,))
    adder.send("add", 1, 0.3)
    assert not adder.is_ready
    assert adder.receive() == 2
    adder.kill()
    assert adder.process.returncode == -signal.SIGKILL


def test_a_process_whose_child_holds_its_pipes_is_seen_to_have_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(FAULT, str(tmp_path / "child"))
    adder = RemoteObject("the adder", Adder, (1,))
    adder.send("fork")
    with pytest.raises(EnvError, match="the adder ended with exit code 3"):
        adder.receive()
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    adder.close()


def test_all_objects_answer_before_an_error_is_raised_and_ctrl_c_ends_them(monkeypatch: pytest.MonkeyPatch):
    adders = RemoteObjects(RemoteObject(f"adder {i}", Adder, (i,)) for i in range(2))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        adders.call("divide", {0: (0,), 1: (1,)})
    assert adders.call("add", {0: (5,), 1: (5,)}) == {0: 5, 1: 6}
    adders.send("add", {0: (1,), 1: (1,)})
    first, second = adders.members

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(second, "receive", interrupt)
    with pytest.raises(KeyboardInterrupt):
        adders.receive()
    assert isinstance(first, RemoteObject)
    assert first.process.returncode == -signal.SIGKILL


class Reader:
    """Reads shared memory."""

    def __init__(self, memory: SharedMemory):
        self._memory = memory

    def total(self, shape: tuple[int, int]) -> float:
        return float(self._memory.floats(shape).sum())


def test_memory_is_shared_with_several_objects():
    memory = SharedMemory()
    readers = RemoteObjects(RemoteObject("the reader", Reader, (memory,), memory) for _ in range(2))
    numbers = memory.floats((3, 1000))
    for value in (1.0, 2.0):
        numbers[:] = value
        assert readers.call("total", {0: ((3, 1000),), 1: ((3, 1000),)}) == {0: 3000 * value, 1: 3000 * value}
    readers.close()
    np.testing.assert_array_equal(numbers, 2.0)


def test_a_process_that_does_not_end_by_itself_is_killed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(remote, "CLOSE_SECONDS", 0.2)
    adder = RemoteObject("the adder", Adder, (1,))
    adder.process.send_signal(signal.SIGSTOP)
    adder.close()
    assert adder.process.returncode == -signal.SIGKILL
