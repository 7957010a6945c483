"""A stand-in for a daemon that answers connection after connection with given bytes, and counts calls."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WAIT_SECONDS = 30.0


def http_reply(status: int, body: str) -> bytes:
    """Return the bytes of an HTTP response."""
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body.encode())}\r\n\r\n{body}".encode()


@dataclass
class StandIn:
    """What came: the requests, header and body, one a connection."""

    port: int
    requests: list[bytes] = field(default_factory=list)
    gone: threading.Event = field(default_factory=threading.Event)
    """Set when a client has closed a connection on which nothing was answered."""


def _serve(listening: socket.socket, stand_in: StandIn, replies: Sequence[bytes | None]) -> None:
    for reply in replies:
        accepted, _ = listening.accept()
        with accepted:
            accepted.settimeout(WAIT_SECONDS)
            stand_in.requests.append(_request(accepted))
            if reply is not None:
                accepted.sendall(reply)
            elif accepted.recv(1) == b"":
                stand_in.gone.set()


def _request(accepted: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"}"):
        piece = accepted.recv(65536)
        if not piece:
            break
        received += piece
    return received


@contextmanager
def stand_in_for_a_daemon(*replies: bytes | None, port: int = 0) -> Iterator[StandIn]:
    """Answer so many connections, b"" by hanging up, None by saying nothing until the client leaves."""
    with socket.create_server(("127.0.0.1", port)) as listening:
        listening.settimeout(WAIT_SECONDS)
        stand_in = StandIn(listening.getsockname()[1])
        thread = threading.Thread(target=_serve, args=(listening, stand_in, replies))
        thread.start()
        try:
            yield stand_in
        finally:
            thread.join(WAIT_SECONDS)
