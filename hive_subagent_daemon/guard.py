"""The guard that stands before the whole HTTP application: what it lets through has been judged."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio

from hive_subagent_daemon.access import (
    CONNECTION_KEY,
    HEALTH_PATH,
    TURN_KEY,
    AccessRule,
    CallerGoneError,
    Connection,
    Refusal,
    refused_caller,
    refused_headers,
    refused_host,
    refused_length,
    refused_size,
    refused_turn,
    send_refusal,
)
from hive_subagent_daemon.peer import UnixPeer, UnknownPeer

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

logger = logging.getLogger(__name__)

# Where clients look for OAuth metadata. We have none, and any answer but a bare 404 would lead them on.
WELL_KNOWN: Final = "/.well-known/"
MOST_LOGGED: Final = 30
LOG_PERIOD_SECONDS: Final = 60.0
_NOTHING: Final = Refusal(404, "Not found.")
_GONE: Final = Refusal(
    403,
    "Refused: who calls has gone before it was known whether it is inside a turn; keep the connection open "
    "until the answer has come.",
)


class RefusalLog:
    """Logs refusals one by one, as long as they are few: others must not fill the journal."""

    def __init__(self) -> None:
        """None has been logged yet."""
        self._count = 0
        self._period_ends = 0.0

    def add(self, scope: Scope, connection: Connection, refusal: Refusal) -> None:
        """Log a refusal, or count it."""
        now = anyio.current_time()
        if now >= self._period_ends:
            if self._count > MOST_LOGGED:
                logger.info("refused %d more requests", self._count - MOST_LOGGED)
            self._count, self._period_ends = 0, now + LOG_PERIOD_SECONDS
        self._count += 1
        if self._count <= MOST_LOGGED:
            what = (scope["method"], scope["path"], refusal.status, connection.peer)
            logger.info("refused %s %a: %d, %s: %s", *what, refusal.sentence)
        elif self._count == MOST_LOGGED + 1:
            logger.warning("many requests are refused; those of the next minute are only counted")


class AccessGuard:
    """The ASGI application in front of all others: what it lets through has been judged."""

    def __init__(self, app: ASGIApp, rule: AccessRule) -> None:
        """Guard `app` by `rule`."""
        self._app: Final = app
        self._rule: Final = rule
        self._log: Final = RefusalLog()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a refusal, or pass the request on."""
        if scope["type"] != "http":
            return
        connection = scope.get("state", {}).get(CONNECTION_KEY)
        if not isinstance(connection, Connection):
            connection = Connection(UnknownPeer("it came by a way that does not tell"))
        refusal = await self._refusal(scope, connection)
        if refusal is None:
            await self._app(_with_plain_host(scope, connection, self._rule.hosts), receive, send)
            return
        connection.refused()
        self._log.add(scope, connection, refusal)
        await send_refusal(refusal, receive, send)

    async def _refusal(self, scope: Scope, connection: Connection) -> Refusal | None:
        peer, headers, path = connection.peer, scope["headers"], scope["path"]
        open_to_all = path == HEALTH_PATH or path.startswith(WELL_KNOWN)
        refusal = (
            refused_size(headers, scope.get("raw_path", b"") + scope.get("query_string", b""))
            or (None if open_to_all else refused_caller(peer, headers, self._rule))
            or refused_headers(
                headers,
                unix=isinstance(peer, UnixPeer),
                hosts=self._rule.hosts | {connection.own_name} - {""},
            )
            or refused_length(headers)
        )
        if refusal is not None or path == HEALTH_PATH:
            return refusal
        if open_to_all:
            return _NOTHING
        in_turn = await self._refused_turn(scope, connection)
        if in_turn is None:
            connection.admitted()
        return in_turn

    async def _refused_turn(self, scope: Scope, connection: Connection) -> Refusal | None:
        """Refuse a caller inside a turn, or let it in as that turn where that is wanted.

        Nobody gets in for a lack of what tells who it is.
        """
        try:
            turn = await connection.turn(self._rule.turn_of_peer)
        except OSError as error:
            reason = error.strerror or error
            return Refusal(503, f"Refused: who calls cannot be found out now ({reason}); try again.")
        except CallerGoneError:
            return _GONE
        if turn is not None and scope["path"] == self._rule.open_to_turns:
            scope["state"][TURN_KEY] = turn
            return None
        return refused_turn(turn)


def _with_plain_host(scope: Scope, connection: Connection, hosts: frozenset[str]) -> Scope:
    """Give the application behind a Host that it can check again.

    It becomes `localhost` on a Unix socket, where any Host has passed, and where it named the address at
    which this one connection came in; else only its case is levelled.
    """
    unix = isinstance(connection.peer, UnixPeer)

    def plain(host: bytes) -> bytes:
        known = not unix and refused_host([host.decode("latin-1")], hosts) is None
        return host.lower() if known else b"localhost"

    headers = [(name, plain(value) if name == b"host" else value) for name, value in scope["headers"]]
    return {**scope, "headers": headers}
