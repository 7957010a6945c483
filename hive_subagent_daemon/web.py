"""Serve the HTTP application on given sockets with uvicorn, guarded, until told to stop, and end cleanly.

Open event streams are ended at a shutdown, and no connection that was accepted before it is dropped without
an answer to its first request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel
import uvicorn
from typing_extensions import override

from hive_subagent_daemon.access import MAX_HEADER_BYTES
from hive_subagent_daemon.door import Door
from hive_subagent_daemon.edge_protocol import EdgeProtocol
from hive_subagent_daemon.guard import AccessGuard
from hive_subagent_daemon.listeners import BACKLOG
from hive_subagent_daemon.peer import PeerFinder

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from starlette.types import ASGIApp

    from hive_subagent_daemon.access import AccessRule
    from hive_subagent_daemon.idling import Idling

# Longer than the idle time of common HTTP clients: we must not be the first to close, or a client that sends
# its next call at that moment sees a reset.
KEEP_ALIVE_SECONDS: Final = 600
# The backstop for a response that does not end although every stream was told to.
SHUTDOWN_LIMIT_SECONDS: Final = 2
# How long a shutdown waits for the first requests on connections that were accepted just before it.
FIRST_REQUEST_SECONDS: Final = 0.5
# A client that calls again and again on one connection sends its next call within this time, and learns from
# the answer that it was the last one there; closing the connection at once would hit that call.
LAST_ANSWER_SECONDS: Final = 0.1
# An accepted connection is a task of asyncio's before it is one of ours: so many turns of the event loop.
LOOP_TURNS: Final = 3
# asyncio accepts up to as many connections at once as the queue is long, before it looks at any of them: with
# a long one, they would use up our descriptors before the door can count them.
ACCEPTED_AT_ONCE: Final = 64


class EdgeServer(uvicorn.Server):
    """uvicorn's server with our start, our stop and no hand on signals."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        door: Door,
        started: Callable[[], object],
        stop: anyio.Event,
        close_streams: Callable[[], Awaitable[None]],
        idling: Idling,
    ) -> None:
        """Keep what the daemon wants to know and to decide."""
        super().__init__(config)
        self._door: Final = door
        self._on_started: Final = started
        self._stop: Final = stop
        self._close_streams: Final = close_streams
        self._idling: Final = idling
        self._sockets: list[socket.socket] = []
        self._shut_down = False

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the daemon."""
        yield

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say `started` when connections are accepted."""
        self._sockets = sockets or []
        await self._accept()
        self._on_started()

    async def _accept(self) -> None:
        """Accept connections, from now on or again; the kernel's queue gets its length back."""
        await super().startup(self._sockets)
        for listening in self._sockets:
            listening.listen(BACKLOG)

    @override
    async def main_loop(self) -> None:
        """Wait for the stop; uvicorn's own loop wakes up ten times a second for nothing that we use."""
        await self.on_tick(0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stop_when_idle, name="idle exit")
            await self._stop.wait()
            tasks.cancel_scope.cancel()

    async def _stop_when_idle(self) -> None:
        while True:
            await self._idling.until_due()
            if await self._falls_silent():
                self._idling.leaves()
                self._stop.set()
                return
            self._idling.used()  # somebody is there

    async def _falls_silent(self) -> bool:
        """Accept nobody any more and close every connection; False, accepting again, if one is in use.

        Whoever calls from then on waits in the kernel for our successor.
        """
        if not all(connection.is_quiet for connection in self._connections):
            return False
        await self._pause()
        # Nothing is awaited between these looks and the closing: nobody comes in between.
        if (
            self._idling.is_due
            and not _some_waiting(self._sockets)
            and all(connection.closes_if_quiet() for connection in self._connections)
        ):
            return True
        await self._accept()
        return False

    @property
    def _connections(self) -> list[EdgeProtocol]:
        return [each for each in self.server_state.connections if isinstance(each, EdgeProtocol)]

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, end the streams, let uvicorn wait for what is left; once, and completely."""
        if self._shut_down:
            return
        self._shut_down = True
        with anyio.CancelScope(shield=True):
            first_requests_until = anyio.current_time() + FIRST_REQUEST_SECONDS
            await self._stop_accepting()
            await self._close_streams()
            await self._door.hear_all(until=first_requests_until)
            if self.server_state.connections:
                await anyio.sleep(LAST_ANSWER_SECONDS)
            await super().shutdown(sockets)

    async def _stop_accepting(self) -> None:
        """Accept nobody any more; who is there is told with the next answer that it is the last one."""
        await self._pause()
        self._door.closing = True
        for connection in self._connections:
            connection.say_last()
        for server in self.servers:
            server.close()

    async def _pause(self) -> None:
        """Leave what waits in the kernel there, and take in completely what was accepted.

        A closed server of asyncio drops connections that it has accepted and not yet made into transports.
        """
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            loop.remove_reader(listening)
        for _ in range(LOOP_TURNS):
            await anyio.lowlevel.checkpoint()


async def serve(
    app: ASGIApp,
    sockets: Sequence[socket.socket],
    *,
    rule: AccessRule,
    started: Callable[[], object],
    stop: anyio.Event,
    close_streams: Callable[[], Awaitable[None]],
    idling: Idling,
) -> None:
    """Serve `app` behind the access guard until `stop` is set; the sockets are closed at the end.

    `started` is called when connections are accepted. A shutdown, a cancelled one too, stops accepting,
    awaits `close_streams`, and waits half a second (from its beginning) for the first requests on connections
    accepted before it; it takes little more than two seconds beyond that. When `idling` says that there is
    nothing to do, `stop` is set from here, and nobody is turned away: whoever calls waits for the successor.
    """
    with contextlib.closing(PeerFinder()) as finder:
        door = Door(rule, finder, used=idling.used)
        config = _configuration(AccessGuard(app, rule), door)
        server = EdgeServer(
            config, door=door, started=started, stop=stop, close_streams=close_streams, idling=idling
        )
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
        log_level=logging.ERROR,  # what strangers send that is no HTTP would fill the journal
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=ACCEPTED_AT_ONCE,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_LIMIT_SECONDS,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )


def _some_waiting(sockets: Sequence[socket.socket]) -> bool:
    """Tell whether somebody waits to be accepted."""
    looked_at = select.poll()
    for listening in sockets:
        looked_at.register(listening, select.POLLIN)
    return bool(looked_at.poll(0))
