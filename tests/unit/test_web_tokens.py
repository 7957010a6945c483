"""Another user with and without a token over real sockets, by every family."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import h11
import pytest
from typing_extensions import override

from hive_subagent_daemon import door, edge_protocol, web
from hive_subagent_daemon.config_values import ListenAddress, TcpAddress, UnixAddress
from hive_subagent_daemon.peer import AnyPeer, PeerFinder, RemotePeer, TcpPeer
from hive_subagent_daemon.tokens import BearerToken
from tests.support.edge import Client, Echo, Edge, serving
from tests.support.other_user import NOBODY, as_user, needs_root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hive_subagent_daemon.peer import AnySocket

SECRET = "a-token-of-20-letters"
RIGHT = {"Authorization": f"Bearer {SECRET}"}
STRANGER = os.geteuid() + 1


@pytest.fixture
def token(tmp_path: Path) -> BearerToken:
    """Return a token that has been read."""
    file = tmp_path / "token"
    file.write_text(SECRET)
    file.chmod(0o600)
    token = BearerToken(file)
    token.read()
    return token


@pytest.fixture(params=["v4", "v6", "any", "unix"])
def address(request: pytest.FixtureRequest) -> Iterator[ListenAddress]:
    """Return an address of each family; `any` is reached by its loopback address."""
    hosts = {"v4": "127.0.0.1", "v6": "::1", "any": "0.0.0.0"}
    name: str = request.param
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield UnixAddress(Path(folder, "s")) if name == "unix" else TcpAddress(hosts[name], 0)


def asked(name: tuple[str, int] | str, headers: dict[str, str], body: bytes) -> bytes:
    """Send one call and return status, the header that asks for a token, and the body."""
    connection = http.client.HTTPConnection("127.0.0.1")
    family = (
        socket.AF_UNIX if isinstance(name, str) else socket.AF_INET6 if ":" in name[0] else socket.AF_INET
    )
    connection.sock = socket.socket(family, socket.SOCK_STREAM)
    connection.sock.settimeout(5)
    connection.sock.connect(name)
    connection.request("POST", "/mcp", body, headers)
    response = connection.getresponse()
    return b"%d %s %s" % (
        response.status, str(response.getheader("WWW-Authenticate")).encode(), response.read()
    )  # fmt: skip


def reachable(edge: Edge) -> tuple[str, int] | str:
    """Return where another user of this machine reaches the first listener."""
    listening = edge.listeners.sockets[0]
    name = listening.getsockname()
    if isinstance(name, str):
        Path(name).chmod(0o666)
        return name
    return ("127.0.0.1" if name[0] == "0.0.0.0" else name[0], name[1])


@needs_root
async def test_another_user_gets_in_with_the_token_and_not_without(
    address: ListenAddress, token: BearerToken
) -> None:
    echo = Echo()
    async with serving(echo, address, token=token) as edge:
        for headers, answer in [
            (RIGHT, b"200 None {}"),
            ({}, b"401 Bearer Refused: this connection belongs to uid 65534, and it sent no token; send "),
            ({"Authorization": f"Bearer {SECRET}x"}, b"401 Bearer Refused: this connection belongs to uid"),
        ]:
            with as_user(partial(asked, reachable(edge), headers, b"{}")) as other:
                assert (await other.async_result()).startswith(answer)
    assert echo.reached == ["/mcp"]


@needs_root
async def test_an_allowed_user_needs_no_token(address: ListenAddress, token: BearerToken) -> None:
    async with serving(Echo(), address, allow_uids=frozenset({NOBODY}), token=token) as edge:
        with as_user(partial(asked, reachable(edge), {}, b"{}")) as other:
            assert await other.async_result() == b"200 None {}"


class StrangersOnly(PeerFinder):
    """Finds a stranger at the other end of every connection, so that one test user can play one."""

    found: AnyPeer = TcpPeer(STRANGER, 1, None)

    @override
    def peer_of(self, accepted: AnySocket) -> AnyPeer:
        """Return the stranger."""
        return self.found


class RemoteOnly(StrangersOnly):
    """Finds another machine at the other end."""

    found = RemotePeer("192.0.2.7")


@pytest.fixture(params=[StrangersOnly, RemoteOnly], ids=["uid", "remote"])
def strangers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take everybody for a stranger."""
    monkeypatch.setattr(web, "PeerFinder", request.param)


@pytest.mark.usefixtures("strangers")
async def test_a_large_body_behind_the_token_arrives_whole(token: BearerToken) -> None:
    body = os.urandom(4_000_000)
    async with serving(Echo(), token=token) as edge, edge.client() as client:
        for _ in range(2):
            assert (await client.call("POST", "/mcp", RIGHT, body)).body == body


@pytest.mark.usefixtures("strangers")
async def test_a_large_body_without_the_token_gets_the_sentence(token: BearerToken) -> None:
    async with serving(Echo(), token=token) as edge, edge.client() as client:
        response = await client.call("POST", "/mcp", body=bytes(4_000_000))
        assert (response.status, response.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.usefixtures("strangers")
async def test_a_body_that_comes_after_the_refusal_is_dropped_so_that_the_sentence_is_read(
    token: BearerToken,
) -> None:
    async with serving(Echo(), token=token) as edge, edge.client() as client:
        await client.send_raw(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n")
        head = await client.head()
        await client.send_raw(bytes(4_000_000))
        assert head.status_code == 401


@pytest.mark.usefixtures("strangers")
async def test_who_has_shown_the_token_may_stay_and_come_often(
    token: BearerToken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_protocol, "UNPROVEN_SECONDS", 0.2)
    async with serving(Echo(), token=token) as edge, contextlib.AsyncExitStack() as opened:
        kept: list[Client] = []
        for _ in range(3 * door.MAX_OF_ONE_STRANGER):
            kept.append(await opened.enter_async_context(edge.client()))
            assert (await kept[-1].call("POST", "/mcp", RIGHT, b"one")).status == 200
        silent = await opened.enter_async_context(edge.client())
        with anyio.fail_after(20):
            await anyio.wait_readable(silent.sock)  # it is closed: its time is over
        for client in kept:
            assert (await client.call("POST", "/mcp", RIGHT, b"two")).body == b"two"


@pytest.mark.usefixtures("strangers")
async def test_a_stranger_cannot_keep_the_daemon_busy_with_parsing(token: BearerToken) -> None:
    """A body in pieces of one byte costs 40 times the time that it takes to send it."""
    pieces = b"1\r\nx\r\n" * 40_000
    head = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    parsed: list[int] = []
    receive_data = h11.Connection.receive_data

    def counted(connection: h11.Connection, content: bytes) -> None:
        parsed.append(len(content))
        receive_data(connection, content)

    async with serving(Echo(), token=token) as edge, edge.client() as client:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(h11.Connection, "receive_data", counted)
            await client.send_raw(head + pieces)
            with anyio.fail_after(20):
                await anyio.wait_readable(client.sock)
        assert client.sock.recv(65536).startswith(b"HTTP/1.1 401 ")
    assert sum(parsed) <= 2 * edge_protocol.PIECE_BYTES
