"""The page at `/` for people: subagents, loose ends, and the end of a conversation at `/?name=NAME`.

It only shows, has no script, and asks nobody else for anything. What it shows comes from models, tools and
the web: `page_view` makes the texts harmless, the templates escape them, and the policy in `reading` is there
for the day when both fail.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple, Unpack
from urllib.parse import parse_qs, quote

import anyio

from hive_subagent_daemon import __version__, clock, page_view
from hive_subagent_daemon.access import Refusal
from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.harmless import cut, harmless
from hive_subagent_daemon.names import is_name
from hive_subagent_daemon.on_demand import OnDemand
from hive_subagent_daemon.reading import Document
from hive_subagent_daemon.threads import in_thread
from hive_subagent_daemon.transcript_tail import read_tail

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Scope

    from hive_subagent_daemon.claude_store import ClaudeStore
    from hive_subagent_daemon.inbox import Inbox
    from hive_subagent_daemon.page_view import Answer
    from hive_subagent_daemon.subagents import Subagents

    ResultT = TypeVar("ResultT")
    ArgumentsT = TypeVarTuple("ArgumentsT")

REFRESH_SECONDS: Final = 5
MOST_SUBAGENTS: Final = 200
MOST_NOTICES: Final = 30
SHOWN_NAME_CHARACTERS: Final = 80
# A disk that hangs (a HOME over the network) must not take the threads that the ends of turns need.
READERS: Final = 2
BUSY_SECONDS: Final = 3.0

_HTML: Final = "text/html; charset=utf-8"
_BUSY: Final = Refusal(
    503, "Refused: earlier looks at this page have not ended, a disk may hang; try again later."
)
_TOO_MANY: Final = Refusal(400, "Refused: this address has too many parts; leave out what comes after `?`.")

_overview_html: Final = OnDemand[[page_view.Overview], bytes]("page_rendering", "overview_html")
_detail_html: Final = OnDemand[[page_view.Detail], bytes]("page_rendering", "detail_html")
_nobody_html: Final = OnDemand[[page_view.Nobody], bytes]("page_rendering", "nobody_html")
_style_sheet: Final = OnDemand[[], bytes]("page_rendering", "style_sheet")


class Page:
    """Makes the documents of the page. Use from the event loop only."""

    def __init__(self, subagents: Subagents, *, inbox: Inbox, store: ClaudeStore, agent: str) -> None:
        """Show what these know; `agent` is the parent's name."""
        self._subagents: Final = subagents
        self._inbox: Final = inbox
        self._store: Final = store
        self._agent: Final = harmless(agent)
        self._readers: Final = anyio.Semaphore(READERS)

    async def html(self, scope: Scope) -> Document | Refusal:
        """Return the page that a request asks for."""
        try:
            query = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=8)
        except ValueError:
            return _TOO_MANY
        name = query.get("name", [None])[-1]
        path = "/" if name is None else f"/?name={quote(name[:SHOWN_NAME_CHARACTERS])}"
        held = query.get("refresh", [""])[-1] == "0"
        now = page_view.moment(clock.as_text(clock.now()))
        frame = page_view.Frame(self._agent, __version__, now, 0 if held else REFRESH_SECONDS, path)
        if name is None:
            return await self._in_reader(self._overview, frame, self._subagents.overview(most=MOST_SUBAGENTS))
        status = await self._subagents.status(name) if is_name(name) else None
        if status is None or status["subagents"][0]["state"] == "unknown":
            return await self._in_reader(_nobody, frame, name)
        return await self._in_reader(self._detail, frame, status)

    async def style(self, _scope: Scope) -> Document | Refusal:
        """Return the style sheet."""
        return await self._in_reader(_style)

    async def _in_reader(
        self, make: Callable[[Unpack[ArgumentsT]], ResultT], *arguments: *ArgumentsT
    ) -> ResultT | Refusal:
        """Make a document in a thread, while few others are made."""
        with anyio.move_on_after(BUSY_SECONDS) as waiting:
            await self._readers.acquire()
        if waiting.cancelled_caught:
            return _BUSY
        try:
            return await in_thread(make, *arguments)
        except OSError as error:
            return Refusal(503, f"Refused: the disk cannot be read now ({error.strerror}); try again.")
        finally:
            self._readers.release()

    def _overview(self, frame: page_view.Frame, status: Answer) -> Document:
        ids = self._inbox.unsettled()
        page = page_view.Overview(
            frame=frame,
            running=status["running"],
            subagents=tuple(page_view.subagent_of(one, now=clock.now()) for one in status["subagents"]),
            more=status["more"],
            notices=self._notices(ids),
            more_notices=max(0, len(ids) - MOST_NOTICES),
            open=self._inbox.open_count,
            undelivered=status["undelivered"],
            warnings=page_view.lines(status["warnings"]),
            facts=(
                page_view.Field("Turns run in", status["launcher"]),
                page_view.Field("claude", harmless(status["claude_version"] or "not found yet")),
            ),
        )
        return Document(_HTML, _overview_html(page))

    def _detail(self, frame: page_view.Frame, status: Answer) -> Document:
        [subagent] = status["subagents"]
        ids = self._inbox.unsettled(name=subagent["name"])
        page = page_view.Detail(
            frame=frame,
            subagent=page_view.subagent_of(subagent, now=clock.now()),
            notices=self._notices(ids),
            more_notices=max(0, len(ids) - MOST_NOTICES),
            conversation=self._conversation(subagent),
            warnings=page_view.lines(status["warnings"]),
        )
        return Document(_HTML, _detail_html(page))

    def _notices(self, ids: list[str]) -> tuple[page_view.Notice, ...]:
        found = [self._inbox.read(loose_end_id) for loose_end_id in ids[:MOST_NOTICES]]
        return tuple(page_view.notice_of(one, now=clock.now()) for one in found if one is not None)

    def _conversation(self, subagent: Answer) -> page_view.Conversation:
        try:
            path = self._transcript(subagent)
        except RefusedError as error:
            return _none_shown(str(error))
        if path is None:
            return _none_shown("Which conversation is this subagent's is not known (yet).")
        try:
            return page_view.conversation_of(read_tail(path))
        except FileNotFoundError:
            return _none_shown(f"claude keeps no conversation of it now; it would be {path}.")
        except OSError as error:
            return _none_shown(f"The conversation {path} cannot be read: {error.strerror or error}.")

    def _transcript(self, subagent: Answer) -> Path | None:
        """Return where the conversation is, by the session's id, else by the title."""
        directory = Path(subagent["dir"])
        if subagent["session_id"] is not None:
            return self._store.transcript(subagent["session_id"], directory)
        titled = self._store.titled(subagent["name"], directory)
        return titled[0] if len(titled) == 1 else None


def _none_shown(why: str) -> page_view.Conversation:
    return page_view.Conversation((), whole=True, trouble=harmless(why))


def _nobody(frame: page_view.Frame, name: str) -> Document:
    page = page_view.Nobody(frame, harmless(cut(name, SHOWN_NAME_CHARACTERS)))
    return Document(_HTML, _nobody_html(page), status=404)


def _style() -> Document:
    return Document("text/css; charset=utf-8", _style_sheet())
