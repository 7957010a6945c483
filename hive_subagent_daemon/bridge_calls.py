"""One call of a tool on its way to the daemon: sent once, or again where nothing can have happened twice.

A daemon that is being restarted is waited for a moment. A call that may have taken effect is not sent again
unless it only reads.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from hive_subagent_daemon.client import (
    READ_ONLY_TOOLS,
    BusyError,
    Endpoint,
    NoAnswerError,
    NotConnectedError,
    UnreachableError,
    exchange,
    json_of,
    no_answer_of_ours,
)
from hive_subagent_daemon.errors import RefusedError, SubagentError

if TYPE_CHECKING:
    from hive_subagent_daemon.tool_calls import ToolCall

PATIENCE_SECONDS: Final = 5.0
"""How long a call waits for a daemon that is away; a restart without running turns takes two seconds."""
PAUSE_SECONDS: Final = 0.2


class CallEndedError(SubagentError):
    """The client has cancelled the call: nobody waits for its answer."""


class Flight:
    """A call under way, which another thread can end."""

    def __init__(self) -> None:
        """Nothing is open yet."""
        self._lock: Final = threading.Lock()
        self._cancelled: Final = threading.Event()
        self._sock: socket.socket | None = None

    def cancel(self) -> None:
        """End the call: a connection that is closed early is how the daemon hears of it."""
        with self._lock:
            self._cancelled.set()
            if self._sock is not None:
                with contextlib.suppress(OSError):
                    self._sock.shutdown(socket.SHUT_RDWR)

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._cancelled.is_set()

    def opened(self, sock: socket.socket) -> None:
        """Hear of the connection, before anything is sent; raises CallEndedError when that must not be."""
        with self._lock:
            if self.cancelled:
                raise CallEndedError
            self._sock = sock

    def pause(self) -> None:
        """Wait a moment, or until the call is cancelled."""
        if self._cancelled.wait(PAUSE_SECONDS):
            raise CallEndedError


def carried(endpoint: Endpoint, call: ToolCall, flight: Flight) -> dict[str, Any]:
    """Return the daemon's `result` or `error`.

    Raises RefusedError or UnreachableError with a sentence for the model, CallEndedError when cancelled.
    """
    patient_until: float | None = None
    while True:
        try:
            return _attempt(endpoint, call, flight)
        except (BusyError, UnreachableError) as error:
            if flight.cancelled:
                raise CallEndedError from None
            patient_until = patient_until or time.monotonic() + PATIENCE_SECONDS
            if time.monotonic() >= patient_until or not may_be_sent_again(call.tool, error):
                raise _told(call.tool, error) from None
        flight.pause()


def may_be_sent_again(tool: str, error: SubagentError) -> bool:
    """Tell whether a call that failed like this can be sent again without harm, and with hope."""
    match error:
        case NoAnswerError(timed_out=timed_out):
            return tool in READ_ONLY_TOOLS and not timed_out
        case BusyError():
            # A daemon that stops may have cut the call off, so this says nothing about what it did.
            return tool in READ_ONLY_TOOLS
        case NotConnectedError():
            return True
    return False


def _attempt(endpoint: Endpoint, call: ToolCall, flight: Flight) -> dict[str, Any]:
    status, body = exchange(endpoint, call, opened=flight.opened)
    match json_of(body):
        case {"jsonrpc": "2.0", "result": dict(result)}:
            return {"result": result}
        case {"jsonrpc": "2.0", "error": dict(error)}:
            return {"error": error}
    raise no_answer_of_ours(endpoint, status, body)


def _told(tool: str, error: RefusedError | UnreachableError) -> SubagentError:
    """Return the error in words for a model, which has tools and no shell."""
    if isinstance(error, NoAnswerError) and tool not in READ_ONLY_TOOLS:
        return UnreachableError(
            f"The daemon gave no answer ({error.reason}): {tool} may or may not have taken effect. "
            f"Call status to see, before you call {tool} again."
        )
    return error
