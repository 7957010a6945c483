"""What is kept on disk comes back as it was; what is damaged is set aside and reported, never an obstacle."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings

from hive_subagent_daemon.records import REMEMBERED_TEXT_CHARACTERS, Records, SubagentRecord, TurnRecord
from hive_subagent_daemon.storage import Storage, open_state_dir
from hive_subagent_daemon.values import LooseEnd, Outcome, OutcomeKind, Verdict
from tests.unit.support_records import (
    SESSION,
    TURN,
    any_outcome,
    any_turn_record,
    loose_end,
    outcome,
    subagent_record,
    turn_record,
)
from tests.unit.support_storage import Crash

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LATER = "20260131_130000_000_abcd"


@pytest.fixture
def records(tmp_path: Path) -> Records:
    """Use a fresh state directory."""
    return in_folder(tmp_path)


def in_folder(folder: Path) -> Records:
    """Return the records of a state directory, as a daemon that has just started reads them."""
    os.close(open_state_dir(folder))
    return Records(Storage(folder, ballast_bytes=0))


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the JSON in a file."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


# Coming back as they were


@given(any_turn_record)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_a_turn_record_comes_back_as_it_was(records: Records, record: TurnRecord) -> None:
    folder = records.begin_turn(record)
    assert records.turns() == [(TURN, "reviewer", record)]
    changed = replace(record, pid=4711, pid_start=99)
    records.update_turn(changed)
    assert records.turns() == [(TURN, "reviewer", changed)]
    records.end_turn(TURN, "reviewer")
    assert records.turns() == []
    assert not folder.exists()


@given(any_outcome)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_a_loose_end_and_what_is_remembered_come_back_as_they_were(records: Records, last: Outcome) -> None:
    end = LooseEnd(TURN, "title", last, None)
    remembered = SubagentRecord("reviewer", "/d", SESSION, None, None, last)
    records.store_loose_end(end)
    records.remember(remembered)
    assert records.read_loose_end(TURN) == end
    assert list(records.loose_ends()) == [end]
    assert records.subagents() == [remembered]
    assert records.unreadable == []


def test_loose_ends_and_turns_come_back_oldest_first(records: Records) -> None:
    for turn in (LATER, TURN):
        records.store_loose_end(loose_end(turn))
        records.begin_turn(turn_record(turn))
    assert [end.id for end in records.loose_ends()] == [TURN, LATER]
    assert [turn for turn, _, _ in records.turns()] == [TURN, LATER]


def test_a_turn_that_began_twice_is_an_error(records: Records) -> None:
    records.begin_turn(turn_record())
    with pytest.raises(FileExistsError):
        records.begin_turn(turn_record())


def test_what_is_remembered_of_a_long_text_is_cut_but_its_length_is_not(records: Records) -> None:
    text = "x" * 20_000
    last = replace(outcome(Verdict(OutcomeKind.COMPLETED, text=text)), text_length=50_000)
    records.remember(replace(subagent_record(), last_turn=last))
    (read,) = records.subagents()
    assert len(read.last_turn.verdict.text or "") == REMEMBERED_TEXT_CHARACTERS
    assert read.last_turn.text_length == 50_000
    records.store_loose_end(replace(loose_end(), outcome=last))
    end = records.read_loose_end(TURN)
    assert end is not None
    assert end.outcome.verdict.text == text


def test_a_name_is_forgotten_with_its_prompt_copy(records: Records, tmp_path: Path) -> None:
    records.copy_prompt("reviewer", TURN, b"instructions")
    copy = records.prompt_path("reviewer", TURN)
    assert copy.read_bytes() == b"instructions"
    record = subagent_record(prompt_copy=str(copy))
    records.remember(record)
    records.forget(record)
    records.forget(record)
    assert records.subagents() == []
    assert list((tmp_path / "prompts").iterdir()) == []


def test_prompt_copies_that_nothing_refers_to_are_removed(records: Records, tmp_path: Path) -> None:
    for turn in (TURN, LATER):
        records.copy_prompt("reviewer", turn, b"instructions")
    (tmp_path / "prompts" / ".reviewer.x.partial").write_bytes(b"half")
    wanted = str(records.prompt_path("reviewer", LATER))
    records.keep_prompts({wanted})
    assert [str(path) for path in (tmp_path / "prompts").iterdir()] == [wanted]


@pytest.mark.parametrize("name", ["-p", "-", "x" * 63, "a-b"])
def test_every_allowed_name_can_be_stored(records: Records, name: str) -> None:
    records.begin_turn(turn_record(name=name))
    records.remember(subagent_record(name))
    records.copy_prompt(name, TURN, b"instructions")
    assert [found for _, found, _ in records.turns()] == [name]
    assert [record.name for record in records.subagents()] == [name]


# Older and newer records


def test_fields_that_a_newer_version_added_are_tolerated(records: Records, tmp_path: Path) -> None:
    folder = records.begin_turn(turn_record())
    records.remember(subagent_record())
    records.store_loose_end(loose_end())
    edit(folder / "record.json", lambda content: content.update(later={"a": 1}))
    edit(tmp_path / "names" / "reviewer.json", lambda content: content["last_turn"].update(later=[1]))
    edit(
        tmp_path / "loose-ends" / f"{TURN}.json",
        lambda content: content["outcome"]["verdict"].update(later=1),
    )
    assert records.turns() == [(TURN, "reviewer", turn_record())]
    assert records.subagents() == [subagent_record()]
    assert list(records.loose_ends()) == [loose_end()]
    assert records.unreadable == []


def test_optional_fields_that_an_older_version_did_not_have_are_tolerated(records: Records) -> None:
    folder = records.begin_turn(turn_record())

    def older(content: dict[str, Any]) -> None:
        for key in ("mcp_servers", "archived", "pid", "pid_start"):
            del content[key]

    edit(folder / "record.json", older)
    ((_, _, record),) = records.turns()
    assert record == replace(turn_record(), archived=())


# Damage

DAMAGE = {
    "empty": b"",
    "cut": b'{"turn":"2026',
    "no-json": b"\xff\x00words",
    "another-shape": b'{"a":1}',
    "a-list": b"[]",
    "half-a-surrogate": b'{"name":"\\ud800"}',
    "deep": b"[" * 100_000,
    "zeros": b"\0" * 4_096,
}


@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_record_is_set_aside_and_reported_and_the_others_are_read(
    records: Records, tmp_path: Path, content: bytes
) -> None:
    records.remember(subagent_record("good"))
    records.store_loose_end(loose_end(LATER))
    damaged = [tmp_path / "names" / "bad.json", tmp_path / "loose-ends" / f"{TURN}.json"]
    for path in damaged:
        path.write_bytes(content)
    assert [record.name for record in records.subagents()] == ["good"]
    assert [end.id for end in records.loose_ends()] == [LATER]
    assert records.damaged_loose_ends == {TURN}
    kept = {path.read_bytes() for path in (tmp_path / "set-aside").iterdir()}
    assert kept == {content}
    assert len(records.unreadable) == 2
    for path, told in zip(damaged, records.unreadable, strict=True):
        assert str(path) in told
        assert "set aside as" in told


@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_turn_whose_record_is_damaged_is_still_known_by_its_folder(
    records: Records, content: bytes
) -> None:
    folder = records.begin_turn(turn_record())
    (folder / "stdin").write_bytes(b"prompt")
    (folder / "record.json").write_bytes(content)
    assert records.turns() == [(TURN, "reviewer", None)]
    assert len(records.unreadable) == 1
    assert records.turns() == [(TURN, "reviewer", None)]  # also when the next start-up finds it set aside
    assert len(records.unreadable) == 1


def test_a_turn_that_broke_off_before_its_record_never_was_one(records: Records) -> None:
    """A crash may have come between the folder and the record: nothing was spawned and nothing archived."""
    folder = records.begin_turn(turn_record())
    (folder / "record.json").rename(folder / ".record.json.x.partial")
    assert records.turns() == []
    assert not folder.exists()
    assert records.unreadable == []


def test_a_turn_whose_removal_broke_off_does_not_come_back(records: Records, tmp_path: Path) -> None:
    folder = records.begin_turn(turn_record())
    (folder / "stdin").write_bytes(b"prompt")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "rmtree", crash)
        with pytest.raises(Crash):
            records.end_turn(TURN, "reviewer")
    assert not folder.exists()
    assert records.turns() == []
    assert records.unreadable == []
    assert list((tmp_path / "turns").iterdir()) == []


def crash(*_: object) -> None:
    """Die."""
    raise Crash


@pytest.mark.parametrize(
    "name",
    [
        "stray",
        "stray.reviewer",
        f"{TURN}.",
        TURN,
        f"{TURN}.BAD",
        f"{TURN}.{SESSION}",
        f"{TURN}.a.b",
        ".x",
        "lost+found",
    ],
)
@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_no_turn_among_the_turns_is_set_aside(
    records: Records, tmp_path: Path, name: str, kind: str
) -> None:
    put(tmp_path / "turns" / name, kind)
    records.begin_turn(turn_record())
    assert records.turns() == [(TURN, "reviewer", turn_record())]
    assert len(list((tmp_path / "set-aside").iterdir())) == 1
    assert len(records.unreadable) == 1


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_has_the_name_of_a_turn_but_is_no_folder_is_set_aside(
    records: Records, tmp_path: Path, kind: str
) -> None:
    put(tmp_path / "turns" / f"{TURN}.reviewer", kind)
    assert records.turns() == []
    assert len(records.unreadable) == 1


def put(path: Path, kind: str) -> None:
    """Make something of this kind."""
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("nowhere")
    else:
        path.write_text("x")


def test_a_folder_in_the_place_of_a_record_is_set_aside(records: Records, tmp_path: Path) -> None:
    (tmp_path / "names" / "bad.json").mkdir()
    (tmp_path / "loose-ends" / f"{TURN}.json").mkdir()
    assert records.subagents() == []
    assert list(records.loose_ends()) == []
    assert len(list((tmp_path / "set-aside").iterdir())) == 2


def test_partial_files_of_a_crash_are_removed_and_not_reported(records: Records, tmp_path: Path) -> None:
    for folder in ("names", "loose-ends"):
        (tmp_path / folder / ".reviewer.json.0a1b.partial").write_bytes(b"half")
    assert records.subagents() == []
    assert list(records.loose_ends()) == []
    assert [path.name for path in tmp_path.rglob("*.partial")] == []
    assert records.unreadable == []


def test_a_damaged_record_that_cannot_be_set_aside_is_reported_and_no_obstacle(
    records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_storage: Storage, path: Path) -> Path:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Storage, "set_aside", refused)
    (tmp_path / "names" / "bad.json").write_bytes(b"{")
    assert records.subagents() == []
    assert "was left where it is" in records.unreadable[0]


def test_a_loose_end_that_is_gone_is_none_and_not_reported(records: Records) -> None:
    assert records.read_loose_end(TURN) is None
    records.remove_loose_end(TURN)
    assert records.unreadable == []


def test_a_record_that_cannot_be_read_is_reported_by_its_reason(records: Records, tmp_path: Path) -> None:
    path = tmp_path / "names" / "loop.json"
    path.symlink_to(path)
    assert records.subagents() == []
    assert "Too many levels of symbolic links" in records.unreadable[0]
    assert not path.is_symlink()


@pytest.mark.parametrize("copy", ["", ".", "..", "x" * 300], ids=["empty", "here", "above", "too-long"])
def test_a_prompt_copy_that_cannot_be_removed_keeps_no_turn_from_ending(
    records: Records, tmp_path: Path, copy: str
) -> None:
    """A damaged record of a name held that name for ever: its next turn could not be stored."""
    records.remove_prompt(subagent_record(prompt_copy=copy))
    assert (tmp_path / "prompts").is_dir()


def test_a_nul_in_a_path_of_a_record_is_damage(records: Records, tmp_path: Path) -> None:
    records.remember(subagent_record())
    edit(tmp_path / "names" / "reviewer.json", lambda content: content.update(prompt_copy="/a\0b"))
    assert records.subagents() == []
