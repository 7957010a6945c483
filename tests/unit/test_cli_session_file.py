"""Where a session's file is found, and how its lines are read while claude writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hive_subagent_daemon.claude_store import project_slug
from hive_subagent_daemon.cli.session_file import LineReader, SessionPlace
from hive_subagent_daemon.errors import RefusedError

SESSION = "0f0e0d0c-0b0a-0908-0706-050403020100"


@pytest.fixture
def place(tmp_path: Path) -> SessionPlace:
    """Return the place of a session of a subagent in `work`."""
    (tmp_path / "work").mkdir()
    return SessionPlace(tmp_path / "claude", directory=tmp_path / "work", session_id=SESSION)


def write(path: Path, text: str = "{}\n") -> Path:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_it_is_in_the_project_folder_of_the_directory(place: SessionPlace, tmp_path: Path) -> None:
    assert place.found() is None
    slug = project_slug(os.path.realpath(tmp_path / "work"))
    assert place.expected == tmp_path / "claude/projects" / slug / f"{SESSION}.jsonl"
    assert write(place.expected) == place.found()


def test_a_relative_config_directory_lies_below_the_working_directory(tmp_path: Path) -> None:
    relative = SessionPlace(Path(".claude"), directory=tmp_path, session_id=SESSION)
    assert relative.projects == Path(os.path.realpath(tmp_path)) / ".claude/projects"


def test_it_is_found_in_another_project_folder_too(place: SessionPlace) -> None:
    moved = write(place.projects / "chosen-name" / f"{SESSION}.jsonl")
    assert place.found() == moved


def test_one_that_was_archived_is_found_the_last_first(place: SessionPlace) -> None:
    for end in ("", ".1", ".10", ".2"):
        write(place.expected.with_name(f"{SESSION}.jsonl.archived{end}"))
    write(place.expected.with_name(f"{SESSION}.jsonl.archived.old"))
    found = place.found()
    assert found is not None
    assert found.name == f"{SESSION}.jsonl.archived.10"


@pytest.mark.parametrize("session_id", ["../../etc/passwd", "", "a/b", "*", "x" * 65])
def test_an_id_that_is_a_path_is_refused(tmp_path: Path, session_id: str) -> None:
    with pytest.raises(RefusedError, match="not the id of a session"):
        SessionPlace(tmp_path, directory=tmp_path, session_id=session_id)


def test_a_file_that_may_not_be_read_names_itself_and_who_may(
    place: SessionPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(place.expected)

    def denied(path: Path, *_arguments: object, **_more: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", denied)
    with pytest.raises(RefusedError, match=rf"you may not read .*{SESSION}.*sudo -u USER"):
        place.found()


def test_only_whole_lines_are_read_and_half_ones_waited_for(tmp_path: Path) -> None:
    path = write(tmp_path / "s", "one\ntw")
    reader = LineReader(path)
    assert list(reader.lines()) == [b"one"]
    with path.open("a") as stream:
        stream.write("o\nthree\nfour")
    assert list(reader.lines()) == [b"two", b"three"]
    assert list(reader.lines()) == []
    assert list(reader.lines(last=True)) == [b"four"]
    reader.close()


def test_a_line_of_many_chunks_is_one_line(tmp_path: Path) -> None:
    long = "x" * (3 << 20)
    reader = LineReader(write(tmp_path / "s", f"{long}\nend\n"))
    assert [len(line) for line in reader.lines()] == [3 << 20, 3]
    reader.close()


def test_a_file_that_was_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = write(tmp_path / "s", "old\nrest")
    reader = LineReader(path)
    assert list(reader.lines()) == [b"old"]
    write(tmp_path / "t", "new\n").rename(path)
    assert list(reader.lines()) == [b"new"]
    path.write_text("")
    assert list(reader.lines()) == []
    path.write_text("n2\n")
    assert list(reader.lines()) == [b"n2"]
    reader.close()


def test_a_file_that_is_gone_is_read_to_its_end_and_found_when_it_is_back(tmp_path: Path) -> None:
    path = write(tmp_path / "s", "a\n")
    reader = LineReader(path)
    stream = path.open("a")
    assert list(reader.lines()) == [b"a"]
    path.unlink()
    stream.write("b\n")
    stream.close()
    assert list(reader.lines()) == [b"b"]
    write(path, "c\n")
    assert list(reader.lines()) == [b"c"]
    reader.close()


def test_what_is_no_file_is_refused_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path):
        with pytest.raises(RefusedError, match="not a regular file"):
            list(LineReader(path).lines())
    assert list(LineReader(tmp_path / "none").lines()) == []
