"""Sessions of the handshake era over real sockets: at their limit, and with ids that are used twice."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon import mcp_endpoint
from hive_subagent_daemon.mcp_sessions import McpSessions, opens_session
from tests.support import mcp_call
from tests.support.tiny_mcp import Session, handshake, mcp_serving, modern_headers, open_get_stream, rpc

if TYPE_CHECKING:
    from tests.support.edge import Client, Response

PARALLEL = 20
JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


@pytest.fixture
def few_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have room for three sessions."""
    monkeypatch.setattr(mcp_endpoint, "MAX_SESSIONS", 3)


async def lives(session: Session) -> bool:
    """Tell whether a session is still known."""
    answer = await session.call_tool("echo", "x")
    assert answer.status in {200, 404}, answer.text
    return answer.status == 200


@pytest.mark.usefixtures("few_sessions")
async def test_at_the_limit_the_session_that_has_been_idle_longest_makes_room() -> None:
    async with mcp_serving() as served, served.edge.client() as client:
        first, second, third = [await handshake(client) for _ in range(3)]
        assert await lives(first)
        fourth = await handshake(client)
        assert [await lives(each) for each in (first, second, third, fourth)] == [True, False, True, True]


@pytest.mark.usefixtures("few_sessions")
async def test_a_session_with_an_open_stream_is_never_dropped() -> None:
    async with mcp_serving() as served, served.edge.client() as client, served.edge.client() as stream:
        oldest = await handshake(client)
        await open_get_stream(stream, oldest)
        others = [await handshake(client) for _ in range(4)]
        assert [await lives(each) for each in (oldest, *others)] == [True, False, False, True, True]


@pytest.mark.usefixtures("few_sessions")
async def test_when_all_are_in_use_a_new_one_is_refused_until_one_is_not() -> None:
    async with (
        mcp_serving() as served,
        served.edge.client() as client,
        contextlib.AsyncExitStack() as streams,
    ):
        opened = [await streams.enter_async_context(served.edge.client()) for _ in range(3)]
        for stream in opened:
            await open_get_stream(stream, await handshake(client))
        body = rpc("initialize", INITIALIZE)
        assert (await client.call("POST", "/mcp", JSON, body)).status == 503
        opened[1].sock.close()
        with anyio.fail_after(20):
            while (await client.call("POST", "/mcp", JSON, body)).status != 200:
                await anyio.lowlevel.checkpoint()


@pytest.mark.usefixtures("few_sessions")
async def test_what_opens_no_session_drops_none() -> None:
    async with mcp_serving() as served, served.edge.client() as client:
        sessions = [await handshake(client) for _ in range(3)]
        for body in (b"{}", b"[]", b"\xff", b'"initialize"', rpc("ping", {}), rpc("tools/list", {})):
            assert (await client.call("POST", "/mcp", JSON, body)).status >= 400
        assert all([await lives(session) for session in sessions])


@pytest.mark.usefixtures("few_sessions")
async def test_a_session_that_its_client_has_ended_leaves_room() -> None:
    async with mcp_serving() as served, served.edge.client() as client:
        sessions = [await handshake(client) for _ in range(3)]
        assert (await client.call("DELETE", "/mcp", sessions[2].headers)).status == 200
        assert not await lives(sessions[2])
        await handshake(client)
        assert [await lives(session) for session in sessions[:2]] == [True, True]


async def test_a_thousand_clients_that_come_and_go_are_all_served() -> None:
    """claude ends no session: more than 256 of them in half an hour were refused."""
    async with mcp_serving() as served:
        for number in range(1000):
            async with served.edge.client() as client:
                session = await handshake(client)
                assert number % 100 or await lives(session)


async def all_answers(clients: list[Client], headers: dict[str, str], bodies: list[bytes]) -> list[Response]:
    """Send all requests at once, each on a connection of its own, and return their answers."""
    for client, body in zip(clients, bodies, strict=True):
        await client.send("POST", "/mcp", headers, body)
    return [await client.response() for client in clients]


@pytest.mark.parametrize("number", [7, "7"])
@pytest.mark.parametrize("era", ["handshake", "2026"])
async def test_calls_with_one_id_at_the_same_time_all_get_their_own_answer(
    era: str, number: int | str
) -> None:
    """The session layer gave both answers to one of them, and none to the other."""
    async with mcp_serving() as served:
        with served.edge.clients(PARALLEL + 1) as clients:
            headers = modern_headers("tools/call", "echo")
            if era == "handshake":
                headers = (await handshake(clients.pop())).headers
            else:
                clients.pop()
            bodies = [call(f"text {each}", number, era) for each in range(PARALLEL)]
            for _ in range(3):
                answers = await all_answers(clients, headers, bodies)
                said = [json.loads(answer.body)["result"]["content"][0]["text"] for answer in answers]
                assert said == [f"text {each}" for each in range(PARALLEL)]


def call(text: str, number: int | str, era: str) -> bytes:
    """Return a call of the echoing tool with this id."""
    params = {"name": "echo", "arguments": {"text": text}}
    meta = {"_meta": mcp_call.meta()} if era == "2026" else {}
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params | meta}
    return json.dumps(message).encode()


async def test_a_client_that_leaves_does_not_hold_up_the_next_with_its_id() -> None:
    async with mcp_serving() as served:
        with served.edge.clients(3) as (client, leaving, waiting):
            session = await handshake(client)
            wait = rpc("tools/call", {"name": "wait", "arguments": {}}, 7)
            await leaving.send("POST", "/mcp", session.headers, wait)
            await served.tiny.entered.wait()
            await waiting.send("POST", "/mcp", session.headers, call("mine", 7, "handshake"))
            assert (
                await client.call("POST", "/mcp", session.headers, call("other", 8, "handshake"))
            ).status == 200
            leaving.sock.close()
            served.tiny.go.set()
            assert b"mine" in (await waiting.response()).body


async def test_only_ids_of_one_session_can_meet() -> None:
    sessions = McpSessions()
    for opened in ("a", "b"):
        sessions.opened(opened)
    bodies = [
        rpc("ping", {}, 1),
        rpc("ping", {}, 2),
        rpc("ping", {}, None),
        rpc("ping", {}, None),
        b"junk",
        b"junk",
    ]
    with anyio.fail_after(20):
        async with contextlib.AsyncExitStack() as under_way:
            names: list[str | None] = ["a", "b", None, "unknown"]
            for name in names:
                for body in bodies:
                    await under_way.enter_async_context(sessions.answering(name, body))


@given(st.binary(max_size=100) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(
    lambda value: json.dumps(value).encode()
))  # fmt: skip
def test_no_body_is_too_odd_to_be_asked_what_it_is(body: bytes) -> None:
    assert not opens_session(body)
