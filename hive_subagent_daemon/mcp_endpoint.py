"""The paths of the HTTP server: `/mcp` over the SDK's session layer, `/healthz`, and a sentence for the rest.

Both protocol eras are served at `/mcp`. Calls are answered as JSON; only a session's GET stream and
`subscriptions/listen` are event streams, and those are what a shutdown has to end.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

import anyio
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from hive_subagent_daemon.access import (
    HEALTH_PATH,
    LOOPBACK_NAMES,
    MAX_BODY_BYTES,
    Refusal,
    send_refusal,
    shown,
    too_large,
)
from hive_subagent_daemon.mcp_sessions import McpSessions, opens_session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from anyio.abc import TaskStatus
    from mcp.server.lowlevel import Server
    from mcp.server.subscriptions import ListenHandler
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_log = logging.getLogger(__name__)

MCP_PATH: Final = "/mcp"
SESSION_HEADER: Final = b"mcp-session-id"
# At this limit the session that has been idle longest makes room for a new one.
MAX_SESSIONS: Final = 256
# A session with an open stream is in use: claude keeps its GET stream open as long as it lives.
SESSION_IDLE_SECONDS: Final = 1800.0
# How long a shutdown waits for the calls that are being answered.
CALL_GRACE_SECONDS: Final = 1.0

# How long it then waits for the sessions to end. The session layer needs one second of it when a call of the
# handshake era was cut off, else next to nothing.
SESSION_END_SECONDS: Final = 2.0

_STOPPING: Final = Refusal(503, "Refused: the daemon is stopping; call again when it is back.")
_CUT_OFF: Final = Refusal(
    503,
    "Refused: the daemon is stopping, and this call may or may not have taken effect; see `status` later.",
)
_READ_ONLY: Final = Refusal(405, "Refused: only GET is answered here.")


class McpEndpoint:
    """Serves one lowlevel MCP server at a path; usable once, inside `run`."""

    def __init__(
        self, server: Server[Any], *, hosts: frozenset[str], listen: ListenHandler | None = None
    ) -> None:
        """Prepare the session layer; `listen` is what the server has as `on_subscriptions_listen`."""
        self._sessions: Final = StreamableHTTPSessionManager(
            server,
            json_response=True,
            security_settings=security_settings(hosts),
            session_idle_timeout=SESSION_IDLE_SECONDS,
            max_request_body_size=MAX_BODY_BYTES,
            max_sessions=MAX_SESSIONS,
        )
        self._listen: Final = listen
        self._known: Final = McpSessions()
        self._calls: Final[set[anyio.CancelScope]] = set()
        self._refusing = False
        self._calls_done: Final = anyio.Event()
        self._end: Final = anyio.Event()
        self._ended: Final = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; its body has been read completely before the session layer sees it.

        Otherwise a client that vanishes while it sends would be a traceback in the log of both layers below.
        """
        content, raw = b"", receive
        if scope["method"] == "POST":
            body = await _body(receive)
            if body is None:
                return
            if isinstance(body, Refusal):
                await send_refusal(body, receive, send)
                return
            content, receive = body, _replayed(body, receive)
        if self._refusing:
            await send_refusal(_STOPPING, receive, send)
            return
        session_id = _header(scope["headers"], SESSION_HEADER)
        if session_id is None and len(self._known) >= MAX_SESSIONS and opens_session(content):
            await self._make_room()
        with self._known.used(session_id):
            if _is_stream(scope):
                await self._sessions.handle_request(scope, receive, send)
                return
            async with self._known.answering(session_id, content):
                await self._call(scope, receive, self._noting(session_id, send), gone=raw)

    def _noting(self, session_id: str | None, send: Send) -> Send:
        """Note in passing which sessions there are: only answers tell."""

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                opened = _header(message["headers"], SESSION_HEADER)
                if session_id is None and opened is not None and message["status"] == 200:
                    self._known.opened(opened)
                elif session_id is not None and message["status"] == 404:
                    self._known.ended(session_id)
            await send(message)

        return noted

    async def _make_room(self) -> None:
        """End the session that has been idle longest, as its client would."""
        session_id = self._known.longest_idle()
        if session_id is None:
            return
        _log.info("too many sessions: the one that has been idle longest is ended")
        self._known.ended(session_id)
        headers = [(b"host", b"localhost"), (SESSION_HEADER, session_id.encode())]
        scope = {
            "type": "http",
            "method": "DELETE",
            "path": MCP_PATH,
            "query_string": b"",
            "headers": headers,
        }
        await self._sessions.handle_request(scope, _nothing_more, _to_nobody)

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Keep the sessions for the duration of the block."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._keep_sessions, name="MCP sessions")
            try:
                yield
            finally:
                self._end.set()

    async def close_streams(self) -> None:
        """Refuse new calls, wait briefly for running ones and cancel the rest, then end streams and sessions.

        A `subscriptions/listen` stream gets its final result, a GET stream its last chunk.
        """
        self._refusing = True
        if self._calls:
            with anyio.move_on_after(CALL_GRACE_SECONDS):
                await self._calls_done.wait()
        for call in self._calls:
            call.cancel()
        if self._listen is not None:
            self._listen.close()
        # Leaving the session layer's own block is the public way to terminate its sessions.
        self._end.set()
        with anyio.move_on_after(SESSION_END_SECONDS):
            await self._ended.wait()

    async def _keep_sessions(self, *, task_status: TaskStatus[None]) -> None:
        try:
            async with self._sessions.run():
                task_status.started()
                await self._end.wait()
        finally:
            self._ended.set()

    async def _call(self, scope: Scope, receive: Receive, send: Send, *, gone: Receive) -> None:
        """Answer a call, or refuse it when the shutdown cannot wait; `gone` tells when the client goes."""
        started = False

        async def noted_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        with anyio.CancelScope() as cancel_scope:
            self._calls.add(cancel_scope)
            try:
                async with anyio.create_task_group() as tasks:
                    if _only_waits(scope):
                        tasks.start_soon(_cancel_when_gone, gone, cancel_scope, name="a waiting caller")
                    await self._sessions.handle_request(scope, receive, noted_send)
                    tasks.cancel_scope.cancel()
            finally:
                self._calls.remove(cancel_scope)
                if self._refusing and not self._calls:
                    self._calls_done.set()
        if cancel_scope.cancelled_caught and not started:
            # The body is known to be complete: there is nothing to wait for after the sentence.
            await send_refusal(_CUT_OFF, _replayed(b"", receive), send)


class Paths:
    """Sends each request to the application of its path; everything else is told where MCP is."""

    def __init__(self, apps: Mapping[str, ASGIApp]) -> None:
        """Serve these paths, beside `/healthz`."""
        self._apps: Final = {HEALTH_PATH: healthz, **apps}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        app = self._apps.get(scope["path"])
        if app is not None:
            await app(scope, receive, send)
            return
        paths = ", ".join(path for path in self._apps if path != HEALTH_PATH)
        refusal = Refusal(404, f"There is nothing at {shown(scope['path'])}: this daemon serves {paths}.")
        await send_refusal(refusal, receive, send)


async def healthz(scope: Scope, receive: Receive, send: Send) -> None:
    """Say that requests are answered, and nothing else."""
    if scope["method"] not in {"GET", "HEAD"}:
        await send_refusal(_READ_ONLY, receive, send)
        return
    body = b'{"status": "ok"}'
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def security_settings(hosts: frozenset[str]) -> TransportSecuritySettings:
    """Return the guard's own rule of Host and Origin in the SDK's words: a second line behind the guard.

    The guard hands on `localhost` for whatever Host came over a Unix socket.
    """
    names = sorted(LOOPBACK_NAMES | hosts)
    origins = [f"{scheme}://{name}" for scheme in ("http", "https") for name in sorted(LOOPBACK_NAMES)]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[*names, *(f"{name}:*" for name in names)],
        allowed_origins=[*origins, *(f"{origin}:*" for origin in origins)],
    )


def _header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in headers if key.lower() == name), None)


async def _nothing_more() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _to_nobody(_message: Message) -> None:
    """Drop an answer."""


def _is_stream(scope: Scope) -> bool:
    """Tell the requests that are answered by an event stream from calls, which end by themselves."""
    return scope["method"] == "GET" or (b"mcp-method", b"subscriptions/listen") in scope["headers"]


def _only_waits(scope: Scope) -> bool:
    """Tell a call that changes nothing and may take minutes: when its client goes, it is of no use."""
    return (b"mcp-name", b"wait") in scope["headers"]


async def _cancel_when_gone(receive: Receive, cancel_scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    cancel_scope.cancel()


async def _body(receive: Receive) -> bytes | Refusal | None:
    """Read the whole body; None when the client has gone before its end."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > MAX_BODY_BYTES:
            return too_large()
        if not message.get("more_body", False):
            return b"".join(chunks)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Give the body once more, then whatever comes after it (that is, the disconnect)."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay
