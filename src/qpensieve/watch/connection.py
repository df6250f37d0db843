"""One page: its messages, its simulations, and its queue of frames and events."""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from qpensieve.watch import messages
from qpensieve.watch.messages import Command, RefusedError
from qpensieve.watch.runs import WatchedRun
from qpensieve.watch.simulation import Simulation

MOST_A_SECOND = 240
"""Most messages of one page in a second: twice as many as dragging a dial sends."""
MOST_WAITING = 30
"""Most frames that wait for a slow page; the oldest frames are dropped, events never."""
Sent = bytes | str | dict[str, object]
"""A frame, or an event as JSON text or as its content."""
TOO_MANY, TOO_LONG = 1008, 1009
"""Codes that close a WebSocket."""


class Outbox:
    """The queue of one page: any thread fills it, the server's thread empties it."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop, self._lock = loop, threading.Lock()
        self._waiting: deque[Sent] = deque()
        self._frames = 0
        self._filled = asyncio.Event()

    def put(self, what: Sent) -> None:
        """Add a frame or an event; if the page is too slow, the oldest frame is dropped for a new one."""
        with self._lock:
            if isinstance(what, bytes):
                self._frames += 1
                if self._frames > MOST_WAITING:
                    self._waiting.remove(next(each for each in self._waiting if isinstance(each, bytes)))
                    self._frames -= 1
            self._waiting.append(what)
        with contextlib.suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(self._filled.set)

    async def take(self) -> list[Sent]:
        """Return everything in the queue; wait until there is something."""
        await self._filled.wait()
        with self._lock:
            taken = [*self._waiting]
            self._waiting.clear()
            self._frames = 0
            self._filled.clear()
        return taken


class Rate:
    """Counts messages, and tells whether they come faster than a page sends them."""

    def __init__(self, most: int = MOST_A_SECOND):
        self._times: deque[float] = deque(maxlen=most)

    def is_exceeded(self) -> bool:
        now, times = time.monotonic(), self._times
        is_full = len(times) == times.maxlen and now - times[0] < 1.0
        times.append(now)
        return is_full


class Connection:
    """An open page: a simulation for each side."""

    def __init__(self, runs: Sequence[WatchedRun], outbox: Outbox):
        self._runs, self._outbox, self._rate = runs, outbox, Rate()
        self._sides: dict[int, Simulation] = {}
        self._ended: list[Simulation] = []
        self._open(0, 0)

    def obey(self, text: str | None) -> int | None:
        """Follow a message; return the code to close with if messages are too many or too long, else None.

        Args:
            text: The message. None: the message was no text.
        """
        if self._rate.is_exceeded():
            return TOO_MANY
        if text is None:
            self._refuse(0, None, "a message must be JSON text, got bytes")
            return None
        if len(text.encode("utf-8", "surrogatepass")) > messages.LONGEST:
            return TOO_LONG
        try:
            self._do(messages.read(text))
        except RefusedError as error:
            self._refuse(*messages.sequence_of(text), str(error))
        return None

    def _refuse(self, side: int, seq: int | None, reason: str) -> None:
        self._outbox.put({"event": "refused", "side": side, "seq": seq, "reason": reason})

    def _do(self, command: Command) -> None:
        if command.close:
            if command.side == 0:
                raise RefusedError("side 0 stays: only the second side can be closed")
            self._close(command.side)
            return
        if command.open is not None:
            if command.open >= len(self._runs):
                raise RefusedError(f"open must be the number of a run below {len(self._runs)}, got {command.open}")
            self._check(command, self._runs[command.open])
            self._close(command.side)
            self._open(command.side, command.open)
        side = self._sides.get(command.side)
        if side is None:
            raise RefusedError(f"side {command.side} is not open")
        side.send(self._check(command, side.run))

    @staticmethod
    def _check(command: Command, run: WatchedRun) -> Command:
        """Return the message with its preference normalised; refuse it if it does not fit the run."""
        if command.seed is not None and command.seed not in run.config.seed_list:
            numbers = ", ".join(map(str, run.config.seed_list))
            raise RefusedError(f"seed must be one of {numbers}, got {command.seed}")
        if isinstance(command.at, int) and command.at not in (there := run.policies.steps):
            raise RefusedError(f"at must be one of {', '.join(map(str, there))}, got {command.at}")
        if command.calibrated and run.policies.calibration is None:
            raise RefusedError("calibrated needs a calibration: qpensieve calibrate RUN")
        if command.w is None:
            return command
        return replace(command, w=messages.preference(command.w, run.spec.num_objectives))

    def _open(self, side: int, number: int) -> None:
        self._sides[side] = Simulation(self._runs[number], number, side, self._outbox.put)

    def _close(self, side: int) -> None:
        simulation = self._sides.pop(side, None)
        if simulation is not None:
            simulation.close()
            self._ended = [*(each for each in self._ended if each.is_alive), simulation]

    def close(self) -> None:
        """End all simulations; returns when their threads have ended."""
        for side in [*self._sides]:
            self._close(side)
        for simulation in self._ended:
            simulation.join()
