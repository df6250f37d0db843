"""The server of the page: on this machine alone, for whoever knows the token, and only the page's own files.

Every request passes the `Guard` first. No part of a request ever becomes a path: names are looked up among those of the
page's files, which were listed when the server started.
"""

import asyncio
import contextlib
import hmac
import json
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from qpensieve.watch import messages
from qpensieve.watch.messages import Command, RefusedError
from qpensieve.watch.runs import WatchedRun
from qpensieve.watch.simulation import Simulation

HOST = "127.0.0.1"
TOKEN_BYTES = 24
MOST_CLIENTS = 8
"""Pages that may be open at a time."""
MOST_A_SECOND = 240
"""Messages of one page in a second: twice what a dial that is dragged sends."""
FOLLOW_SECONDS = 2.0
"""How often a growing run is looked at."""
MOST_WAITING = 30
"""Frames that wait for a slow page; the oldest are dropped, events never."""
CLOSED_POLICY, CLOSED_TOO_BIG, CLOSED_FULL = 1008, 1009, 1013
"""Codes that a WebSocket is closed with."""
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


class Guard:
    """Lets through what comes from this machine's own page: the right Host, Origin and token, and reads only.

    Args:
        app: Where it leads.
        token: What every address begins with.
        port: Of the server.
    """

    def __init__(self, app: ASGIApp, token: str, port: int):
        self._app, self._token = app, token
        self._hosts = tuple(f"{name}:{port}" for name in (HOST, "localhost"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = [(name.lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        host = self._only(headers, b"host")
        problem = self._problem(scope, headers, host)
        if problem is None:
            _, _, rest = scope["path"].removeprefix("/").partition("/")
            inner = {**scope, "path": f"/{rest}", "root_path": ""}
            inner.pop("raw_path", None)
            await self._app(inner, receive, _with_headers(send, host) if scope["type"] == "http" else send)
        elif scope["type"] == "http":
            status, reason = problem
            await PlainTextResponse(reason, status)(scope, receive, _with_headers(send, self._hosts[0]))
        else:
            await receive()
            await send({"type": "websocket.close", "code": CLOSED_POLICY, "reason": problem[1]})

    @staticmethod
    def _only(headers: list[tuple[bytes, str]], name: bytes) -> str:
        """The value of a header that is there once; empty where it is missing or there twice."""
        values = [value for key, value in headers if key == name]
        return values[0] if len(values) == 1 else ""

    def _problem(self, scope: Scope, headers: list[tuple[bytes, str]], host: str) -> tuple[int, str] | None:
        """Status and reason of a refusal; None: it may pass."""
        if host not in self._hosts:
            return 400, f"the Host must be {self._hosts[0]}"
        origin, has_origin = self._only(headers, b"origin"), any(name == b"origin" for name, _ in headers)
        if (has_origin or scope["type"] == "websocket") and origin != f"http://{host}":
            return 403, "the Origin must be this server's own page"
        given = scope["path"].removeprefix("/").partition("/")[0]
        if not hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self._token.encode()):
            return 404, "there is nothing here: use the whole address that qpensieve watch printed"
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD"):
            return 405, "this server is only read"
        return None


def _with_headers(send: Send, host: str) -> Send:
    """A `send` that adds what every answer says: nothing but this page's own files may be loaded or may load it."""
    policy = (
        f"default-src 'self'; connect-src 'self' ws://{host}; img-src 'self' blob: data:; object-src 'none'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )
    added = {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-resource-policy": "same-origin",
        "cross-origin-opener-policy": "same-origin",
        "cache-control": "no-store",
    }

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [(name.encode(), value.encode()) for name, value in added.items()]
            message = {**message, "headers": [*message.get("headers", []), *own]}
        await send(message)

    return sending


def page_files() -> dict[str, tuple[bytes, str]]:
    """Name -> content and type of all files of the page, read once."""
    folder = resources.files("qpensieve.watch") / "page"
    found = [file for file in folder.iterdir() if file.is_file()] if folder.is_dir() else []
    named = {
        file.name: (file, f".{file.name.rpartition('.')[2]}") for file in sorted(found, key=lambda each: each.name)
    }
    return {name: (file.read_bytes(), TYPES[ending]) for name, (file, ending) in named.items() if ending in TYPES}


class Outbox:
    """What waits to be sent to one page; filled from any thread, emptied by the server's own."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop, self._lock = loop, threading.Lock()
        self._waiting: deque[bytes | dict[str, Any]] = deque()
        self._frames = 0
        self._filled = asyncio.Event()

    def put(self, what: bytes | dict[str, Any]) -> None:
        """Add a frame or an event; the oldest frame makes room for a new one where the page is too slow."""
        with self._lock:
            if isinstance(what, bytes):
                self._frames += 1
                if self._frames > MOST_WAITING:
                    self._waiting.remove(next(each for each in self._waiting if isinstance(each, bytes)))
                    self._frames -= 1
            self._waiting.append(what)
        with contextlib.suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(self._filled.set)

    async def take(self) -> list[bytes | dict[str, Any]]:
        """All that waits; waits for something."""
        await self._filled.wait()
        with self._lock:
            taken = [*self._waiting]
            self._waiting.clear()
            self._frames = 0
            self._filled.clear()
        return taken


class Rate:
    """Whether messages come faster than a page would send them."""

    def __init__(self, most: int = MOST_A_SECOND):
        self._times: deque[float] = deque(maxlen=most)

    def is_exceeded(self) -> bool:
        now, times = time.monotonic(), self._times
        is_full = len(times) == times.maxlen and now - times[0] < 1.0
        times.append(now)
        return is_full


class Connection:
    """One page: its sides, and what it says."""

    def __init__(self, runs: Sequence[WatchedRun], outbox: Outbox):
        self._runs, self._outbox, self._rate = runs, outbox, Rate()
        self._sides: dict[int, Simulation] = {}
        self._ended: list[Simulation] = []
        self._open(0, 0)

    def obey(self, text: str) -> int | None:
        """Do what a message says; returns the code to close with where there were too many or it was too long."""
        if self._rate.is_exceeded():
            return CLOSED_POLICY
        if len(text.encode("utf-8", "surrogatepass")) > messages.LONGEST:
            return CLOSED_TOO_BIG
        try:
            self._do(messages.read(text))
        except RefusedError as error:
            self.refuse(*messages.sequence_of(text), str(error))
        return None

    def refuse(self, side: int, seq: int | None, reason: str) -> None:
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
        """The message with its preference normalised; refused where it does not fit the run."""
        if command.seed is not None and command.seed not in run.config.seed_list:
            numbers = ", ".join(map(str, run.config.seed_list))
            raise RefusedError(f"seed must be one of {numbers}, got {command.seed}")
        if isinstance(command.at, int) and command.at not in (there := run.policies.steps):
            raise RefusedError(f"at must be one of {', '.join(map(str, there))}, got {command.at}")
        if command.w is None:
            return command
        values = {**vars(command), "w": messages.preference(command.w, run.spec.num_objectives)}
        return Command(**values)

    def _open(self, side: int, number: int) -> None:
        self._sides[side] = Simulation(self._runs[number], number, side, self._outbox.put)

    def _close(self, side: int) -> None:
        simulation = self._sides.pop(side, None)
        if simulation is not None:
            simulation.close()
            self._ended.append(simulation)

    def close(self) -> None:
        """End all simulations; returns when their threads have ended."""
        for side in [*self._sides]:
            self._close(side)
        for simulation in self._ended:
            simulation.join()


class Watch:
    """The pages and what is behind them.

    Args:
        runs: What is watched; the first is what a page begins with.
        version: Of this program.
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
        runs = [(await asyncio.to_thread(run.about))[0] for run in self._runs]
        sides = {"sides": messages.SIDES, "speed": messages.SPEEDS}
        return JSONResponse({"version": self._version, "header": 8, **sides, "runs": runs})

    async def _file(self, request: Request) -> Response:
        found = self._files.get(request.path_params["name"] or "index.html")
        if found is None:
            return PlainTextResponse("there is no such file of the page", 404)
        content, kind = found
        return Response(content, media_type=kind)

    async def _live(self, socket: WebSocket) -> None:
        await socket.accept()
        if self._clients >= MOST_CLIENTS:
            await socket.close(CLOSED_FULL, f"at most {MOST_CLIENTS} pages at a time: close another one first")
            return
        self._clients += 1
        outbox = Outbox(asyncio.get_running_loop())
        connection = Connection(self._runs, outbox)
        tasks = [asyncio.create_task(self._send(socket, outbox)), asyncio.create_task(self._follow(outbox))]
        try:
            await self._receive(socket, connection)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.to_thread(connection.close)
            self._clients -= 1

    async def _receive(self, socket: WebSocket, connection: Connection) -> None:
        """Obey messages until the page is gone, or sends what no page would."""
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            if text is None:
                connection.refuse(0, None, "a message must be JSON text, got bytes")
            elif (code := connection.obey(text)) is not None:
                reasons = {CLOSED_POLICY: "too many messages", CLOSED_TOO_BIG: "the message is too long"}
                await socket.close(code, reasons[code])
                return

    async def _send(self, socket: WebSocket, outbox: Outbox) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
            while True:
                for what in await outbox.take():
                    if isinstance(what, bytes):
                        await socket.send_bytes(what)
                    else:
                        await socket.send_text(json.dumps(what, allow_nan=False))

    async def _follow(self, outbox: Outbox) -> None:
        """Tell the page when a run has grown."""
        seen = [run.version for run in self._runs]
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            for i, run in enumerate(self._runs):
                about, version = await asyncio.to_thread(run.about)
                if version != seen[i]:
                    seen[i] = version
                    outbox.put({"event": "run", "index": i, "run": about})


def bind(port: int) -> socket.socket:
    """A socket of this machine alone; port 0: any that is free.

    Raises:
        OSError: The port is taken or may not be used.
    """
    # The protocol is named: asyncio sends small frames at once (TCP_NODELAY) only where it is, else after 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError:
        listener.close()
        raise
    return listener


class Server:
    """A bound server: its address is known before it runs.

    Args:
        runs: What is watched.
        version: Of this program.
        listener: Where it listens.
    """

    def __init__(self, runs: Sequence[WatchedRun], version: str, listener: socket.socket):
        self.port = int(listener.getsockname()[1])
        self.token = secrets.token_urlsafe(TOKEN_BYTES)
        self._listener = listener
        self.is_up = threading.Event()
        """Set when the server answers."""
        app = Guard(Watch(runs, version).app, self.token, self.port)
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
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
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/{self.token}/"

    def run(self) -> None:
        """Serve until Ctrl-C."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        serving = asyncio.ensure_future(self._server.serve(sockets=[self._listener]))
        while not self._server.started and not serving.done():
            await asyncio.sleep(0.005)
        self.is_up.set()
        await serving

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Serve in a thread, for as long as the block lasts."""
        thread = threading.Thread(target=self.run, name="watch server", daemon=True)
        thread.start()
        try:
            self.is_up.wait()
            yield
        finally:
            self._server.should_exit = True
            thread.join()
