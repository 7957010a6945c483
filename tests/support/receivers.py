"""Sinks of the tests: HTTP servers that remember every request and answer as they are told to."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LIMIT_SECONDS = 20.0
DROP_SECONDS = 0.02


def answer(status: int, *headers: str, body: bytes = b"") -> bytes:
    """Return a whole HTTP answer."""
    lines = [f"HTTP/1.1 {status} x", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


OK = answer(204)
HANGS = b"hangs"  # in place of an answer: the connection stays open, and nothing is said


@dataclass(frozen=True)
class Request:
    """One request as it came in; names of headers in small letters."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str:
        """The idempotency key."""
        return self.headers["idempotency-key"]

    @property
    def content(self) -> dict[str, Any]:
        """The body, which must be a JSON object."""
        found = json.loads(self.body)
        assert isinstance(found, dict)
        return found


class Receiver:
    """An HTTP server on one listening socket, each connection in a thread of its own.

    `answers` is called with each request and returns the bytes to send, HANGS, or None to close in silence.
    """

    def __init__(self, listener: socket.socket, answers: Callable[[Request], bytes | None]) -> None:
        """Accept from now on."""
        self.requests: list[Request] = []
        self.answers = answers
        self._listener = listener
        self._ended = threading.Event()
        self._changing = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def keys(self) -> list[str]:
        """The keys of all requests in the order in which they came in."""
        return [request.key for request in self.requests]

    def received(self, count: int, *, within: float = 10.0) -> list[Request]:
        """Wait until so many requests have come in, and return all there are."""
        eventually(lambda: len(self.requests) >= count, within=within, what=f"{count} requests")
        return list(self.requests)

    def close(self) -> None:
        """Take nothing more; connections that hang are closed."""
        self._ended.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=partial(self._serve, connection), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.settimeout(LIMIT_SECONDS)
            request = _request(connection)
            if request is None:
                return
            with self._changing:
                self.requests.append(request)
                reply = self.answers(request)
            if reply == HANGS:
                self._ended.wait(LIMIT_SECONDS * 5)
            elif reply is not None:
                connection.sendall(reply)


def _request(connection: socket.socket) -> Request | None:
    """Read one request; None when the other side closed before it was whole."""
    content = b""
    while b"\r\n\r\n" not in content:
        chunk = connection.recv(65_536)
        if not chunk:
            return None
        content += chunk
    head, _, body = content.partition(b"\r\n\r\n")
    line, *lines = head.decode().split("\r\n")
    pairs = [each.partition(":") for each in lines]
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    assert len(headers) == len(lines), f"a header came twice: {lines}"
    while len(body) < int(headers.get("content-length", 0)):
        chunk = connection.recv(65_536)
        if not chunk:
            return None
        body += chunk
    return Request(line, headers, body)


@contextlib.contextmanager
def receiving(
    answers: Callable[[Request], bytes | None] = lambda _request: OK,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
) -> Iterator[tuple[Receiver, int]]:
    """Receive on a TCP port while the block lasts; give the receiver and its port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
        receiver = Receiver(listener, answers)
        yield receiver, listener.getsockname()[1]
        receiver.close()


@contextlib.contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Let a function talk to the one connection that comes, before it has read anything; give the port."""

    def accept() -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(LIMIT_SECONDS)
                serve(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(LIMIT_SECONDS)


def drip(connection: socket.socket, head: bytes, drop: bytes) -> None:
    """Read a request, send a head, and then send drops without an end."""
    _request(connection)
    connection.sendall(head)
    while True:
        connection.sendall(drop)
        time.sleep(DROP_SECONDS)


@contextlib.contextmanager
def receiving_unix(
    path: Path, answers: Callable[[Request], bytes | None] = lambda _request: OK
) -> Iterator[Receiver]:
    """Receive on a Unix socket while the block lasts."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        receiver = Receiver(listener, answers)
        yield receiver
        receiver.close()
    path.unlink()
