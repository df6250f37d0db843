"""A page without a browser: speaks to the server as docs/watch-protocol.md says."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from websockets.sync.client import ClientConnection, connect

from qpensieve.watch.runs import WatchedRun
from qpensieve.watch.server import Server, bind

PATIENCE = 20.0
"""Seconds after which an answer no longer comes."""


@dataclass(frozen=True)
class Frame:
    """A frame, taken apart."""

    side: int
    seq: int
    flags: int
    t: float
    episode: int
    steps: int
    served: int
    returns: np.ndarray
    w: np.ndarray
    action: np.ndarray
    payload: bytes


@contextmanager
def serving(*folders: Path, trust: bool = False) -> Iterator[Server]:
    """A server of these folders, in this process."""
    server = Server([WatchedRun(folder, trust) for folder in folders], "test", bind(0))
    thread = threading.Thread(target=server.run, name="watch server", daemon=True)
    thread.start()
    server.is_up.wait()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


def get(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and content of an answer; a header of the client's own is replaced."""
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    try:
        client.putrequest(method, path, skip_host=True)
        for name, value in ({"Host": f"127.0.0.1:{server.port}"} | headers).items():
            client.putheader(name, value)
        client.endheaders()
        answer = client.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        client.close()


def about(server: Server) -> dict[str, Any]:
    return json.loads(get(server, f"/{server.token}/about")[2])


class Page:
    """One open page."""

    def __init__(self, socket: ClientConnection, server: Server):
        self.socket = socket
        self._runs = about(server)["runs"]
        self._shown = {0: 0}
        self._seq = 1000
        self.events: list[dict[str, Any]] = []

    def say(self, **message: Any) -> None:
        self.socket.send(json.dumps(message))

    def one_step(self, **message: Any) -> Frame:
        """The first step of the same start after a message."""
        self._seq += 2
        self.say(**message, paused=True, reset="same", seq=self._seq - 1)
        self.say(step=1, seq=self._seq)
        return self.frame(lambda frame: frame.seq == self._seq and frame.steps == 1)

    def receive(self) -> Frame | dict[str, Any]:
        """The next frame or event."""
        got = self.socket.recv(PATIENCE)
        if isinstance(got, str):
            event = json.loads(got)
            self.events.append(event)
            if event["event"] == "ready":
                self._shown[event["side"]] = event["run"]
            return event
        return self._frame(got)

    def until(self, is_it: Callable[[Any], Any]) -> Any:
        """The first frame or event of which this is true."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            got = self.receive()
            if is_it(got):
                return got
        raise TimeoutError("it never came")

    def frame(self, is_it: Callable[[Frame], Any] = lambda frame: True) -> Frame:
        return self.until(lambda got: isinstance(got, Frame) and is_it(got))

    def event(self, name: str, **fields: Any) -> dict[str, Any]:
        """The next event of this name, with these fields."""
        wanted = {"event": name, **fields}
        return self.until(lambda got: isinstance(got, dict) and wanted.items() <= got.items())

    def _frame(self, content: bytes) -> Frame:
        run = self._runs[self._shown[int(np.frombuffer(content[:4], "<f4")[0])]]
        d, a = len(run["objectives"]), run["scene"]["action_size"]
        size = 4 * (8 + 2 * d + a)
        numbers = np.frombuffer(content[:size], "<f4")
        side, seq, flags, t, episode, steps, served = (float(each) for each in numbers[:7])
        returns, w, action = np.split(numbers[8:], [d, 2 * d])
        counts = int(episode), int(steps), int(served)
        return Frame(int(side), int(seq), int(flags), t, *counts, returns, w, action, content[size:])


@contextmanager
def page(server: Server) -> Iterator[Page]:
    """A page that is open for the length of the block."""
    address = server.address.replace("http:", "ws:") + "live"
    with connect(address, origin=f"http://127.0.0.1:{server.port}", max_queue=None) as socket:  # pyright: ignore
        yield Page(socket, server)


def simulations() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("watch side")]


def wait_for_silence(most: int = 0) -> None:
    """Until no more than so many simulations run."""
    end = time.monotonic() + 10
    while len(simulations()) > most:
        assert time.monotonic() < end, simulations()
        time.sleep(0.01)
