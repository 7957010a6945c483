"""MCP through the HTTP edge: both protocol eras, and what a shutdown does to streams and calls."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

from hive_subagent_daemon import edge_protocol, mcp_endpoint
from hive_subagent_daemon.access import MAX_BODY_BYTES
from hive_subagent_daemon.config_values import ListenAddress, TcpAddress, UnixAddress
from tests.support.mcp_call import meta
from tests.support.tiny_mcp import (
    JSON_HEADERS,
    handshake,
    mcp_serving,
    modern,
    modern_echo,
    modern_headers,
    open_get_stream,
    open_listen_stream,
    rpc,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.edge import Client

STOP_LIMIT_SECONDS = 8.0
QUIET = logging.WARNING
HALF_A_REQUEST = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"


@pytest.fixture(params=["tcp", "unix"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> ListenAddress:
    """Return one address of each kind."""
    return TcpAddress("127.0.0.1", 0) if request.param == "tcp" else UnixAddress(tmp_path / "s")


def troubles(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return everything in the log that a person would have to look at."""
    return [record.getMessage() for record in caplog.records if record.levelno >= QUIET or record.exc_info]


async def test_the_handshake_era_is_served(address: ListenAddress) -> None:
    async with mcp_serving(address) as served, served.edge.client() as client:
        session = await handshake(client)
        answer = await session.call_tool("echo", "hello")
        assert json.loads(answer.body)["result"]["content"][0]["text"] == "hello"
        assert answer.headers["content-type"] == "application/json"


async def test_the_2026_era_is_served(address: ListenAddress) -> None:
    async with mcp_serving(address) as served, served.edge.client() as client:
        discovered = await modern(client, "server/discover", {})
        assert "2026-07-28" in json.loads(discovered.body)["result"]["supportedVersions"]
        assert await modern_echo(client, "hello") == "hello"


@pytest.mark.parametrize("host", ["LOCALHOST", "127.0.0.1:1", "[::1]"])
async def test_a_host_that_the_guard_accepts_is_accepted_by_the_session_layer_too(host: str) -> None:
    async with mcp_serving() as served, served.edge.client() as client:
        body = rpc("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT})
        answer = await client.call("POST", "/mcp", {**JSON_HEADERS, "Host": host}, body)
        assert answer.status == 200


CLIENT = {"name": "test", "version": "1"}


async def test_the_session_layer_has_its_own_guard_behind_ours() -> None:
    settings = mcp_endpoint.security_settings(frozenset({"127.0.0.5"}))
    assert settings.enable_dns_rebinding_protection
    assert {"localhost", "localhost:*", "127.0.0.5:*", "[::1]:*"} <= set(settings.allowed_hosts)
    assert "http://localhost:*" in settings.allowed_origins


async def test_an_unknown_session_is_told_so_that_a_client_opens_a_new_one() -> None:
    async with mcp_serving() as served, served.edge.client() as client:
        session = await handshake(client)
        headers = {**session.headers, "Mcp-Session-Id": "gone"}
        assert (await client.call("POST", "/mcp", headers, rpc("ping", {}))).status == 404


async def test_a_ten_megabyte_argument_reaches_the_tool() -> None:
    text = "x" * 10_000_000
    async with mcp_serving() as served, served.edge.client() as client:
        assert await modern_echo(client, text) == text
        session = await handshake(client)
        assert len((await session.call_tool("echo", text)).body) > len(text)


async def test_a_chunked_body_above_the_limit_is_refused() -> None:
    async with mcp_serving() as served, served.edge.client() as client:
        chunked = {
            **modern_headers("tools/call", "echo"),
            "Transfer-Encoding": "chunked",
            "Content-Length": "",
        }
        del chunked["Content-Length"]
        await client.send("POST", "/mcp", chunked, bytes(MAX_BODY_BYTES + 1))
        assert (await client.response()).status == 413


async def test_a_client_that_vanishes_while_it_sends_is_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    async with mcp_serving() as served:
        for _ in range(5):
            async with served.edge.client() as client:
                await client.send_raw(HALF_A_REQUEST)
        async with served.edge.client() as client:
            assert await modern_echo(client, "hello") == "hello"
    assert troubles(caplog) == []


async def stop_within_limit(*clients: Client, stop: anyio.Event, stopped: anyio.Event) -> float:
    """Stop the server; every stream has to end properly and the whole within the limit."""
    begin = anyio.current_time()
    stop.set()
    for client in clients:
        await client.rest()
    with anyio.fail_after(STOP_LIMIT_SECONDS):
        await stopped.wait()
    return anyio.current_time() - begin


async def test_a_shutdown_ends_an_open_get_stream_cleanly(
    address: ListenAddress, caplog: pytest.LogCaptureFixture
) -> None:
    async with mcp_serving(address) as served, served.edge.client() as client, served.edge.client() as stream:
        await open_get_stream(stream, await handshake(client))
        seconds = await stop_within_limit(stream, stop=served.edge.stop, stopped=served.edge.stopped)
    assert seconds < 1.5
    assert troubles(caplog) == []


async def test_a_shutdown_gives_an_open_listen_stream_its_final_result(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with mcp_serving() as served, served.edge.client() as stream:
        await open_listen_stream(stream)
        served.edge.stop.set()
        assert b'"result"' in await stream.rest()
        with anyio.fail_after(STOP_LIMIT_SECONDS):
            await served.edge.stopped.wait()
    assert troubles(caplog) == []


async def test_a_shutdown_with_many_clients_of_all_kinds_is_quick_and_quiet(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with mcp_serving() as served:
        with served.edge.clients(8) as clients:
            await open_listen_stream(clients[0])
            await open_get_stream(clients[1], await handshake(clients[2]))
            await open_get_stream(clients[3], await handshake(clients[4]))
            await clients[5].send_raw(HALF_A_REQUEST)
            await clients[6].send_raw(b"POST /mcp HT")
            assert await modern_echo(clients[7], "x") == "x"
            streams = [clients[0], clients[1], clients[3]]
            await stop_within_limit(*streams, stop=served.edge.stop, stopped=served.edge.stopped)
    assert troubles(caplog) == []


async def test_a_running_call_is_answered_before_the_end(caplog: pytest.LogCaptureFixture) -> None:
    async with mcp_serving() as served, served.edge.client() as client, served.edge.client() as other:
        await modern_echo(other, "a kept-alive connection")
        await client.send("POST", "/mcp", modern_headers("tools/call", "wait"), waiting_call())
        await served.tiny.entered.wait()
        served.edge.stop.set()
        refused = await eventually_refused(other)
        assert refused == (503, "Refused: the daemon is stopping; call again when it is back.\n")
        served.tiny.go.set()
        assert (await client.response()).status == 200
        with anyio.fail_after(STOP_LIMIT_SECONDS):
            await served.edge.stopped.wait()
    assert troubles(caplog) == []


async def test_a_wait_ends_with_its_client(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that asks again and again and never stays must not fill the memory with its waits."""
    monkeypatch.setattr(edge_protocol, "HALF_CLOSED_SECONDS", 0.1)
    async with mcp_serving() as served:
        async with served.edge.client() as client:
            await client.send("POST", "/mcp", modern_headers("tools/call", "wait"), waiting_call())
            await served.tiny.entered.wait()
        with anyio.fail_after(STOP_LIMIT_SECONDS):
            await served.tiny.left.wait()
        async with served.edge.client() as client:
            await modern_echo(client, "others are served")
    assert troubles(caplog) == []


def waiting_call() -> bytes:
    """Return a call of the tool that waits."""
    return rpc("tools/call", {"name": "wait", "arguments": {}, "_meta": meta()})


async def eventually_refused(client: Client) -> tuple[int, str]:
    """Call until the shutdown has begun."""
    with anyio.fail_after(STOP_LIMIT_SECONDS):
        while (answer := await modern(client, "tools/list", {})).status == 200:
            await anyio.lowlevel.checkpoint()
    return answer.status, answer.text


@pytest.mark.parametrize("era", ["handshake", "2026"])
async def test_a_call_that_does_not_end_is_cut_off_with_a_sentence(
    era: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(mcp_endpoint, "CALL_GRACE_SECONDS", 0.05)
    async with mcp_serving() as served, served.edge.client() as client:
        if era == "handshake":
            await client.send("POST", "/mcp", (await handshake(client)).headers, waiting_call())
        else:
            await client.send("POST", "/mcp", modern_headers("tools/call", "wait"), waiting_call())
        await served.tiny.entered.wait()
        served.edge.stop.set()
        answer = await client.response()
        assert (answer.status, "may or may not have taken effect" in answer.text) == (503, True)
        with anyio.fail_after(STOP_LIMIT_SECONDS):
            await served.edge.stopped.wait()
    # The session layer says that it could not answer; nothing else may be said.
    assert [
        trouble for trouble in troubles(caplog) if "gave up: transport write blocked" not in trouble
    ] == []


async def test_the_unix_socket_file_is_gone_and_nobody_is_accepted_after_the_end(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with mcp_serving(UnixAddress(path)) as served:
        await served.edge.end()
        with pytest.raises(OSError, match=r"refused|No such file|Bad file"):
            served.edge.client()
    assert not path.exists()
