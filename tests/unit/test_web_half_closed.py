"""Clients that say no more: one that asked has its answer, one that polls is gone."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import anyio
from typing_extensions import override

from hive_subagent_daemon import edge_protocol
from tests.support.edge import LIMIT_SECONDS, Echo, serving

if TYPE_CHECKING:
    import pytest
    from starlette.types import Message, Receive, Scope, Send


class Slow(Echo):
    """Answers once it is let, or notices that its client has gone."""

    def __init__(self) -> None:
        """Wait."""
        super().__init__()
        self.asked, self.let, self.left = anyio.Event(), anyio.Event(), anyio.Event()

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer like Echo, only later."""
        said = await receive()

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            self.left.set()

        async def again() -> Message:
            return said

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            self.asked.set()
            await self.let.wait()
            await super().__call__(scope, again, send)


async def test_a_call_that_takes_its_time_is_answered_and_its_connection_closed() -> None:
    app = Slow()
    async with serving(app) as edge, edge.client() as client:
        await client.send("POST", "/mcp", body=b"all I wanted to say")
        await app.asked.wait()
        client.sock.shutdown(socket.SHUT_WR)
        await anyio.sleep(0.05)  # that the server sees it is nothing that anybody can ask for
        app.let.set()
        answer = await client.response()
        assert (answer.body, answer.headers["connection"]) == (b"all I wanted to say", "close")
        with anyio.fail_after(LIMIT_SECONDS):
            await anyio.wait_readable(client.sock)
        assert client.sock.recv(1) == b""


async def test_a_poll_that_says_no_more_has_gone_at_once() -> None:
    app = Slow()
    async with serving(app) as edge, edge.client() as client:
        await client.send("GET", "/notices")
        await app.asked.wait()
        client.sock.shutdown(socket.SHUT_WR)
        with anyio.fail_after(edge_protocol.HALF_CLOSED_SECONDS / 2):
            await app.left.wait()
        app.let.set()


async def test_a_call_that_takes_too_long_for_that_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_protocol, "HALF_CLOSED_SECONDS", 0.05)
    app = Slow()
    async with serving(app) as edge, edge.client() as client:
        await client.send("POST", "/mcp", body=b"wait")
        await app.asked.wait()
        client.sock.shutdown(socket.SHUT_WR)
        with anyio.fail_after(LIMIT_SECONDS):
            await app.left.wait()
        app.let.set()
