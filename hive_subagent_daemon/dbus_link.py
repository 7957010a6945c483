"""One open connection to a message bus: calls with a time limit, signals, and knowing when it is gone."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
from jeepney.auth import BEGIN, Authenticator
from jeepney.bus_messages import message_bus
from jeepney.io.asyncio import DBusConnection, DBusRouter
from jeepney.io.common import RouterClosed
from jeepney.wrappers import DBusErrorResponse, unwrap_msg
from typing_extensions import override

from hive_subagent_daemon.errors import SubagentError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from jeepney import MatchRule, Message

CONNECT_SECONDS: Final = 3.0
_SIGNALS_BUFFERED: Final = 1024


class BusError(SubagentError):
    """The bus or the service behind it refused, did not answer in time, or is not there."""


class NoAnswerError(BusError):
    """No answer came in time; whether the call was carried out is not known."""


class RefusedCallError(BusError):
    """The service answered with an error; `name` is its D-Bus name."""

    def __init__(self, message: str, name: str) -> None:
        """Carry the name of the error."""
        super().__init__(message)
        self.name = name


class DBusLink:
    """An open connection. Use from the event loop only; made by `open_link`."""

    def __init__(self, connection: DBusConnection) -> None:
        """Take over a connection on which nothing else listens."""
        self.lost = anyio.Event()
        self._connection = connection
        self._receive = connection.receive
        connection.receive = self._receive_until_lost
        self._router = DBusRouter(connection)

    async def _receive_until_lost(self) -> Message:
        received = False
        try:
            message: Message = await self._receive()
            received = True
        finally:
            if not received:  # whatever it was, nobody listens to this connection any more
                self.lost.set()
        return message

    async def call(self, message: Message, *, within_seconds: float) -> tuple[Any, ...]:
        """Send a method call and return the body of its answer; every failure is a BusError."""
        try:
            with anyio.fail_after(within_seconds):
                body: tuple[Any, ...] = unwrap_msg(await self._router.send_and_get_reply(message))
                return body
        except TimeoutError as error:
            text = f"no answer within {within_seconds:g} s"
            raise NoAnswerError(text) from error
        except DBusErrorResponse as error:
            text = str(error.data[0]) if error.data else str(error.name)
            raise RefusedCallError(text, str(error.name)) from error
        # KeyError: jeepney 0.9 raises it when the connection ends while a call waits for its answer.
        except (OSError, EOFError, RouterClosed, KeyError) as error:
            self.lost.set()
            text = "the connection broke"
            raise BusError(text) from error

    def signals(self, rule: MatchRule) -> AbstractContextManager[asyncio.Queue[Message]]:
        """Return a context manager around a queue of the signals that match from now on."""
        caught: AbstractContextManager[asyncio.Queue[Message]]
        caught = self._router.filter(rule, bufsize=_SIGNALS_BUFFERED)
        return caught

    async def close(self) -> None:
        """Close the connection."""
        self.lost.set()
        self._connection.writer.close()
        with anyio.CancelScope(shield=True), suppress(OSError, EOFError, RouterClosed):
            await self._router.__aexit__(None, None, None)

    @override
    def __repr__(self) -> str:
        """Show whether it is open."""
        return f"DBusLink({'lost' if self.lost.is_set() else 'open'})"


async def open_link(socket: Path, *, matches: Sequence[MatchRule]) -> DBusLink:
    """Connect to the bus behind a socket and ask for the signals that match; BusError when there is none."""
    async with AsyncExitStack() as undo:
        try:
            link = DBusLink(await _authenticated(socket))
            undo.push_async_callback(link.close)
            for message in (message_bus.Hello(), *(message_bus.AddMatch(rule) for rule in matches)):
                await link.call(message, within_seconds=CONNECT_SECONDS)
        except (BusError, OSError, EOFError, ValueError) as error:
            reason = "no answer" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
            text = f"the bus at {socket} cannot be reached ({reason})"
            raise BusError(text) from error
        undo.pop_all()
    return link


async def _authenticated(socket: Path) -> DBusConnection:
    """Do what jeepney's own function does, which leaves the socket open when it fails or is cancelled."""
    with anyio.fail_after(CONNECT_SECONDS), ExitStack() as undo:
        reader, writer = await asyncio.open_unix_connection(socket)
        undo.callback(writer.close)
        steps = Authenticator()
        for step in steps:
            writer.write(step)
            await writer.drain()
            if not (answer := await reader.read(1024)):
                text = "it hung up"
                raise EOFError(text)
            steps.feed(answer)
        writer.write(BEGIN)
        undo.pop_all()
    return DBusConnection(reader, writer)
