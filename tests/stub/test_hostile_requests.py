"""Requests that no client of ours sends, to a real daemon: each gets an answer, and the others are served."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.stub.steps import success
from tests.support.daemon_harness import Setting
from tests.support.mcp_call import meta

if TYPE_CHECKING:
    from tests.stub.conftest import MakeDaemon
    from tests.support.daemon_harness import Daemon

JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
MODERN = {**JSON, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "status"}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
STATUS = {"name": "status", "arguments": {}, "_meta": meta()}
LIMIT_SECONDS = 10

BODIES = {
    "empty": b"",
    "not-json": b"{",
    "not-utf-8": b'{"jsonrpc": "2.0", "id": 1, "method": "\xff\xfe"}',
    "nul-bytes": bytes(1000),
    "a-batch": json.dumps([CALL | {"params": STATUS}] * 3).encode(),
    "an-empty-batch": b"[]",
    "a-number": b"7",
    "null": b"null",
    "deep": b"[" * 100_000,
    "deep-object": b'{"a":' * 100_000,
    "no-method": b'{"jsonrpc": "2.0", "id": 1}',
    "another-version": b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}',
    "an-odd-id": b'{"jsonrpc": "2.0", "id": {"a": 1}, "method": "ping"}',
    "a-huge-id": b'{"jsonrpc": "2.0", "id": ' + b"9" * 5000 + b', "method": "ping"}',
    "half-a-surrogate": rb'{"jsonrpc": "2.0", "id": 1, "method": "\ud800"}',
    "not-a-number": b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}',
    "odd-params": json.dumps(CALL | {"params": [1]}).encode(),
    "an-unknown-tool": json.dumps(CALL | {"params": STATUS | {"name": "rm"}}).encode(),
}
HEADS = {
    "no-http": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "http-2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no-host": b"POST /mcp HTTP/1.1\r\n\r\n",
    "two-lengths": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "a-negative-length": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    "a-huge-length": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 4000 + b"\r\n\r\n",
    "both-lengths": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzzz\r\n",
    "a-folded-header": b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",
    "a-nul-in-a-header": b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
    "many-headers": b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
    "a-long-header": b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 1_000_000 + b"\r\n\r\n",
    "a-long-path": b"GET /" + b"y" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an-odd-path": b"GET /%ff%00%0a/../mcp HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "another-method": b"TRACE /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a-proxy's": b"CONNECT example:443 HTTP/1.1\r\nHost: example:443\r\n\r\n",
}


def answered(daemon: Daemon, content: bytes) -> bytes:
    """Send bytes as they are and return what comes back before the connection ends, or the answer so far."""
    with socket.create_connection(("127.0.0.1", daemon.port), LIMIT_SECONDS) as client:
        client.settimeout(LIMIT_SECONDS)
        try:
            client.sendall(content)
            return client.recv(65536)
        except (ConnectionResetError, BrokenPipeError):
            return b""


def posted(daemon: Daemon, body: bytes, headers: dict[str, str]) -> int:
    """Post a body and return the status of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=LIMIT_SECONDS)
    try:
        connection.request("POST", "/mcp", body, headers)
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def assert_serves(daemon: Daemon) -> None:
    """Fail when the daemon does not answer another client as usual."""
    assert daemon.ok("status").seconds < 1


@pytest.mark.parametrize("headers", [JSON, MODERN], ids=["handshake", "2026"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_that_is_no_request_is_answered_with_an_error(
    daemon: Daemon, body: bytes, headers: dict[str, str]
) -> None:
    assert 400 <= posted(daemon, body, headers) < 500 or body == BODIES["an-unknown-tool"]
    assert_serves(daemon)


@pytest.mark.parametrize("content", HEADS.values(), ids=HEADS)
def test_what_is_no_proper_http_is_refused_or_cut_off(daemon: Daemon, content: bytes) -> None:
    answer = answered(daemon, content)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), answer
    assert_serves(daemon)


@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "chunked"])
def test_bodies_of_fifty_megabytes_are_refused_while_others_are_served(daemon: Daemon, chunked: bool) -> None:
    def send() -> None:
        length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 50000000"
        piece = b"10000\r\n%b\r\n" % bytes(65536) if chunked else bytes(65536)
        with socket.create_connection(("127.0.0.1", daemon.port), LIMIT_SECONDS) as client:
            try:
                client.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n%b\r\n\r\n" % length)
                for _ in range(50_000_000 // 65536):
                    client.sendall(piece)
                answers.append(client.recv(65536))
            except (ConnectionResetError, BrokenPipeError):
                answers.append(b"")

    answers: list[bytes] = []
    senders = [threading.Thread(target=send) for _ in range(4)]
    for sender in senders:
        sender.start()
    while any(sender.is_alive() for sender in senders):
        assert_serves(daemon)
    assert all(answer == b"" or answer.startswith(b"HTTP/1.1 413 ") for answer in answers)
    assert len(answers) == len(senders)


def test_a_thousand_idle_connections_of_all_kinds_leave_the_others_alone(make_daemon: MakeDaemon) -> None:
    """With the limit of 1,024 descriptors that a daemon has without systemd."""
    beginnings = [b"", b"P", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"]
    daemon = make_daemon(Setting(prefix=("prlimit", "--nofile=1024:1024"))).boot()
    with ExitStack() as idle:
        for number in range(1000):
            client = idle.enter_context(socket.create_connection(("127.0.0.1", daemon.port), LIMIT_SECONDS))
            client.sendall(beginnings[number % 3])
        for _ in range(20):
            assert_serves(daemon)
        daemon.play("one", success())
