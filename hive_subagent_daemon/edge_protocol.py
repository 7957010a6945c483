"""One connection: uvicorn's HTTP/1.1, the peer found at accept, and limits to what can take too long.

What uvicorn does not do by itself is here. The peer is found before a byte is read. A request has to arrive
in time: its first byte, its whole header, its whole body. An answer may take as long as it takes, but its
reader has to read. Of a stranger no more is parsed than a request needs that could let it in.
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import sys
import termios
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, cast

import h11
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from hive_subagent_daemon.access import CONNECTION_KEY, Connection, Standing
from hive_subagent_daemon.sock_diag import plain_address

if TYPE_CHECKING:
    import asyncio
    from asyncio.trsock import TransportSocket

    from hive_subagent_daemon.door import Door
    from hive_subagent_daemon.peer import AnyPeer

FIRST_BYTE_SECONDS: Final = 30.0
HEADER_SECONDS: Final = 30.0
BODY_SECONDS: Final = 120.0
# How long a client may leave what it was sent unread.
UNREAD_SECONDS: Final = 60.0
# How long a client that has closed its side may wait for an answer; all but `wait` are given within five.
HALF_CLOSED_SECONDS: Final = 6.0
# A peer that nothing can let in may read /healthz; one that may bring a token has to show it by then.
STRANGER_SECONDS: Final = 5.0
UNPROVEN_SECONDS: Final = 30.0
# Parsing costs time of everybody's event loop: a header that could let a stranger in is not longer than this,
# and it is taken in pieces, so that little of a body is parsed before the header has been judged.
STRANGER_BYTES: Final = 16 * 1024
PIECE_BYTES: Final = 1024
_FULL: Final = "Refused: all connections of this daemon are in use; close some, or call again later.\n"
CLOSE_HEADER: Final = (b"connection", b"close")


class Awaited(Enum):
    """What the client owes us."""

    FIRST_BYTE = auto()
    HEADER = auto()
    BODY = auto()
    NOTHING = auto()


class EdgeProtocol(H11Protocol):
    """One connection behind a door; its peer is in the state of every request's scope."""

    door: Door

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Find the peer before anything is read, and put it where the guard looks for it."""
        transport = cast("asyncio.Transport", transport)
        super().connection_made(transport)
        sock: TransportSocket = transport.get_extra_info("socket")
        peer = self.door.finder.peer_of(sock)
        self.app_state = {**self.app_state, CONNECTION_KEY: _Behind(self, peer, _own_name(sock))}
        self._awaited = Awaited.NOTHING
        self._arrival: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None
        self._proof: asyncio.TimerHandle | None = None
        self._half_closed: asyncio.TimerHandle | None = None
        self._room = STRANGER_BYTES
        self._held = bytearray()
        self._refused = self._dropping = False
        if not self.door.enter(self, peer):
            self._turn_away()
            return
        if self.door.is_stranger(self):
            hopeless = self.door.rule.standing(peer) is Standing.REFUSED
            limit = STRANGER_SECONDS if hopeless else UNPROVEN_SECONDS
            self._proof = self.loop.call_later(limit, transport.abort)
        self._await(Awaited.FIRST_BYTE)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.door.leave(self)
        for timer in (self._arrival, self._reading, self._proof, self._half_closed):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        """Take what has come; of a stranger not more than it needs to be let in."""
        if self._dropping:
            return
        if self.door.is_stranger(self):
            self._taste(data)
        else:
            super().data_received(data)
        self._await(self._owed(partly=True))

    @override
    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio takes a bool, uvicorn writes None
        """Answer a call of a client that says no more; whether it is gone cannot be told from that.

        A GET is a poll or a stream here: what its client does not read must not pass for shown, so that ends.
        """
        if not self._is_answering() or self.cycle.more_body or self.cycle.scope["method"] != "POST":
            return False
        self.say_last()
        self._half_closed = self.loop.call_later(HALF_CLOSED_SECONDS, self.transport.abort)
        return True

    @override
    def handle_events(self) -> None:
        """Note when a request is complete; in a shutdown, the answer says that it is the last."""
        super().handle_events()
        if not self._is_answering():
            return
        if not self.cycle.more_body:
            self.door.busy(self)
        if self.door.closing:
            self.say_last()

    @override
    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, unless another answer has begun."""
        self._silence()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    @override
    def on_response_complete(self) -> None:
        """Expect the next request, which may have begun to arrive."""
        self.door.rests(self)
        super().on_response_complete()
        if self._half_closed is not None:
            self.transport.close()
        if self.transport.is_closing():
            self._close_by_force_later()
            return
        self._await(self._owed(partly=bool(self.conn.trailing_data[0])))

    @override
    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, for certain."""
        super().timeout_keep_alive_handler()
        self._close_by_force_later()

    @override
    def pause_writing(self) -> None:
        """Wait for the reader, but not for ever."""
        super().pause_writing()
        self._reading = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    @override
    def resume_writing(self) -> None:
        """Hear that the reader has read."""
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    @override
    def shutdown(self) -> None:
        """Close when idle or still receiving a request; a response under way is finished first."""
        super().shutdown()
        if (self.conn.their_state, self.conn.our_state) == (h11.SEND_BODY, h11.SEND_RESPONSE):
            self.transport.close()

    def say_last(self) -> None:
        """Have the answer that is still to be sent, if any, say that the connection will be closed."""
        if self.cycle is None:
            return
        if not self.cycle.response_started:
            self.cycle.default_headers = [*self.server_state.default_headers, CLOSE_HEADER]

    @property
    def is_quiet(self) -> bool:
        """Whether it is between two requests: the last one answered, nothing of the next one here."""
        if self.transport.get_write_buffer_size():  # of a closing one too: it is the end of an answer
            return False
        if self.transport.is_closing():
            return True
        return (
            self._awaited is Awaited.NOTHING
            and not self._is_answering()
            and not _unread_bytes(self.transport.get_extra_info("socket"))
        )

    def closes_if_quiet(self) -> bool:
        """Close at once if it is quiet; tell whether that was so."""
        if not self.is_quiet:
            return False
        if not self.transport.is_closing():
            # The client hears of it now and not a moment later, when it could have sent its next request.
            with contextlib.suppress(OSError):
                self.transport.get_extra_info("socket").shutdown(socket.SHUT_WR)
            self.transport.close()
        return True

    def evict(self) -> None:
        """Close at once: another connection needs the place."""
        self.transport.abort()

    def finds_again(self, peer: AnyPeer) -> bool:
        """Tell whether the other end is still held by this peer."""
        sock = self.transport.get_extra_info("socket")
        return not self.transport.is_closing() and self.door.finder.peer_of(sock) == peer

    def admitted(self) -> None:
        """Hear from the guard that a request has passed: what was held back of it is taken now."""
        if self._proof is None or not self.door.is_stranger(self):
            return
        self._proof.cancel()
        self.door.admit(self)
        held, self._held = bytes(self._held), bytearray()
        if held:
            self.transport.resume_reading()
            self.data_received(held)

    def refused(self) -> None:
        """Hear from the guard that a stranger was refused: what still comes is read and dropped, unparsed."""
        if self.door.is_stranger(self):
            self._refused = True
            if self._held:
                self._drop()

    def _taste(self, data: bytes) -> None:
        """Take the header of a stranger's request and one piece more, and hold what follows."""
        while data and self._room > 0 and not self.transport.is_closing():
            size = min(PIECE_BYTES, self._room)
            super().data_received(data[:size])
            data = data[size:]
            self._room -= size
            if self.conn.their_state is not h11.IDLE:
                self._room = min(self._room, PIECE_BYTES)
        if data:
            self._hold(data)

    def _hold(self, content: bytes) -> None:
        """Keep what is more than a stranger may say, until the guard has judged the beginning."""
        if self._refused:
            self._drop()
        else:
            self._held += content
            self.transport.pause_reading()

    def _drop(self) -> None:
        self._held = bytearray()
        self._dropping = True
        self.transport.resume_reading()

    def _turn_away(self) -> None:
        """Close a connection that is one too many; a caller of ours is told so."""
        if self.door.is_stranger(self):
            self.transport.abort()
            return
        self.transport.write(_response(b"503 Service Unavailable", _FULL))
        self.transport.close()
        self._close_by_force_later()

    def _is_answering(self) -> bool:
        """Tell whether there is a request whose answer is not complete."""
        if self.cycle is None:
            return False
        return not self.cycle.response_complete

    def _silence(self) -> None:
        """Let the application say nothing more: after an answer of ours it would be an error of h11's."""
        if self._is_answering():
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _owed(self, *, partly: bool) -> Awaited:
        """Return what the client owes; `partly`: bytes have come that are not a whole header yet."""
        if self.conn.their_state is h11.SEND_BODY:
            return Awaited.BODY
        return Awaited.HEADER if partly and self.conn.their_state is h11.IDLE else Awaited.NOTHING

    def _await(self, awaited: Awaited) -> None:
        """Wait for this; the time for it runs from when it was first awaited."""
        if awaited is self._awaited:
            return
        self._awaited = awaited
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None
        if (limit := _limit_seconds(awaited)) is not None:
            self._arrival = self.loop.call_later(limit, self._too_slow)

    def _too_slow(self) -> None:
        """Close, with a sentence where the client has begun to say something and can still be answered."""
        answered = self._awaited is Awaited.BODY and self.cycle.response_started
        self._silence()
        if self._awaited is not Awaited.FIRST_BYTE and not answered:
            self.transport.write(_too_slow_response(self._awaited))
        self.transport.close()
        self._close_by_force_later()

    def _close_by_force_later(self) -> None:
        """See to it that a closing connection does not wait for a client that reads nothing."""
        if self._reading is None:
            self._reading = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)


class _Behind(Connection):
    """The connection as the guard knows it; it tells us what became of a request."""

    def __init__(self, protocol: EdgeProtocol, peer: AnyPeer, own_name: str) -> None:
        super().__init__(peer, own_name)
        self._protocol: Final = protocol

    @override
    def is_held(self) -> bool:
        """Ask the kernel again."""
        return self._protocol.finds_again(self.peer)

    @override
    def admitted(self) -> None:
        """Pass it on."""
        self._protocol.admitted()

    @override
    def refused(self) -> None:
        """Pass it on."""
        self._protocol.refused()


def _limit_seconds(awaited: Awaited) -> float | None:
    match awaited:
        case Awaited.FIRST_BYTE:
            return FIRST_BYTE_SECONDS
        case Awaited.HEADER:
            return HEADER_SECONDS
        case Awaited.BODY:
            return BODY_SECONDS
        case Awaited.NOTHING:
            return None


def _too_slow_response(awaited: Awaited) -> bytes:
    what, limit = ("header", HEADER_SECONDS) if awaited is Awaited.HEADER else ("body", BODY_SECONDS)
    sentence = f"Refused: the {what} of a request has to arrive within {limit:g} seconds; send it again.\n"
    return _response(b"408 Request Timeout", sentence)


def _response(status: bytes, sentence: str) -> bytes:
    body = sentence.encode()
    return (
        b"HTTP/1.1 %b\r\nContent-Type: text/plain; charset=utf-8\r\n"
        b"Content-Length: %d\r\nConnection: close\r\n\r\n%b" % (status, len(body), body)
    )


def _unread_bytes(sock: TransportSocket) -> int:
    """Return how much the kernel has of what the client has sent."""
    told = fcntl.ioctl(sock.fileno(), termios.FIONREAD, bytes(4))
    return int.from_bytes(told, sys.byteorder)


def _own_name(sock: TransportSocket) -> str:
    """Return the address at which a TCP connection came in, in the form that a Host header has."""
    name = sock.getsockname()
    if not isinstance(name, tuple):
        return ""
    address = plain_address(name[0])
    return f"[{address}]" if address.version == 6 else str(address)
