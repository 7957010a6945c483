"""Serve an application through the daemon's real HTTP edge, and talk to it over real sockets."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
import h11

from hive_subagent_daemon.access import AccessRule, AllowedUids
from hive_subagent_daemon.config_values import ListenAddress, TcpAddress
from hive_subagent_daemon.listeners import Listeners, bind_all
from hive_subagent_daemon.tokens import BearerToken
from hive_subagent_daemon.web import serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from hive_subagent_daemon.peer import Peer

LIMIT_SECONDS = 20.0
READ_BYTES = 65536
ANY_PORT = TcpAddress("127.0.0.1", 0)


@dataclass(frozen=True)
class Response:
    """One HTTP response, complete."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """Return the body as text."""
        return self.body.decode()


class Client:
    """One HTTP/1.1 connection."""

    def __init__(self, sock: socket.socket) -> None:
        """Speak over a connected socket."""
        sock.setblocking(False)
        self.sock = sock
        self.http = h11.Connection(h11.CLIENT)

    async def __aenter__(self) -> Client:
        """Return itself."""
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close the socket."""
        self.sock.close()

    async def send(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        """Send one request."""
        named = {"Host": "localhost", **(headers or {})}
        if body and "Transfer-Encoding" not in named:
            named["Content-Length"] = str(len(body))
        request = h11.Request(method=method, target=path, headers=[*named.items()])
        content = self.http.send(request) or b""
        if body:
            content += self.http.send(h11.Data(data=body)) or b""
        await self.send_raw(content + (self.http.send(h11.EndOfMessage()) or b""))

    async def send_raw(self, content: bytes) -> None:
        """Send bytes as they are."""
        left = memoryview(content)
        with anyio.fail_after(LIMIT_SECONDS):
            while left:
                await anyio.wait_writable(self.sock)
                left = left[self.sock.send(left) :]

    async def event(self) -> h11.Event:
        """Receive the next part of a response."""
        with anyio.fail_after(LIMIT_SECONDS):
            event = self.http.next_event()
            while event is h11.NEED_DATA:
                await anyio.wait_readable(self.sock)
                self.http.receive_data(self.sock.recv(READ_BYTES))
                event = self.http.next_event()
        assert isinstance(event, h11.Event), event
        return event

    async def head(self) -> h11.Response:
        """Receive the first part of a response."""
        event = await self.event()
        assert isinstance(event, h11.Response), event
        return event

    async def rest(self) -> bytes:
        """Receive the body up to its proper end."""
        body = b""
        while isinstance(event := await self.event(), h11.Data):
            body += bytes(event.data)
        assert isinstance(event, h11.EndOfMessage), event
        return body

    async def response(self) -> Response:
        """Receive one response, and get ready for the next request where the server allows one."""
        head = await self.head()
        headers = {name.decode(): value.decode() for name, value in head.headers}
        body = await self.rest()
        if self.http.our_state is h11.DONE and self.http.their_state is h11.DONE:
            self.http.start_next_cycle()
        return Response(head.status_code, headers, body)

    async def call(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Response:
        """Send one request and receive its response."""
        await self.send(method, path, headers, body)
        return await self.response()


class Edge:
    """A served application, and what was done with it."""

    def __init__(self, listeners: Listeners) -> None:
        """Nobody has called yet."""
        self.listeners = listeners
        self.stop = anyio.Event()
        self.stopped = anyio.Event()
        self.cancel_scope = anyio.CancelScope()
        self.turns_asked: list[Peer] = []
        self.turn: str | None = None
        self.turn_known = anyio.Event()
        self.turn_known.set()

    @property
    def address(self) -> tuple[str, int]:
        """Return host and port of the first listener."""
        host, port = self.listeners.sockets[0].getsockname()[:2]
        return host, port

    def client(self, listener: int = 0, *, host: str | None = None, family: int | None = None) -> Client:
        """Connect to a listener."""
        listening = self.listeners.sockets[listener]
        name = listening.getsockname()
        address = name if listening.family == socket.AF_UNIX else (host or name[0], name[1])
        sock = socket.socket(family or listening.family, socket.SOCK_STREAM)
        sock.connect(address)
        return Client(sock)

    @contextlib.contextmanager
    def clients(self, number: int) -> Iterator[list[Client]]:
        """Connect many times to the first listener."""
        with contextlib.ExitStack() as sockets:
            opened = [self.client() for _ in range(number)]
            for client in opened:
                sockets.enter_context(client.sock)
            yield opened

    async def turn_of_peer(self, peer: Peer) -> str | None:
        """Answer what the test has set, once it lets that be known."""
        self.turns_asked.append(peer)
        if not self.turn_known.is_set():
            await self.turn_known.wait()
        return self.turn

    async def end(self) -> None:
        """Stop serving and wait until that is done."""
        self.stop.set()
        with anyio.fail_after(LIMIT_SECONDS):
            await self.stopped.wait()


async def nothing() -> None:
    """End no stream, because there is none."""


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp,
    *addresses: ListenAddress,
    listeners: Listeners | None = None,
    allow_uids: frozenset[int] = frozenset(),
    token: BearerToken | None = None,
    close_streams: Callable[[], Awaitable[None]] = nothing,
) -> AsyncIterator[Edge]:
    """Serve the application as the daemon does, until the block ends."""
    reachable = token is not None
    with listeners or bind_all(addresses or [ANY_PORT], reachable=reachable) as opened:
        edge = Edge(opened)
        known = (os.geteuid(), edge.turn_of_peer, opened.names, AllowedUids(allow_uids))
        rule = AccessRule(*known, token or BearerToken(None))

        async def run(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            with edge.cancel_scope:
                await serve(
                    app,
                    opened.sockets,
                    rule=rule,
                    started=task_status.started,
                    stop=edge.stop,
                    close_streams=close_streams,
                )
            edge.stopped.set()

        async with anyio.create_task_group() as tasks:
            await tasks.start(run)
            yield edge
            edge.stop.set()


class Echo:
    """An application that answers with what it was sent, and remembers which paths reached it."""

    def __init__(self) -> None:
        """Nothing has reached it yet."""
        self.reached: list[str] = []
        self.scopes: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the body of the request."""
        self.reached.append(scope["path"])
        self.scopes.append(scope)
        body = b""
        while True:
            message: Message = await receive()
            if message["type"] != "http.request":
                return
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
