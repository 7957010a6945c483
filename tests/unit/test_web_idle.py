"""An idle exit of the edge: nobody who calls is turned away, and who is there keeps it from leaving."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest
from typing_extensions import override

from hive_subagent_daemon.idling import Idling
from hive_subagent_daemon.listeners import Listeners
from hive_subagent_daemon.passed_sockets import adopted
from tests.support.edge import Client, Echo, Edge, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from starlette.types import Receive, Scope, Send

CALL = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"
LIMIT_SECONDS = 20.0
IDLE_SECONDS = 0.01
LARGE_BYTES = 12_000_000  # more than the kernel takes of an answer that nobody reads
EXITS = 20
CALLERS = 2


class Moment(Idling):
    """The time is over when the test says so; then the edge tries to leave."""

    def __init__(self) -> None:
        """The time is not over."""
        super().__init__(1.0, comes_back=True, has_work=bool)
        self.over = anyio.Event()
        self.decided = anyio.Event()
        self.left = False
        self.at_the_last_look: Callable[[], object] | None = None
        self.on_leaving: Callable[[], object] = bool

    @override
    def used(self) -> None:
        if self.over.is_set():
            self.over = anyio.Event()
            self.decided.set()

    @property
    @override
    def is_due(self) -> bool:
        if self.at_the_last_look is not None:
            meanwhile, self.at_the_last_look = self.at_the_last_look, None
            meanwhile()
        return self.over.is_set()

    @override
    async def until_due(self) -> None:
        await self.over.wait()

    @override
    def leaves(self) -> None:
        self.left = True
        self.on_leaving()
        self.decided.set()

    async def passes(self, edge: Edge) -> bool:
        """Let the time be over once; tell whether the edge has left."""
        self.decided = anyio.Event()
        self.over.set()
        with anyio.fail_after(LIMIT_SECONDS):
            await self.decided.wait()
            if self.left:
                await edge.stopped.wait()
        return self.left


class Slow(Echo):
    """Answers when the test lets it."""

    def __init__(self) -> None:
        """Not yet."""
        super().__init__()
        self.go = anyio.Event()
        self.entered = anyio.Event()

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.entered.set()
        await self.go.wait()
        await super().__call__(scope, receive, send)


@pytest.fixture(params=["tcp", "unix"])
def held(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[socket.socket]:
    """Hold a listening socket open, as systemd does."""
    family = socket.AF_INET if request.param == "tcp" else socket.AF_UNIX
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", 0) if family == socket.AF_INET else str(tmp_path / "s"))
        listener.listen(256)
        yield listener


@pytest.fixture
async def moment() -> Moment:
    """Return the moment at which the edge may leave."""
    return Moment()


@contextlib.asynccontextmanager
async def served(held: socket.socket, app: Echo, idling: Idling | None = None) -> AsyncIterator[Edge]:
    """Serve on the held socket."""
    listeners = Listeners([adopted(os.dup(held.fileno()))], outlive_us=True)
    async with serving(app, listeners=listeners, idling=idling) as edge:
        yield edge


def connect(held: socket.socket) -> Client:
    """Connect to the held socket, whoever accepts there."""
    sock = socket.socket(held.family, socket.SOCK_STREAM)
    sock.connect(held.getsockname())
    return Client(sock)


async def test_an_edge_without_anybody_leaves_at_once(held: socket.socket, moment: Moment) -> None:
    async with served(held, Echo(), moment) as edge:
        assert await moment.passes(edge)


async def test_connections_between_two_requests_are_closed(held: socket.socket, moment: Moment) -> None:
    async with served(held, Echo(), moment) as edge, connect(held) as one, connect(held) as other:
        for client in (one, other, one):
            assert (await client.call("POST", "/mcp", body=b"x")).status == 200
        assert await moment.passes(edge)
        assert (one.sock.recv(1), other.sock.recv(1)) == (b"", b"")


@pytest.mark.parametrize("sent", [0, 10, len(CALL) - 3], ids=["nothing", "half-a-head", "half-a-body"])
@pytest.mark.parametrize("kept", [False, True], ids=["first-request", "later-request"])
async def test_who_has_begun_to_call_is_answered_and_it_stays(
    held: socket.socket, moment: Moment, sent: int, kept: bool
) -> None:
    """A connection that has just been made is somebody who is about to call."""
    async with served(held, Echo(), moment) as edge, connect(held) as client, connect(held) as other:
        if kept:
            assert (await client.call("POST", "/mcp", body=b"x")).status == 200
        await client.send_raw(CALL[:sent])
        # When this is answered, what was sent before it has been read.
        assert (await other.call("POST", "/mcp", body=b"x")).status == 200
        assert await moment.passes(edge) is (kept and not sent)
        if not moment.left:
            await client.send_raw(CALL[sent:])
            assert await body_of_answer(client) == b"hello"
            assert await moment.passes(edge)


async def test_a_call_that_is_being_answered_keeps_it(held: socket.socket, moment: Moment) -> None:
    slow = Slow()
    async with served(held, slow, moment) as edge, connect(held) as client:
        await client.send("POST", "/mcp", body=b"hello")
        await slow.entered.wait()
        for _ in range(3):
            assert not await moment.passes(edge)
        slow.go.set()
        assert (await client.response()).body == b"hello"
        assert await moment.passes(edge)


async def test_the_end_of_an_answer_that_its_reader_is_slow_to_take_is_not_cut_off(
    held: socket.socket, moment: Moment
) -> None:
    """The connection is closing by then, as it was the client's only call."""
    body = b"x" * LARGE_BYTES
    async with served(held, Echo(), moment) as edge, connect(held) as slow:
        await slow.send("POST", "/mcp", {"Connection": "close"}, body)
        assert (await slow.head()).status_code == 200
        assert not await moment.passes(edge)
        assert await slow.rest() == body
        assert await moment.passes(edge)


async def test_a_call_on_a_kept_connection_in_the_very_moment_of_the_exit_is_answered(
    held: socket.socket, moment: Moment
) -> None:
    """The edge accepts nobody any more, and finds the call unread in the kernel."""
    async with served(held, Echo(), moment) as edge, connect(held) as client:
        assert (await client.call("POST", "/mcp", body=b"x")).status == 200
        moment.at_the_last_look = lambda: client.sock.send(CALL)
        assert not await moment.passes(edge)
        assert await body_of_answer(client) == b"hello"
        async with connect(held) as later:
            assert (await later.call("POST", "/mcp", body=b"x")).status == 200
        assert await moment.passes(edge)


async def test_who_connects_in_the_very_moment_of_the_exit_is_answered(
    held: socket.socket, moment: Moment
) -> None:
    """There is no need for a successor: it accepts again."""
    clients: list[Client] = []
    async with served(held, Echo(), moment) as edge:
        moment.at_the_last_look = lambda: clients.append(connect(held))
        assert not await moment.passes(edge)
        [client] = clients
        async with client:
            assert (await client.call("POST", "/mcp", body=b"hello")).body == b"hello"


async def test_who_connects_after_the_last_look_is_answered_by_the_successor(
    held: socket.socket, moment: Moment
) -> None:
    clients: list[Client] = []
    async with served(held, Echo(), moment) as edge:
        moment.on_leaving = lambda: clients.append(connect(held))
        assert await moment.passes(edge)
        [client] = clients
        async with client, served(held, Echo()):
            assert (await client.call("POST", "/mcp", body=b"hello")).body == b"hello"


async def body_of_answer(client: Client) -> bytes:
    """Return the body of the answer to the call that was sent as bytes."""
    content = b""
    with anyio.fail_after(LIMIT_SECONDS):
        while not content.endswith(b"\r\n\r\nhello"):
            await anyio.wait_readable(client.sock)
            piece = client.sock.recv(65536)
            assert piece, f"closed after {content!r}"
            content += piece
    return content[-5:]


class PausingCaller(threading.Thread):
    """Calls on a new connection each time, with pauses in which nobody may be there."""

    def __init__(self, address: tuple[str, int], seed: int) -> None:
        """Call this address."""
        super().__init__()
        self.address = address
        self.chance = random.Random(seed)
        self.finish = threading.Event()
        self.answers = 0
        self.losses: list[str] = []

    @override
    def run(self) -> None:
        """Call; whatever is not an answer is a loss."""
        while not self.finish.wait(self.chance.uniform(0, 2 * IDLE_SECONDS)):
            with contextlib.closing(HTTPConnection(*self.address, timeout=LIMIT_SECONDS)) as connection:
                try:
                    connection.request("POST", "/mcp", b"hello")
                    answer = connection.getresponse()
                    assert (answer.status, answer.read()) == (200, b"hello")
                    self.answers += 1
                except (OSError, HTTPException, AssertionError) as error:
                    self.losses.append(repr(error))


async def test_nothing_is_lost_or_refused_over_many_exits_under_load() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=256) as held:
        callers = [PausingCaller(held.getsockname(), seed) for seed in range(CALLERS)]
        for caller in callers:
            caller.start()
        try:
            for _ in range(EXITS):
                idling = Idling(IDLE_SECONDS, comes_back=True, has_work=bool)
                async with served(held, Echo(), idling) as edge:
                    await edge.stopped.wait()
        finally:
            for caller in callers:
                caller.finish.set()
        async with served(held, Echo()):
            for caller in callers:
                await anyio.to_thread.run_sync(caller.join)
    assert [loss for caller in callers for loss in caller.losses] == []
    assert min(caller.answers for caller in callers) > 0
