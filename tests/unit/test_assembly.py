"""The parts put together: an id of the state directory that stays, and halves of writes that go."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon.assembly import Parts as Assembled
from hive_subagent_daemon.assembly import assemble, open_storage
from hive_subagent_daemon.children import Children
from tests.unit.support_children import FakeLauncher
from tests.unit.support_records import loose_end
from tests.unit.support_turns import Parts

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """Use a fresh state directory."""
    return Parts(tmp_path)


def assembled(parts: Parts) -> Assembled:
    """Put the parts of a daemon together on that state directory."""
    storage, _ = open_storage(parts.config)
    return assemble(
        parts.config, storage=storage, launcher=FakeLauncher(), children=Children(), environ={"HOME": "/"}
    )


def test_the_instance_is_made_once_and_stays(parts: Parts) -> None:
    """By it the units of an earlier daemon are found again."""
    _, made = open_storage(parts.config)
    assert len(made) == 8
    assert set(made) <= set("0123456789abcdef")
    assert open_storage(parts.config)[1] == made
    assert stat.S_IMODE((parts.state / "instance").stat().st_mode) == 0o600


def test_every_state_directory_has_an_instance_of_its_own(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(8)]
    for folder in folders:
        folder.mkdir()
    assert len({open_storage(Parts(folder).config)[1] for folder in folders}) == 8


@pytest.mark.parametrize(
    "content",
    [b"", b"0123456", b"012345678", b"ABCDEF01", b"../../x.", b"0f0e-d0c", b"\xff\xfe0f0e0d", b"\0" * 8],
)
def test_an_instance_that_cannot_stand_in_a_unit_name_is_replaced(parts: Parts, content: bytes) -> None:
    (parts.state / "instance").write_bytes(content)
    _, made = open_storage(parts.config)
    assert made.encode() != content
    assert open_storage(parts.config)[1] == made


def test_blanks_around_an_instance_do_not_matter(parts: Parts) -> None:
    (parts.state / "instance").write_text(" 0f0e0d0c\n\n")
    assert open_storage(parts.config)[1] == "0f0e0d0c"


def test_the_halves_of_writes_that_a_crash_left_go(parts: Parts) -> None:
    halves = [parts.state / ".instance.0a0b.partial", parts.state / ".probe.0a0b"]
    for half in halves:
        half.write_text("ha")
    kept = parts.state / ".else"
    kept.write_text("x")
    open_storage(parts.config)
    assert not any(half.exists() for half in halves)
    assert kept.exists()


async def test_the_parts_know_what_is_remembered_and_the_launcher_that_they_were_given(parts: Parts) -> None:
    parts.records.store_loose_end(loose_end())
    made = assembled(parts)
    assert made.inbox.open_count == 1
    found = await made.subagents.status(None)
    assert found["launcher"] == made.launcher.description
