"""Claims: on disk before they count, bounded, and no obstacle when they are damaged."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from hive_subagent_daemon import clock, notice_claims
from hive_subagent_daemon.notice_claims import Claims
from hive_subagent_daemon.notices import Question, Shown
from hive_subagent_daemon.storage import Storage, open_state_dir

if TYPE_CHECKING:
    from pathlib import Path

A, B = Question("session-a"), Question("session-b")
NOW = datetime(2026, 2, 10, tzinfo=UTC)


class FullDisk(Storage):
    """A storage that writes nothing as long as it is told to be full."""

    full = False

    @override
    def write(self, path: Path, content: bytes) -> None:
        """Write, or fail like a full disk."""
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(path, content)


@pytest.fixture
def storage(tmp_path: Path) -> FullDisk:
    """Use a fresh state directory."""
    os.close(open_state_dir(tmp_path))
    return FullDisk(tmp_path, ballast_bytes=0)


@pytest.fixture
def opened() -> set[str]:
    """Return what is open, for a test to change."""
    return {"1", "2", "3"}


@pytest.fixture
def claims(storage: FullDisk, opened: set[str]) -> Claims:
    """Use claims that know of three open loose ends."""
    return Claims(storage, lambda: opened)


def files(storage: Storage) -> list[str]:
    """Return what lies in the folder of the claims."""
    return sorted(path.name for path in (storage.root / "notices").iterdir())


def test_a_claim_outlives_a_restart(claims: Claims, storage: FullDisk, opened: set[str]) -> None:
    claims.claim(Question("session-a", waiter="w"), ("1", "2"))
    again = Claims(storage, lambda: opened).shown_to("session-a")
    assert again == claims.shown_to("session-a")
    assert again == Shown(frozenset({"1", "2"}), "w", ("1", "2"))


def test_one_session_claims_nothing_for_another(claims: Claims) -> None:
    claims.claim(A, ("1",))
    assert claims.shown_to("session-b").ids == set()


def test_claims_of_a_session_add_up_and_forget_what_was_closed(claims: Claims, opened: set[str]) -> None:
    claims.claim(A, ("1", "2"))
    opened.remove("1")
    claims.claim(A, ("3",))
    assert claims.shown_to("session-a").ids == {"2", "3"}


def test_what_the_disk_does_not_take_is_not_claimed(claims: Claims, storage: FullDisk) -> None:
    storage.full = True
    with pytest.raises(OSError, match="No space"):
        claims.claim(A, ("1",))
    assert claims.shown_to("session-a").ids == set()
    storage.full = False
    claims.claim(A, ("1",))
    assert claims.shown_to("session-a").ids == {"1"}


def test_a_withdrawn_claim_leaves_nothing(claims: Claims, storage: FullDisk) -> None:
    claims.claim(A, ("1",))
    claims.withdraw("session-a", ("1",))
    assert claims.shown_to("session-a").ids == set()
    assert files(storage) == []


def test_withdrawing_what_is_not_there_is_fine(claims: Claims) -> None:
    claims.withdraw("session-a", ("1",))
    assert claims.shown_to("session-a").ids == set()


def test_housekeeping_forgets_what_is_closed_and_then_the_session(
    claims: Claims, storage: FullDisk, opened: set[str]
) -> None:
    claims.claim(A, ("1", "2"))
    claims.claim(B, ("1",))
    opened -= {"1"}
    claims.tidy(idle_days=90)
    assert files(storage) == ["session-a.json"]
    assert claims.shown_to("session-a").ids == {"2"}


def test_housekeeping_forgets_a_session_that_was_shown_nothing_for_long(
    claims: Claims, storage: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "now", lambda: NOW)
    claims.claim(A, ("1",))
    claims.tidy(idle_days=90)
    assert files(storage) == ["session-a.json"]
    monkeypatch.setattr(clock, "now", lambda: NOW + timedelta(days=91))
    claims.tidy(idle_days=90)
    assert files(storage) == []


def test_housekeeping_writes_nothing_where_nothing_changed(claims: Claims, storage: FullDisk) -> None:
    claims.claim(A, ("1",))
    storage.full = True
    claims.tidy(idle_days=90)
    assert claims.shown_to("session-a").ids == {"1"}


def test_the_session_unused_for_longest_makes_room(
    claims: Claims, storage: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notice_claims, "MOST_SESSIONS", 3)
    for number in range(5):
        monkeypatch.setattr(clock, "now", lambda number=number: NOW + timedelta(minutes=number))
        claims.claim(Question(f"s{number}"), ("1",))
    assert files(storage) == ["s2.json", "s3.json", "s4.json"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("session-a.json", b""),
        ("session-a.json", b"{}"),
        ("session-a.json", b"\xff\xfe"),
        ("session-a.json", b'{"session":"session-b","shown":{"ids":["1"]},"used_at":"2026-01-31T12:00:00Z"}'),
        ("session-a.json", b'{"session":"session-a","shown":{"ids":["1"]},"used_at":"2026-01-31T12:00:00"}'),
        ("session-a.json", b'{"session":"session-a","shown":{"ids":["1"]},"used_at":"yesterday"}'),
        ("...json", b'{"session":"..","shown":{"ids":["1"]},"used_at":"2026-01-31T12:00:00Z"}'),
        ("note", b"x"),
    ],
)
def test_a_damaged_file_is_set_aside_and_its_session_shown_again(
    storage: FullDisk, opened: set[str], name: str, content: bytes
) -> None:
    (storage.root / "notices" / name).write_bytes(content)
    claims = Claims(storage, lambda: opened)
    assert claims.shown_to("session-a").ids == set()
    assert files(storage) == []
    assert len(list((storage.root / "set-aside").iterdir())) == 1
    claims.claim(A, ("1",))
    assert files(storage) == ["session-a.json"]


def test_what_is_no_file_is_no_obstacle(storage: FullDisk, opened: set[str]) -> None:
    folder = storage.root / "notices"
    (folder / "a.json").mkdir()
    os.mkfifo(folder / "b.json")
    (folder / "c.json").symlink_to("nowhere")
    (folder / "d.json").symlink_to("d.json")
    Claims(storage, lambda: opened)
    assert files(storage) == []


def test_half_a_file_of_a_crash_is_removed(storage: FullDisk, opened: set[str]) -> None:
    (storage.root / "notices" / ".session-a.json.12345678.partial").write_bytes(b'{"sess')
    Claims(storage, lambda: opened)
    assert files(storage) == []
    assert list((storage.root / "set-aside").iterdir()) == []
