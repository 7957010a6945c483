"""The HTTP edge over real sockets: who gets in, by every way of listening."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from hive_subagent_daemon.access import CONNECTION_KEY, MAX_BODY_BYTES, Connection
from hive_subagent_daemon.config_values import ListenAddress, TcpAddress, UnixAddress
from hive_subagent_daemon.listeners import Listeners
from hive_subagent_daemon.mcp_endpoint import Paths
from hive_subagent_daemon.passed_sockets import adopted
from hive_subagent_daemon.peer import TcpPeer, UnixPeer
from tests.support.edge import Client, Echo, serving
from tests.unit.support_started import own_cgroup

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive, Scope, Send


def passed_listeners(family: socket.AddressFamily, host: str) -> Listeners:
    """Listen as a socket unit does, by a bare descriptor; a socket on a mapped address is dual-stack."""
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, 0))
        listener.listen()
        return Listeners([adopted(os.dup(listener.fileno()))])


WAYS: dict[str, Callable[[], Listeners] | ListenAddress] = {
    "v4": TcpAddress("127.0.0.1", 0),
    "v6": TcpAddress("::1", 0),
    "passed-v4": lambda: passed_listeners(socket.AF_INET, "127.0.0.1"),
    "passed-v6": lambda: passed_listeners(socket.AF_INET6, "::1"),
    "passed-dual-stack": lambda: passed_listeners(socket.AF_INET6, "::ffff:127.0.0.1"),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
async def test_the_own_user_is_served_and_known_by_its_socket(
    way: Callable[[], Listeners] | ListenAddress,
) -> None:
    echo = Echo()
    listeners = way() if callable(way) else None
    addresses = [] if callable(way) else [way]
    async with serving(echo, *addresses, listeners=listeners) as edge, edge.client() as client:
        response = await client.call("POST", "/mcp", body=b"hello")
        inode = os.fstat(client.sock.fileno()).st_ino
    assert (response.status, response.body) == (200, b"hello")
    peer = echo.scopes[0]["state"][CONNECTION_KEY].peer
    assert isinstance(peer, TcpPeer)
    assert (peer.uid, peer.inode) == (os.geteuid(), inode)


async def test_an_ipv4_client_of_a_dual_stack_listener_is_known() -> None:
    listeners = passed_listeners(socket.AF_INET6, "::ffff:127.0.0.1")
    async with (
        serving(Echo(), listeners=listeners) as edge,
        edge.client(host="127.0.0.1", family=socket.AF_INET) as client,
    ):
        assert (await client.call("GET", "/mcp")).status == 200


async def test_the_own_user_is_served_over_a_unix_socket_with_any_host(tmp_path: Path) -> None:
    echo = Echo()
    async with serving(echo, UnixAddress(tmp_path / "s")) as edge, edge.client() as client:
        assert (await client.call("GET", "/mcp", {"Host": "u.sock"})).status == 200
        assert (await client.call("GET", "/mcp", {"Origin": "http://localhost"})).status == 403
    peer = echo.scopes[0]["state"][CONNECTION_KEY].peer
    assert peer == UnixPeer(os.geteuid(), os.getegid(), os.getpid(), own_cgroup())


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
async def test_answers_are_not_delayed_whatever_the_way_of_listening(
    way: Callable[[], Listeners] | ListenAddress,
) -> None:
    """TCP_NODELAY is on for accepted connections; without it each kept-alive call costs 40 ms."""
    accepted: list[int] = []

    async def look(scope: Scope, receive: Receive, send: Send) -> None:
        accepted.extend(nodelay_of(scope["client"]))
        await Echo()(scope, receive, send)

    listeners = way() if callable(way) else None
    addresses = [] if callable(way) else [way]
    async with serving(look, *addresses, listeners=listeners) as edge, edge.client() as client:
        await client.call("GET", "/mcp")
    assert accepted == [1]


def nodelay_of(client: tuple[str, int]) -> list[int]:
    """Return TCP_NODELAY of the accepted socket of the client, found among all descriptors."""
    found: list[int] = []
    for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as sock:
            if tuple(sock.getpeername()[:2]) == client:
                found.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
    return found


async def test_a_half_closed_client_is_served() -> None:
    echo = Echo()
    async with serving(echo) as edge, edge.client() as client:
        await client.send("POST", "/mcp", body=b"all I wanted to say")
        client.sock.shutdown(socket.SHUT_WR)
        assert (await client.response()).body == b"all I wanted to say"


async def test_the_decision_is_kept_for_the_connection() -> None:
    echo = Echo()
    async with serving(echo) as edge:
        async with edge.client() as client:
            for _ in range(3):
                assert (await client.call("GET", "/mcp")).status == 200
        async with edge.client() as client:
            assert (await client.call("GET", "/mcp")).status == 200
        connections = [scope["state"][CONNECTION_KEY] for scope in echo.scopes]
        assert len(edge.turns_asked) == 2
    assert all(isinstance(connection, Connection) for connection in connections)
    assert [connection is connections[0] for connection in connections] == [True, True, True, False]


async def test_a_caller_inside_a_turn_is_refused_and_its_connection_closed() -> None:
    echo = Echo()
    async with serving(echo) as edge, edge.client() as client:
        edge.turn = "t-1"
        response = await client.call("POST", "/mcp", body=b"{}")
        assert response.status == 403
        assert "inside turn t-1" in response.text
        with anyio.fail_after(20):
            await anyio.wait_readable(client.sock)
        assert client.sock.recv(1) == b""
    assert echo.reached == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1:1"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https"}, 200),
    ],
)
async def test_host_and_origin_are_judged_on_every_path(headers: dict[str, str], status: int) -> None:
    async with serving(Paths({"/mcp": Echo()})) as edge:
        for path in ("/mcp", "/healthz"):
            async with edge.client() as client:
                response = await client.call("GET", path, headers)
                assert response.status == status
                assert status == 200 or response.text.startswith("Refused: ")


@pytest.mark.parametrize(
    "request_head",
    [b"GET /mcp HTTP/1.1\r\n\r\n", b"GET /mcp HTTP/1.0\r\n\r\n", b"GET /mcp HTTP/1.1\r\nHost:\r\n\r\n"],
)
async def test_a_request_without_a_host_is_refused(request_head: bytes) -> None:
    echo = Echo()
    async with serving(echo) as edge, edge.client() as client:
        await client.send_raw(request_head)
        with anyio.fail_after(20):
            await anyio.wait_readable(client.sock)
        assert client.sock.recv(65536).startswith(b"HTTP/1.1 400 ")
    assert echo.reached == []


async def test_forwarding_headers_change_nothing() -> None:
    echo = Echo()
    async with serving(echo) as edge, edge.client() as client:
        await client.call("GET", "/mcp", {"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https"})
        address = client.sock.getsockname()
    assert (echo.scopes[0]["client"], echo.scopes[0]["scheme"]) == (address, "http")


async def test_a_body_at_the_limit_passes_and_one_above_it_gets_the_sentence() -> None:
    async with serving(Echo()) as edge:
        async with edge.client() as client:
            assert len((await client.call("POST", "/mcp", body=bytes(MAX_BODY_BYTES))).body) == MAX_BODY_BYTES
        async with edge.client() as client:
            response = await client.call("POST", "/mcp", body=bytes(MAX_BODY_BYTES + 1))
            assert response.status == 413
            assert response.text.startswith("Refused: a request body may have at most 16777216 bytes")


async def test_endless_headers_are_cut_off() -> None:
    echo = Echo()
    async with serving(echo) as edge, edge.client() as client:
        await client.send_raw(b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000)
        with anyio.fail_after(20):
            await anyio.wait_readable(client.sock)
        assert client.sock.recv(65536).startswith(b"HTTP/1.1 400 ")
    assert echo.reached == []


async def test_silent_and_slow_clients_block_nobody() -> None:
    async with serving(Echo()) as edge, edge.client() as client:
        with edge.clients(100) as slow:
            for one in slow[50:]:
                await one.send_raw(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nx")
            assert (await client.call("POST", "/mcp", body=b"quick")).body == b"quick"


async def test_a_websocket_upgrade_is_an_ordinary_request() -> None:
    echo = Echo()
    async with serving(echo) as edge, edge.client() as client:
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        assert (await client.call("GET", "/mcp", {**upgrade, "Sec-WebSocket-Key": "x"})).status == 200
        assert (await client.call("GET", "/mcp", {"Host": "evil.example", **upgrade})).status == 421
    assert echo.reached == ["/mcp"]


async def test_healthz_says_ok_and_nothing_else() -> None:
    async with serving(Paths({})) as edge, edge.client() as client:
        response = await client.call("GET", "/healthz")
        assert (response.status, response.body) == (200, b'{"status": "ok"}')
        assert response.headers == {"content-type": "application/json", "content-length": "16"}
        assert (await client.call("POST", "/healthz")).status == 405


@pytest.mark.parametrize("path", ["/", "/mcp/", "/.well-known", "/healthz/x", "/%0a"])
async def test_there_is_a_sentence_for_every_other_path(path: str) -> None:
    async with serving(Paths({"/mcp": Echo()})) as edge, edge.client() as client:
        response = await client.call("GET", path)
        assert response.status == 404
        assert response.text.startswith("There is nothing at '/")
        assert response.text.endswith(": this daemon serves /mcp.\n")


async def test_a_client_of_another_listener_in_the_same_daemon_is_served_too(tmp_path: Path) -> None:
    async with serving(Echo(), TcpAddress("localhost", 0), UnixAddress(tmp_path / "s")) as edge:
        for listener in range(3):
            async with edge.client(listener) as client:
                assert isinstance(client, Client)
                assert (await client.call("GET", "/mcp")).status == 200
