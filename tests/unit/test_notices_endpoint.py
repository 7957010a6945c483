"""`/notices` over real sockets: who waits for what, who is shown what, and what is claimed before it goes."""

from __future__ import annotations

import errno
import json
import os
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from typing_extensions import override

from hive_subagent_daemon import notices_endpoint
from hive_subagent_daemon.inbox import Inbox
from hive_subagent_daemon.mcp_endpoint import Paths
from hive_subagent_daemon.notice_claims import Claims
from hive_subagent_daemon.notices_endpoint import NOTICES_PATH, NoticesEndpoint
from hive_subagent_daemon.records import Records
from hive_subagent_daemon.storage import Storage, open_state_dir
from hive_subagent_daemon.threads import in_thread
from tests.support.edge import LIMIT_SECONDS, serving
from tests.unit.support_records import loose_end
from tests.unit.support_turns import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection
    from pathlib import Path

    from starlette.types import Message, Receive, Scope, Send

    from hive_subagent_daemon.notices import Question
    from tests.support.edge import Client, Edge

Json = dict[str, Any]
FIRST, SECOND, THIRD = (f"20260131_12000{n}_000_abcd" for n in range(3))


class Turns:
    """What runs, as the test says."""

    def __init__(self) -> None:
        """One subagent runs."""
        self.running = {"alpha"}

    @property
    def busy(self) -> bool:
        """Whether anything runs."""
        return bool(self.running)


class Disk(Storage):
    """A storage that can be full, and that tells once when something below `notices` was written."""

    full = False
    on_write: Callable[[], None] | None = None

    @override
    def write(self, path: Path, content: bytes) -> None:
        """Write, or fail like a full disk."""
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(path, content)
        if path.parent.name == "notices" and self.on_write is not None:
            once, self.on_write = self.on_write, None
            once()


class Notices:
    """The endpoint with an inbox on disk."""

    def __init__(self, folder: Path) -> None:
        """Nothing is open yet."""
        os.close(open_state_dir(folder))
        self.disk = Disk(folder, ballast_bytes=0)
        self.inbox = Inbox(Records(self.disk), ())
        self.turns = Turns()
        self.claims = Claims(self.disk, partial(self.inbox.select, name=None, ids=None))
        self.endpoint = NoticesEndpoint(self.inbox, self.turns, self.claims)
        self.edge: Edge
        self.gone = anyio.Event()

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the endpoint, and hear when a client has gone."""

        async def noted() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.gone.set()
            return message

        await self.endpoint(scope, noted, send)

    def end(self, turn: str, *, name: str = "alpha", still_running: bool = False) -> None:
        """Let a turn end, as the registry does."""
        ended = loose_end(turn, name=name)
        self.inbox.store(ended)
        if not still_running:
            self.turns.running.discard(name)
        self.inbox.show(ended)
        self.endpoint.changed()

    def close(self, turn: str) -> None:
        """Let some parent close a loose end."""
        self.inbox.close(turn)
        self.endpoint.changed()

    def claimed(self, session: str) -> set[str]:
        """Return what the disk says that a session has been shown."""
        path = self.disk.root / "notices" / f"{session}.json"
        return {*json.loads(path.read_text())["shown"]["ids"]} if path.exists() else set()

    async def ask(self, query: str) -> Json:
        """Ask on a connection of its own and return the answer."""
        async with self.edge.client() as client:
            response = await client.call("GET", f"{NOTICES_PATH}?{query}")
        assert response.status == 200, response.text
        told: Json = json.loads(response.body)
        return told

    @asynccontextmanager
    async def waiting(self, session: str, *, waiter: str = "w") -> AsyncIterator[Client]:
        """Connect a client whose wait has begun."""
        async with self.edge.client() as client:
            await client.send("GET", f"{NOTICES_PATH}?session={session}&waiter={waiter}")
            assert (await client.head()).status_code == 200
            yield client


async def told(client: Client) -> Json:
    """Return what a waiting client is told at last."""
    answer: Json = json.loads(await client.rest())
    return answer


async def hears_nothing(client: Client) -> bool:
    """Tell whether a client still waits after some turns of the event loop."""
    with anyio.move_on_after(0.05):
        await client.event()
        return False
    return True


@pytest.fixture
async def notices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Notices]:
    """Serve the endpoint; turns that end together are gathered for a short time only."""
    monkeypatch.setattr(notices_endpoint, "GATHER_SECONDS", 0.02)
    made = Notices(tmp_path)
    with anyio.fail_after(4 * LIMIT_SECONDS):
        async with serving(Paths({NOTICES_PATH: made.app})) as made.edge:
            yield made


async def test_a_wait_ends_with_the_next_ended_turn(notices: Notices) -> None:
    async with notices.waiting("a") as client:
        assert await hears_nothing(client)
        notices.end(FIRST)
        answer = await told(client)
    assert answer["reason"] == "notices"
    assert [one["id"] for one in answer["loose_ends"]] == [FIRST]
    assert "alpha: completed" in answer["text"]
    assert (answer["running"], answer["open"], answer["more"]) == (0, 1, 0)


async def test_what_is_shown_was_claimed_on_disk_before(notices: Notices) -> None:
    async with notices.waiting("a") as client:
        notices.end(FIRST)
        await told(client)
        assert notices.claimed("a") == {FIRST}
    assert notices.claimed("b") == set()


async def test_each_session_is_shown_each_notice_once(notices: Notices) -> None:
    notices.end(FIRST, still_running=True)
    for session in ("a", "b"):
        assert (await notices.ask(f"session={session}"))["reason"] == "notices"
        async with notices.waiting(session) as client:
            assert await hears_nothing(client)
    notices.end(SECOND)
    for session in ("a", "b"):
        answer = await notices.ask(f"session={session}")
        assert [one["id"] for one in answer["loose_ends"]] == [SECOND]
        assert (await notices.ask(f"session={session}"))["reason"] == "nothing"


async def test_with_nothing_running_and_nothing_unseen_there_is_no_wait(notices: Notices) -> None:
    notices.turns.running.clear()
    answer = await notices.ask("session=a")
    assert answer == {
        "reason": "nothing", "running": 0, "open": 0, "loose_ends": [], "more": 0, "text": "",
    }  # fmt: skip


async def test_a_wait_ends_when_another_parent_closes_the_last_one(
    notices: Notices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices_endpoint, "GATHER_SECONDS", 0.3)
    async with notices.waiting("a") as client:
        notices.end(FIRST)
        notices.close(FIRST)
        assert (await told(client))["reason"] == "nothing"
    assert notices.claimed("a") == set()


async def test_a_wait_ends_when_the_last_turn_goes_without_a_notice(notices: Notices) -> None:
    async with notices.waiting("a") as client:
        notices.turns.running.clear()
        notices.endpoint.changed()
        assert (await told(client))["reason"] == "nothing"


async def test_turns_that_end_together_are_told_together(notices: Notices) -> None:
    notices.turns.running = {"alpha", "beta", "gamma"}
    async with notices.waiting("a") as client:
        notices.end(FIRST)
        await anyio.lowlevel.checkpoint()
        notices.end(SECOND, name="beta")
        answer = await told(client)
    assert [one["id"] for one in answer["loose_ends"]] == [FIRST, SECOND]
    assert notices.claimed("a") == {FIRST, SECOND}


async def test_a_hundred_at_once_are_one_bounded_answer(notices: Notices) -> None:
    ids = [f"20260131_120000_{number:03d}_abcd" for number in range(100)]
    for one in ids:
        notices.end(one)
    answer = await notices.ask("session=a")
    shown = [one["id"] for one in answer["loose_ends"]]
    assert shown == ids[: len(shown)]
    assert len(shown) + answer["more"] == 100
    assert len(json.dumps(answer)) < 40_000
    assert "100 turns" in answer["text"]
    assert (await notices.ask("session=a"))["reason"] == "nothing"


async def test_a_newer_waiter_of_the_session_releases_the_older_one(notices: Notices) -> None:
    async with notices.waiting("a", waiter="w1") as older, notices.waiting("a", waiter="w2") as newer:
        assert (await told(older))["reason"] == "released"
        async with notices.waiting("b") as other:
            assert await hears_nothing(newer)
            notices.end(FIRST)
            assert (await told(newer))["reason"] == "notices"
            assert (await told(other))["reason"] == "notices"


async def test_asking_what_is_open_releases_nobody_and_takes_what_is_unseen(notices: Notices) -> None:
    async with notices.waiting("a") as client:
        assert (await notices.ask("session=a&show=open"))["reason"] == "nothing"
        notices.end(FIRST, still_running=True)
        shown = await notices.ask("session=a&show=open")
        assert [one["id"] for one in shown["loose_ends"]] == [FIRST]
        assert await hears_nothing(client)
        notices.end(SECOND)
        assert [one["id"] for one in (await told(client))["loose_ends"]] == [SECOND]


async def test_counts_claim_nothing(notices: Notices) -> None:
    notices.end(FIRST, still_running=True)
    answer = await notices.ask("session=a&show=counts")
    assert (answer["reason"], answer["running"], answer["open"]) == ("counts", 1, 1)
    assert "1 subagent is running (alpha" in answer["text"]
    assert answer["loose_ends"] == []
    assert notices.claimed("a") == set()


async def test_a_client_that_has_gone_claims_nothing(notices: Notices) -> None:
    async with notices.waiting("a"):
        pass
    notices.end(FIRST)
    assert (await notices.ask("session=a"))["reason"] == "notices"


async def test_a_client_that_goes_during_the_claim_is_shown_it_again(notices: Notices) -> None:
    async with notices.waiting("a", waiter="w1") as client:

        def leave() -> None:
            client.sock.close()
            anyio.from_thread.run(notices.gone.wait)

        notices.gone = anyio.Event()
        notices.disk.on_write = leave
        notices.end(FIRST)
        await notices.gone.wait()
    answer = await notices.ask("session=a&waiter=w2")
    assert [one["id"] for one in answer["loose_ends"]] == [FIRST]


async def test_claims_of_many_parents_leave_threads_to_others(
    notices: Notices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow disk the end of the next turn must not queue behind the claims for every parent."""
    slow = anyio.Event()
    under_way: list[str] = []
    claim = notices.claims.claim

    def claim_slowly(question: Question, due: Collection[str]) -> None:
        under_way.append(question.session)
        anyio.from_thread.run(slow.wait)
        claim(question, due)

    monkeypatch.setattr(notices.claims, "claim", claim_slowly)
    async with AsyncExitStack() as clients:
        waiting = [await clients.enter_async_context(notices.waiting(f"s{n}")) for n in range(50)]
        notices.end(FIRST)
        await until(lambda: under_way)
        assert await hears_nothing(waiting[0])
        assert len(under_way) <= notices_endpoint.CLAIMING
        with anyio.fail_after(1):
            assert await in_thread(len, under_way)
        slow.set()
        assert {(await told(client))["reason"] for client in waiting} == {"notices"}


async def test_a_waiter_that_did_not_get_its_answer_is_given_it_again(notices: Notices) -> None:
    """A crash between the claim and the answer: the same program asks the next daemon."""
    notices.end(FIRST)
    assert (await notices.ask("session=a&waiter=w1"))["reason"] == "notices"
    restarted = Claims(notices.disk, partial(notices.inbox.select, name=None, ids=None))
    assert restarted.shown_to("a") == notices.claims.shown_to("a")
    assert (await notices.ask("session=a&waiter=w1"))["reason"] == "notices"
    assert (await notices.ask("session=a&waiter=w2"))["reason"] == "nothing"


async def test_what_cannot_be_claimed_is_not_shown_and_not_lost(
    notices: Notices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices_endpoint, "CLAIM_RETRY_SECONDS", (0.02,))
    async with notices.waiting("a") as client:
        notices.end(FIRST)
        notices.disk.full = True
        assert await hears_nothing(client)
        assert (await notices.ask("session=a&show=open"))["reason"] == "not stored"
        assert notices.claimed("a") == set()
        notices.disk.full = False
        assert (await told(client))["reason"] == "notices"
    assert notices.claimed("a") == {FIRST}


async def test_a_damaged_loose_end_wakes_nobody(notices: Notices) -> None:
    async with notices.waiting("a") as client:
        ended = loose_end(FIRST)
        notices.inbox.store(ended)
        (notices.disk.root / "loose-ends" / f"{FIRST}.json").write_text("{}")
        notices.turns.running.clear()
        notices.inbox.show(ended)
        notices.endpoint.changed()
        assert (await told(client))["reason"] == "nothing"


async def test_a_stop_lets_everybody_go_at_once(tmp_path: Path) -> None:
    made = Notices(tmp_path)

    async def close_streams() -> None:
        made.endpoint.close_streams()

    async with serving(Paths({NOTICES_PATH: made.app}), close_streams=close_streams) as made.edge:
        async with made.waiting("a") as one, made.waiting("b") as other:
            began = anyio.current_time()
            made.edge.stop.set()
            assert (await told(one))["reason"] == "stopping"
            assert (await told(other))["reason"] == "stopping"
        await made.edge.end()
        assert anyio.current_time() - began < 1.5


async def test_more_waiting_sessions_than_there_is_room_for_are_refused(
    notices: Notices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices_endpoint, "MOST_WAITING", 2)
    async with notices.waiting("a"), notices.waiting("b", waiter="w1") as older, notices.edge.client() as c:
        assert (await c.call("GET", f"{NOTICES_PATH}?session=c")).status == 503
        assert (await notices.ask("session=c&show=counts"))["reason"] == "counts"
        async with notices.waiting("b", waiter="w2"):
            assert (await told(older))["reason"] == "released"
    async with notices.waiting("c") as client:
        assert await hears_nothing(client)


@pytest.mark.parametrize("method", ["POST", "DELETE", "HEAD", "PUT"])
async def test_other_methods_are_refused(notices: Notices, method: str) -> None:
    async with notices.edge.client() as client:
        await client.send(method, f"{NOTICES_PATH}?session=a")
        assert (await client.head()).status_code == 405


@pytest.mark.parametrize("query", ["", "?session=../../x", f"?session={'a' * 10_000}", "?session=a&x=1"])
async def test_a_bad_query_is_refused_and_writes_nothing(notices: Notices, query: str) -> None:
    async with notices.edge.client() as client:
        response = await client.call("GET", f"{NOTICES_PATH}{query}")
    assert response.status == 400
    assert response.text.startswith("Refused: ")
    assert list((notices.disk.root / "notices").iterdir()) == []


async def test_a_caller_inside_a_turn_is_refused(notices: Notices) -> None:
    notices.edge.turn = FIRST
    async with notices.edge.client() as client:
        assert (await client.call("GET", f"{NOTICES_PATH}?session=a")).status == 403
