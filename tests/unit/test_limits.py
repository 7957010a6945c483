"""Silent, slow and greedy clients at the HTTP edge: each has its limit, and the others do not notice them."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

from hive_subagent_daemon import door, edge_protocol
from hive_subagent_daemon.edge_protocol import CLOSE_HEADER, EdgeProtocol
from tests.support.edge import Client, Echo, serving

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

HEAD = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n"
SHORT, LONG = 0.1, 60.0
LIMITS = ("FIRST_BYTE_SECONDS", "HEADER_SECONDS", "BODY_SECONDS")


@pytest.fixture
def short(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make one limit short and the others long."""
    name: str = request.param
    for limit in LIMITS:
        monkeypatch.setattr(edge_protocol, limit, SHORT if limit == name else LONG)
    return name


async def received(client: Client, *, at_most: int = 65536) -> bytes:
    """Receive what comes until the server closes."""
    content = b""
    with anyio.fail_after(20):
        while len(content) < at_most:
            await anyio.wait_readable(client.sock)
            try:
                part = client.sock.recv(65536)
            except ConnectionResetError:
                return content
            if not part:
                return content
            content += part
    return content


async def drip(client: Client, content: bytes, pause: float) -> None:
    """Send one byte after the other, until the server has had enough."""
    try:
        for number in range(len(content)):
            await client.send_raw(content[number : number + 1])
            await anyio.sleep(pause)
    except (BrokenPipeError, ConnectionResetError):
        return


@pytest.mark.parametrize("short", ["FIRST_BYTE_SECONDS"], indirect=True)
@pytest.mark.usefixtures("short")
async def test_a_client_that_never_says_anything_is_closed_without_a_word() -> None:
    async with serving(Echo()) as edge, edge.client() as silent:
        assert await received(silent) == b""


@pytest.mark.parametrize(
    ("short", "begin"),
    [
        ("HEADER_SECONDS", b"P"),
        ("HEADER_SECONDS", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: "),
        ("BODY_SECONDS", HEAD),
        ("BODY_SECONDS", HEAD + b"x"),
    ],
    indirect=["short"],
)
async def test_a_request_that_does_not_get_complete_is_refused_with_a_sentence(
    short: str, begin: bytes
) -> None:
    echo = Echo()
    async with serving(echo) as edge, edge.client() as slow:
        await slow.send_raw(begin)
        answer = await received(slow)
    what = "header" if short == "HEADER_SECONDS" else "body"
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert answer.endswith(
        f"Refused: the {what} of a request has to arrive within 0.1 seconds; send it again.\n".encode()
    )


@pytest.mark.parametrize("short", ["HEADER_SECONDS", "BODY_SECONDS"], indirect=True)
async def test_dripping_bytes_gains_no_time(short: str) -> None:
    """A slow-loris attack: each byte comes well within the limit."""
    async with serving(Echo()) as edge, edge.client() as slow:
        if short == "BODY_SECONDS":
            await slow.send_raw(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\n")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drip, slow, b"G" * 999, 0.02)
            assert (await received(slow)).startswith(b"HTTP/1.1 408 ")
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("short", ["HEADER_SECONDS"], indirect=True)
@pytest.mark.usefixtures("short")
async def test_the_limits_hold_for_every_request_of_a_connection() -> None:
    async with serving(Echo()) as edge, edge.client() as client:
        assert (await client.call("POST", "/mcp", body=b"once")).body == b"once"
        await anyio.sleep(3 * SHORT)  # between two requests it may rest
        assert (await client.call("POST", "/mcp", body=b"twice")).body == b"twice"
        await client.send_raw(b"POST /m")
        assert (await received(client)).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("short", ["HEADER_SECONDS"], indirect=True)
@pytest.mark.usefixtures("short")
async def test_half_a_request_behind_a_whole_one_has_its_limit_too() -> None:
    async with serving(Echo()) as edge, edge.client() as client:
        await client.send_raw(HEAD + b"full" + HEAD[:20])
        assert b"\r\n\r\nfullHTTP/1.1 408 " in await received(client)


@pytest.mark.parametrize("short", LIMITS, indirect=True)
@pytest.mark.usefixtures("short")
async def test_an_answer_may_take_longer_than_any_request() -> None:
    """Long polls and streams."""

    async def late(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await anyio.sleep(4 * SHORT)
        await send({"type": "http.response.start", "status": 200, "headers": [CLOSE_HEADER]})
        await anyio.sleep(4 * SHORT)
        await send({"type": "http.response.body", "body": b"at last"})

    async with serving(late) as edge, edge.client() as client:
        assert (await client.call("POST", "/mcp", body=b"now")).body == b"at last"


async def test_a_client_that_does_not_read_its_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_protocol, "UNREAD_SECONDS", SHORT)
    ended = anyio.Event()

    async def endless(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        with anyio.move_on_after(5):
            for _ in range(1000):
                await send({"type": "http.response.body", "body": bytes(1_000_000), "more_body": True})
            ended.set()

    async with serving(endless) as edge, edge.client() as client:
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await client.send("GET", "/mcp")
        with anyio.fail_after(4):  # `send` drops what it is given as soon as the connection is gone
            await ended.wait()


async def test_idle_connections_beyond_the_limit_make_room_for_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(door, "MAX_CONNECTIONS", 20)
    async with serving(Echo()) as edge, edge.client() as working:
        assert (await working.call("POST", "/mcp", body=b"before")).body == b"before"
        with edge.clients(60) as idle:
            async with edge.client() as newest:
                assert (await newest.call("POST", "/mcp", body=b"new")).body == b"new"
            assert await received(idle[0]) == b""
        assert (await working.call("POST", "/mcp", body=b"after")).body == b"after"


async def test_connections_that_are_being_answered_count_and_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "MAX_CONNECTIONS", 3)
    go = anyio.Event()

    async def waiting(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async with serving(waiting) as edge:
        with edge.clients(3) as polls:
            for poll in polls:
                await poll.send("GET", "/mcp")
            async with edge.client() as one_too_many:
                refused = await received(one_too_many)
            assert refused.startswith(b"HTTP/1.1 503 ")
            assert b"Refused: all connections of this daemon are in use" in refused
            go.set()
            for poll in polls:
                assert (await poll.response()).body == b"ok"
            async with edge.client() as next_one:
                assert (await next_one.call("GET", "/mcp")).body == b"ok"


async def test_a_thousand_idle_connections_leave_the_others_alone() -> None:
    async with serving(Echo()) as edge, edge.client() as client:
        with edge.clients(1000) as idle:
            for slow in idle[::2]:
                await slow.send_raw(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
            for number in range(20):
                body = b"%d" % number
                with anyio.fail_after(2):
                    assert (await client.call("POST", "/mcp", body=body)).body == body


CHUNKED = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("rest", [b"no chunk\r\n", b"4\r\nbodyXX"])
async def test_a_body_that_is_no_http_is_answered_once_whatever_the_application_is_at(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, rest: bytes
) -> None:
    """The guard learns who calls, and refuses, just when the connection has had its last answer."""
    answer_400 = EdgeProtocol.send_400_response
    async with serving(Echo()) as edge, edge.client() as client:
        edge.turn, edge.turn_known = "20260101_000000_000_abcd", anyio.Event()

        def answer_at_the_same_time(protocol: EdgeProtocol, msg: str) -> None:
            """Wake the guard before the connection is closed."""
            edge.turn_known.set()
            answer_400(protocol, msg)

        monkeypatch.setattr(EdgeProtocol, "send_400_response", answer_at_the_same_time)
        await client.send_raw(CHUNKED)
        with anyio.fail_after(20):
            while not edge.turns_asked:
                await anyio.lowlevel.checkpoint()
        await client.send_raw(rest)
        answer = await received(client)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1
    assert not [record for record in caplog.records if record.levelname == "ERROR"], caplog.text
