"""Helper programs: processes that do as they are told, through pipes and memory that both sides see.

They are plain programs, not forks or copies of the user's script. They end when their input ends, so also when this
process is killed.
"""

import json
import mmap
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import tempfile
import traceback
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Float32

from qpensieve.envs import processes
from qpensieve.envs.simulator import EnvError

START, ANSWER, FAILURE = b"S", b"A", b"F"
HEADER = struct.Struct("<cQ")
ENVIRONMENTS_ERRORS = (EnvError, FloatingPointError)
PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from qpensieve.train import {0}; {0}.main()"
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""The products of acting are too small for more; idle threads of every program would wait in each other's way."""
Obey = Callable[[bytes, bytes], bytes]
"""(command, its content) -> answer."""


class Program:
    """A helper process, the pipes to it and the file of the memory that it shares.

    Args:
        module: The module of this package whose `main` it runs.
        title: What it is, for the error if it is lost, such as `DST2d: the process that steps lanes 0 to 3`.
        memory: The file; it becomes the program's, which closes it in the end.
    """

    def __init__(self, module: str, title: str, memory: int):
        self._title = title
        try:
            os.set_inheritable(memory, True)
            with processes.deaf_to_interrupts():
                self.process = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM.format(module), json.dumps([str(place) for place in sys.path])],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=os.environ | ONE_THREAD | {"JAX_PLATFORMS": "cpu"},
                    pass_fds=(memory,),
                )
        except BaseException:
            os.close(memory)
            raise
        self._close = weakref.finalize(self, _end, self.process, memory)

    def send(self, command: bytes, content: bytes = b"") -> None:
        pipe = self.process.stdin
        assert pipe is not None
        try:
            pipe.write(HEADER.pack(command, len(content)) + content)
            pipe.flush()
        except BrokenPipeError:
            raise self._lost() from None

    @property
    def is_ready(self) -> bool:
        """Whether there is an answer, or the news that there will be none."""
        pipe = self.process.stdout
        assert pipe is not None
        return bool(select.select([pipe], [], [], 0.0)[0])

    def answer(self) -> bytes:
        """The answer to the command; raises what the program raised."""
        kind, content = read_message(self.process.stdout, self._lost)
        if kind == FAILURE:
            raise _raised(*json.loads(content))
        return content

    def close(self) -> None:
        self._close()

    def kill(self) -> None:
        self.process.kill()

    def _lost(self) -> EnvError:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(processes.CLOSE_SECONDS)
        return EnvError(
            f"{self._title} ended with code {self.process.returncode}; "
            "if it had something to say, that is on standard error"
        )


class _ProgramError(Exception):
    """Carries the program's traceback as the cause of the error raised here."""


def _raised(kind: str, message: str, trace: str) -> Exception:
    """The error of a program; an environment's keeps its type, any other is a bug of ours and names it."""
    known = next((own for own in ENVIRONMENTS_ERRORS if own.__name__ == kind), None)
    error = RuntimeError(f"{kind}: {message}") if known is None else known(message)
    error.__cause__ = _ProgramError(trace)
    return error


def can_be_sent(content: object) -> bool:
    """Whether a program can be given this."""
    if os.name != "posix" or not sys.executable:
        return False
    try:
        pickle.dumps(content)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


def unnamed_file() -> int:
    """A file in memory, to share."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("qpensieve")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def grow(file: int, size: int) -> None:
    """Make a file at least so large."""
    if os.fstat(file).st_size < size:
        os.ftruncate(file, size)


def shared_parameters(
    file: int, num_agents: int, width: int, offset: int = 0
) -> Float32[np.ndarray, "agent parameters"]:
    """Parameters of agents in a shared file, from `offset` on."""
    size = num_agents * width * 4
    grow(file, offset + size)
    return np.ndarray((num_agents, width), np.float32, mmap.mmap(file, size, offset=offset))


def _end(process: subprocess.Popen[bytes], file: int) -> None:
    processes.end(process)
    os.close(file)


def read_message(pipe: Any, lost: Any) -> tuple[bytes, bytes]:
    header = pipe.read(HEADER.size)
    if len(header) < HEADER.size:
        raise lost()
    kind, size = HEADER.unpack(header)
    content = pipe.read(size)
    if len(content) < size:
        raise lost()
    return kind, content


def serve(commands: BinaryIO, answers: BinaryIO, begin: Callable[[bytes], Obey]) -> None:
    """The main loop of a program: answer commands until the input ends.

    Args:
        commands: Where commands come from.
        answers: Where answers go.
        begin: Content of the first message -> what answers the others.
    """
    _, content = read_message(commands, EOFError)
    obey = begin(content)
    while True:
        command, content = read_message(commands, EOFError)
        try:
            kind, answer = ANSWER, obey(command, content)
        except Exception as error:
            said = (type(error).__name__, str(error), traceback.format_exc())
            kind, answer = FAILURE, json.dumps(said).encode()
        answers.write(HEADER.pack(kind, len(answer)) + answer)


def run(begin: Callable[[bytes], Obey]) -> None:
    """What the `main` of a program does; `begin` as in `serve`."""
    # Ctrl-C reaches all processes of a terminal; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Without a buffer: what is left in one when the parent has ended would be complained about.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a stray print must not end up among the answers
    with suppress(BrokenPipeError, EOFError):  # the parent has ended
        serve(sys.stdin.buffer, answers, begin)
