"""The built-in inbox: reading loses nothing, closing is explicit and final, old closed ones go."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon import clock
from hive_subagent_daemon.inbox import Inbox
from hive_subagent_daemon.records import Records
from hive_subagent_daemon.storage import Storage, open_state_dir
from tests.unit.support_records import loose_end

if TYPE_CHECKING:
    from pathlib import Path

    from hive_subagent_daemon.values import LooseEnd

FIRST, SECOND, THIRD = (f"20260131_12000{n}_000_abcd" for n in range(3))
NOW = datetime(2026, 2, 10, tzinfo=UTC)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    """Use a fresh state directory."""
    os.close(open_state_dir(tmp_path))
    return Records(Storage(tmp_path, ballast_bytes=0))


@pytest.fixture
def inbox(records: Records) -> Inbox:
    """Use an inbox with three loose ends of two names, stored in another order than their age."""
    made = Inbox(records, ())
    for turn, name in ((THIRD, "a"), (FIRST, "a"), (SECOND, "b")):
        stored(made, loose_end(turn, name=name))
    return made


def stored(inbox: Inbox, end: LooseEnd) -> None:
    """Store a loose end and show it."""
    inbox.store(end)
    inbox.show(end)


def after_restart(records: Records) -> Inbox:
    """Return the inbox that a restarted daemon reads."""
    return Inbox(records, records.loose_ends())


def test_open_ones_are_selected_oldest_first(inbox: Inbox) -> None:
    assert inbox.select(name=None, ids=None) == [FIRST, SECOND, THIRD]
    assert inbox.select(name="a", ids=None) == [FIRST, THIRD]
    assert inbox.select(name="nobody", ids=None) == []
    assert inbox.open_count == 3


def test_ids_select_closed_ones_too_each_once_and_only_those_that_exist(inbox: Inbox) -> None:
    inbox.close(FIRST)
    assert inbox.select(name=None, ids=[THIRD, FIRST, "../names/a", FIRST, ""]) == [FIRST, THIRD]
    assert inbox.select(name="b", ids=[FIRST, SECOND]) == [SECOND]
    assert inbox.select(name=None, ids=[]) == []


def test_the_newest_is_told_whether_open_or_closed(inbox: Inbox, records: Records) -> None:
    """Ids of turns after a restart sort behind it, whatever the clock says then."""
    inbox.close(THIRD)
    assert (inbox.newest, after_restart(records).newest) == (THIRD, THIRD)
    assert Inbox(records, ()).newest is None


def test_reading_loses_nothing(inbox: Inbox, records: Records) -> None:
    for _ in range(3):
        end = inbox.read(FIRST)
        assert end == loose_end(FIRST, name="a")
    assert inbox.select(name=None, ids=None) == [FIRST, SECOND, THIRD]
    assert after_restart(records).select(name=None, ids=None) == [FIRST, SECOND, THIRD]


def test_a_stored_one_appears_when_it_is_shown_and_survives_unshown(inbox: Inbox, records: Records) -> None:
    later = loose_end("20260131_120009_000_abcd")
    inbox.store(later)
    assert later.id not in inbox
    assert later.id in after_restart(records)
    inbox.show(later)
    assert later.id in inbox


def test_the_same_one_stored_and_shown_again_is_still_one(inbox: Inbox, records: Records) -> None:
    """A turn has exactly one loose end, however often a crash lets its end be stored."""
    stored(inbox, loose_end(FIRST, name="a"))
    assert inbox.select(name=None, ids=None) == [FIRST, SECOND, THIRD]
    assert after_restart(records).open_count == 3


def test_showing_a_closed_one_again_does_not_open_it(inbox: Inbox) -> None:
    inbox.close(FIRST)
    inbox.show(loose_end(FIRST, name="a"))
    assert inbox.select(name=None, ids=None) == [SECOND, THIRD]


def test_closing_is_durable_and_may_be_repeated(inbox: Inbox, records: Records) -> None:
    assert [inbox.close(FIRST), inbox.close(FIRST)] == [True, True]
    closed = inbox.read(FIRST)
    assert closed is not None
    assert closed.closed_at is not None
    assert inbox.open_count == 2
    assert after_restart(records).select(name=None, ids=None) == [SECOND, THIRD]
    assert after_restart(records).close(FIRST)
    again = inbox.read(FIRST)
    assert again == closed


@pytest.mark.parametrize("unknown", ["", "x", "../names/a", FIRST + "x"])
def test_closing_what_is_not_there_is_told(inbox: Inbox, unknown: str) -> None:
    assert inbox.close(unknown) is False


def test_a_close_that_the_disk_refuses_leaves_it_open(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_storage: Storage, path: Path, content: bytes) -> None:
        del path, content
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(Storage, "write", refused)
    with pytest.raises(OSError, match="full"):
        inbox.close(FIRST)
    assert inbox.select(name=None, ids=None) == [FIRST, SECOND, THIRD]


@pytest.mark.parametrize("damage", ["gone", "unreadable"])
def test_one_whose_file_was_damaged_while_we_ran_disappears_and_is_reported(
    inbox: Inbox, records: Records, tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "loose-ends" / f"{FIRST}.json"
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(b"{")
    assert inbox.close(FIRST) is False
    assert FIRST not in inbox
    assert inbox.open_count == 2
    assert len(records.unreadable) == (0 if damage == "gone" else 1)


def test_closed_ones_are_removed_after_their_days_and_open_ones_never(
    inbox: Inbox, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    for days, turn in ((8, FIRST), (6, SECOND)):
        monkeypatch.setattr(clock, "now", lambda days=days: NOW - timedelta(days=days))
        inbox.close(turn)
    monkeypatch.setattr(clock, "now", lambda: NOW)
    assert inbox.purge(closed_days=7) == 1
    assert inbox.purge(closed_days=7) == 0
    assert FIRST not in inbox
    assert inbox.select(name=None, ids=[FIRST, SECOND, THIRD]) == [SECOND, THIRD]
    assert [end.id for end in after_restart_ends(records)] == [SECOND, THIRD]
    monkeypatch.setattr(clock, "now", lambda: NOW + timedelta(days=4_000))
    assert inbox.purge(closed_days=7) == 1
    assert inbox.select(name=None, ids=None) == [THIRD]


def after_restart_ends(records: Records) -> list[LooseEnd]:
    """Return what is on disk."""
    return list(records.loose_ends())


def test_keeping_closed_ones_for_no_day_removes_them_at_once(inbox: Inbox) -> None:
    inbox.close(FIRST)
    assert inbox.purge(closed_days=0) == 1
