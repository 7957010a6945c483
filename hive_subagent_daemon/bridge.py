"""MCP over stdio for clients that do not speak HTTP: lines on stdin and stdout, calls at the daemon.

The main thread reads and never waits for anything but its client, one thread writes, and each call has a
thread of its own: a slow one holds up nothing. The end of stdin is the end, whatever is under way. stdout
carries nothing but messages.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon.bridge_calls import CallEndedError, Flight, carried
from hive_subagent_daemon.bridge_lines import LineSplitter
from hive_subagent_daemon.bridge_messages import (
    Called,
    Cancelled,
    Conversation,
    Message,
    Reply,
    answer_of,
    refusal_of,
)
from hive_subagent_daemon.errors import SubagentError
from hive_subagent_daemon.tool_listing import ToolListing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hive_subagent_daemon.bridge_messages import Asked, RequestId
    from hive_subagent_daemon.client import Endpoint

READ_BYTES: Final = 256 * 1024
FLUSH_SECONDS: Final = 0.5
"""How long the end waits for the client to read what is answered already."""
MOST_AT_ONCE: Final = 32
"""Calls under way at a time; each is a thread and a connection."""
_TOO_MANY: Final = (
    f"Refused: {MOST_AT_ONCE} calls are waiting for their answers; call again when one has come."
)
_BROKEN: Final = "Internal error of the stdio bridge; the call may or may not have taken effect: call status."


class Bridge:
    """One client on two file descriptors and one daemon."""

    def __init__(self, endpoint: Endpoint, *, stdin: int, stdout: int) -> None:
        """Nothing is read and nothing called before `run`."""
        self._endpoint: Final = endpoint
        self._stdin: Final = stdin
        self._stdout: Final = stdout
        self._conversation: Final = Conversation(ToolListing())
        self._outgoing: Final[SimpleQueue[Message | None]] = SimpleQueue()
        self._lock: Final = threading.Lock()
        self._flights: Final[dict[Flight, RequestId]] = {}

    def run(self) -> None:
        """Serve until the client closes stdin or reads no more; calls under way are left behind."""
        writer = threading.Thread(target=self._write, name="writer", daemon=True)
        writer.start()
        lines = LineSplitter()
        for piece in self._pieces():
            for line in lines.feed(piece):
                self._do(self._conversation.understood(line))
        self._outgoing.put(None)
        writer.join(FLUSH_SECONDS)

    def _pieces(self) -> Iterator[bytes]:
        """Yield what arrives on stdin, until its end or until nobody reads stdout."""
        poll = select.poll()
        poll.register(self._stdin, select.POLLIN)
        if self._stdout != self._stdin:
            poll.register(self._stdout, 0)  # an error or a hang-up is reported unasked
        while True:
            ready = dict(poll.poll())
            if self._stdin not in ready:
                return
            piece = b""
            with contextlib.suppress(OSError):  # a terminal that has gone
                piece = os.read(self._stdin, READ_BYTES)
            if not piece:
                return
            yield piece

    def _do(self, asked: Asked) -> None:
        match asked:
            case Reply(message):
                self._outgoing.put(message)
            case Called():
                self._call(asked)
            case Cancelled(request_id):
                with self._lock:
                    meant = [flight for flight, flown in self._flights.items() if flown == request_id]
                for flight in meant:
                    flight.cancel()

    def _call(self, called: Called) -> None:
        flight = Flight()
        with self._lock:
            if too_many := len(self._flights) >= MOST_AT_ONCE:
                self._outgoing.put(refusal_of(called, _TOO_MANY))
            else:
                self._flights[flight] = called.id
        if not too_many:
            threading.Thread(target=self._fly, args=(called, flight), daemon=True).start()

    def _fly(self, called: Called, flight: Flight) -> None:
        """Bring the answer of one call, whatever happens to it."""
        message: Message | None = refusal_of(called, _BROKEN)
        try:
            message = answer_of(called, carried(self._endpoint, called.call, flight))
        except CallEndedError:
            message = None
        except SubagentError as error:
            message = refusal_of(called, str(error))
        finally:
            with self._lock:
                del self._flights[flight]
            if message is not None and not flight.cancelled:
                self._outgoing.put(message)

    def _write(self) -> None:
        """Write message by message, in ASCII: some readers find ends of lines in other characters."""
        with contextlib.suppress(BrokenPipeError):
            while (message := self._outgoing.get()) is not None:
                rest = memoryview(json.dumps(message).encode() + b"\n")
                while rest:
                    rest = rest[os.write(self._stdout, rest) :]
