"""Serving itself: beginning and end, what stays as it was, and real clients of the protocol."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import anyio
import pytest
from mcp import Client as McpClient

from tests.support.edge import Client, Echo, serving
from tests.support.tiny_mcp import handshake, mcp_serving, open_get_stream

if TYPE_CHECKING:
    from mcp.client.client import ConnectMode


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28", "auto"])
async def test_the_reference_client_can_call_in_every_mode(mode: ConnectMode) -> None:
    async with mcp_serving() as served:
        url = served.edge.listeners.urls[0]
        with anyio.fail_after(10):
            async with McpClient(url, mode=mode) as client:
                listed = await client.list_tools()
                result = await client.call_tool("echo", {"text": "hello"})
    assert [tool.name for tool in listed.tools] == ["echo", "wait"]
    assert getattr(result.content[0], "text", None) == "hello"


async def test_signals_stay_with_the_daemon() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with serving(Echo()):
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


async def test_a_cancelled_server_lets_go_of_its_sockets_and_connections() -> None:
    async with serving(Echo()) as edge, edge.client() as client:
        assert (await client.call("GET", "/")).status == 200
        sockets = edge.listeners.sockets
        address = edge.address
        edge.cancel_scope.cancel()
        with anyio.fail_after(20):
            await edge.stopped.wait()
        assert client.sock.recv(1) == b""
    assert all(listening.fileno() == -1 for listening in sockets)
    with pytest.raises(OSError, match="connect"):
        await anyio.connect_tcp(*address)


async def test_a_session_whose_stream_was_lost_can_open_it_again() -> None:
    async with mcp_serving() as served, served.edge.client() as client:
        session = await handshake(client)
        async with served.edge.client() as stream:
            await open_get_stream(stream, session)
        with anyio.fail_after(20):
            while not await reopened(served.edge.client(), session.headers):
                pass


async def reopened(stream: Client, headers: dict[str, str]) -> bool:
    """Try to open the stream; the server says 409 until it has noticed that the old one is gone."""
    async with stream:
        await stream.send("GET", "/mcp", {**headers, "Accept": "text/event-stream"})
        return (await stream.head()).status_code == 200
