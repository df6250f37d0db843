"""Who may speak to the server, and what it gives away."""

import pytest
from starlette.applications import Starlette
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from qpensieve.watch import guard as guards
from qpensieve.watch import server as servers
from qpensieve.watch.connection import MOST_A_SECOND
from qpensieve.watch.guard import Guard
from qpensieve.watch.server import Server
from tests.watch.client import get, page, wait_for_silence


def test_the_page_is_there_for_whoever_knows_the_token(server: Server):
    status, headers, _ = get(server, f"/{server.token}/about")
    assert status == 200
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"].startswith("default-src 'self';")
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers
    assert get(server, f"/{server.token}/about", Host=f"localhost:{server.port}")[0] == 200


def test_without_the_token_there_is_nothing(server: Server):
    wrong = server.token[:-1] + ("A" if server.token[-1] != "A" else "B")
    for path in (
        "/",
        "/about",
        f"/{wrong}/",
        f"/{wrong}/about",
        f"/{server.token[:-1]}/about",
        "//about",
        "/%ff/about",
    ):
        assert get(server, path)[0] == 404, path


def test_a_ticket_leads_to_the_page_once(server: Server, monkeypatch: pytest.MonkeyPatch):
    """What a browser is started with can be read by others on the machine, so it must be worth nothing afterwards."""
    path = server.address_for_once().removeprefix(f"http://127.0.0.1:{server.port}")
    assert server.token not in path
    assert get(server, f"{path}about")[0] == 404
    assert get(server, path, Host="evil.example")[0] == 400
    status, headers, _ = get(server, path)
    assert (status, headers["location"]) == (303, server.address)
    assert get(server, path)[0] == 404
    late = server.address_for_once().removeprefix(f"http://127.0.0.1:{server.port}")
    monkeypatch.setattr(guards, "TICKET_SECONDS", -1.0)
    expired = server.address_for_once().removeprefix(f"http://127.0.0.1:{server.port}")
    assert get(server, late)[0] == 404  # a newer one takes its place
    assert get(server, expired)[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example:{port}", ""])
def test_a_foreign_host_is_refused(server: Server, host: str):
    assert get(server, f"/{server.token}/about", Host=host.format(port=server.port))[0] == 400


def test_a_foreign_origin_is_refused(server: Server):
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{server.port}", "http://127.0.0.1:1"):
        assert get(server, f"/{server.token}/about", Origin=origin)[0] == 403


def test_nothing_can_be_written(server: Server):
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        assert get(server, f"/{server.token}/about", method)[0] == 405, method


def test_no_path_of_a_request_reaches_the_file_system(server: Server):
    steps = ("..", "%2e%2e", "....//", "..%2f..%2f", "%5c..%5c", "~root")
    paths = [f"{step}/{rest}" for step in steps for rest in ("server.py", f"{step}/{step}/etc/passwd")]
    paths += [f"page/{step}/server.py" for step in steps]
    own = ("__init__.py", "server.py", "page", "page/index.html", "config.json", "index.html%00.css", "/etc/passwd")
    for path in (*paths, *own):
        status, _, content = get(server, f"/{server.token}/{path}")
        assert (status, content) == (404, b"there is no such file of the page"), path


def test_a_socket_of_another_page_or_without_the_token_is_refused(server: Server):
    own, live = f"http://127.0.0.1:{server.port}", f"/{server.token}/live"
    foreign = (None, "http://evil.example", "null", "http://127.0.0.1:1")
    tried = [(live, origin, None) for origin in foreign] + [(live, "http://evil.example", "evil.example")]
    for path, origin, host in [*tried, ("/live", own, None), (f"/{server.token[::-1]}/live", own, None)]:
        headers = {"Host": host} if host else None
        address = f"ws://127.0.0.1:{server.port}{path}"
        with pytest.raises(InvalidStatus) as refused, connect(address, origin=origin, additional_headers=headers):  # pyright: ignore
            pass
        assert refused.value.response.status_code in (400, 403), (path, origin, host)


@pytest.mark.parametrize(
    ("messages", "code"), [([" " * 4097], 1009), ([b""] * 480, 1008), (['{"seq": 1}'] * 480, 1008)]
)
def test_too_much_closes_the_socket_and_nothing_else(server: Server, messages: list[str | bytes], code: int):
    assert len(messages) in (1, 2 * MOST_A_SECOND)
    with page(server) as other:
        with page(server) as mine, pytest.raises(ConnectionClosed) as closed:  # noqa: PT012 (sending may fail already)
            for message in messages:
                mine.socket.send(message)
            mine.until(lambda got: False)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == code
        assert other.frame()


def test_pages_are_counted(server: Server, monkeypatch: pytest.MonkeyPatch):
    wait_for_silence()
    monkeypatch.setattr(servers, "MOST_CLIENTS", 1)
    with page(server) as first:
        with page(server) as second, pytest.raises(ConnectionClosed) as closed:
            second.until(lambda got: False)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1013
        assert first.frame()


def test_the_server_listens_on_this_machine_alone(server: Server):
    listener = servers.bind(0)
    assert listener.getsockname()[0] == "127.0.0.1"
    listener.close()
    assert server.address.startswith("http://127.0.0.1:")


def test_two_hosts_in_one_request_are_none():
    guard = Guard(Starlette(), 80)
    scope = {"type": "http", "path": f"/{guard.token}/", "method": "GET"}
    one, two = [(b"host", b"127.0.0.1:80")], [(b"host", b"127.0.0.1:80"), (b"host", b"evil.example")]
    said = lambda headers: [(name, value.decode()) for name, value in headers]
    assert guard.problem(scope, said(one)) is None
    assert guard.problem(scope, said(two)) == (400, "the Host must be 127.0.0.1:80")
