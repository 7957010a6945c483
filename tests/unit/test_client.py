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

from hive_subagent_daemon.client import (
    AddressError,
    TcpEndpoint,
    UnixEndpoint,
    UnreachableError,
    call_tool,
)
from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.tool_calls import PROTOCOL_VERSION, envelope, tool_call
from tests.support.daemon_stand_in import http_reply, stand_in_for_a_daemon
from tests.support.fake_subagents import FakeSubagents
from tests.support.sample_answers import ANSWERS, STATUS
from tests.support.served_tools import served, served_on_tcp

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_SECONDS = 30.0


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
    body = tool_call({"name": "status", "_meta": envelope({"name": "x"})}).body.decode()
    assert PROTOCOL_VERSION == LATEST_MODERN_VERSION
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


def test_a_daemon_that_goes_silent_is_given_up_and_the_call_called_uncertain() -> None:
    expected = r"gave no answer \(timed out\): start may or may not have taken effect"
    with one_reply(b"") as endpoint, pytest.raises(UnreachableError, match=expected):
        call_tool(endpoint, "start", {"name": "a", "prompt_file": "p"}, within_seconds=0.1)


@pytest.mark.parametrize("tool", ["status", "get_loose_ends"])
def test_a_question_without_an_answer_changed_nothing_and_points_to_the_service(tool: str) -> None:
    with one_reply(b"") as endpoint, pytest.raises(UnreachableError) as caught:
        call_tool(endpoint, tool, {}, within_seconds=0.1)
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


def token_in(folder: Path, token: str = "a-token-of-twenty-ch") -> Path:
    """Write a token file."""
    file = folder / "token"
    file.write_text(f"{token}\n")
    return file


def test_the_token_is_sent_as_its_file_has_it_at_each_call(tmp_path: Path) -> None:
    file = token_in(tmp_path)
    with stand_in_for_a_daemon(b"", b"") as daemon:
        for token in ("a-token-of-twenty-ch", "another-token-of-25-chars"):
            token_in(tmp_path, token)
            with pytest.raises(UnreachableError):
                call_tool(TcpEndpoint("127.0.0.1", daemon.port, token_file=file), "status", {})
            assert f"Authorization: Bearer {token}\r\n".encode() in daemon.requests[-1]


def test_without_a_token_file_no_authorization_is_sent() -> None:
    with stand_in_for_a_daemon(b"") as daemon, pytest.raises(UnreachableError):
        call_tool(TcpEndpoint("127.0.0.1", daemon.port), "status", {})
    assert b"uthorization" not in daemon.requests[0]


def test_a_token_that_cannot_be_read_refuses_the_call_before_it_is_sent(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"token file cannot be read .*change --token-file or \$HIVE_SUB"):
        call_tool(TcpEndpoint("127.0.0.1", 1, token_file=tmp_path / "none"), "start", {})


def test_a_refusal_for_want_of_a_token_says_how_to_bring_one(tmp_path: Path) -> None:
    reply = http_reply(401, "Refused: send the token.\n")
    with (
        stand_in_for_a_daemon(reply) as daemon,
        pytest.raises(
            RefusedError, match=r"send the token\. Name that file by --token-file or \$HIVE_SUBAGENT_"
        ),
    ):
        call_tool(TcpEndpoint("127.0.0.1", daemon.port), "status", {})
    file = token_in(tmp_path)
    with (
        stand_in_for_a_daemon(reply) as daemon,
        pytest.raises(RefusedError, match=rf"send the token\. The token was read from {file}\.$") as caught,
    ):
        call_tool(TcpEndpoint("127.0.0.1", daemon.port, token_file=file), "status", {})
    assert "a-token-of" not in str(caught.value)


@pytest.mark.parametrize("name", ["status", "é", " x", "=?base64?eA==?=", "a\r\nX: y", "\ud800", ""])
def test_the_name_of_any_tool_can_be_sent(name: str) -> None:
    with stand_in_for_a_daemon(b"") as daemon, pytest.raises(UnreachableError):
        call_tool(TcpEndpoint("127.0.0.1", daemon.port), name, {})
    assert b"\r\nX: y" not in daemon.requests[0].partition(b"\r\n\r\n")[0]


@pytest.mark.parametrize("name", ["no-such-tool", "é", " x ", "=?base64?eA==?=", "a\r\nX: y"])
def test_the_server_of_the_sdk_reads_every_name_as_it_was_meant(name: str) -> None:
    with served_on_tcp(FakeSubagents()) as url, pytest.raises(RefusedError, match="Unknown tool"):
        call_tool(TcpEndpoint.from_url(url), name, {})
