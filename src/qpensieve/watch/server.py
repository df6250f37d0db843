"""The server of the page: on this machine alone, for clients that know the token, and only the page's own files.

Every request passes the `Guard` first. No part of a request ever becomes a path: names are looked up among the page's
files, which were listed when the server started.
"""

import asyncio
import contextlib
import json
import socket
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from importlib import resources

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from qpensieve.watch import messages
from qpensieve.watch.connection import TOO_LONG, TOO_MANY, Connection, Outbox
from qpensieve.watch.guard import HOST, Guard
from qpensieve.watch.runs import WatchedRun

MOST_CLIENTS = 8
"""Most pages that may be open at a time."""
FOLLOW_SECONDS = 2.0
"""Seconds between two checks of a growing run."""
FAILED, FULL = 1011, 1013
"""Codes that close a WebSocket: a bug; too many pages."""
GONE = (WebSocketDisconnect, RuntimeError, OSError)
"""Errors of sending to a page that is gone."""
HEADER = 8
"""Number of numbers at the beginning of every frame."""
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


def page_files() -> dict[str, tuple[bytes, str]]:
    """Return name -> content and type of all files of the page."""
    files = (resources.files("qpensieve.watch") / "page").iterdir()
    typed = {file: TYPES.get(f".{file.name.rpartition('.')[2]}") for file in files}
    return {file.name: (file.read_bytes(), kind) for file, kind in typed.items() if kind is not None}


class Watch:
    """The web application: page, description of the runs, and one WebSocket for each open page.

    Args:
        runs: Watched runs; a page begins with the first.
        version: Version of this program.
    """

    def __init__(self, runs: Sequence[WatchedRun], version: str):
        self._runs, self._version, self._files = runs, version, page_files()
        self._clients = 0
        routes = [
            Route("/about", self._about),
            Route("/{name:path}", self._file),
            WebSocketRoute("/live", self._live),
        ]
        self.app = Starlette(routes=routes)

    async def _about(self, request: Request) -> Response:
        del request
        runs = [(await asyncio.to_thread(run.description))[0] for run in self._runs]
        said = {"version": self._version, "header": HEADER, "sides": messages.SIDES, "speed": messages.SPEEDS}
        return Response(f'{json.dumps(said)[:-1]}, "runs": [{", ".join(runs)}]}}', media_type="application/json")

    async def _file(self, request: Request) -> Response:
        found = self._files.get(request.path_params["name"] or "index.html")
        if found is None:
            return PlainTextResponse("there is no such file of the page", 404)
        content, kind = found
        return Response(content, media_type=kind)

    async def _live(self, socket: WebSocket) -> None:
        await socket.accept()
        if self._clients >= MOST_CLIENTS:
            await socket.close(FULL, f"at most {MOST_CLIENTS} pages at a time: close another one first")
            return
        self._clients += 1
        try:
            await self._serve(socket)
        finally:
            self._clients -= 1

    async def _serve(self, socket: WebSocket) -> None:
        """Serve one page until it is gone or fails."""
        outbox = Outbox(asyncio.get_running_loop())
        connection = Connection(self._runs, outbox)
        parts = (self._receive(socket, connection), self._send(socket, outbox), self._follow(outbox))
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if errors := [error for task in ended if (error := task.exception())]:
                traceback.print_exception(errors[0])
                with contextlib.suppress(*GONE):
                    await socket.close(FAILED, "the server has a bug: see its terminal")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.to_thread(connection.close)

    async def _receive(self, socket: WebSocket, connection: Connection) -> None:
        """Follow messages until the page is gone, or a message must close the connection."""
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if (code := connection.obey(message.get("text"))) is not None:
                reasons = {TOO_MANY: "too many messages", TOO_LONG: "the message is too long"}
                await socket.close(code, reasons[code])
                return

    async def _send(self, socket: WebSocket, outbox: Outbox) -> None:
        with contextlib.suppress(*GONE):
            while True:
                for what in await outbox.take():
                    if isinstance(what, bytes):
                        await socket.send_bytes(what)
                    else:
                        await socket.send_text(what if isinstance(what, str) else json.dumps(what, allow_nan=False))

    async def _follow(self, outbox: Outbox) -> None:
        """Send the description of a run that has grown; large runs are checked less often."""
        seen, seconds = [0 for _ in self._runs], FOLLOW_SECONDS
        while True:
            await asyncio.sleep(seconds)
            start = time.monotonic()
            for i, run in enumerate(self._runs):
                about, version = await asyncio.to_thread(run.description)
                if version != seen[i]:
                    seen[i] = version
                    outbox.put(f'{{"event": "run", "index": {i}, "run": {about}}}')
            seconds = max(FOLLOW_SECONDS, 10 * (time.monotonic() - start))


def bind(port: int) -> socket.socket:
    """Open a socket for this machine alone; port 0: any free one.

    Raises:
        OSError: The port is taken or may not be used.
    """
    # The protocol is named: asyncio sends small frames at once (TCP_NODELAY) only where it is, else after 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen()  # a page that is opened before the server runs waits for it
    except OSError:
        listener.close()
        raise
    return listener


class _Uvicorn(uvicorn.Server):
    """A server without signal handlers: the command decides what Ctrl-C does."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Server:
    """A server on a bound socket: its address is known before it runs.

    Args:
        runs: The watched runs.
        version: Version of this program.
        listener: The bound socket.
    """

    def __init__(self, runs: Sequence[WatchedRun], version: str, listener: socket.socket):
        self.port = int(listener.getsockname()[1])
        self._guard = Guard(Watch(runs, version).app, self.port)
        self._listener = listener
        self.is_up = threading.Event()
        """Set when the server answers."""
        self._server = _Uvicorn(
            uvicorn.Config(
                self._guard,
                log_config=None,  # logging is set up for the whole process, or not at all
                log_level="error",
                access_log=False,
                lifespan="off",
                ws="websockets-sansio",
                ws_max_size=messages.LONGEST,
                ws_per_message_deflate=False,
                server_header=False,
                date_header=False,
                timeout_graceful_shutdown=1,
            )
        )

    @property
    def token(self) -> str:
        return self._guard.token

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/{self.token}/"

    def address_for_once(self) -> str:
        """Return an address that opens the page once, within a minute."""
        return f"http://{HOST}:{self.port}/{self._guard.ticket()}/"

    def run(self) -> None:
        """Serve until the process ends, or `stop` is called."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        serving = asyncio.ensure_future(self._server.serve(sockets=[self._listener]))
        while not self._server.started and not serving.done():
            await asyncio.sleep(0.005)
        self.is_up.set()
        await serving

    def stop(self) -> None:
        """End `run`, also from another thread."""
        self._server.should_exit = True
