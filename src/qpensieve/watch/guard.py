"""The guard of the server: only this machine's own page, which knows the token, may use it."""

import hmac
import secrets
import time

from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOST = "127.0.0.1"
TOKEN_BYTES = 24
TICKET_SECONDS = 60.0
CLOSED_POLICY = 1008
"""Code that closes the WebSocket of a foreign page."""


class Guard:
    """Lets requests of this machine's own page through: with the right Host, Origin and token, and only to read.

    Args:
        app: Application that gets these requests.
        port: Port of the server.

    Attributes:
        token: Secret with which every address begins.
    """

    def __init__(self, app: ASGIApp, port: int):
        self._app, self.token = app, secrets.token_urlsafe(TOKEN_BYTES)
        self._ticket, self._valid_until = "", 0.0
        self._hosts = tuple(f"{name}:{port}" for name in (HOST, "localhost"))

    def ticket(self) -> str:
        """Return a word that replaces the token once, within a minute: other users can see a browser's arguments."""
        self._ticket, self._valid_until = secrets.token_urlsafe(TOKEN_BYTES), time.monotonic() + TICKET_SECONDS
        return self._ticket

    def _is_ticket(self, scope: Scope) -> bool:
        """Return whether a request has the ticket, and use the ticket up."""
        given = scope["path"].strip("/").encode("utf-8", "surrogatepass")
        is_valid = bool(self._ticket) and time.monotonic() < self._valid_until
        if scope["type"] != "http" or not is_valid or not hmac.compare_digest(given, self._ticket.encode()):
            return False
        self._ticket = ""
        return True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = [(name.lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        problem, host = self.problem(scope, headers), _only(headers, b"host")
        if problem is None:
            _, _, rest = scope["path"].removeprefix("/").partition("/")
            inner = {**scope, "path": f"/{rest}", "root_path": ""}
            inner.pop("raw_path", None)
            await self._app(inner, receive, _with_headers(send, host) if scope["type"] == "http" else send)
        elif scope["type"] == "http":
            status, reason = problem
            answer = PlainTextResponse(reason, status)
            if status == 404 and self._is_ticket(scope):
                answer = RedirectResponse(f"http://{host}/{self.token}/", 303)
            await answer(scope, receive, _with_headers(send, self._hosts[0]))
        else:
            await receive()
            await send({"type": "websocket.close", "code": CLOSED_POLICY, "reason": problem[1]})

    def problem(self, scope: Scope, headers: list[tuple[bytes, str]]) -> tuple[int, str] | None:
        """Return status and reason of a refusal; None: the request may pass."""
        host, origin = _only(headers, b"host"), _only(headers, b"origin")
        if host not in self._hosts:
            return 400, f"the Host must be {self._hosts[0]}"
        has_origin = any(name == b"origin" for name, _ in headers)
        if (has_origin or scope["type"] == "websocket") and origin != f"http://{host}":
            return 403, "the Origin must be this server's own page"
        given = scope["path"].removeprefix("/").partition("/")[0]
        if not hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self.token.encode()):
            return 404, "there is nothing here: use the whole address that qpensieve watch printed"
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD"):
            return 405, "this server only answers GET and HEAD"
        return None


def _only(headers: list[tuple[bytes, str]], name: bytes) -> str:
    """Return the value of a header; empty if it is missing or there twice."""
    values = [value for key, value in headers if key == name]
    return values[0] if len(values) == 1 else ""


def _with_headers(send: Send, host: str) -> Send:
    """Return a `send` that adds headers: only the page's own files may be loaded, and nothing may embed them."""
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
