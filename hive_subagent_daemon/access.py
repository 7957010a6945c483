"""Who may call: the rule, in pure functions, and the sentence of a refusal.

A call of `start` runs code as the agent, so the rule fails closed: a connection without a known peer, or one
that did not come through our own protocol class, is refused, whatever token it brings. The peer was found
when the connection was accepted; here it is only judged. A token is asked for at each request, so that a new
one counts from the moment it is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

import anyio

from hive_subagent_daemon.errors import SubagentError
from hive_subagent_daemon.peer import AnyPeer, Peer, RemotePeer, TcpPeer, UnixPeer, UnknownPeer
from hive_subagent_daemon.tokens import BearerToken

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from starlette.types import Receive, Send

    Headers = Iterable[tuple[bytes, bytes]]
    # Tells which running turn of ours, if any, the peer belongs to.
    TurnOfPeer = Callable[[Peer], Awaitable[str | None]]

MAX_BODY_BYTES: Final = 16 * 1024 * 1024
MAX_HEADERS: Final = 100
MAX_HEADER_BYTES: Final = 64 * 1024
HEALTH_PATH: Final = "/healthz"
CONNECTION_KEY: Final = "connection"
TURN_KEY: Final = "turn"
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})

# After a refusal the rest of the request is read and dropped for a moment: closing a socket with unread bytes
# resets the connection, and a client that is still sending would see that reset instead of the sentence.
LINGER_SECONDS: Final = 1.0
LINGER_BYTES: Final = 2 * MAX_BODY_BYTES

_HOST: Final = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^:\[\]/@\s]+)(?::[0-9]{1,5})?")
_ORIGIN: Final = re.compile(r"https?://(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?")


class CallerGoneError(SubagentError):
    """Who called has closed its end before it was known whether it is inside a turn."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An HTTP status and the one sentence that says what is wrong and what to do."""

    status: int
    sentence: str


class Standing(Enum):
    """What a peer may do before it has said a word."""

    ADMITTED = auto()
    NEEDS_TOKEN = auto()
    REFUSED = auto()


class AllowedUids:
    """The uids that need no token beside the daemon's own and root; they can be replaced while it serves."""

    def __init__(self, uids: Iterable[int] = ()) -> None:
        """Begin with these."""
        self.uids = tuple(uids)


@dataclass(frozen=True, slots=True)
class AccessRule:
    """What the guard needs to know; `hosts`: what a Host header may name beside the loopback names."""

    daemon_uid: int
    turn_of_peer: TurnOfPeer
    hosts: frozenset[str] = frozenset()
    allowed: AllowedUids = field(default_factory=AllowedUids)
    token: BearerToken = field(default_factory=lambda: BearerToken(None))
    # Where subagents may use the tools themselves, their turns are let in at this path, known as such.
    open_to_turns: str | None = None

    def standing(self, peer: AnyPeer) -> Standing:
        """Tell what the peer may do: our own user, root, allowed ones need no token; the unknown get none."""
        match peer:
            case TcpPeer(uid=uid) | UnixPeer(uid=uid) if uid in (self.daemon_uid, 0, *self.allowed.uids):
                return Standing.ADMITTED
            case UnknownPeer():
                return Standing.REFUSED
        return Standing.NEEDS_TOKEN if self.token.configured else Standing.REFUSED

    @property
    def welcome(self) -> str:
        """Who needs no token, in words."""
        others = (
            f", root and uid {', '.join(map(str, sorted(self.allowed.uids)))}"
            if self.allowed.uids
            else " and root"
        )
        return f"only uid {self.daemon_uid}, which runs this daemon,{others.removeprefix(',')}"


class Connection:
    """One accepted connection: its peer, and (asked once, at the first guarded request) its turn.

    `own_name` is the address at which it came in, as a Host header may name it.
    """

    def __init__(self, peer: AnyPeer, own_name: str = "") -> None:
        """Keep the peer for as long as the connection lives."""
        self.peer: Final = peer
        self.own_name: Final = own_name
        self._turn: str | None = None
        self._turn_known = False

    def admitted(self) -> None:
        """Hear that a request on it has passed the guard."""

    def refused(self) -> None:
        """Hear that a request on it has been refused."""

    def is_held(self) -> bool:
        """Tell whether the peer that was found at accept still holds the other end."""
        return True

    async def turn(self, turn_of_peer: TurnOfPeer) -> str | None:
        """Return the running turn that the peer belongs to; raises CallerGoneError when nothing tells.

        A process of a turn that has ended meanwhile is found nowhere, and must not pass for one outside.
        """
        if not self._turn_known and isinstance(self.peer, TcpPeer | UnixPeer):
            turn = await turn_of_peer(self.peer)
            if turn is None and not self.is_held():
                raise CallerGoneError
            self._turn, self._turn_known = turn, True
        return self._turn


def refused_caller(peer: AnyPeer, headers: Headers, rule: AccessRule) -> Refusal | None:
    """Refuse every peer that neither its uid nor a token lets in, and say what would."""
    standing = rule.standing(peer)
    if standing is Standing.ADMITTED:
        return None
    if standing is Standing.NEEDS_TOKEN:
        if rule.token.came_with(headers):
            return None
        brought = any(name == b"authorization" for name, _ in headers)
        what = "what it sent in Authorization is not the token" if brought else "it sent no token"
        return Refusal(
            401,
            f"Refused: {_found(peer)}, and {what}; send the header `Authorization: Bearer TOKEN` with the "
            f"content of this daemon's token file ({rule.welcome} may call without).",
        )
    return Refusal(
        403,
        f"Refused: {_found(peer)}; {rule.welcome} may call it, "
        f"so connect as one of these and keep the connection open until the answer has come.",
    )


def _found(peer: AnyPeer) -> str:
    match peer:
        case UnknownPeer(reason=reason):
            return f"who calls is not known, because {reason}"
        case RemotePeer(address=address):
            return f"this connection comes from {address}"
        case TcpPeer(uid=uid) | UnixPeer(uid=uid):
            return f"this connection belongs to uid {uid}"


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
    return None if unix else refused_host(_values(headers, b"host"), hosts)


def refused_host(values: list[str], hosts: frozenset[str]) -> Refusal | None:
    """Refuse every Host but one that is a loopback name or one of `hosts`, with any port."""
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


def refused_size(headers: Headers, target: bytes) -> Refusal | None:
    """Refuse more headers, or longer ones, than any client of ours sends."""
    fields = list(headers)
    size = len(target) + sum(len(name) + len(value) for name, value in fields)
    if len(fields) <= MAX_HEADERS and size <= MAX_HEADER_BYTES:
        return None
    return Refusal(
        431,
        f"Refused: a request may have at most {MAX_HEADERS} headers of {MAX_HEADER_BYTES} bytes in all; "
        f"send less.",
    )


def too_large() -> Refusal:
    """Return the refusal of a body above the limit."""
    return Refusal(413, f"Refused: a request body may have at most {MAX_BODY_BYTES} bytes; send less.")


def _values(headers: Headers, name: bytes) -> list[str]:
    return [value.decode("latin-1").strip() for key, value in headers if key == name]


def shown(value: str) -> str:
    """Return what a caller sent so that it fits into one line of ASCII."""
    return ascii(value if len(value) <= 80 else f"{value[:80]}...")


async def send_refusal(refusal: Refusal, receive: Receive, send: Send) -> None:
    """Send the sentence at once, then read and drop what the client is still sending, and close."""
    body = f"{refusal.sentence}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refusal.status == 405:
        headers.append((b"allow", b"GET, HEAD"))
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
