"""Helper programs: processes that do as they are told, through pipes and memory that both sides see.

They are plain programs, not forks or copies of the user's script. They end when their input ends, so also when this
process is killed. Light: a program imports what it needs after it has begun to listen, so that it can say what is
missing.
"""

import importlib
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from jaxtyping import Float32

from qpensieve.errors import EnvError, UserError

START, ANSWER, FAILURE = b"S", b"A", b"F"
HEADER = struct.Struct("<cQ")
RAISED_AGAIN = (EnvError, FloatingPointError, UserError)
"""Errors of a program that are raised here as they are; any other is a bug, or explained by `Failure.error`."""
PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from qpensieve import remote; remote.main()"
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""The products of acting are too small for more; idle threads of every program would wait in each other's way."""
OURS = f"'{__package__}."
"""How the name of a missing module begins that is part of this package: a bug."""
CLOSE_SECONDS = 5.0
"""How long a program may take to end by itself before it is killed."""
INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
Obey = Callable[[bytes, bytes], bytes]
"""(command, its content) -> answer."""


class Program:
    """A helper process, the pipes to it and the file of the memory that it shares.

    Args:
        module: The module of this package whose `begin` makes what answers commands.
        title: What it is, for errors, such as `DST2d: the process that steps lanes 0 to 3`.
        memory: The file, which is closed in the end; None: it shares none.

    Raises:
        EnvError: The system cannot start another process.
    """

    def __init__(self, module: str, title: str, memory: int | None = None):
        self._title = title
        shared = () if memory is None else (memory,)
        places = json.dumps([str(place) for place in sys.path])
        try:
            for file in shared:
                os.set_inheritable(file, True)
            with deaf_to_interrupts():
                self.process = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, places, module],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=os.environ | ONE_THREAD | {"JAX_PLATFORMS": "cpu"},
                    pass_fds=shared,
                )
        except BaseException as error:
            _close(shared)
            if isinstance(error, OSError):
                raise EnvError(f"{title} cannot be started: {error.strerror}") from error
            raise
        self._close = weakref.finalize(self, _end, self.process, shared)

    def send(self, command: bytes, content: bytes = b"") -> None:
        pipe = self.process.stdin
        assert pipe is not None
        try:
            pipe.write(HEADER.pack(command, len(content)) + content)
            pipe.flush()
        except BrokenPipeError:  # it has ended; why may be its last answer
            self.answer()
            raise self._lost() from None

    @property
    def is_ready(self) -> bool:
        """Whether there is an answer, or the news that there will be none."""
        pipe = self.process.stdout
        assert pipe is not None
        return bool(select.select([pipe], [], [], 0.0)[0])

    def answer(self) -> bytes:
        """The answer to the command; raises what the program raised."""
        kind, content = _read_message(self.process.stdout, self._lost)
        if kind == FAILURE:
            raise Failure(*json.loads(content)).error(self._title)
        return content

    def close(self) -> None:
        self._close()

    def kill(self) -> None:
        self.process.kill()

    def _lost(self) -> EnvError:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(CLOSE_SECONDS)
        return EnvError(f"{self._title} {how_it_ended(self.process.returncode)}")


class Failure(NamedTuple):
    """An error of another process; not as an exception, because those of other packages need not survive pickling."""

    kind: str
    """Name of its type, or of a more general one that is treated in its own way."""
    message: str
    trace: str

    @classmethod
    def of(cls, error: Exception) -> "Failure":
        """The error that is being handled."""
        kind = next((own for own in (*RAISED_AGAIN, MemoryError) if isinstance(error, own)), type(error))
        return cls(kind.__name__, str(error), traceback.format_exc())

    def error(self, title: str) -> Exception:
        """The error to raise in this process.

        Args:
            title: What the other process is.
        """
        known = next((own for own in RAISED_AGAIN if own.__name__ == self.kind), None)
        if known is not None:
            error = known(self.message)
        elif self.kind == ModuleNotFoundError.__name__ and OURS not in self.message:
            error = EnvError(f"{title} cannot work: {self.message}")
        elif self.kind == MemoryError.__name__:
            error = EnvError(f"{title} has run out of memory{f' ({self.message})' if self.message else ''}")
        else:
            error = RuntimeError(f"{self.kind}: {self.message}")
        error.__cause__ = _ElsewhereError(self.trace)
        return error


class _ElsewhereError(Exception):
    """Carries the traceback of another process as the cause of an error raised here."""


def how_it_ended(code: int | None) -> str:
    """How a process ended by itself, in words that follow its name."""
    if code == -signal.SIGKILL:
        return "was killed by SIGKILL, as the system does where memory runs out"
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}; if it had something to say, that is on standard error"


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


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Processes started meanwhile never hear Ctrl-C and SIGTERM, which may be sent to all: their parent ends them.

    To ignore it in their first lines would be too late: Python would print a traceback of its own start.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(process: subprocess.Popen[bytes], files: tuple[int, ...]) -> None:
    """Close the pipes of a process and wait until it is gone."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.close()  # it ends at the end of its input
    process.stdout.close()
    try:
        process.wait(CLOSE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _close(files)


def _close(files: tuple[int, ...]) -> None:
    for file in files:
        os.close(file)


def _read_message(pipe: Any, lost: Any) -> tuple[bytes, bytes]:
    header = pipe.read(HEADER.size)
    if len(header) < HEADER.size:
        raise lost()
    kind, size = HEADER.unpack(header)
    content = pipe.read(size)
    if len(content) < size:
        raise lost()
    return kind, content


def main() -> None:
    """A helper program; the words of its command line are the places of modules and its own module."""
    # Ctrl-C reaches all processes of a terminal, SIGTERM all of a batch job; the parent decides what they mean.
    for number in INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)
    # Without a buffer: what is left in one when the parent has ended would be complained about.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a stray print must not end up among the answers
    with suppress(BrokenPipeError, EOFError):  # the parent has ended
        _serve(sys.stdin.buffer, answers, sys.argv[2])


def _serve(commands: BinaryIO, answers: BinaryIO, module: str) -> None:
    """Answer commands until the input ends. The first one has no answer, unless it fails: it says what to do."""
    _, task = _read_message(commands, EOFError)
    obey: Obey | None = None
    try:
        obey = importlib.import_module(module).begin(task)
    except Exception as error:
        _tell(answers, FAILURE, json.dumps(Failure.of(error)).encode())
    while obey is not None:
        command, content = _read_message(commands, EOFError)
        try:
            kind, answer = ANSWER, obey(command, content)
        except Exception as error:
            kind, answer = FAILURE, json.dumps(Failure.of(error)).encode()
        _tell(answers, kind, answer)


def _tell(answers: BinaryIO, kind: bytes, content: bytes) -> None:
    answers.write(HEADER.pack(kind, len(content)) + content)
