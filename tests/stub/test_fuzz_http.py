"""Whatever bytes come in at the port, the daemon answers the others, and logs no fault."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st

from tests.support.fuzzing import JSON_JUNK, damaged, fuzz, retyped
from tests.support.mcp_call import PROTOCOL_VERSION, meta

if TYPE_CHECKING:
    from tests.support.daemon_harness import Daemon

ANSWER_SECONDS = 5.0
STATUSES = {200, 202, 400, 403, 404, 405, 406, 408, 411, 413, 415, 417, 421, 431, 501, 505}
ALPHABET = b'\r\n :;,/?{}[]"0123456789abcdefPOSTGETHTTP/1.1Hostcontent-lengthchunked\x00'


def message(method: str, params: dict[str, object]) -> dict[str, object]:
    """Return a call as a client makes it."""
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": meta()}}


MESSAGES: list[dict[str, object]] = [
    message("tools/call", {"name": "status", "arguments": {}}),
    message("tools/call", {"name": "get_loose_ends", "arguments": {"limit": 5, "ids": ["x"]}}),
    message("tools/call", {"name": "close_loose_ends", "arguments": {"ids": ["x"]}}),
    message("tools/call", {"name": "interrupt", "arguments": {"name": "nobody", "force": True}}),
    message("tools/call", {"name": "start", "arguments": {"name": "a", "prompt_file": "/nonexistent"}}),
    message("tools/list", {}),
    {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "fuzz", "version": "1"},
        },
    },
]


def request(body: bytes, *, method: str = "POST", path: str = "/mcp") -> bytes:
    """Return a whole request as a client sends it."""
    head = [
        f"{method} {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"MCP-Protocol-Version: {PROTOCOL_VERSION}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


WHOLE = [request(json.dumps(one).encode()) for one in MESSAGES]
OTHERS = [
    request(b"", method=method, path=path)
    for method in ("GET", "DELETE")
    for path in ("/mcp", "/x", "/healthz")
]
CHUNKED = WHOLE[0].partition(b"\r\n\r\n")[0].replace(b"Content-Length", b"X-Length")
CHUNKED += b'\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"a":\r\n2\r\n1}\r\n0\r\n\r\n'
REQUESTS = st.one_of(
    damaged([*WHOLE, *OTHERS, CHUNKED], alphabet=ALPHABET),
    retyped(MESSAGES, JSON_JUNK).map(lambda one: request(json.dumps(one).encode())),
    st.lists(retyped(MESSAGES, JSON_JUNK), max_size=3).map(lambda batch: request(json.dumps(batch).encode())),
    st.binary(max_size=300),
    st.binary(max_size=300).map(request),
)


def answer_to(daemon: Daemon, content: bytes) -> bytes:
    """Send bytes, say that no more will come, and return what was answered before the connection ended."""
    answered = b""
    address = ("127.0.0.1", daemon.port)
    with socket.create_connection(address, timeout=ANSWER_SECONDS) as connection, suppress(ConnectionError):
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(65536):
            answered += part
    return answered


@pytest.mark.timeout(900)
def test_any_bytes_at_the_port_leave_the_daemon_as_it_was(
    own_daemon: Daemon, request: pytest.FixtureRequest
) -> None:
    """Each connection ends with an answer or without one, in time; nothing is started or closed."""
    daemon = own_daemon

    def check(content: bytes) -> None:
        """Try one input."""
        answered = answer_to(daemon, content)
        if answered:
            assert answered.startswith(b"HTTP/1.1 "), answered[:200]
            assert int(answered[9:12]) in STATUSES, answered[:500]
            assert b"Internal error" not in answered
            assert b"Traceback" not in answered
        status = daemon.ok("status")
        assert status.content["subagents"] == []
        assert status.seconds < ANSWER_SECONDS

    fuzz(REQUESTS, check, seconds=15, what="requests", request=request)
    assert daemon.ok("get_loose_ends").content == {"loose_ends": [], "remaining": 0}
