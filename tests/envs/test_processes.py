"""Helper processes."""

import signal
import subprocess
import sys

import pytest

from qpensieve.envs import processes

PLAIN = "print(1, flush=True); input()"


def test_a_process_that_only_starts_does_not_hear_ctrl_c_and_its_parent_does_again():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with processes.deaf_to_interrupts():
        child = subprocess.Popen([sys.executable, "-I", "-c", PLAIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    assert child.stdout is not None
    child.stdout.readline()
    child.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.2)
    child.communicate(b"\n")
    assert child.returncode == 0
