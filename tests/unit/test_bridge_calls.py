"""A call through the bridge: what is sent again, what never, and what the model is told."""

from __future__ import annotations

import json
import socket
import threading

import pytest

from hive_subagent_daemon import bridge_calls, client
from hive_subagent_daemon.bridge_calls import CallEndedError, Flight, carried, may_be_sent_again
from hive_subagent_daemon.client import (
    AddressError,
    BusyError,
    NoAnswerError,
    NotConnectedError,
    TcpEndpoint,
    UnreachableError,
)
from hive_subagent_daemon.errors import RefusedError, SubagentError
from hive_subagent_daemon.tool_calls import tool_call
from tests.support.daemon_stand_in import http_reply, stand_in_for_a_daemon
from tests.support.processes import eventually
from tests.support.sockets import free_port

RESULT = {"content": [], "structuredContent": {"x": "räume 🧹"}, "resultType": "complete"}
ANSWERED = http_reply(200, json.dumps({"jsonrpc": "2.0", "id": 1, "result": RESULT}))
STOPPING = http_reply(503, "Refused: the daemon is stopping; call again when it is back.\n")
CHANGING = ["start", "continue", "interrupt", "close_loose_ends", "a tool to come"]
READING = ["status", "get_loose_ends"]


def carry(port: int, tool: str, flight: Flight | None = None) -> dict[str, object]:
    """Carry a call to a port of loopback."""
    return carried(TcpEndpoint("127.0.0.1", port), tool_call({"name": tool}), flight or Flight())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a daemon no longer than for one more attempt."""
    monkeypatch.setattr(bridge_calls, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(bridge_calls, "PAUSE_SECONDS", 0.06)


@pytest.mark.parametrize("tool", [*CHANGING, *READING])
def test_the_result_is_brought_unchanged(tool: str) -> None:
    with stand_in_for_a_daemon(ANSWERED) as daemon:
        assert carry(daemon.port, tool) == {"result": RESULT}
    [request] = daemon.requests
    assert json.loads(request.partition(b"\r\n\r\n")[2])["params"] == {"name": tool}


@pytest.mark.parametrize("status", [200, 400, 404])
def test_an_error_of_the_protocol_is_brought_unchanged(status: int) -> None:
    error = {"code": -32602, "message": "Unknown tool", "data": [1]}
    reply = http_reply(status, json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}))
    with stand_in_for_a_daemon(reply) as daemon:
        assert carry(daemon.port, "status") == {"error": error}


@pytest.mark.parametrize("tool", CHANGING)
@pytest.mark.parametrize("broken", [b"", b"HTTP/1.1 200 X\r\nContent-Length: 900\r\n\r\n{", b"SSH-2.0-x\r\n"])
def test_a_call_that_may_have_changed_something_is_never_sent_twice(tool: str, broken: bytes) -> None:
    with stand_in_for_a_daemon(broken) as daemon:
        with pytest.raises(
            UnreachableError, match=f"{tool} may or may not have taken effect. Call status to"
        ):
            carry(daemon.port, tool)
        assert len(daemon.requests) == 1


@pytest.mark.parametrize("tool", READING)
@pytest.mark.parametrize("broken", [b"", STOPPING])
def test_a_call_that_only_reads_is_sent_again(tool: str, broken: bytes) -> None:
    with stand_in_for_a_daemon(broken, broken, ANSWERED) as daemon:
        assert carry(daemon.port, tool) == {"result": RESULT}
    assert len(daemon.requests) == 3


@pytest.mark.parametrize("tool", CHANGING)
def test_a_daemon_that_stops_may_have_cut_a_change_off_so_its_word_is_brought(tool: str) -> None:
    with stand_in_for_a_daemon(STOPPING) as daemon:
        with pytest.raises(
            RefusedError, match=r"Refused: the daemon is stopping; call again when it is back\."
        ):
            carry(daemon.port, tool)
        assert len(daemon.requests) == 1


@pytest.mark.parametrize("tool", ["start", "status"])
def test_a_daemon_that_comes_a_moment_later_is_waited_for(tool: str) -> None:
    """Nothing was sent before, so even a change is safe."""
    port, answers = free_port(), []
    waiting = threading.Thread(target=lambda: answers.append(carry(port, tool)))
    waiting.start()
    with stand_in_for_a_daemon(ANSWERED, port=port):
        waiting.join(10)
    assert answers == [{"result": RESULT}]


@pytest.mark.usefixtures("impatient")
def test_a_daemon_that_does_not_come_is_told_after_the_wait() -> None:
    port = free_port()
    told = rf"No daemon at http://127.0.0.1:{port}/mcp \(Connection refused\)"
    with pytest.raises(UnreachableError, match=told):
        carry(port, "start")


@pytest.mark.usefixtures("impatient")
def test_a_daemon_that_goes_on_stopping_is_told_in_its_own_words() -> None:
    with stand_in_for_a_daemon(STOPPING, STOPPING) as daemon:
        with pytest.raises(RefusedError, match="the daemon is stopping"):
            carry(daemon.port, "status")
        assert len(daemon.requests) == 2


@pytest.mark.parametrize("status", [401, 403, 413, 421, 431])
@pytest.mark.parametrize("tool", ["start", "status"])
def test_a_refusal_is_brought_at_once_in_the_words_of_the_daemon(status: int, tool: str) -> None:
    sentence = "Refused: this connection belongs to uid 7; only uid 8 may call it."
    with (
        stand_in_for_a_daemon(http_reply(status, f"{sentence}\n")) as daemon,
        pytest.raises(RefusedError, match=sentence),
    ):
        carry(daemon.port, tool)


@pytest.mark.parametrize("tool", ["start", "status"])
def test_something_else_at_the_address_is_told_and_not_asked_again(tool: str) -> None:
    with stand_in_for_a_daemon(http_reply(500, "a page")) as daemon:
        with pytest.raises(UnreachableError, match=r"not a hive-subagent daemon \(HTTP 500\): a page"):
            carry(daemon.port, tool)
        assert len(daemon.requests) == 1


def test_a_silent_daemon_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that did not answer in half a minute will not in another."""
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.1)
    with stand_in_for_a_daemon(None) as daemon:
        with pytest.raises(UnreachableError, match="systemctl status"):
            carry(daemon.port, "status")
        assert len(daemon.requests) == 1


def test_a_cancelled_call_closes_its_connection_and_ends() -> None:
    flight = Flight()
    ended: list[BaseException] = []

    def call() -> None:
        try:
            carry(daemon.port, "start", flight)
        except CallEndedError as error:
            ended.append(error)

    with stand_in_for_a_daemon(None) as daemon:
        calling = threading.Thread(target=call)
        calling.start()
        eventually(lambda: daemon.requests, what="the call")
        flight.cancel()
        calling.join(10)
        assert daemon.gone.wait(10)
    assert len(ended) == 1


def test_a_call_that_is_cancelled_before_it_is_sent_is_not_sent() -> None:
    flight = Flight()
    flight.cancel()
    with stand_in_for_a_daemon(b"") as daemon, pytest.raises(CallEndedError):
        carry(daemon.port, "start", flight)
    assert daemon.requests == [b""]


def test_a_call_that_waits_for_a_daemon_can_be_cancelled() -> None:
    flight = Flight()
    threading.Timer(0.05, flight.cancel).start()
    with pytest.raises(CallEndedError):
        carry(free_port(), "start", flight)


@pytest.mark.parametrize(
    ("error", "changing", "reading"),
    [
        (NotConnectedError("x"), True, True),
        (NoAnswerError("x", reason="reset", timed_out=False), False, True),
        (NoAnswerError("x", reason="timed out", timed_out=True), False, False),
        (BusyError("x"), False, True),
        (RefusedError("x"), False, False),
        (UnreachableError("x"), False, False),
        (AddressError("x"), False, False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_may_be_sent_again(error: SubagentError, changing: bool, reading: bool) -> None:
    assert [may_be_sent_again(tool, error) for tool in CHANGING] == [changing] * len(CHANGING)
    assert [may_be_sent_again(tool, error) for tool in READING] == [reading] * len(READING)


def test_a_socket_that_is_closed_already_does_not_mind_a_cancellation() -> None:
    flight = Flight()
    sock = socket.socket()
    flight.opened(sock)
    sock.close()
    flight.cancel()
    assert flight.cancelled
