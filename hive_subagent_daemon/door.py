"""How many connections may be inside, and who has to go when there are too many.

Strangers (peers that neither their uid nor, so far, a token lets in) are few, and few of each kind, so that
they cannot use up our descriptors. When there are too many of all, the one that has been idle longest goes:
first those that have never sent a whole request, then those between two requests. A connection whose request
is being answered, a long poll or a stream, is never the one.
"""

from __future__ import annotations

import ipaddress
import resource
from typing import TYPE_CHECKING, Final, Protocol

import anyio

from hive_subagent_daemon.access import Standing
from hive_subagent_daemon.peer import AnyPeer, RemotePeer, TcpPeer, UnixPeer

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from hive_subagent_daemon.access import AccessRule
    from hive_subagent_daemon.peer import PeerFinder

MAX_CONNECTIONS: Final = 2048
# The rest of the descriptors is for turns, files, and connections that are accepted and not yet judged.
SHARE_OF_DESCRIPTORS: Final = 0.75
MAX_STRANGERS: Final = 32
MAX_OF_ONE_STRANGER: Final = 8


class Inside(Protocol):
    """A connection, as far as the door is concerned."""

    def evict(self) -> None:
        """Close it: another one needs its place."""


class Door:
    """Who is inside now, and what all connections share: the rule, the finder of peers, and the end."""

    def __init__(
        self,
        rule: AccessRule,
        finder: PeerFinder,
        *,
        most: int | None = None,
        used: Callable[[], None] = lambda: None,
    ) -> None:
        """Nobody is inside yet; by default as many may be as the limit of descriptors allows.

        `used` is called whenever a connection comes, and when a request on one comes or has been answered.
        """
        self.rule: Final = rule
        self.finder: Final = finder
        self.closing = False
        self._used: Final = used
        self._most: Final = most_connections() if most is None else most
        self._count = 0
        # Both in the order in which they have become so.
        self._silent: Final[dict[Inside, None]] = {}
        self._resting: Final[dict[Inside, None]] = {}
        self._strangers: Final[dict[Inside, Hashable]] = {}
        self._unheard: Final[set[Inside]] = set()
        self._all_heard = anyio.Event()

    def enter(self, connection: Inside, peer: AnyPeer) -> bool:
        """Let a new connection in and expect its first request; False when it must not stay."""
        self._used()
        self._count += 1
        self._unheard.add(connection)
        if self.rule.standing(peer) is not Standing.ADMITTED:
            stranger = _kind_of(peer)
            of_its_kind = sum(each == stranger for each in self._strangers.values())
            self._strangers[connection] = stranger
            if len(self._strangers) > MAX_STRANGERS or of_its_kind >= MAX_OF_ONE_STRANGER:
                return False
        if self._count > self._most and not self._make_room():
            return False
        self._silent[connection] = None
        return True

    def is_stranger(self, connection: Inside) -> bool:
        """Tell whether nothing has let it in so far."""
        return connection in self._strangers

    def admit(self, connection: Inside) -> None:
        """Hear that its token was right: it is a stranger no more."""
        self._strangers.pop(connection, None)

    def busy(self, connection: Inside) -> None:
        """Hear that its request is complete and will be answered."""
        self._used()
        self._silent.pop(connection, None)
        self._resting.pop(connection, None)
        self._heard(connection)

    def rests(self, connection: Inside) -> None:
        """Hear that its request has been answered."""
        self._used()
        self._silent.pop(connection, None)
        self._resting[connection] = None

    def leave(self, connection: Inside) -> None:
        """Hear that it has gone."""
        if connection not in self._resting:
            self._used()
        self._count -= 1
        for kept in (self._silent, self._resting, self._strangers):
            kept.pop(connection, None)
        self._heard(connection)

    async def hear_all(self, *, until: float) -> None:
        """Wait for the first requests that are still to come, at most until this time of the loop."""
        self._all_heard = anyio.Event()
        if self._unheard:
            with anyio.CancelScope(deadline=until):
                await self._all_heard.wait()

    def _heard(self, connection: Inside) -> None:
        """Expect no first request any more: it is complete, or the connection gone."""
        self._unheard.discard(connection)
        if not self._unheard:
            self._all_heard.set()

    def _make_room(self) -> bool:
        for idle in (self._silent, self._resting):
            if (longest := next(iter(idle), None)) is not None:
                del idle[longest]
                longest.evict()
                return True
        return False


def most_connections() -> int:
    """Return how many connections the limit of open files leaves room for."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return min(MAX_CONNECTIONS, int(soft * SHARE_OF_DESCRIPTORS))


def _kind_of(peer: AnyPeer) -> Hashable:
    """Return what strangers of one origin have in common: the uid, the address, or that nobody knows them."""
    match peer:
        case TcpPeer(uid=uid) | UnixPeer(uid=uid):
            return uid
        case RemotePeer(address=text):
            address = ipaddress.ip_address(text)
            # One machine has a whole network of 64 bits to choose addresses from.
            return text if address.version == 4 else address.packed[:8]
    return None
