"""The client's calls over TCP and a Unix socket, and what it makes of all that is not an answer."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import mcp_types as types
import pytest
from mcp.client import Client
from mcp_types.version import LATEST_MODERN_VERSION

from hive_subagent_daemon import client
from hive_subagent_daemon.client import (
    AddressError,
    TcpEndpoint,
    UnixEndpoint,
    UnreachableError,
    call_tool,
)
from hive_subagent_daemon.errors import RefusedError
from tests.support.fake_subagents import FakeSubagents
from tests.support.sample_answers import ANSWERS, STATUS
from tests.support.served_tools import served, served_on_tcp

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_SECONDS = 10.0


@contextmanager
def one_reply(reply: bytes | None) -> Iterator[TcpEndpoint]:
    """Listen for one connection, read its request and answer with these bytes; with None, hang up."""
    done = threading.Event()

    def answer() -> None:
        accepted, _ = listening.accept()
        with accepted:
            accepted.settimeout(WAIT_SECONDS)
            while not accepted.recv(65536).endswith(b"}"):
                pass
            if reply is not None:
                accepted.sendall(reply)
            if reply == b"":
                done.wait(WAIT_SECONDS)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(WAIT_SECONDS)
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield TcpEndpoint("127.0.0.1", listening.getsockname()[1])
        finally:
            done.set()
            thread.join(WAIT_SECONDS)


def http_reply(status: int, body: str) -> bytes:
    """Return the bytes of an HTTP response."""
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body.encode())}\r\n\r\n{body}".encode()


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("http://127.0.0.1:7310/mcp", TcpEndpoint("127.0.0.1", 7310, "/mcp")),
        ("http://127.0.0.1:7310", TcpEndpoint("127.0.0.1", 7310, "/mcp")),
        ("http://localhost:1/", TcpEndpoint("localhost", 1, "/mcp")),
        ("http://[::1]:7310/x/mcp", TcpEndpoint("::1", 7310, "/x/mcp")),
        ("http://localhost", TcpEndpoint("localhost", 80, "/mcp")),
    ],
)
def test_an_address_names_host_port_and_path(url: str, endpoint: TcpEndpoint) -> None:
    assert TcpEndpoint.from_url(url) == endpoint
    assert TcpEndpoint.from_url(endpoint.shown) == endpoint


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:7310",
        "https://127.0.0.1/mcp",
        "unix:/run/x.sock",
        "http:///mcp",
        "http://me:secret@127.0.0.1/mcp",
        "http://127.0.0.1:99999/mcp",
        "http://127.0.0.1:x/mcp",
        "http://[::1/mcp",
        "http://127.0.0.1/m cp",
        "http://127.0.0.1/mcp?x=1",
        "http://127.0.0.1/mcp\r\nX: y",
        "http://127.0.0.1/é",
    ],
)
def test_an_address_that_cannot_be_used_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(AddressError, match=r"http://127\.0\.0\.1:7310/mcp"):
        TcpEndpoint.from_url(url)


def test_a_call_over_tcp_reaches_the_tool_and_brings_its_answer() -> None:
    subagents = FakeSubagents()
    with served_on_tcp(subagents) as url:
        answer = call_tool(TcpEndpoint.from_url(url), "status", {"name": "a"})
    assert subagents.calls == [("status", {"name": "a"})]
    assert answer.structured == STATUS
    assert answer.text.startswith("reviewer: running")


def test_a_call_over_a_unix_socket_is_the_same(tmp_path: Path) -> None:
    subagents = FakeSubagents()
    path = tmp_path / "mcp.sock"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    with served(subagents, listening):
        answer = call_tool(UnixEndpoint(path), "continue", {"name": "a", "prompt": "räume auf 🧹"})
    assert subagents.calls[0][1]["prompt"] == "räume auf 🧹"
    assert answer.structured == ANSWERS["continue"]


def test_the_envelope_uses_the_names_that_the_sdk_uses() -> None:
    body = client._request_body("status", {}).decode()  # noqa: SLF001  # the wire form is what is tested
    assert client.PROTOCOL_VERSION == LATEST_MODERN_VERSION
    keys = [types.PROTOCOL_VERSION_META_KEY, types.CLIENT_CAPABILITIES_META_KEY, types.CLIENT_INFO_META_KEY]
    assert all(key in body for key in keys)


@pytest.mark.parametrize("era", ["legacy", "2026-07-28", "auto"])
async def test_the_client_of_the_sdk_is_served_over_http_in_both_eras(era: str) -> None:
    subagents = FakeSubagents()
    with served_on_tcp(subagents) as url:
        async with Client(url, mode=era) as connected:
            good = await connected.call_tool("start", {"name": "a", "prompt_file": "p"})
            bad = await connected.call_tool("start", {"name": "A", "prompt_file": "p"})
    assert (good.is_error, bad.is_error) == (False, True)
    assert good.structured_content == ANSWERS["start"]
    assert len(subagents.calls) == 1


def test_a_refusal_arrives_in_the_words_of_the_daemon() -> None:
    with (
        served_on_tcp(FakeSubagents()) as url,
        pytest.raises(RefusedError, match=r"^name 'A' is not valid: use"),
    ):
        call_tool(TcpEndpoint.from_url(url), "status", {"name": "A"})


def test_an_error_of_the_protocol_is_a_refusal_with_its_message() -> None:
    with served_on_tcp(FakeSubagents()) as url, pytest.raises(RefusedError, match="Unknown tool 'dance'"):
        call_tool(TcpEndpoint.from_url(url), "dance", {})


def test_a_wrong_path_is_no_daemon() -> None:
    with (
        served_on_tcp(FakeSubagents()) as url,
        pytest.raises(UnreachableError, match=r"not a hive-subagent daemon \(HTTP 404\): Not Found"),
    ):
        call_tool(TcpEndpoint.from_url(url.replace("/mcp", "/other")), "status", {})


@pytest.mark.parametrize(
    ("endpoint", "reason"),
    [
        (TcpEndpoint("a..b", 1), "encod"),
        (UnixEndpoint(Path("nowhere/mcp.sock")), "No such file or directory"),
        (UnixEndpoint(Path("x" * 200)), "path too long"),
    ],
)
def test_no_daemon_is_told_with_the_place_and_the_reason(
    endpoint: TcpEndpoint | UnixEndpoint, reason: str
) -> None:
    with pytest.raises(UnreachableError) as caught:
        call_tool(endpoint, "status", {})
    assert str(caught.value).startswith(f"No daemon at {endpoint.shown} (")
    assert reason in str(caught.value)


def test_a_port_on_which_nobody_listens_is_no_daemon() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        endpoint = TcpEndpoint("127.0.0.1", bound.getsockname()[1])
        with pytest.raises(UnreachableError, match="Connection refused"):
            call_tool(endpoint, "status", {})


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (http_reply(200, "hello"), r"not a hive-subagent daemon \(HTTP 200\): hello"),
        (http_reply(200, "[" * 100_000), r"not a hive-subagent daemon \(HTTP 200\)"),
        (http_reply(200, '{"result": {"content": []}}'), "not a hive-subagent daemon"),
        (b"SSH-2.0-OpenSSH_9\r\n", "gave no answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "gave no answer"),
    ],
)
def test_something_else_that_answers_is_not_taken_for_the_daemon(reply: bytes, message: str) -> None:
    with one_reply(reply) as endpoint, pytest.raises(UnreachableError, match=message):
        call_tool(endpoint, "status", {})


def test_a_daemon_that_goes_silent_is_given_up_and_the_call_called_uncertain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.1)
    expected = r"gave no answer \(timed out\): start may or may not have taken effect"
    with one_reply(b"") as endpoint, pytest.raises(UnreachableError, match=expected):
        call_tool(endpoint, "start", {"name": "a", "prompt_file": "p"})


@pytest.mark.parametrize("tool", ["status", "get_loose_ends"])
def test_a_question_without_an_answer_changed_nothing_and_points_to_the_service(
    monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.1)
    with one_reply(b"") as endpoint, pytest.raises(UnreachableError) as caught:
        call_tool(endpoint, tool, {})
    said = str(caught.value)
    assert said.startswith(f"No answer from {endpoint.shown} within 0 s. If systemd holds the address")
    assert "`systemctl status`" in said
    assert "may or may not" not in said


def test_a_connection_that_breaks_off_points_to_the_service_too() -> None:
    with one_reply(None) as endpoint, pytest.raises(UnreachableError) as caught:
        call_tool(endpoint, "status", {})
    said = str(caught.value)
    assert said.startswith(f"No answer from {endpoint.shown} (")
    assert "failing to start" in said


@pytest.mark.parametrize("status", [401, 403, 421, 503])
def test_a_refusal_of_the_guard_is_passed_on(status: int) -> None:
    sentence = "Only the agent itself may call."
    with (
        one_reply(http_reply(status, sentence)) as endpoint,
        pytest.raises(RefusedError, match=rf"\(HTTP {status}\): {sentence}"),
    ):
        call_tool(endpoint, "status", {})
