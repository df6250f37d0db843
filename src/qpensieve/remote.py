"""Objects in processes of their own. Their methods are called by name; results and errors come back.

The processes are plain programs, not forks or copies of the user's script. They end when their channel is closed, so
also when this process is killed. They import only once the channel is open, so that they can report a missing module.
"""

import json
import mmap
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from jaxtyping import Float32

from qpensieve.console import plain_warnings
from qpensieve.errors import EnvError, UserError

SAME_TYPE = (EnvError, FloatingPointError, UserError)
"""Errors of a remote object that are raised here with their own type. `_sendable` converts all others."""
PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from qpensieve import remote; remote.main()"
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Matrix products of acting are too small for several threads, and idle threads of many processes slow all down."""
THIS_PACKAGE = f"'{__package__}."
"""Text in the error of a missing module of this package, which is a bug."""
CLOSE_SECONDS = 5.0
"""Seconds that a process gets to end by itself before it is killed."""
ALIVE_SECONDS = 1.0
"""Seconds between checks that the process is alive while its answer is awaited."""
INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
STDERR = 2


class SharedMemory:
    """Memory without a name that this process shares with remote objects.

    Args:
        file: Descriptor of a file that is shared already; None: a new file.
    """

    def __init__(self, file: int | None = None):
        self.file = _unnamed_file() if file is None else file
        self._floats: Float32[np.ndarray, "n width"] | None = None
        weakref.finalize(self, os.close, self.file)

    def floats(self, shape: tuple[int, int]) -> Float32[np.ndarray, "n width"]:
        """Return the numbers in this memory; all calls must name the same shape."""
        if self._floats is None:
            size = 4 * shape[0] * shape[1]
            if os.fstat(self.file).st_size < size:
                os.ftruncate(self.file, size)
            self._floats = np.ndarray(shape, np.float32, mmap.mmap(self.file, size))
        assert self._floats.shape == shape
        return self._floats

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the number of the descriptor, which remote objects inherit."""
        return SharedMemory, (self.file,)


class RemoteObject:
    """An object in a process of its own.

    Args:
        title: Name of the process in errors, such as `DST2d: the process that steps lanes 0 to 3`.
        make: Called in the process to make the object; a function or class at the top level of a module.
        arguments: Arguments of `make`.
        memory: Memory that the process shares. None: it shares none.

    Raises:
        EnvError: The system cannot start another process.
    """

    def __init__(
        self, title: str, make: Callable[..., Any], arguments: Sequence[Any], memory: SharedMemory | None = None
    ):
        self._title = title
        self._channel, theirs = Pipe()
        shared = () if memory is None else (memory.file,)
        try:
            with without_interrupts(), theirs:
                self.process = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, json.dumps([*map(str, sys.path)]), str(theirs.fileno()), title],
                    stdin=subprocess.DEVNULL,
                    stdout=STDERR,  # a stray print must not end up among the results of a command
                    env=os.environ | ONE_THREAD | {"JAX_PLATFORMS": "cpu"},
                    pass_fds=(theirs.fileno(), *shared),
                )
        except OSError as error:
            raise EnvError(f"{title} cannot be started: {error.strerror}") from error
        self._close = weakref.finalize(self, _end, self.process, self._channel, os.getpid())
        self._send((make, arguments))

    def send(self, method: str, *arguments: Any) -> None:
        """Begin a call of a method. Call `receive` before the next `send`."""
        self._send((method, arguments))

    def _send(self, message: tuple[Any, ...]) -> None:
        content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with suppress(OSError):  # the process has ended, or the object is closed: `receive` says which
            self._channel.send_bytes(content)

    @property
    def is_ready(self) -> bool:
        """Whether `receive` would return, or raise, at once."""
        return self._has_answer(0.0) or self.process.poll() is not None

    def receive(self) -> Any:
        """Return the result of the method that was called, or raise its error.

        Errors of other types than `SAME_TYPE` become an EnvError or a RuntimeError.

        Raises:
            EnvError: The object is closed, or its process has ended.
        """
        if not self._close.alive:
            raise EnvError(f"{self._title} is closed")
        # A process that the object has started may hold the channel open after it is gone, so its end is not awaited.
        while not self._has_answer(ALIVE_SECONDS):
            if self.process.poll() is not None and not self._has_answer(0.0):
                raise self._lost()
        try:
            content = self._channel.recv_bytes()
        except (EOFError, OSError):  # nothing, or a part of an answer
            raise self._lost() from None
        result, trace = pickle.loads(content)
        if trace:
            raise result from _OtherProcessError(trace)
        return result

    def _has_answer(self, seconds: float) -> bool:
        return bool(select.select([self._channel], [], [], seconds)[0])

    def begin_close(self) -> None:
        """Tell the process to end, without waiting for it."""
        self._channel.close()

    def close(self) -> None:
        """End the process and wait until it is gone."""
        self._close()

    def kill(self) -> None:
        """End the process at once."""
        self.process.kill()
        self._close()

    def _lost(self) -> EnvError:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(CLOSE_SECONDS)
        hint = "" if (self.process.returncode or 0) < 0 else "; standard error may show why"
        return EnvError(f"{self._title} {how_it_ended(self.process.returncode)}{hint}")


class RemoteObjects:
    """Objects whose methods are called together; all are killed if a call is interrupted."""

    def __init__(self, members: Iterable[RemoteObject]):
        self.members: list[RemoteObject] = []
        try:
            self.members += members
        except BaseException:
            self.kill()
            raise
        self._asked: list[int] = []

    def send(self, method: str, arguments: Mapping[int, Sequence[Any]]) -> None:
        """Begin a call of a method. `arguments`: number of a member -> its arguments; other members are not called."""
        with self.killed_halfway():
            for number, own in arguments.items():
                self.members[number].send(method, *own)
        self._asked = list(arguments)

    def receive(self) -> dict[int, Any]:
        """Return number -> result of the members that were called; raise the first error once all have answered."""
        results, errors = dict[int, Any](), list[Exception]()
        with self.killed_halfway():
            for number in self._asked:
                try:
                    results[number] = self.members[number].receive()
                except Exception as error:
                    errors.append(error)
        if errors:
            raise errors[0]
        return results

    def call(self, method: str, arguments: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        """Call a method and wait for the results."""
        self.send(method, arguments)
        return self.receive()

    @contextmanager
    def killed_halfway(self) -> Iterator[None]:
        """Kill all members if the block raises, also by Ctrl-C: the next call could receive a result of this one."""
        try:
            yield
        except BaseException:
            self.kill()
            raise

    def close(self) -> None:
        """End all members and wait until their processes are gone."""
        for member in self.members:
            member.begin_close()
        for member in self.members:
            member.close()

    def kill(self) -> None:
        """Kill all members."""
        for member in self.members:
            member.kill()


class _OtherProcessError(Exception):
    """Carries the traceback of another process as the cause of an error raised here."""


def _sendable(error: Exception, title: str) -> Exception:
    """Return the error to raise in the calling process: exceptions of other packages may not survive pickling."""
    known = next((kind for kind in SAME_TYPE if isinstance(error, kind)), None)
    if known is not None:
        return known(str(error))
    if isinstance(error, ModuleNotFoundError) and THIS_PACKAGE not in str(error):
        return EnvError(f"{title} cannot work: {error}")
    if isinstance(error, MemoryError):
        return EnvError(f"{title} has run out of memory{f' ({error})' if str(error) else ''}")
    return RuntimeError(f"{type(error).__name__}: {error}")


def how_it_ended(code: int | None) -> str:
    """Describe the exit code of a process, in words that follow its name."""
    if code == -signal.SIGKILL:
        return "was killed by SIGKILL, as the system does where memory runs out"
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def can_be_sent(content: object) -> bool:
    """Return whether this system can start remote objects and `content` can be pickled for them."""
    if os.name != "posix" or not sys.executable:
        return False
    try:
        pickle.dumps(content)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


def _unnamed_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("qpensieve")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Start processes that never get Ctrl-C and SIGTERM, which may be sent to all processes: their parent ends them.

    To ignore the signals in their first lines would be too late: Python would print a traceback of its start.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(process: subprocess.Popen[bytes], channel: Connection, owner: int) -> None:
    """Close the channel, which ends the process, and wait for it; kill it after CLOSE_SECONDS. A fork does nothing."""
    if os.getpid() != owner:  # a fork of the owner has inherited this finalizer, but not the process
        return
    channel.close()  # the process ends when its channel is closed
    try:
        process.wait(CLOSE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main() -> None:
    """Run the process of a remote object."""
    # Ctrl-C reaches all processes of a terminal, SIGTERM all of a batch job; the parent decides what they mean.
    for number in INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)
    channel, title = Connection(int(sys.argv[2])), sys.argv[3]
    with plain_warnings(), suppress(OSError):  # the parent has ended
        _serve(channel, title)


def _serve(channel: Connection, title: str) -> None:
    """Make the object, then answer calls of its methods until the channel is closed. Making answers only errors."""
    answer = lambda result, trace="": channel.send_bytes(pickle.dumps((result, trace), pickle.HIGHEST_PROTOCOL))
    try:
        make, arguments = _receive(channel, title)
        target = make(*arguments)
    except Exception as error:
        answer(_sendable(error, title), traceback.format_exc())
        return
    with closing(target) if hasattr(target, "close") else nullcontext():
        while True:
            try:
                method, arguments = _receive(channel, title)
                answer(getattr(target, method)(*arguments))
            except Exception as error:  # where the channel is closed, the answer fails and ends the loop
                answer(_sendable(error, title), traceback.format_exc())


def _receive(channel: Connection, title: str) -> tuple[Any, tuple[Any, ...]]:
    """Return the next call; EnvError or ModuleNotFoundError if it cannot be unpickled here."""
    content = channel.recv_bytes()
    try:
        return pickle.loads(content)
    except ModuleNotFoundError:
        raise
    except Exception as error:
        must = "everything sent must be importable by name in a new process"
        raise EnvError(f"{title} cannot unpickle its request ({type(error).__name__}: {error}): {must}") from error
