"""A stop of the daemon loses no connection: each is answered before its end, or waits for the successor."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from typing_extensions import override

from hive_subagent_daemon import web
from hive_subagent_daemon.listeners import Listeners
from hive_subagent_daemon.passed_sockets import adopted
from tests.support.edge import Client, Echo, serving
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CALLERS = 4
RESTARTS = 20
ANSWERS_BETWEEN = 25
CALL = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"
GENEROUS_SECONDS = 20.0


@pytest.fixture(params=["tcp", "unix"])
def held(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[socket.socket]:
    """Hold a listening socket open, as systemd does over restarts of the service."""
    kinds: dict[str, tuple[socket.AddressFamily, tuple[str, int] | str]] = {
        "tcp": (socket.AF_INET, ("127.0.0.1", 0)),
        "unix": (socket.AF_UNIX, str(tmp_path / "s")),
    }
    family, address = kinds[request.param]
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind(address)
        listener.listen(256)
        yield listener


def passed(held: socket.socket) -> Listeners:
    """Pass the held socket to one more daemon."""
    return Listeners([adopted(os.dup(held.fileno()))])


def connect(held: socket.socket) -> Client:
    """Connect to the held socket, whoever accepts there."""
    sock = socket.socket(held.family, socket.SOCK_STREAM)
    sock.connect(held.getsockname())
    return Client(sock)


@pytest.mark.parametrize("turns", range(7))
async def test_a_connection_that_arrives_together_with_the_stop_is_answered(
    held: socket.socket, turns: int
) -> None:
    """Whether it was accepted, or was about to become a connection of ours, or still waits in the kernel."""
    async with serving(Echo(), listeners=passed(held)) as edge, connect(held) as client:
        await client.send_raw(CALL)
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        edge.stop.set()
        with anyio.fail_after(20):
            await edge.stopped.wait()
        async with serving(Echo(), listeners=passed(held)):
            assert await answer_to_raw_call(client) == b"hello"


async def answer_to_raw_call(client: Client) -> bytes:
    """Read the answer to the call that was sent as bytes."""
    content = b""
    with anyio.fail_after(20):
        while not content.endswith(b"\r\n\r\nhello"):
            await anyio.wait_readable(client.sock)
            piece = client.sock.recv(65536)
            assert piece, f"closed after {content!r}"
            content += piece
    return content[-5:]


@pytest.mark.parametrize("sent", [0, 10, len(CALL) - 3], ids=["nothing", "half-a-head", "half-a-body"])
async def test_a_first_request_that_comes_during_the_stop_is_answered_as_the_last(
    held: socket.socket, sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "FIRST_REQUEST_SECONDS", GENEROUS_SECONDS)
    ending = anyio.Event()

    async def close_streams() -> None:
        ending.set()

    async with (
        serving(Echo(), listeners=passed(held), close_streams=close_streams) as edge,
        connect(held) as client,
    ):
        await client.send_raw(CALL[:sent])
        async with connect(held) as later:  # accepted after it
            assert (await later.call("POST", "/mcp")).status == 200
            edge.stop.set()
            with anyio.fail_after(20):
                await ending.wait()
            await client.send_raw(CALL[sent:])
            head = await received_until(client, b"hello")
            assert (b"200 OK" in head, b"connection: close" in head.lower()) == (True, True)
            assert client.sock.recv(1) == b""
        with anyio.fail_after(20):
            await edge.stopped.wait()


async def received_until(client: Client, end: bytes) -> bytes:
    """Read up to these bytes, and wait until there is more to read, or the end."""
    content = b""
    with anyio.fail_after(20):
        while not content.endswith(end):
            await anyio.wait_readable(client.sock)
            content += client.sock.recv(65536)
        await anyio.wait_readable(client.sock)
    return content


async def test_a_connection_that_stays_silent_does_not_hold_up_the_stop(held: socket.socket) -> None:
    async with serving(Echo(), listeners=passed(held)) as edge, connect(held) as silent:
        async with connect(held) as later:
            assert (await later.call("POST", "/mcp")).status == 200
        began = anyio.current_time()
        await edge.end()
        seconds = anyio.current_time() - began
        assert silent.sock.recv(1) == b""
    assert web.FIRST_REQUEST_SECONDS <= seconds < web.SHUTDOWN_LIMIT_SECONDS


async def test_a_request_that_was_sent_on_an_idle_connection_before_the_stop_is_answered(
    held: socket.socket,
) -> None:
    async with serving(Echo(), listeners=passed(held)) as edge, connect(held) as client:
        assert (await client.call("POST", "/mcp")).status == 200
        await client.send("POST", "/mcp", body=b"hello")
        edge.stop.set()
        answer = await client.response()
    assert (answer.status, answer.body) == (200, b"hello")


class Caller(threading.Thread):
    """Calls without a pause until told to finish, on a new connection each time or on one while it lasts."""

    def __init__(self, address: tuple[str, int], *, keeps: bool) -> None:
        """Call this address."""
        super().__init__()
        self.connection = HTTPConnection(*address, timeout=10)
        self.keeps = keeps
        self.finish = threading.Event()
        self.answers = 0
        self.losses: list[str] = []

    @override
    def run(self) -> None:
        """Call; whatever is not an answer is a loss."""
        while not self.finish.is_set():
            try:
                self.connection.request("POST", "/mcp", b"hello")
                answer = self.connection.getresponse()
                assert (answer.status, answer.read()) == (200, b"hello")
                self.answers += 1
            except (OSError, HTTPException, AssertionError) as error:
                self.losses.append(repr(error))
                self.connection.close()
            if not self.keeps:
                self.connection.close()
        self.connection.close()


@contextlib.contextmanager
def calling(address: tuple[str, int], *, keeps: bool) -> Iterator[list[Caller]]:
    """Call from several threads during the block."""
    callers = [Caller(address, keeps=keeps) for _ in range(CALLERS)]
    for caller in callers:
        caller.start()
    try:
        yield callers
    finally:
        for caller in callers:
            caller.finish.set()


def await_answers(callers: list[Caller], number: int) -> None:
    """Wait until so many more calls were answered, or one was lost."""
    wanted = sum(caller.answers for caller in callers) + number
    eventually(
        lambda: sum(caller.answers for caller in callers) >= wanted or any(one.losses for one in callers)
    )


@pytest.mark.parametrize("keeps", [False, True], ids=["a-connection-a-call", "kept-alive"])
async def test_nothing_is_lost_over_many_restarts_under_load(*, keeps: bool) -> None:
    """A client of a kept-alive connection learns in an answer that it was the last one there."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as held:
        address: tuple[str, int] = held.getsockname()
        with calling(address, keeps=keeps) as callers:
            for _ in range(RESTARTS):
                async with serving(Echo(), listeners=passed(held)) as edge:
                    await anyio.to_thread.run_sync(await_answers, callers, ANSWERS_BETWEEN)
                    await edge.end()
        async with serving(Echo(), listeners=passed(held)):
            for caller in callers:
                await anyio.to_thread.run_sync(caller.join)
    assert [loss for caller in callers for loss in caller.losses] == []
    assert sum(caller.answers for caller in callers) >= RESTARTS * ANSWERS_BETWEEN
