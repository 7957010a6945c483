"""The sessions of the handshake era: which of them may be dropped, and which ids are in use in each.

Clients come and go without ending their sessions (claude sends no DELETE), so at the limit the one that has
been idle longest makes room. And two requests of one session that carry the same id, which the protocol
forbids, would get one answer between them and leave one waiting for ever: the second waits for the first.
"""

from __future__ import annotations

import contextlib
from functools import cached_property
from typing import TYPE_CHECKING

import anyio
import pydantic_core

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


class _Request:
    """One request under way; what is in its body is looked at only when there is another one."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.answered = anyio.Event()

    @cached_property
    def request_id(self) -> str | None:
        """The id, as the session layer tells ids apart; None: it expects no answer."""
        message = _message(self._body)
        return str(message["id"]) if "method" in message and message.get("id") is not None else None


class _Session:
    """One session: how many connections use it now, since when none does, and its requests under way."""

    def __init__(self) -> None:
        self.users = 0
        self.idle_since = anyio.current_time()
        self.requests: list[_Request] = []


class McpSessions:
    """Every open session by its id."""

    def __init__(self) -> None:
        """There is none yet."""
        self._sessions: dict[str, _Session] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._sessions)

    def opened(self, session_id: str) -> None:
        """Hear of a new one."""
        self._sessions[session_id] = _Session()

    def ended(self, session_id: str) -> None:
        """Hear that one is no more."""
        self._sessions.pop(session_id, None)

    def longest_idle(self) -> str | None:
        """Return the session that nobody has used for the longest time; None when all are in use."""
        idle = [(each.idle_since, name) for name, each in self._sessions.items() if each.users == 0]
        return min(idle)[1] if idle else None

    @contextlib.contextmanager
    def used(self, session_id: str | None) -> Iterator[None]:
        """Keep a session from being the longest idle for the duration of the block."""
        session = self._sessions.get(session_id or "")
        if session is None:
            yield
            return
        session.users += 1
        try:
            yield
        finally:
            session.users -= 1
            session.idle_since = anyio.current_time()

    @contextlib.asynccontextmanager
    async def answering(self, session_id: str | None, body: bytes) -> AsyncIterator[None]:
        """Enter when no other request of this session with the same id is being answered."""
        session = self._sessions.get(session_id or "")
        if session is None:
            yield
            return
        request = _Request(body)
        while (same := _same_id(session.requests, request)) is not None:
            await same.answered.wait()
        session.requests.append(request)
        try:
            yield
        finally:
            session.requests.remove(request)
            request.answered.set()


def opens_session(body: bytes) -> bool:
    """Tell whether a request without a session is one that opens one."""
    return _message(body).get("method") == "initialize"


def _same_id(under_way: list[_Request], request: _Request) -> _Request | None:
    return next((each for each in under_way if each.request_id == request.request_id is not None), None)


def _message(body: bytes) -> dict[str, object]:
    """Return a JSON object, read as the session layer reads it; an empty one for anything else."""
    try:
        message = pydantic_core.from_json(body)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}
