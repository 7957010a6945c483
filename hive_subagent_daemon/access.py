"""Who may call: the rule (pure functions) and the guard that stands before the whole HTTP application.

A call of `start` runs code as the agent, so the rule fails closed: a connection without a known peer, or one
that did not come through our own protocol class, is refused. The peer was found when the connection was
accepted; here it is only judged.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from hive_subagent_daemon.peer import Peer, TcpPeer, UnixPeer, UnknownPeer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from starlette.types import ASGIApp, Receive, Scope, Send

    Headers = Iterable[tuple[bytes, bytes]]
    # Tells which running turn of ours, if any, the peer belongs to.
    TurnOfPeer = Callable[[Peer], Awaitable[str | None]]

logger = logging.getLogger(__name__)

MAX_BODY_BYTES: Final = 16 * 1024 * 1024
HEALTH_PATH: Final = "/healthz"
CONNECTION_KEY: Final = "connection"
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})

# After a refusal the rest of the request is read and dropped for a moment: closing a socket with unread bytes
# resets the connection, and a client that is still sending would see that reset instead of the sentence.
LINGER_SECONDS: Final = 1.0
LINGER_BYTES: Final = 2 * MAX_BODY_BYTES

_HOST: Final = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^:\[\]/@\s]+)(?::[0-9]{1,5})?")
_ORIGIN: Final = re.compile(r"https?://(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Refusal:
    """An HTTP status and the one sentence that says what is wrong and what to do."""

    status: int
    sentence: str


@dataclass(frozen=True, slots=True)
class AccessRule:
    """What the guard needs to know; `hosts`: what a Host header may name beside the loopback names."""

    daemon_uid: int
    turn_of_peer: TurnOfPeer
    hosts: frozenset[str] = frozenset()

    def admits(self, peer: Peer | UnknownPeer) -> bool:
        """Tell whether the peer is the daemon's own user or root."""
        return refused_peer(peer, self.daemon_uid) is None


class Connection:
    """One accepted connection: its peer, and (asked once, at the first guarded request) its turn."""

    def __init__(self, peer: Peer | UnknownPeer) -> None:
        """Keep the peer for as long as the connection lives."""
        self.peer: Final = peer
        self._turn: str | None = None
        self._turn_known = False

    async def turn(self, turn_of_peer: TurnOfPeer) -> str | None:
        """Return the running turn that the peer belongs to."""
        if not self._turn_known and not isinstance(self.peer, UnknownPeer):
            self._turn = await turn_of_peer(self.peer)
            self._turn_known = True
        return self._turn


def refused_peer(peer: Peer | UnknownPeer, daemon_uid: int) -> Refusal | None:
    """Refuse every peer that is not known to be the daemon's own user or root."""
    match peer:
        case TcpPeer(uid=uid) | UnixPeer(uid=uid) if uid in {daemon_uid, 0}:
            return None
        case UnknownPeer(reason=reason):
            found = f"who calls is not known, because {reason}"
        case TcpPeer(uid=uid) | UnixPeer(uid=uid):
            found = f"this connection belongs to uid {uid}"
    return Refusal(
        403,
        f"Refused: {found}; only uid {daemon_uid}, which runs this daemon, and root may call it, "
        f"so connect as one of these and keep the connection open until the answer has come.",
    )


def refused_turn(turn: str | None) -> Refusal | None:
    """Refuse a caller inside one of our own turns."""
    if turn is None:
        return None
    return Refusal(
        403,
        f"Refused: this call comes from inside turn {turn}, and a subagent may not use its agent's "
        f"`subagent` tools; do the work in this turn, or say in its final text what the parent should start.",
    )


def refused_headers(headers: Headers, *, unix: bool, hosts: frozenset[str]) -> Refusal | None:
    """Refuse a wrong Host and every Origin that is not of this machine.

    A web page opened by the agent's user has that user's uid: Host and Origin are what tells it apart. No
    browser reaches a Unix socket, and clients send any Host there, so there any Origin is wrong.
    """
    for origin in _values(headers, b"origin"):
        if unix:
            return Refusal(403, "Refused: no Origin header is accepted on a Unix socket; leave it out.")
        if not _ORIGIN.fullmatch(origin.lower()):
            return Refusal(
                403,
                f"Refused: the Origin {shown(origin)} is not of this machine; leave the header out, or call "
                f"from http://localhost, http://127.0.0.1 or http://[::1].",
            )
    return None if unix else _refused_host(_values(headers, b"host"), hosts)


def _refused_host(values: list[str], hosts: frozenset[str]) -> Refusal | None:
    if len(values) != 1 or not values[0]:
        return Refusal(400, "Refused: a request needs exactly one Host header, for instance `localhost`.")
    host = _HOST.fullmatch(values[0].lower())
    if host is not None and host["name"] in LOOPBACK_NAMES | hosts:
        return None
    return Refusal(
        421,
        f"Refused: the Host {shown(values[0])} is not this daemon; "
        f"call it as {', '.join(sorted(LOOPBACK_NAMES | hosts))}.",
    )


def refused_length(headers: Headers) -> Refusal | None:
    """Refuse a body whose announced length is above the limit."""
    for length in _values(headers, b"content-length"):
        # The HTTP parser has let through nothing but digits.
        if int(length) > MAX_BODY_BYTES:
            return too_large()
    return None


def too_large() -> Refusal:
    """Return the refusal of a body above the limit."""
    return Refusal(413, f"Refused: a request body may have at most {MAX_BODY_BYTES} bytes; send less.")


def _values(headers: Headers, name: bytes) -> list[str]:
    return [value.decode("latin-1").strip() for key, value in headers if key == name]


def shown(value: str) -> str:
    """Return what a caller sent so that it fits into one line of ASCII."""
    return ascii(value if len(value) <= 80 else f"{value[:80]}...")


class AccessGuard:
    """The ASGI application in front of all others: what it lets through has been judged."""

    def __init__(self, app: ASGIApp, rule: AccessRule) -> None:
        """Guard `app` by `rule`."""
        self._app = app
        self._rule = rule

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a refusal, or pass the request on."""
        if scope["type"] != "http":
            return
        connection = scope.get("state", {}).get(CONNECTION_KEY)
        if not isinstance(connection, Connection):
            connection = Connection(UnknownPeer("it came by a way that does not tell"))
        refusal = await self._refusal(scope, connection)
        if refusal is None:
            await self._app(_with_plain_host(scope, connection), receive, send)
            return
        what = (scope["method"], scope["path"], refusal.status, connection.peer)
        logger.info("refused %s %a: %d, %s: %s", *what, refusal.sentence)
        await send_refusal(refusal, receive, send)

    async def _refusal(self, scope: Scope, connection: Connection) -> Refusal | None:
        peer, headers, guarded = connection.peer, scope["headers"], scope["path"] != HEALTH_PATH
        unix = isinstance(peer, UnixPeer)
        return (
            (refused_peer(peer, self._rule.daemon_uid) if guarded else None)
            or refused_headers(headers, unix=unix, hosts=self._rule.hosts)
            or refused_length(headers)
            or (await self._refused_turn(connection) if guarded else None)
        )

    async def _refused_turn(self, connection: Connection) -> Refusal | None:
        """Refuse a caller inside a turn; nobody gets in for a lack of what tells who it is."""
        try:
            return refused_turn(await connection.turn(self._rule.turn_of_peer))
        except OSError as error:
            reason = error.strerror or error
            return Refusal(503, f"Refused: who calls cannot be found out now ({reason}); try again.")


def _with_plain_host(scope: Scope, connection: Connection) -> Scope:
    """Give the application behind a Host that it can check again.

    On a Unix socket any Host has passed, so it becomes `localhost`; on TCP only its case is levelled.
    """
    unix = isinstance(connection.peer, UnixPeer)
    headers = [
        (name, (b"localhost" if unix else value.lower()) if name == b"host" else value)
        for name, value in scope["headers"]
    ]
    return {**scope, "headers": headers}


async def send_refusal(refusal: Refusal, receive: Receive, send: Send) -> None:
    """Send the sentence at once, then read and drop what the client is still sending, and close."""
    body = f"{refusal.sentence}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    dropped = 0
    with anyio.move_on_after(LINGER_SECONDS):
        while dropped < LINGER_BYTES:
            message = await receive()
            dropped += len(message.get("body", b""))
            if message["type"] != "http.request" or not message.get("more_body", False):
                break
    await send({"type": "http.response.body", "body": b"", "more_body": False})
