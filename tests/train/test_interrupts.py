"""Ctrl-C is answered at once, even where Python cannot run a handler."""

import signal
import subprocess
import sys
import time

import pytest

from qpensieve.train import interrupts as module
from qpensieve.train.interrupts import FIRST, SECOND, TERMINATING, interrupts, termination


def wait_for(said: list[str], num: int) -> None:
    until = time.monotonic() + 10
    while len(said) < num and time.monotonic() < until:
        time.sleep(0.01)


def press_twice(said: list[str]) -> None:
    with interrupts(said.append) as is_interrupted:
        assert not is_interrupted()
        signal.raise_signal(signal.SIGINT)
        assert is_interrupted()
        wait_for(said, 1)
        assert said == [FIRST]
        signal.raise_signal(signal.SIGINT)


def test_the_first_press_is_answered_and_sets_the_flag_the_second_interrupts():
    said: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        press_twice(said)
    assert said == [FIRST, SECOND]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_answer_comes_while_one_long_call_holds_python():
    script = (
        "import sys, time, hashlib\n"
        "from qpensieve.train.interrupts import interrupts\n"
        "with interrupts(lambda text: print(text, flush=True)) as is_interrupted:\n"
        "    print('ready', flush=True)\n"
        "    hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as out:
        assert out.readline() == "ready\n"
        for answer in (FIRST, SECOND):
            process.send_signal(signal.SIGINT)
            assert out.readline() == answer + "\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == -signal.SIGKILL
    assert module.THIRD == 3


def test_sigterm_sets_the_flag_and_never_interrupts_what_is_being_saved():
    said: list[str] = []
    with termination() as is_terminated:
        with interrupts(said.append) as is_interrupted:
            assert not is_interrupted()
            assert not is_terminated()
            for _ in range(2):
                signal.raise_signal(signal.SIGTERM)
            assert is_interrupted()
            wait_for(said, 1)
        signal.raise_signal(signal.SIGTERM)
        assert is_terminated()
    assert set(said) == {TERMINATING}


def test_sigterm_outside_of_training_interrupts_once():
    before = signal.getsignal(signal.SIGTERM)
    with termination() as is_terminated:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert is_terminated()
    assert signal.getsignal(signal.SIGTERM) is before
