"""Other users of the machine at the HTTP edge: they get a sentence or the health, and cannot use it up."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest
from typing_extensions import override

from hive_subagent_daemon import access, door, edge_protocol, web
from hive_subagent_daemon.config_values import TcpAddress
from hive_subagent_daemon.mcp_endpoint import Paths
from hive_subagent_daemon.peer import AnyPeer, PeerFinder, TcpPeer
from tests.support.edge import Client, Echo, serving
from tests.support.other_user import as_user, needs_root

if TYPE_CHECKING:
    from hive_subagent_daemon.peer import AnySocket

ORPHANS = 200
STRANGER = os.geteuid() + 1
CALL = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"


def ask(address: tuple[str, int], method: str, path: str) -> bytes:
    """Send one request and return status line, a blank and the body."""
    connection = http.client.HTTPConnection(*address, timeout=5)
    connection.request(method, path, body=b"{}" if method == "POST" else None)
    response = connection.getresponse()
    return b"%d %s" % (response.status, response.read())


@needs_root
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_another_user_gets_the_sentence_and_never_reaches_the_application(host: str) -> None:
    echo = Echo()
    async with serving(Paths({"/mcp": echo}), TcpAddress(host, 0)) as edge:
        for method, path in [("POST", "/mcp"), ("GET", "/mcp"), ("GET", "/other"), ("GET", "/healthz/")]:
            with as_user(partial(ask, edge.address, method, path)) as other:
                answer = await other.async_result()
                assert answer.startswith(b"403 Refused: this connection belongs to uid 65534; only uid 0, ")
    assert (echo.reached, edge.turns_asked) == ([], [])


@needs_root
async def test_another_user_may_ask_for_the_health() -> None:
    async with serving(Paths({})) as edge:
        with as_user(lambda: ask(edge.address, "GET", "/healthz")) as other:
            assert await other.async_result() == b'200 {"status": "ok"}'


@needs_root
async def test_another_user_that_sends_a_call_and_closes_at_once_never_reaches_the_application() -> None:
    """Such a socket has no owner any more: on some kernels it reads as root's."""
    echo = Echo()

    def send_and_close() -> bytes:
        for _ in range(ORPHANS):
            with socket.create_connection(address) as client:
                client.sendall(CALL)
        return b"sent"

    async with serving(echo) as edge:
        address = edge.address
        with as_user(send_and_close) as other:
            assert await other.async_result() == b"sent"
        async with edge.client() as client:  # accepted after all of them
            assert (await client.call("GET", "/own")).status == 200
    assert echo.reached == ["/own"]


@needs_root
async def test_another_user_that_closes_its_half_never_reaches_the_application() -> None:
    echo = Echo()

    def send_and_half_close() -> bytes:
        with socket.create_connection(address, 5) as client:
            client.sendall(CALL)
            client.shutdown(socket.SHUT_WR)
            return client.recv(65536)[:13]

    async with serving(echo) as edge:
        address = edge.address
        for _ in range(20):
            with as_user(send_and_half_close) as other:
                assert await other.async_result() in {b"", b"HTTP/1.1 403 "}
    assert echo.reached == []


@needs_root
async def test_another_user_cannot_hide_behind_a_later_connection_of_ours() -> None:
    """It sends a call, resets, and our own client then connects from the very same port."""
    echo = Echo()
    reset = b"\x01\x00\x00\x00\x00\x00\x00\x00"

    def send_and_reset() -> bytes:
        with socket.create_connection(address) as client:
            client.sendall(CALL)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            port: int = client.getsockname()[1]
            return port.to_bytes(2, "big")

    async with serving(echo) as edge:
        address, served = edge.address, 0
        for _ in range(20):
            with as_user(send_and_reset) as other, socket.socket() as own:
                # Waiting here blocks the server too: it accepts both connections only afterwards.
                port = int.from_bytes(other.result(), "big")
                own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                with contextlib.suppress(OSError):  # another program may have got the port meanwhile
                    own.bind(("127.0.0.1", port))
                    own.connect(address)
                    served += 1
                    assert (await Client(own).call("GET", "/own")).status == 200
    assert served > 2  # a busy machine serves few in that time
    assert echo.reached == ["/own"] * served


class StrangersOnly(PeerFinder):
    """Finds a stranger at the other end of every connection, so that one test user can play one."""

    @override
    def peer_of(self, accepted: AnySocket) -> AnyPeer:
        """Return a stranger, but the real peer on a connection to the second address."""
        peer = super().peer_of(accepted)
        return peer if accepted.getsockname()[0] == "127.0.0.2" else TcpPeer(STRANGER, 1, None)


@pytest.fixture
def strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take everybody on the first listener for a stranger."""
    monkeypatch.setattr(web, "PeerFinder", StrangersOnly)


@pytest.mark.usefixtures("strangers")
async def test_the_connection_of_a_stranger_ends_soon_even_when_it_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(edge_protocol, "STRANGER_SECONDS", 0.1)
    async with serving(Echo()) as edge, edge.client() as silent:
        assert await ended(silent)


@pytest.mark.usefixtures("strangers")
async def test_strangers_cannot_use_up_the_connections() -> None:
    addresses = [TcpAddress("127.0.0.1", 0), TcpAddress("127.0.0.2", 0)]
    async with serving(Paths({"/mcp": Echo()}), *addresses) as edge:
        with edge.clients(door.MAX_OF_ONE_STRANGER) as clients:
            assert (await clients[-1].call("GET", "/healthz")).status == 200
            async with edge.client() as one_too_many:
                assert await ended(one_too_many)
            async with edge.client(1) as own:
                assert (await own.call("GET", "/mcp")).status == 200
            clients[0].sock.close()
            async with edge.client() as next_one:
                assert (await next_one.call("GET", "/healthz")).status == 200


async def ended(client: Client) -> bool:
    """Wait until the server has closed the connection; tell whether it did so without a word."""
    with anyio.fail_after(20):
        await anyio.wait_readable(client.sock)
    try:
        return client.sock.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.usefixtures("strangers")
async def test_a_stranger_that_is_still_sending_reads_its_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "LINGER_SECONDS", 5.0)
    async with serving(Echo()) as edge, edge.client() as client:
        response = await client.call("POST", "/mcp", body=bytes(4_000_000))
        assert response.status == 403
        assert f"uid {STRANGER}" in response.text
