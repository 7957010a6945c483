"""What the inbox knows of sinks: stored with each loose end, changed durably, kept until it is delivered."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon import clock
from hive_subagent_daemon.inbox import UNDELIVERED_DAYS, Inbox
from hive_subagent_daemon.records import Records
from hive_subagent_daemon.storage import Storage, open_state_dir
from tests.unit.support_records import loose_end

if TYPE_CHECKING:
    from pathlib import Path

    from hive_subagent_daemon.values import LooseEnd

FIRST, SECOND, THIRD = (f"20260131_12000{n}_000_abcd" for n in range(3))
SINKS = ("hook", "program")
NOW = datetime(2026, 2, 10, tzinfo=UTC)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    """Use a fresh state directory."""
    os.close(open_state_dir(tmp_path))
    return Records(Storage(tmp_path, ballast_bytes=0))


@pytest.fixture
def inbox(records: Records) -> Inbox:
    """Use an inbox with two sinks and three loose ends, stored in another order than their turns began."""
    made = Inbox(records, (), sinks=SINKS)
    for turn in (THIRD, FIRST, SECOND):
        made.store(loose_end(turn))
        made.show(loose_end(turn))
    return made


def after_restart(records: Records, *sinks: str) -> Inbox:
    """Return the inbox that a restarted daemon with these sinks reads."""
    return Inbox(records, records.loose_ends(), sinks=sinks or SINKS)


def waiting(inbox: Inbox, sink: str = "hook") -> list[str]:
    """Return what waits for a sink."""
    return inbox.undelivered(sink, stepped_aside=False)


def aside(inbox: Inbox, sink: str = "hook") -> list[str]:
    """Return what stepped aside at a sink."""
    return inbox.undelivered(sink, stepped_aside=True)


def test_each_one_is_owed_to_every_sink_in_the_order_of_storing(records: Records, inbox: Inbox) -> None:
    """A turn that began later can end earlier."""
    again = after_restart(records)
    assert waiting(again) == waiting(again, "program") == [THIRD, FIRST, SECOND]
    assert set(waiting(inbox)) == {FIRST, SECOND, THIRD}
    assert aside(again) == aside(inbox) == []


def test_one_that_is_stored_but_not_shown_yet_is_owed_after_a_crash(records: Records, inbox: Inbox) -> None:
    later = loose_end("20260131_120009_000_abcd")
    inbox.store(later)
    assert later.id not in waiting(inbox)
    assert waiting(after_restart(records))[-1] == later.id


def test_the_numbers_go_on_after_a_restart(records: Records, inbox: Inbox) -> None:
    del inbox
    again = after_restart(records)
    again.store(loose_end("20260101_000000_000_abcd"))
    assert waiting(after_restart(records))[-1] == "20260101_000000_000_abcd"


def test_a_delivery_is_noted_for_its_sink_alone(records: Records, inbox: Inbox) -> None:
    inbox.note(FIRST, "hook", stepped_aside=False)
    for one in (inbox, after_restart(records)):
        assert sorted(waiting(one)) == [SECOND, THIRD]
        assert sorted(waiting(one, "program")) == [FIRST, SECOND, THIRD]


def test_stepping_aside_is_noted_and_so_is_its_delivery(records: Records, inbox: Inbox) -> None:
    inbox.note(FIRST, "hook", stepped_aside=True)
    for one in (inbox, after_restart(records)):
        assert (sorted(waiting(one)), aside(one), aside(one, "program")) == ([SECOND, THIRD], [FIRST], [])
    inbox.note(FIRST, "hook", stepped_aside=False)
    for one in (inbox, after_restart(records)):
        assert (sorted(waiting(one)), aside(one)) == ([SECOND, THIRD], [])


def test_a_note_may_be_repeated_and_writes_nothing_then(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.note(FIRST, "hook", stepped_aside=False)
    monkeypatch.setattr(Storage, "write", _refused)
    inbox.note(FIRST, "hook", stepped_aside=False)


def test_a_note_that_the_disk_refuses_changes_nothing(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Storage, "write", _refused)
    with pytest.raises(OSError, match="full"):
        inbox.note(FIRST, "hook", stepped_aside=False)
    assert FIRST in waiting(inbox)


def _refused(_storage: Storage, path: Path, content: bytes) -> None:
    del path, content
    raise OSError(errno.ENOSPC, "full")


def test_a_note_of_one_that_is_gone_does_not_bring_it_back(
    records: Records, inbox: Inbox, tmp_path: Path
) -> None:
    (tmp_path / "loose-ends" / f"{FIRST}.json").unlink()
    inbox.note(FIRST, "hook", stepped_aside=False)
    inbox.note("20260131_120009_000_abcd", "hook", stepped_aside=False)
    assert {end.id for end in records.loose_ends()} == {SECOND, THIRD}
    assert FIRST not in waiting(inbox)


def test_closing_leaves_what_is_owed_and_delivering_leaves_it_closed(records: Records, inbox: Inbox) -> None:
    inbox.close(FIRST)
    assert FIRST in waiting(after_restart(records))
    inbox.note(FIRST, "hook", stepped_aside=False)
    [end] = [end for end in records.loose_ends() if end.id == FIRST]
    assert end.closed_at is not None
    assert after_restart(records).open_count == 2


def test_closing_and_noting_at_once_lose_neither(records: Records, tmp_path: Path) -> None:
    """Both read a file, change it, and write it."""
    sinks = [f"sink-{n}" for n in range(8)]
    inbox = Inbox(records, (), sinks=sinks)
    inbox.store(loose_end(FIRST))
    inbox.show(loose_end(FIRST))
    together = threading.Barrier(len(sinks) + 1)

    def note(sink: str) -> None:
        together.wait(5)
        inbox.note(FIRST, sink, stepped_aside=False)

    def close() -> None:
        together.wait(5)
        inbox.close(FIRST)

    with ThreadPoolExecutor(len(sinks) + 1) as pool:
        for done in [pool.submit(close), *(pool.submit(note, sink) for sink in sinks)]:
            done.result(10)
    [end] = records.loose_ends()
    assert (end.undelivered, end.closed_at is None) == ((), False)
    assert list((tmp_path / "set-aside").iterdir()) == []


def test_without_sinks_nothing_is_owed_or_numbered(records: Records) -> None:
    inbox = Inbox(records, ())
    inbox.store(loose_end(FIRST))
    assert list(records.loose_ends()) == [loose_end(FIRST)]


def test_a_new_sink_is_owed_only_what_is_stored_from_then_on(records: Records, inbox: Inbox) -> None:
    del inbox
    again = after_restart(records, *SINKS, "new")
    assert waiting(again, "new") == []
    again.store(loose_end("20260131_120009_000_abcd"))
    assert waiting(after_restart(records, *SINKS, "new"), "new") == ["20260131_120009_000_abcd"]


def test_what_waits_for_a_removed_sink_is_forgotten_durably(records: Records, inbox: Inbox) -> None:
    inbox.note(FIRST, "hook", stepped_aside=True)
    inbox.note(SECOND, "hook", stepped_aside=False)
    again = after_restart(records, "program")
    assert again.forget_other_sinks() == 2
    assert again.forget_other_sinks() == 0
    back = after_restart(records)
    assert (waiting(back), aside(back)) == ([], [])
    assert sorted(waiting(back, "program")) == [FIRST, SECOND, THIRD]


def shown(inbox: Inbox) -> list[str]:
    """Let a list grow with each loose end that is shown."""
    found: list[str] = []
    inbox.on_show = found.append
    return found


def test_each_one_is_announced_once_when_it_is_shown(inbox: Inbox) -> None:
    found = shown(inbox)
    end: LooseEnd = loose_end("20260131_120009_000_abcd")
    inbox.store(end)
    assert found == []
    for _ in range(2):
        inbox.show(end)
    assert found == [end.id]


def test_a_closed_one_that_is_not_delivered_is_kept_for_a_month_more(
    records: Records, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for sink in SINKS:
        inbox.note(FIRST, sink, stepped_aside=False)
    inbox.note(SECOND, "hook", stepped_aside=True)
    monkeypatch.setattr(clock, "now", lambda: NOW)
    for turn in (FIRST, SECOND, THIRD):
        inbox.close(turn)
    monkeypatch.setattr(clock, "now", lambda: NOW + timedelta(days=8))
    assert inbox.purge(closed_days=7) == 1
    assert FIRST not in inbox
    monkeypatch.setattr(clock, "now", lambda: NOW + timedelta(days=6 + UNDELIVERED_DAYS))
    assert inbox.purge(closed_days=7) == 0
    monkeypatch.setattr(clock, "now", lambda: NOW + timedelta(days=8 + UNDELIVERED_DAYS))
    assert inbox.purge(closed_days=7) == 2
    assert "never delivered" in caplog.text
    assert list(records.loose_ends()) == []
