"""The page: what it shows of subagents, loose ends and conversations, and that texts stay texts."""

from __future__ import annotations

import errno
import json
import os
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import quote

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from hive_subagent_daemon import __version__, clock, page, page_view
from hive_subagent_daemon.access import Refusal
from hive_subagent_daemon.config_values import Limits
from hive_subagent_daemon.page import Page
from hive_subagent_daemon.page_rendering import detail_html, nobody_html, overview_html
from hive_subagent_daemon.reading import Document
from hive_subagent_daemon.transcript_tail import Said, Speaker, Tail
from hive_subagent_daemon.values import LooseEnd, OutcomeKind, Undelivered, Verdict
from tests.unit.support_records import any_outcome, outcome
from tests.unit.support_turns import Parts, until

if TYPE_CHECKING:
    from pathlib import Path

    from hypothesis.strategies import SearchStrategy

EVIL = "</title></pre><script>alert(1)</script><img src=//evil onerror=x> \" onclick='x' {{ 7*7 }} &amp;"
# All that the templates use; none of these runs or fetches anything beside the style sheet.
OUTER = {"html", "head", "meta", "title", "link", "body", "header", "nav", "main", "section", "footer"}
BLOCKS = {"h1", "h2", "h3", "p", "pre", "ul", "ol", "li", "dl", "div", "dt", "dd"}
TABLE = {"table", "thead", "tbody", "tr", "th", "td"}
TAGS = OUTER | BLOCKS | TABLE | {"a", "bdi", "q", "strong", "span", "time", "code"}


class Markup(HTMLParser):
    """Collects the tags, the attributes and the texts of a page."""

    def __init__(self, content: bytes) -> None:
        """Read a page."""
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(content.decode())
        self.close()

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.append(tag)
        self.attributes += attrs

    @override
    def handle_data(self, data: str) -> None:
        """Note a text."""
        self.text += data

    @property
    def links(self) -> list[str | None]:
        """All addresses."""
        return [value for name, value in self.attributes if name in ("href", "src", "action")]


def scope_of(query: str = "") -> dict[str, object]:
    """Return a request for the page."""
    return {"type": "http", "method": "GET", "path": "/", "query_string": query.encode(), "headers": []}


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """Use the parts on a fresh folder."""
    return Parts(tmp_path, limits=Limits(max_running=300))


@pytest.fixture
def shown_by(parts: Parts) -> Page:
    """Show these parts."""
    return Page(parts.subagents, inbox=parts.inbox, store=parts.spawner.planner.store, agent=f"alice {EVIL}")


async def look(shown_by: Page, query: str = "", *, status: int = 200) -> Markup:
    """Look at a page."""
    document = await shown_by.html(scope_of(query))
    assert isinstance(document, Document), document
    assert (document.status, document.content_type) == (status, "text/html; charset=utf-8")
    markup = Markup(document.body)
    assert set(markup.tags) <= TAGS
    assert not [name for name, _ in markup.attributes if name.startswith("on") or name in ("style", "src")]
    return markup


async def test_with_nothing_to_show_it_says_how_to_begin(shown_by: Page) -> None:
    markup = await look(shown_by)
    assert "No subagents yet." in markup.text
    assert "None is open, and all are delivered." in markup.text
    assert f"hive-subagent-daemon {__version__}" in markup.text
    assert "0 running, 0 loose ends \N{EN DASH} subagents of alice" in markup.text


async def test_it_reads_itself_again_unless_it_is_held(shown_by: Page) -> None:
    following, held = await look(shown_by), await look(shown_by, "refresh=0")
    assert ("http-equiv", "refresh") in following.attributes
    assert ("http-equiv", "refresh") not in held.attributes
    assert "/?refresh=0" in following.links
    assert "/" in held.links


async def test_a_running_one_and_an_ended_one_are_rows_with_what_matters(
    parts: Parts, shown_by: Page
) -> None:
    async with parts.running():
        await parts.play("docs")
        await parts.start("reviewer")
        markup = await look(shown_by)
    assert markup.tags.count("tr") == 3
    assert {"/?name=docs", "/?name=reviewer"} <= set(markup.links)
    for text in ("1 running", "1 loose end open", "completed", "no output yet", "docs completed its turn"):
        assert text in markup.text


async def test_two_hundred_are_shown_and_the_rest_is_counted(
    parts: Parts, shown_by: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "MOST_SUBAGENTS", 60)
    async with parts.running():
        for number in range(65):
            await parts.start(f"s-{number}")
        markup = await look(shown_by)
        detail = await look(shown_by, "name=s-64")
    assert markup.tags.count("tr") == 61
    assert "… and 5 more" in markup.text
    assert "65 running" in markup.text
    assert "s-64" in detail.text


async def test_warnings_of_the_daemon_stand_on_every_page(parts: Parts, shown_by: Page) -> None:
    parts.subagents.notices.append(f"the disk {EVIL}")
    async with parts.running():
        await parts.play("docs")
    for query in ("", "name=docs"):
        assert f"the disk {EVIL}" in (await look(shown_by, query)).text


async def test_of_one_subagent_the_end_of_its_conversation_is_shown(parts: Parts, shown_by: Page) -> None:
    said = {"type": "assistant", "message": {"content": [{"type": "text", "text": f"a {EVIL}"}]}}
    async with parts.running():
        session = (await parts.start("docs"))["session_id"]
        (parts.project / f"{session}.jsonl").write_text(json.dumps(said))
        markup = await look(shown_by, "name=docs")
    assert f"a {EVIL}" in markup.text
    assert "The running turn" in markup.text
    assert str(parts.work) in markup.text


async def test_a_conversation_that_is_not_there_is_said_with_where_it_would_be(
    parts: Parts, shown_by: Page
) -> None:
    async with parts.running():
        session = (await parts.start("docs"))["session_id"]
        missing = parts.project / f"{session}.jsonl"
        assert str(missing) in (await look(shown_by, "name=docs")).text
        missing.symlink_to("/etc/hostname")
        assert "cannot be read" in (await look(shown_by, "name=docs")).text


@pytest.mark.parametrize("session", ["../../../etc/passwd", "x", "", "%2e%2e", "a" * 300])
async def test_a_session_that_claude_made_up_leads_nowhere(parts: Parts, session: str) -> None:
    assert parts.spawner.planner.store.transcript(session, parts.work) is None


@pytest.mark.parametrize("name", ["nobody", "", "UPPER", EVIL, "x" * 5000, "..", "a\x00b", "\ud800"])
async def test_a_name_that_nothing_is_known_of_is_said_to_be_unknown(shown_by: Page, name: str) -> None:
    query = f"name={quote(name, errors='surrogatepass')}"
    document = await shown_by.html(scope_of(query))
    assert isinstance(document, Document)
    if name:
        markup = await look(shown_by, query, status=404)
        assert "No such subagent" in markup.text
        assert len(markup.text) < 2000


async def test_an_address_with_too_many_parts_is_refused(shown_by: Page) -> None:
    answer = await shown_by.html(scope_of("&".join(f"a{number}=1" for number in range(50))))
    assert isinstance(answer, Refusal)
    assert answer.status == 400


async def test_a_disk_that_cannot_be_read_is_a_sentence(
    parts: Parts, shown_by: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_loose_end_id: str) -> LooseEnd | None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with parts.running():
        await parts.play("docs")
        monkeypatch.setattr(parts.inbox, "read", fails)
        answer = await shown_by.html(scope_of())
    assert isinstance(answer, Refusal)
    assert (answer.status, "Input/output error" in answer.sentence) == (503, True)


async def test_a_disk_that_hangs_holds_up_two_looks_and_refuses_the_others(
    parts: Parts, shown_by: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would hold one of the threads in which the ends of turns are stored."""
    monkeypatch.setattr(page, "BUSY_SECONDS", 0.05)
    answers: list[Document | Refusal] = []
    hanging = anyio.Event()
    began = 0

    async def hangs(_make: object, *_arguments: object) -> Document:
        nonlocal began
        began += 1
        await hanging.wait()
        return Document("text/html", b"")

    async def one_look() -> None:
        answers.append(await shown_by.html(scope_of()))

    monkeypatch.setattr(page, "in_thread", hangs)
    async with anyio.create_task_group() as looks:
        for _ in range(5):
            looks.start_soon(one_look)
        await until(lambda: len(answers) == 3)
        assert began == page.READERS == 2
        assert {answer.status for answer in answers} == {503}
        hanging.set()
    assert len(answers) == 5
    assert parts.registry.running == {}


async def test_closed_ones_stand_there_until_they_are_delivered(parts: Parts) -> None:
    kept = outcome(Verdict(OutcomeKind.COMPLETED, text="done"))
    waiting = (Undelivered("a"), Undelivered("b", stepped_aside=True))
    notice = page_view.notice_of(
        LooseEnd("i", "t", kept, closed_at="2026-01-31T12:01:00.500Z", undelivered=waiting), now=clock.now()
    )
    assert notice.closed
    assert notice.undelivered == "not delivered to 2 sinks, 1 of them refused it"
    assert parts.inbox.unsettled() == []


_texts = st.text(st.characters(), max_size=40) | st.just(EVIL)
_frames = st.builds(page_view.Frame, _texts, _texts, _texts, st.sampled_from([0, 5]), st.just("/?name=x"))
_tails: SearchStrategy[Tail] = st.builds(
    Tail,
    st.lists(
        st.builds(Said, st.sampled_from(Speaker), _texts, st.integers(0, 99), st.none() | _texts, _texts)
    ),
    st.booleans(),
)


@given(any_outcome, _frames, _tails, st.lists(_texts))
def test_whatever_the_texts_are_they_stay_texts(
    ended: object, frame: page_view.Frame, tail: Tail, warnings: list[str]
) -> None:
    assert isinstance(ended, type(outcome(Verdict(OutcomeKind.COMPLETED))))
    notice = page_view.notice_of(LooseEnd("id", EVIL, ended), now=clock.now())
    subagent = page_view.Subagent(
        EVIL,
        "idle",
        stalled=False,
        well=True,
        turn="t",
        doing=EVIL,
        lasting="",
        last_output="",
        memory="",
        cost="",
    )
    warned = page_view.lines(warnings)
    fields = (page_view.Field(EVIL, EVIL),)
    overview = page_view.Overview(
        frame, 0, (subagent,), 0, (notice,), 1, open=1, undelivered=1, warnings=warned, facts=fields
    )
    detail = page_view.Detail(frame, subagent, (notice,), 0, page_view.conversation_of(tail), warned)
    for content in (
        overview_html(overview),
        detail_html(detail),
        nobody_html(page_view.Nobody(frame, EVIL)),
    ):
        markup = Markup(content)
        assert set(markup.tags) <= TAGS
        assert not [name for name, _ in markup.attributes if name.startswith("on")]
        assert all(link and re.match(r"#|/(?!/)", link) for link in markup.links)
