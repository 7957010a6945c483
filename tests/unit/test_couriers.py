"""Couriers deliver at least once, in order for each sink, and say what they could not deliver."""

from __future__ import annotations

import errno
import json
import logging
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import pytest

from hive_subagent_daemon import couriers as couriers_module
from hive_subagent_daemon import deliveries, views
from hive_subagent_daemon.couriers import Courier, Couriers, body_of
from hive_subagent_daemon.deliveries import TAKEN, Answer, Queue, Reply, failed
from hive_subagent_daemon.inbox import Inbox
from hive_subagent_daemon.records import Records
from hive_subagent_daemon.sink_values import CommandSink
from hive_subagent_daemon.storage import Storage, open_state_dir
from tests.unit.support_records import loose_end
from tests.unit.support_turns import LIMIT_SECONDS, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

A, B, C, D = (f"20260131_12000{n}_000_abcd" for n in range(4))
REFUSED = Answer(Reply.REFUSED, "it answered with status 400")
FAILED = failed("there is no connection")
SINKS = (CommandSink(("one",)), CommandSink(("two",), "second"))


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all pauses be a hundredth of what they are, the slow one a thousandth."""
    monkeypatch.setattr(deliveries, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(deliveries, "LONGEST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(deliveries, "ASIDE_SECONDS", 0.3)
    monkeypatch.setattr(couriers_module, "pause_seconds", lambda _tries, *, chance: 0.01 + chance / 1000)


class FakeCarrier:
    """Answers as it is told to for each loose end, else takes it; remembers every attempt."""

    def __init__(self) -> None:
        """Take everything."""
        self.tried: list[str] = []
        self.bodies: list[bytes] = []
        self.answers: dict[str, Answer] = {}
        self.answer = TAKEN
        self.held: anyio.Event | None = None
        self.at_once = 0

    async def carry(self, loose_end_id: str, body: bytes) -> Answer:
        """Try once."""
        self.at_once += 1
        assert self.at_once == 1, "two attempts at once"
        try:
            self.tried.append(loose_end_id)
            self.bodies.append(body)
            if self.held is not None:
                await self.held.wait()
            return self.answers.get(loose_end_id, self.answer)
        finally:
            self.at_once -= 1


class Deliveries:
    """An inbox with two sinks whose carriers are fakes, on one state directory."""

    def __init__(self, folder: Path) -> None:
        """Begin with an empty state directory."""
        os.close(open_state_dir(folder))
        self.records = Records(Storage(folder, ballast_bytes=0))
        self.restart()

    def restart(self) -> None:
        """Read the state directory anew, as the next daemon does."""
        self.inbox = Inbox(self.records, self.records.loose_ends(), sinks=[sink.id for sink in SINKS])
        self.one, self.two = FakeCarrier(), FakeCarrier()
        pairs = zip(SINKS, (self.one, self.two), strict=True)
        self.couriers = Couriers(Courier(sink, carrier, self.inbox) for sink, carrier in pairs)
        self.inbox.on_show = self.couriers.add
        self.changes = 0
        self.couriers.notify(self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def store(self, *ids: str) -> None:
        """Let turns end."""
        for loose_end_id in ids:
            self.inbox.store(loose_end(loose_end_id))
            self.inbox.show(loose_end(loose_end_id))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Deliver while the block lasts."""
        with anyio.fail_after(LIMIT_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.couriers.run)
                yield
                tasks.cancel_scope.cancel()

    async def delivered(self) -> None:
        """Wait until every sink has taken everything."""
        await until(lambda: self.couriers.undelivered == 0)


@pytest.fixture
def sinks(tmp_path: Path) -> Deliveries:
    """Deliver to two sinks."""
    return Deliveries(tmp_path)


async def test_what_waits_and_what_comes_is_delivered_to_every_sink_in_order(sinks: Deliveries) -> None:
    sinks.store(B, A)
    async with sinks.running():
        await sinks.delivered()
        sinks.store(D, C)
        await sinks.delivered()
    assert sinks.one.tried == sinks.two.tried == [B, A, D, C]
    assert sinks.changes >= 8
    sinks.restart()
    assert sinks.couriers.undelivered == 0


async def test_the_body_is_the_loose_end_as_a_parent_sees_it(sinks: Deliveries) -> None:
    sinks.store(A)
    async with sinks.running():
        await sinks.delivered()
    [body] = sinks.one.bodies
    assert body == body_of(loose_end(A))
    assert json.loads(body) == views.loose_end_json(loose_end(A), text_characters=4_000)


async def test_a_closed_one_is_still_delivered(sinks: Deliveries) -> None:
    sinks.store(A)
    sinks.inbox.close(A)
    async with sinks.running():
        await sinks.delivered()
    assert json.loads(sinks.one.bodies[0])["closed_at"] is not None


async def test_one_that_fails_is_tried_again_until_it_is_taken_and_the_others_wait(sinks: Deliveries) -> None:
    sinks.one.answer = FAILED
    sinks.store(A, B)
    async with sinks.running():
        await until(lambda: len(sinks.one.tried) >= 8)
        assert set(sinks.one.tried) == {A}
        assert sinks.couriers.undelivered == 2
        sinks.one.answer = TAKEN
        await sinks.delivered()
    assert sinks.one.tried[-2:] == [A, B]
    assert sinks.two.tried == [A, B]


async def test_a_sink_that_hangs_holds_up_no_other(sinks: Deliveries) -> None:
    sinks.one.held = anyio.Event()
    sinks.store(A, B)
    async with sinks.running():
        await until(lambda: sinks.two.tried == [A, B])
        assert sinks.one.tried == [A]
        sinks.one.held.set()
        await sinks.delivered()


async def test_one_that_is_refused_five_times_steps_aside_and_is_taken_in_the_end(sinks: Deliveries) -> None:
    sinks.one.answers[A] = REFUSED
    sinks.store(A, B, C)
    async with sinks.running():
        await until(lambda: C in sinks.one.tried)
        assert sinks.one.tried == [A, A, A, A, A, B, C]
        await until(lambda: len(sinks.one.tried) == 8)
        assert sinks.one.tried[-1] == A
        assert sinks.couriers.undelivered == 1
        del sinks.one.answers[A]
        await sinks.delivered()
    assert sinks.couriers.warnings() == []


async def test_one_that_stepped_aside_does_not_hold_up_others_after_a_restart_either(
    sinks: Deliveries,
) -> None:
    sinks.one.answers[A] = REFUSED
    sinks.store(A, B)
    async with sinks.running():
        await until(lambda: B in sinks.one.tried)
        await until(lambda: sinks.couriers.undelivered == 1)
    sinks.restart()
    sinks.one.answers[A] = REFUSED
    sinks.store(C)
    async with sinks.running():
        await until(lambda: len(sinks.one.tried) >= 2)
    assert sinks.one.tried[:2] == [C, A]


async def test_what_was_under_way_comes_again_under_the_same_key(sinks: Deliveries) -> None:
    """The daemon was stopped before it knew the answer."""
    sinks.one.held = anyio.Event()
    sinks.store(A, B)
    async with sinks.running():
        await until(lambda: sinks.one.tried == [A])
        await until(lambda: not sinks.inbox.undelivered(SINKS[1].id, stepped_aside=False))
    sinks.restart()
    async with sinks.running():
        await sinks.delivered()
    assert (sinks.one.tried, sinks.two.tried) == ([A, B], [])


async def test_a_delivery_that_cannot_be_noted_is_not_repeated_but_noted_later(
    sinks: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    sinks.store(A, B)
    refusals = 0

    def refused(_storage: Storage, path: Path, content: bytes) -> None:
        nonlocal refusals
        del path, content
        refusals += 1
        raise OSError(errno.ENOSPC, "full")

    async with sinks.running():
        with monkeypatch.context() as patch:
            patch.setattr(Storage, "write", refused)
            await until(lambda: refusals >= 6)
            assert sinks.one.tried == [A]
            assert any("cannot be noted" in one for one in sinks.couriers.warnings())
        await sinks.delivered()
    assert sinks.one.tried == [A, B]
    assert sinks.couriers.warnings() == []


async def test_one_that_cannot_be_read_is_tried_again(
    sinks: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    sinks.store(A)

    def broken(_inbox: Inbox, loose_end_id: str) -> None:
        raise OSError(errno.EIO, f"no {loose_end_id}")

    async with sinks.running():
        with monkeypatch.context() as patch:
            patch.setattr(Inbox, "read", broken)
            await until(lambda: sinks.couriers.trouble())
        await sinks.delivered()
    assert sinks.one.tried == [A]


async def test_one_that_is_gone_holds_up_nobody(
    sinks: Deliveries, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sinks.store(A, B)
    (tmp_path / "loose-ends" / f"{A}.json").unlink()
    async with sinks.running():
        await sinks.delivered()
    assert sinks.one.tried == [B]
    assert f"loose end {A} is gone" in caplog.text


async def test_a_sink_in_trouble_is_told_with_the_reason_and_no_more_once_it_takes_again(
    sinks: Deliveries, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="hive_subagent_daemon")
    sinks.two.answer = FAILED
    sinks.store(A, B)
    async with sinks.running():
        await until(lambda: len(sinks.two.tried) >= 4)
        trouble = "sink second does not take loose ends: there is no connection"
        assert sinks.couriers.trouble() == [trouble]
        again = f"{trouble}; 2 loose ends not delivered, which is tried again by itself."
        assert sinks.couriers.warnings() == [again]
        sinks.two.answer = TAKEN
        await sinks.delivered()
    assert sinks.couriers.trouble() == sinks.couriers.warnings() == []
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "sink second does not take loose ends: there is no connection; tried again by itself",
        "sink second takes loose ends again",
    ]


async def test_one_that_stepped_aside_is_told_with_its_id_and_the_reason(
    sinks: Deliveries, caplog: pytest.LogCaptureFixture
) -> None:
    sinks.one.answers = dict.fromkeys((A, B, C, D), REFUSED)
    sinks.store(A, B, C, D)
    async with sinks.running():
        await until(lambda: "refused 4 loose ends" in "".join(sinks.couriers.warnings()))
        [warning] = sinks.couriers.warnings()
    assert warning.startswith(
        f"sink one has refused 4 loose ends again and again (it answered with status 400): {A}, {B}, {C} and"
    )
    assert "steps aside" in caplog.text
    assert sinks.couriers.trouble() == []


async def test_with_nothing_to_deliver_nothing_wakes_up(
    sinks: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests = 0
    due_at = Queue.due_at

    def counted(queue: Queue) -> float:
        nonlocal rests
        rests += 1
        return due_at(queue)

    monkeypatch.setattr(Queue, "due_at", counted)
    sinks.store(A)
    async with sinks.running():
        await sinks.delivered()
        await sinks.couriers.rest(within_seconds=5)
        before = rests
        await anyio.sleep(0.2)
        assert 1 <= rests == before <= 4


async def test_rest_waits_for_what_can_be_delivered_and_not_for_what_cannot(sinks: Deliveries) -> None:
    """At a stop the last loose ends still go out, but a sink that is down does not hold the stop up."""
    sinks.two.answer = FAILED
    async with sinks.running():
        await sinks.couriers.rest(within_seconds=5)
        sinks.store(A, B, C)
        await sinks.couriers.rest(within_seconds=5)
        assert sinks.one.tried == [A, B, C]
        assert set(sinks.two.tried) == {A}
        sinks.one.held = anyio.Event()
        sinks.store(D)
        began = anyio.current_time()
        await sinks.couriers.rest(within_seconds=0.2)
        assert 0.15 < anyio.current_time() - began < 2


async def test_without_sinks_there_is_nothing_to_do() -> None:
    none = Couriers(())
    none.add(A)
    with anyio.fail_after(1):
        await none.run()
        await none.rest(within_seconds=1)
    assert (none.undelivered, none.trouble(), none.warnings()) == (0, [], [])
