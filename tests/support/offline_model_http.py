"""The HTTP side of the offline model: connections, requests, answers and how long they wait."""

from __future__ import annotations

import json
import select
import socket
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from tests.support.offline_model_conversation import read_conversation
from tests.support.offline_model_replies import (
    BrokenReply,
    ErrorReply,
    Json,
    Reply,
    broken_stream_events,
    error_json,
    message_json,
    stream_events,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LOOK_SECONDS = 0.1  # how often a waiting answer looks whether its client or the server is gone
MAX_BODY_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Received:
    """One request as it came in; the body is None where there was no JSON object."""

    method: str
    path: str
    headers: dict[str, str]
    body: Json | None
    is_turn: bool
    arrived: float


@dataclass(frozen=True)
class Answer:
    """What one request gets, after which wait."""

    reply: Reply
    number: int
    delay_seconds: float = 0.0
    hold: str | None = None


class Model(Protocol):
    """What decides about the answers."""

    @property
    def requests(self) -> list[Json]:
        """The bodies of all requests of turns so far."""
        ...

    @property
    def is_closing(self) -> bool:
        """Tell whether open answers should end now."""
        ...

    def record(self, received: Received) -> None:
        """Remember a request."""

    def decide(self, body: Json, session: str) -> Answer:
        """Choose the answer to a request."""
        ...

    def release(self, name: str) -> None:
        """Let the answers go that wait for a name."""

    def is_released(self, name: str) -> bool:
        """Tell whether a name has been released."""
        ...


class ModelServer(ThreadingHTTPServer):
    """Knows its open connections, so that none outlives it."""

    daemon_threads = False
    block_on_close = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], exchange: Callable[..., BaseHTTPRequestHandler]) -> None:
        """Bind to the address."""
        self._connections: set[socket.socket] = set()
        super().__init__(address, exchange)

    @override
    def get_request(self) -> tuple[socket.socket, object]:
        connection, peer = super().get_request()
        self._connections.add(connection)
        return connection, peer

    @override
    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        if isinstance(request, socket.socket):
            self._connections.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """End every open connection, so that the threads that serve them end too."""
        for connection in list(self._connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # closed by its own thread in between


class Exchange(BaseHTTPRequestHandler):
    """The requests of one connection, one after the other."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, model: Model, request: socket.socket, peer: object, server: ModelServer) -> None:
        """Serve one connection until it closes."""
        self._model = model
        super().__init__(request, peer, server)

    @override
    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, TimeoutError):
            self.close_connection = True  # a client that was killed

    @override
    def log_message(self, *_: object) -> None:
        """Stay silent."""

    def do_HEAD(self) -> None:
        """Answer claude's probe of the address."""
        self._record(None)
        self._send(200, b"")

    def do_GET(self) -> None:
        """Show the requests to whoever runs the model as a program, and answer any other path."""
        if self.path == "/requests":
            self._send_json(200, self._model.requests)
            return
        self._record(None)
        self._send_json(200, {"status": "ok"})

    def do_POST(self) -> None:
        """Answer a request to the model, a count of tokens, a release, or whatever else claude posts."""
        body = self._read_body()
        path = PurePosixPath(self.path.partition("?")[0])
        if path.parent == PurePosixPath("/release"):
            self._model.release(path.name)
            self._send_json(200, {"released": path.name})
            return
        self._record(body)
        if path.name == "count_tokens":
            self._send_json(200, {"input_tokens": len(json.dumps(body)) // 4})
        elif path.name == "messages" and body is not None:
            session = self.headers.get("X-Claude-Code-Session-Id", "")
            self._answer(self._model.decide(body, session), body)
        else:
            self._send_json(200, {})

    def _read_body(self) -> Json | None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY_BYTES:
            self.close_connection = True
            return None
        try:
            body = json.loads(self.rfile.read(length))
        except ValueError:
            return None
        return body if isinstance(body, dict) else None

    def _record(self, body: Json | None) -> None:
        is_turn = body is not None and "messages" in body and read_conversation(body).has_tools
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._model.record(Received(self.command, self.path, headers, body, is_turn, time.monotonic()))

    def _answer(self, answer: Answer, body: Json) -> None:
        """Wait as the script says and send the answer, unless the client is gone by then."""
        end = time.monotonic() + answer.delay_seconds
        hold = answer.hold
        ready = self._wait_until(
            lambda: time.monotonic() >= end and (hold is None or self._model.is_released(hold))
        )
        if not ready:
            self.close_connection = True
            return
        model, reply = str(body.get("model", "")), answer.reply
        if isinstance(reply, ErrorReply):
            more = {"retry-after": reply.retry_after} if reply.retry_after is not None else {}
            self._send_json(reply.status, error_json(reply), more)
        elif isinstance(reply, BrokenReply):
            self._send_broken(reply, model, answer.number)
        elif body.get("stream"):
            self._send_stream(stream_events(reply, model=model, number=answer.number))
            self._chunk(b"")
        else:
            self._send_json(200, message_json(reply, model=model, number=answer.number))

    def _send_broken(self, reply: BrokenReply, model: str, number: int) -> None:
        self.close_connection = True
        if reply.text is not None:
            self._send_stream(broken_stream_events(reply.text, model=model, number=number))
        if reply.stays_open:
            self._wait_until(lambda: False)

    def _wait_until(self, condition: Callable[[], bool]) -> bool:
        """Wait for a condition; False when the client or the server went away before."""
        while not condition():
            readable, _, _ = select.select([self.connection], [], [], LOOK_SECONDS)
            if self._model.is_closing or (readable and not self.connection.recv(1, socket.MSG_PEEK)):
                return False
        return True

    def _send_stream(self, events: Iterable[bytes]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events:
            self._chunk(event)

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")

    def _send_json(self, status: int, content: object, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(content).encode(), headers)

    def _send(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
