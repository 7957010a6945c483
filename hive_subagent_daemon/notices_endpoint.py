"""`GET /notices`: a parent session waits for the next ended turn, or asks what is open and unseen by it.

Whoever waits costs nothing until a turn begins or ends or a loose end is closed. What an answer shows is
claimed for the session, durably, before it goes; docs/notices.md says what follows from that.
"""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio

from hive_subagent_daemon import views
from hive_subagent_daemon.access import Refusal, send_refusal
from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.notice_texts import LISTED, counts_text, notices_text
from hive_subagent_daemon.notices import Asked, Question, Reason, due, question_of
from hive_subagent_daemon.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from starlette.types import Receive, Scope, Send

    from hive_subagent_daemon.inbox import Inbox
    from hive_subagent_daemon.notice_claims import Claims

    Json = dict[str, Any]

_log = logging.getLogger(__name__)

NOTICES_PATH: Final = "/notices"
MOST_WAITING: Final = 256
# Claims of many sessions at once must not take the threads in which the ends of turns are stored.
CLAIMING: Final = 4
# Turns that end together are told together: a wake of the parent costs money.
GATHER_SECONDS: Final = 0.15
GATHER_LIMIT_SECONDS: Final = 1.0
CLAIM_RETRY_SECONDS: Final = (1.0, 5.0, 15.0, 60.0)
TEXT_CHARACTERS: Final = 1000

_READ_ONLY: Final = Refusal(405, "Refused: only GET is answered here.")
_FULL: Final = Refusal(
    503, f"Refused: {MOST_WAITING} sessions are waiting for notices already; ask again later."
)


class Work(Protocol):
    """What runs, as the registry tells it."""

    @property
    def running(self) -> Collection[str]:
        """The names of the subagents with a running turn."""

    @property
    def busy(self) -> bool:
        """Whether a turn runs or is being spawned."""


@dataclass(eq=False)
class _Caller:
    """One request: what it asks, and what has become of it meanwhile."""

    question: Question
    news: anyio.Event = field(default_factory=anyio.Event)
    gone: bool = False
    released: bool = False


class NoticesEndpoint:
    """Answers parents that wait. Use from the event loop only."""

    def __init__(self, inbox: Inbox, work: Work, claims: Claims) -> None:
        """Nobody is waiting yet; `changed` is to be called at every change in the first two."""
        self._inbox: Final = inbox
        self._work: Final = work
        self._claims: Final = claims
        self._callers: Final[set[_Caller]] = set()
        self._waiting: Final[dict[str, _Caller]] = {}
        # Requests of one session are answered one after the other: each notice is for one of them.
        self._answering: Final[dict[str, anyio.Lock]] = {}
        self._claiming: Final = anyio.Semaphore(CLAIMING)
        self._ending = False
        self._opened: tuple[str, ...] | None = None  # shared by all who look after one change

    def changed(self) -> None:
        """Hear that a turn has begun or ended, or that a loose end was closed."""
        self._opened = None
        for caller in self._callers:
            caller.news.set()

    def close_streams(self) -> None:
        """Let everybody go who waits, and nobody wait any more: the daemon is stopping."""
        self._ending = True
        self.changed()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: the head at once, the body when there is something to say."""
        question = _read(scope)
        if isinstance(question, Question) and question.show is Asked.NEXT and self._is_full(question):
            question = _FULL
        if isinstance(question, Refusal):
            await send_refusal(question, receive, send)
            return
        caller = _Caller(question)
        self._opened = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch, caller, receive, name="watching a caller of /notices")
            with self._heard(caller):
                # A waiting program learns from the head that somebody is there.
                headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                answer = await self._answer(caller)
                await send({"type": "http.response.body", "body": json.dumps(answer).encode() + b"\n"})
            tasks.cancel_scope.cancel()

    def _is_full(self, question: Question) -> bool:
        return len(self._waiting) >= MOST_WAITING and question.session not in self._waiting

    @contextmanager
    def _heard(self, caller: _Caller) -> Iterator[None]:
        """Let a caller hear of changes; a newer one that waits for the same session releases an older one."""
        session = caller.question.session
        self._callers.add(caller)
        if caller.question.show is Asked.NEXT:
            if (older := self._waiting.get(session)) is not None:
                older.released = True
                older.news.set()
            self._waiting[session] = caller
        try:
            yield
        finally:
            self._callers.remove(caller)
            if self._waiting.get(session) is caller:
                del self._waiting[session]
            if not any(other.question.session == session for other in self._callers):
                self._answering.pop(session, None)

    async def _answer(self, caller: _Caller) -> Json:
        match caller.question.show:
            case Asked.COUNTS:
                opened = self._inbox.open_count
                text = counts_text(sorted(self._work.running), opened=opened)
                return self._shaped(Reason.COUNTS, text=text)
            case Asked.OPEN:
                return await self._claimed(caller) or self._shaped(Reason.NOTHING)
            case Asked.NEXT:
                return await self._next(caller)

    async def _next(self, caller: _Caller) -> Json:
        """Wait until there is something to say."""
        tries = 0
        while True:
            caller.news = anyio.Event()  # made before looking, so that no change is missed
            async with self._lock(caller):  # a claim that is being made may have to be withdrawn
                reason = self._end_of_wait(caller)
            if reason is not None:
                return self._shaped(reason)
            if not self._due(caller):
                await caller.news.wait()
                continue
            await self._gather(caller)
            answer = await self._claimed(caller)
            if answer is None:
                continue
            if answer["reason"] != Reason.NOT_STORED:
                return answer
            with anyio.move_on_after(CLAIM_RETRY_SECONDS[min(tries, len(CLAIM_RETRY_SECONDS) - 1)]):
                await caller.news.wait()
            tries += 1

    def _lock(self, caller: _Caller) -> anyio.Lock:
        return self._answering.setdefault(caller.question.session, anyio.Lock())

    def _end_of_wait(self, caller: _Caller) -> Reason | None:
        """Tell why a wait has to end without a notice, if it has to."""
        if caller.released or caller.gone:
            return Reason.RELEASED
        if self._ending:
            return Reason.STOPPING
        if not self._work.busy and not self._due(caller):
            return Reason.NOTHING
        return None

    def _due(self, caller: _Caller) -> tuple[str, ...]:
        if self._opened is None:
            self._opened = tuple(self._inbox.select(name=None, ids=None))
        return due(caller.question, self._opened, self._claims.shown_to(caller.question.session))

    async def _gather(self, caller: _Caller) -> None:
        """Give what ends at the same time a moment to be told together."""
        with anyio.move_on_after(GATHER_LIMIT_SECONDS):
            while not (caller.released or caller.gone or self._ending):
                caller.news = anyio.Event()
                with anyio.move_on_after(GATHER_SECONDS) as quiet:
                    await caller.news.wait()
                if quiet.cancelled_caught:
                    return

    async def _claimed(self, caller: _Caller) -> Json | None:
        """Claim what is due and return the answer; None: nothing is due, nobody reads it, or we stop."""
        session = caller.question.session
        async with self._lock(caller), self._claiming:
            if self._end_of_wait(caller) is not None:
                return None
            try:
                loose_ends = await in_thread(self._read, self._due(caller))
                self._opened = None
                due_ids = self._due(caller)  # without those that turned out to be damaged, or were closed
                if caller.released or caller.gone or not due_ids:
                    return None
                await in_thread(self._claims.claim, caller.question, due_ids)
                if caller.gone:
                    await in_thread(self._claims.withdraw, session, due_ids)
            except OSError as error:
                _log.warning("notices are held back: what is shown cannot be noted: %s", error)
                return self._shaped(Reason.NOT_STORED)
        shown = [one for one in loose_ends if one["id"] in due_ids]
        more = len(due_ids) - len(shown)
        text = notices_text(shown, more=more)
        return self._shaped(Reason.NOTICES, text=text) | {"loose_ends": shown, "more": more}

    def _read(self, ids: tuple[str, ...]) -> list[Json]:
        read = (self._inbox.read(one) for one in ids)
        entries = (
            views.loose_end_json(one, text_characters=TEXT_CHARACTERS) for one in read if one is not None
        )
        return views.fitting(entries, most=LISTED)

    def _shaped(self, reason: Reason, *, text: str = "") -> Json:
        counts = {"running": len(self._work.running), "open": self._inbox.open_count}
        return {"reason": reason.value, **counts, "loose_ends": [], "more": 0, "text": text}


def _read(scope: Scope) -> Question | Refusal:
    if scope["method"] != "GET":
        return _READ_ONLY
    try:
        return question_of(scope["query_string"])
    except RefusedError as error:
        return Refusal(400, f"Refused: {error}")


async def _watch(caller: _Caller, receive: Receive) -> None:
    """Note when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    caller.gone = True
    caller.news.set()
