"""The waiting side of a hook: addresses, answers whole or broken, and how long a daemon is waited for."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon import notices_client
from hive_subagent_daemon.ancestors import Ancestors
from hive_subagent_daemon.notices_client import (
    CALM_SECONDS,
    FIRST_ANSWER_SECONDS,
    RETRY_SECONDS,
    WITHOUT_DAEMON_SECONDS,
    Address,
    Ended,
    Patience,
    Refused,
    Unreachable,
    ask,
    ask_until_told,
    from_url,
    new_waiter,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

HEAD = b"HTTP/1.1 200 \r\ncontent-type: application/json\r\n\r\n"
NOTHING = {"reason": "nothing", "text": ""}
LIMIT_SECONDS = 30.0


def answer(**fields: object) -> bytes:
    """Return a whole response."""
    return HEAD + json.dumps(fields or NOTHING).encode()


@contextmanager
def daemon(responses: Sequence[bytes], listening: socket.socket) -> Iterator[list[bytes]]:
    """Answer one connection after the other with these bytes and close it; yields the requests."""
    requests: list[bytes] = []

    def serve() -> None:
        for response in responses:
            connection, _ = listening.accept()
            with connection:
                connection.settimeout(LIMIT_SECONDS)
                request = b""
                while not request.endswith(b"\r\n\r\n"):
                    request += connection.recv(65536)
                requests.append(request)
                connection.sendall(response)

    listening.settimeout(LIMIT_SECONDS)
    thread = threading.Thread(target=serve)
    thread.start()
    yield requests
    thread.join(LIMIT_SECONDS)


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """Listen on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock


@pytest.fixture
def address(listening: socket.socket) -> Address:
    """Return the address of that port."""
    return Address("/notices", "127.0.0.1", listening.getsockname()[1])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again soon."""
    monkeypatch.setattr(notices_client, "RETRY_SECONDS", (0.01,))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:7310/mcp", Address("/notices", "127.0.0.1", 7310)),
        ("http://127.0.0.1:7310", Address("/notices", "127.0.0.1", 7310)),
        ("http://127.0.0.1:7310/", Address("/notices", "127.0.0.1", 7310)),
        ("http://[::1]:7310/mcp/", Address("/notices", "::1", 7310)),
        ("http://localhost/mcp", Address("/notices", "localhost", 80)),
        ("http://proxy:1/agent/mcp", Address("/agent/notices", "proxy", 1)),
        ("https://127.0.0.1:7310/mcp", None),
        ("127.0.0.1:7310", None),
        ("http://:7310/mcp", None),
        ("http://h:99999/mcp", None),
        ("http://h:x/mcp", None),
        ("http://[::1/mcp", None),
        ("http://u:p@h/mcp", None),
        ("http://h/mcp?x", None),
        ("http://h/m cp", None),
        ("http://h/mcp\r\nX: y", None),
        ("http://hö/mcp", None),
        ("", None),
    ],
)
def test_the_notices_are_beside_the_tools(url: str, expected: Address | None) -> None:
    assert from_url(url) == expected


@given(st.text(max_size=60))
def test_no_text_breaks_the_reading_of_an_address(text: str) -> None:
    from_url(text)
    from_url(f"http://{text}")


def test_a_question_is_one_plain_request(address: Address, listening: socket.socket) -> None:
    with daemon([answer()], listening) as requests:
        assert ask(address, "session=a&show=open", Ancestors(), seconds=LIMIT_SECONDS) == NOTHING
    [request] = requests
    lines = request.decode().split("\r\n")
    assert lines == [
        "GET /notices?session=a&show=open HTTP/1.0", f"Host: 127.0.0.1:{address.port}", "", "",
    ]  # fmt: skip


def test_a_unix_socket_is_asked_the_same(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        with daemon([answer()], listening) as requests:
            address = Address("/notices", socket_path=str(path))
            assert ask(address, "session=a", Ancestors(), seconds=LIMIT_SECONDS) == NOTHING
    assert b"\r\nHost: localhost\r\n" in requests[0]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("a-token-of-20-letters\n", "Authorization: Bearer a-token-of-20-letters"),
        ("two words", None),
        ("two\nlines", None),
        ("ö", None),
        ("", None),
        (None, None),
    ],
)
def test_a_token_is_brought_from_its_file(
    address: Address, listening: socket.socket, tmp_path: Path, content: str | None, line: str | None
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    with daemon([answer()], listening) as requests:
        ask(address._replace(token_file=str(path)), "session=a", Ancestors(), seconds=LIMIT_SECONDS)
    brought = [one for one in requests[0].decode().split("\r\n") if one.startswith("Authorization")]
    assert brought == ([] if line is None else [line])


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (b"", Unreachable(connected=True)),
        (b"HTTP/1.1 200 OK\r\ncontent-", Unreachable(connected=True)),
        (b"SSH-2.0-OpenSSH\r\n\r\n", Unreachable(connected=True)),
        (b"HTTP/1.1\r\n\r\n", Unreachable(connected=True)),
        (HEAD, Unreachable(connected=True, heard=True)),
        (HEAD + b'{"reason": "noti', Unreachable(connected=True, heard=True)),
        (HEAD + b"[" * 5000, Unreachable(connected=True, heard=True)),
        (HEAD + b"[]", Refused(200)),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>", Refused(200)),
        (b"HTTP/1.1 403 \r\n\r\nRefused: no.\n", Refused(403)),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", Refused(404)),
    ],
)
def test_what_is_no_answer_is_told_apart(
    address: Address, listening: socket.socket, response: bytes, expected: object
) -> None:
    with daemon([response], listening):
        assert ask(address, "session=a", Ancestors(), seconds=LIMIT_SECONDS) == expected


def test_an_endless_answer_is_not_read_to_its_end(address: Address, listening: socket.socket) -> None:
    with daemon([HEAD + b" " * (2 * notices_client.ANSWER_BYTES)], listening):
        told = ask(address, "session=a", Ancestors(), seconds=LIMIT_SECONDS)
        listening.close()
    assert told == Unreachable(connected=True, heard=True)


def test_nobody_there_is_unreachable_at_once(address: Address, listening: socket.socket) -> None:
    listening.close()
    began = time.monotonic()
    assert ask_until_told(address, "session=a", Ancestors()) == Unreachable()
    assert time.monotonic() - began < FIRST_ANSWER_SECONDS / 2


def test_a_silent_daemon_costs_a_quick_question_its_time_and_no_more(
    address: Address, listening: socket.socket
) -> None:
    began = time.monotonic()
    told = ask(address, "session=a", Ancestors(), seconds=0.2)
    assert told == Unreachable(connected=True)
    assert 0.15 < time.monotonic() - began < 2
    listening.close()


def test_a_wait_goes_on_when_the_daemon_breaks_off_stops_or_is_full(
    address: Address, listening: socket.socket
) -> None:
    full = b"HTTP/1.1 503 Service Unavailable\r\n\r\nRefused: full.\n"
    responses = [HEAD, answer(reason="stopping"), full, HEAD + b"{", answer(reason="notices", text="x")]
    with daemon(responses, listening) as requests:
        told = ask_until_told(address, "session=a&waiter=w", Ancestors())
    assert told == {"reason": "notices", "text": "x"}
    assert len(set(requests)) == 1, "the daemon has to know the waiter again"


def test_a_refusal_ends_the_wait(address: Address, listening: socket.socket) -> None:
    with daemon([HEAD, b"HTTP/1.1 403 \r\n\r\nRefused.\n"], listening):
        assert ask_until_told(address, "session=a", Ancestors()) == Refused(403)


def test_a_daemon_that_was_there_is_given_up_after_its_time(
    address: Address, listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices_client, "WITHOUT_DAEMON_SECONDS", 0.2)
    with daemon([HEAD], listening):
        gave_up: list[object] = []
        waiting = threading.Thread(
            target=lambda: gave_up.append(ask_until_told(address, "session=a", Ancestors()))
        )
        waiting.start()
    listening.close()
    waiting.join(LIMIT_SECONDS)
    assert [type(told) for told in gave_up] == [Unreachable]
    assert gave_up[0] == Unreachable(heard=True)


def test_one_whose_reader_has_gone_waits_for_nothing(
    address: Address, listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    ancestors = Ancestors()
    monkeypatch.setattr(ancestors, "_gone", True)
    listening.listen()
    assert ask_until_told(address, "session=a", ancestors) == Ended()


AWAY = Unreachable()
HEARD = Unreachable(connected=True, heard=True)


def after(*steps: tuple[float, Unreachable]) -> Patience:
    """Return what patience is left after tries at these times."""
    patience = Patience(began=0.0)
    for now, told in steps:
        patience = patience.after(told, now)
    return patience


def test_a_daemon_never_heard_of_is_not_waited_for() -> None:
    assert after((0.0, AWAY)).is_over


def test_one_that_takes_connections_is_given_a_moment() -> None:
    silent = Unreachable(connected=True)
    assert not after((0.1, silent)).is_over
    assert after((0.1, silent), (FIRST_ANSWER_SECONDS + 1, silent)).is_over


def test_one_that_was_heard_is_waited_for_from_the_last_time() -> None:
    assert not after((3600.0, HEARD), (3600.0 + WITHOUT_DAEMON_SECONDS - 1, AWAY)).is_over
    assert after((3600.0, HEARD), (3600.0 + WITHOUT_DAEMON_SECONDS + 1, AWAY)).is_over


def test_pauses_grow_and_begin_anew_after_a_calm_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices_client, "RETRY_SECONDS", RETRY_SECONDS)
    tries = [(float(number), AWAY) for number in range(1, 10)]
    pauses = [after((0.0, HEARD), *tries[:number]).pause_seconds for number in range(9)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (RETRY_SECONDS[0], RETRY_SECONDS[-1])
    assert after((0.0, HEARD), *tries, (CALM_SECONDS + 10, HEARD)).pause_seconds == RETRY_SECONDS[0]


def test_a_daemon_that_breaks_off_each_time_is_not_asked_without_pause() -> None:
    steps = [(0.1 * number, HEARD) for number in range(20)]
    assert after(*steps).tries == 19


def test_waiters_have_names_of_their_own() -> None:
    names = [new_waiter() for _ in range(100)]
    assert len(set(names)) == 100
    assert all(name.isalnum() for name in names)
