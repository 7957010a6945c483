"""Serve the HTTP application on given sockets with uvicorn, guarded, until told to stop, and end cleanly.

What uvicorn does not do by itself is here: the peer of each connection is found when it is accepted, before a
byte is read; connections of strangers are few and short; open event streams are ended at a shutdown.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, cast

import anyio
import h11
import uvicorn
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from hive_subagent_daemon.access import CONNECTION_KEY, AccessGuard, AccessRule, Connection
from hive_subagent_daemon.listeners import BACKLOG
from hive_subagent_daemon.peer import PeerFinder

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from starlette.types import ASGIApp


MAX_HEADER_BYTES: Final = 64 * 1024
# Longer than the idle time of common HTTP clients: we must not be the first to close, or a client that sends
# its next call at that moment sees a reset.
KEEP_ALIVE_SECONDS: Final = 600
# The backstop for a response that does not end although every stream was told to.
SHUTDOWN_LIMIT_SECONDS: Final = 2
# Peers that the access rule refuses can only read /healthz: they need neither long nor many connections, and
# must not use up our descriptors.
MAX_STRANGERS: Final = 32
STRANGER_SECONDS: Final = 5.0


class Door:
    """What all connections share: the rule, the finder of peers, and the strangers that are inside now."""

    def __init__(self, rule: AccessRule, finder: PeerFinder) -> None:
        """Nobody is inside yet."""
        self.rule: Final = rule
        self.finder: Final = finder
        self.strangers: Final[dict[asyncio.BaseTransport, asyncio.TimerHandle]] = {}


class EdgeProtocol(H11Protocol):
    """One connection: uvicorn's HTTP/1.1, plus the peer found at accept and kept in every request's scope."""

    door: Door

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Find the peer before anything is read, and put it where the guard looks for it."""
        transport = cast("asyncio.Transport", transport)
        super().connection_made(transport)
        peer = self.door.finder.peer_of(transport.get_extra_info("socket"))
        self.app_state = {**self.app_state, CONNECTION_KEY: Connection(peer)}
        if not self.door.rule.admits(peer):
            self._limit_stranger(transport)

    def _limit_stranger(self, transport: asyncio.Transport) -> None:
        if len(self.door.strangers) >= MAX_STRANGERS:
            transport.abort()
            return
        self.door.strangers[transport] = self.loop.call_later(STRANGER_SECONDS, transport.abort)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the stranger."""
        if (limit := self.door.strangers.pop(self.transport, None)) is not None:
            limit.cancel()
        super().connection_lost(exc)

    @override
    def shutdown(self) -> None:
        """Close when idle or still receiving a request; a response under way is finished first."""
        super().shutdown()
        if (self.conn.their_state, self.conn.our_state) == (h11.SEND_BODY, h11.SEND_RESPONSE):
            self.transport.close()


class EdgeServer(uvicorn.Server):
    """uvicorn's server with our start, our stop and no hand on signals."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        started: Callable[[], object],
        stop: anyio.Event,
        close_streams: Callable[[], Awaitable[None]],
    ) -> None:
        """Keep what the daemon wants to know and to decide."""
        super().__init__(config)
        self._on_started: Final = started
        self._stop: Final = stop
        self._close_streams: Final = close_streams
        self._shut_down = False

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the daemon."""
        yield

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say `started` when connections are accepted."""
        await super().startup(sockets)
        self._on_started()

    @override
    async def main_loop(self) -> None:
        """Wait for the stop; uvicorn's own loop wakes up ten times a second for nothing that we use."""
        await self.on_tick(0)
        await self._stop.wait()

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, end the streams, let uvicorn wait for what is left; once, and completely."""
        if self._shut_down:
            return
        self._shut_down = True
        with anyio.CancelScope(shield=True):
            for server in self.servers:
                server.close()
            await self._close_streams()
            await super().shutdown(sockets)


async def serve(
    app: ASGIApp,
    sockets: Sequence[socket.socket],
    *,
    rule: AccessRule,
    started: Callable[[], object],
    stop: anyio.Event,
    close_streams: Callable[[], Awaitable[None]],
) -> None:
    """Serve `app` behind the access guard until `stop` is set; the sockets are closed at the end.

    `started` is called when connections are accepted. A shutdown, a cancelled one too, stops accepting,
    awaits `close_streams`, and takes no more than two seconds beyond that.
    """
    with contextlib.closing(PeerFinder()) as finder:
        config = _configuration(AccessGuard(app, rule), Door(rule, finder))
        server = EdgeServer(config, started=started, stop=stop, close_streams=close_streams)
        try:
            await server.serve(list(sockets))
        finally:
            if server.started:
                await server.shutdown(list(sockets))


def _configuration(app: ASGIApp, door: Door) -> uvicorn.Config:
    """Return uvicorn's settings: nothing that trusts a header, nothing that logs by itself, no WebSocket."""
    protocol = type("EdgeProtocolBehindDoor", (EdgeProtocol,), {"door": door})
    return uvicorn.Config(
        app,
        interface="asgi3",
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_LIMIT_SECONDS,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
