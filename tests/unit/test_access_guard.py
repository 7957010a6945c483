"""The guard as an ASGI application: which check applies where, and what reaches the application behind."""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

import anyio
import pytest
from typing_extensions import override

from hive_subagent_daemon import access, guard
from hive_subagent_daemon.access import CONNECTION_KEY, MAX_BODY_BYTES, AccessRule, Connection, Refusal
from hive_subagent_daemon.guard import AccessGuard, RefusalLog
from hive_subagent_daemon.peer import Peer, TcpPeer, UnixPeer, UnknownPeer

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

OWN = TcpPeer(1000, 7, None)
OWN_UNIX = UnixPeer(1000, 1000, 7)
STRANGER = TcpPeer(1001, 8, None)
Headers = list[tuple[bytes, bytes]]
LOCAL: Headers = [(b"host", b"localhost:7310")]


class Trial:
    """A guarded application that a test sends requests to, and everything that was seen of it."""

    def __init__(self, turn: str | None = None) -> None:
        """Say of which turn the caller is."""
        self.turn = turn
        self.lacks = False
        self.peers_asked: list[Peer] = []
        self.reached: list[Scope] = []
        self.sent: list[Message] = []
        self.received = 0
        self.incoming: list[Message] = []

    async def application(self, scope: Scope, _receive: Receive, _send: Send) -> None:
        """Remember the request."""
        self.reached.append(scope)

    async def turn_of_peer(self, peer: Peer) -> str | None:
        """Answer what the test has set."""
        self.peers_asked.append(peer)
        if self.lacks:
            raise OSError(errno.EMFILE, "Too many open files")
        return self.turn

    async def receive(self) -> Message:
        """Give what the client sends, and then wait for ever."""
        self.received += 1
        if self.incoming:
            return self.incoming.pop(0)
        await anyio.sleep_forever()
        raise AssertionError

    async def send(self, message: Message) -> None:
        """Remember the response; by its first body part the sentence is complete."""
        self.sent.append(message)

    @property
    def status(self) -> int:
        """Return the status of the response."""
        return int(self.sent[0]["status"])

    @property
    def text(self) -> str:
        """Return the whole body of the response."""
        return b"".join(message["body"] for message in self.sent[1:]).decode()

    async def request(self, connection: object, path: str = "/mcp", headers: Headers = LOCAL) -> None:
        """Send one request without a body."""
        state = {CONNECTION_KEY: connection}
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "state": state}
        self.sent.clear()
        self.incoming = self.incoming or [{"type": "http.request", "body": b"", "more_body": False}]
        guard = AccessGuard(self.application, AccessRule(1000, self.turn_of_peer))
        with anyio.fail_after(20):
            await guard(scope, self.receive, self.send)


@pytest.mark.parametrize("peer", [OWN, OWN_UNIX, TcpPeer(0, 9, None)], ids=["tcp", "unix", "root"])
async def test_a_known_caller_reaches_the_application(peer: Peer) -> None:
    trial = Trial()
    await trial.request(Connection(peer))
    assert [scope["path"] for scope in trial.reached] == ["/mcp"]
    assert trial.sent == []


@pytest.mark.parametrize("path", ["/mcp", "/", "/notices", "/metrics", "/healthz/", "/healthz2", "//healthz"])
@pytest.mark.parametrize(
    "peer", [STRANGER, UnixPeer(1001, 1, 1), UnknownPeer("gone")], ids=["tcp", "unix", "gone"]
)
async def test_a_stranger_is_refused_on_every_path_but_healthz(peer: Peer | UnknownPeer, path: str) -> None:
    trial = Trial()
    await trial.request(Connection(peer), path)
    assert (trial.status, trial.reached, trial.peers_asked) == (403, [], [])
    assert trial.text.startswith("Refused: ")
    headers = dict(trial.sent[0]["headers"])
    assert headers[b"content-type"] == b"text/plain; charset=utf-8"
    assert headers[b"connection"] == b"close"
    assert int(headers[b"content-length"]) == len(trial.text)


async def test_healthz_is_for_strangers_too_but_not_for_web_pages() -> None:
    trial = Trial()
    await trial.request(Connection(STRANGER), "/healthz")
    assert [scope["path"] for scope in trial.reached] == ["/healthz"]
    await trial.request(Connection(STRANGER), "/healthz", [(b"host", b"evil.example")])
    assert trial.status == 421
    await trial.request(Connection(STRANGER), "/healthz", [*LOCAL, (b"origin", b"null")])
    assert trial.status == 403
    assert (len(trial.reached), trial.peers_asked) == (1, [])


@pytest.mark.parametrize("connection", [None, "a connection", STRANGER])
async def test_a_request_that_did_not_come_through_our_protocol_is_refused(connection: object) -> None:
    trial = Trial()
    await trial.request(connection)
    assert (trial.status, trial.reached) == (403, [])


async def test_a_server_without_connection_state_lets_nobody_in() -> None:
    trial = Trial()
    trial.incoming = [{"type": "http.disconnect"}]
    scope = {"type": "http", "method": "GET", "path": "/mcp", "headers": LOCAL}
    await AccessGuard(trial.application, AccessRule(1000, trial.turn_of_peer))(
        scope, trial.receive, trial.send
    )
    assert (trial.status, trial.reached) == (403, [])


@pytest.mark.parametrize("kind", ["websocket", "lifespan"])
async def test_what_is_not_http_reaches_nothing(kind: str) -> None:
    trial = Trial()
    rule = AccessRule(1000, trial.turn_of_peer)
    await AccessGuard(trial.application, rule)({"type": kind}, trial.receive, trial.send)
    assert (trial.reached, trial.sent) == ([], [])


async def test_the_turn_of_a_caller_is_asked_once_per_connection() -> None:
    trial = Trial()
    connection = Connection(OWN)
    await trial.request(connection, "/healthz")
    assert trial.peers_asked == []
    for _ in range(3):
        await trial.request(connection)
    assert trial.peers_asked == [OWN]
    await trial.request(Connection(OWN))
    assert trial.peers_asked == [OWN, OWN]
    assert len(trial.reached) == 5


async def test_a_caller_inside_a_turn_is_refused_for_as_long_as_its_connection_lives() -> None:
    trial = Trial(turn="t-1")
    connection = Connection(OWN)
    await trial.request(connection)
    assert "a subagent may not use its agent's `subagent` tools" in trial.text
    trial.turn = None
    await trial.request(connection)
    assert (trial.status, trial.reached) == (403, [])


class Abandoned(Connection):
    """A connection whose other end was closed after it was accepted."""

    @override
    def is_held(self) -> bool:
        """Nobody is there any more."""
        return False


async def test_a_caller_that_has_gone_before_it_was_known_does_not_pass_for_one_outside() -> None:
    """A process of a turn that sends a call and dies is found nowhere; its call must do nothing."""
    trial = Trial()
    connection = Abandoned(OWN)
    for _ in range(2):
        await trial.request(connection)
        assert (trial.status, trial.reached) == (403, [])
    assert "gone before it was known" in trial.text


async def test_a_too_long_body_is_refused_before_it_is_read() -> None:
    trial = Trial()
    trial.incoming = [{"type": "http.disconnect"}]
    await trial.request(
        Connection(OWN), headers=[*LOCAL, (b"content-length", str(MAX_BODY_BYTES + 1).encode())]
    )
    assert (trial.status, trial.reached) == (413, [])


async def test_the_sentence_is_sent_before_the_rest_of_the_request_is_dropped() -> None:
    trial = Trial()
    trial.incoming = [{"type": "http.request", "body": b"x", "more_body": True} for _ in range(3)]
    trial.incoming.append({"type": "http.request", "body": b"x", "more_body": False})
    await trial.request(Connection(STRANGER))
    assert (trial.received, trial.incoming) == (4, [])
    assert [message.get("more_body") for message in trial.sent] == [None, True, False]
    assert trial.sent[1]["body"] != b""


async def test_a_refused_client_that_stops_sending_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "LINGER_SECONDS", 0.05)
    trial = Trial()
    trial.incoming = [{"type": "http.request", "body": b"x", "more_body": True}]
    await trial.request(Connection(STRANGER))
    assert trial.sent[-1]["more_body"] is False


async def test_a_refused_client_that_never_stops_sending_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "LINGER_BYTES", 1000)
    trial = Trial()
    trial.incoming = [{"type": "http.request", "body": b"x" * 100, "more_body": True} for _ in range(50)]
    await trial.request(Connection(STRANGER))
    assert trial.received == 10
    assert trial.sent[-1]["more_body"] is False


async def test_the_application_behind_sees_a_host_that_it_can_check_again() -> None:
    trial = Trial()
    await trial.request(Connection(OWN), headers=[(b"host", b"LocalHost:1"), (b"x-case", b"Kept")])
    await trial.request(Connection(OWN_UNIX), headers=[(b"host", b"u.sock")])
    assert trial.reached[0]["headers"] == [(b"host", b"localhost:1"), (b"x-case", b"Kept")]
    assert trial.reached[1]["headers"] == [(b"host", b"localhost")]


async def test_a_refusal_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await Trial().request(Connection(STRANGER), "/x\nroot logged in")
    lines = [record.getMessage() for record in caplog.records]
    [line] = lines
    assert line.startswith(
        "refused POST '/x\\nroot logged in': 403, TcpPeer(uid=1001, inode=8, cgroup_id=None): "
    )
    assert "belongs to uid 1001" in line


async def test_many_refusals_are_counted_instead(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    now = 0.0
    monkeypatch.setattr(anyio, "current_time", lambda: now)
    log = RefusalLog()
    scope = {"type": "http", "method": "GET", "path": "/mcp"}
    for _ in range(guard.MOST_LOGGED + 20):
        log.add(scope, Connection(STRANGER), Refusal(403, "No."))
    assert len(caplog.messages) == guard.MOST_LOGGED + 1
    assert "only counted" in caplog.messages[-1]
    now = guard.LOG_PERIOD_SECONDS
    log.add(scope, Connection(STRANGER), Refusal(403, "No."))
    assert caplog.messages[-2] == "refused 20 more requests"
    assert caplog.messages[-1].startswith("refused GET '/mcp': 403, ")


async def test_who_cannot_be_told_for_a_lack_of_descriptors_is_not_let_in() -> None:
    """It may call from inside a turn; the next request asks again."""
    trial = Trial()
    trial.lacks = True
    connection = Connection(OWN)
    await trial.request(connection)
    assert (trial.status, trial.reached) == (503, [])
    assert "try again" in trial.text
    trial.lacks = False
    await trial.request(connection)
    assert len(trial.reached) == 1
