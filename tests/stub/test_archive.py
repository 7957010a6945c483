"""An earlier session of the same name makes way at `start`: renamed, never deleted, never while it lives."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from tests.stub.facts import about
from tests.stub.steps import held, success
from tests.stub.stub_sessions import start_time

if TYPE_CHECKING:
    from tests.support.daemon_harness import Daemon


def write_session(folder: Path, *titles: str) -> Path:
    """Write a session by hand, as claude keeps it, and return its file."""
    session_id = str(uuid.uuid4())
    lines: list[dict[str, object]] = []
    lines += [{"type": "user", "message": {"role": "user", "content": "hello"}, "sessionId": session_id}]
    lines += [{"type": "custom-title", "customTitle": one, "sessionId": session_id} for one in titles]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{session_id}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def archived(path: Path, number: int | None = None) -> Path:
    """Return the name that a session's file gets."""
    return Path(f"{path}.archived" + ("" if number is None else f".{number}"))


def project_folder(daemon: Daemon, name: str) -> Path:
    """Return claude's project folder of the daemon's work directory, after a first turn there."""
    daemon.play(f"{name}-first", success())
    return daemon.transcripts()[0].parent


@about("facts-6-archiving")
def test_a_finished_session_of_the_same_name_is_renamed(daemon: Daemon, name: str) -> None:
    """Its content stays as it was, and the name leads to the new session only."""
    daemon.play(name, success())
    old = Path(daemon.transcripts()[0].parent / f"{daemon.status_of(name)['session_id']}.jsonl")
    content = old.read_bytes()
    daemon.play(name, success())
    assert not old.exists()
    assert archived(old).read_bytes() == content
    assert daemon.resume(name)["outcome"] == "completed"


@about("decision-18")
def test_an_archive_that_exists_is_not_overwritten(daemon: Daemon, name: str) -> None:
    """Numbers are appended, starting with 1."""
    folder = project_folder(daemon, name)
    path = write_session(folder, name)
    archived(path).write_text("kept")
    archived(path, 1).write_text("kept too")
    daemon.play(name, success())
    assert archived(path).read_text() == "kept"
    assert archived(path, 1).read_text() == "kept too"
    assert "hello" in archived(path, 2).read_text()
    assert not path.exists()


@about("facts-6-titles")
def test_every_session_with_that_title_is_archived_whoever_made_it(daemon: Daemon, name: str) -> None:
    """Upper and lower case count alike; the last title of a file is the one that counts."""
    folder = project_folder(daemon, name)
    mine = [write_session(folder, name.upper()), write_session(folder, "other", f"  {name} ")]
    others = [write_session(folder, name, "renamed"), write_session(folder, f"{name}x")]
    daemon.play(name, success())
    assert [path.exists() for path in mine] == [False, False]
    assert [archived(path).exists() for path in mine] == [True, True]
    assert [path.exists() for path in others] == [True, True]


@about("facts-6-ai-title")
def test_a_title_that_claude_made_up_counts_only_without_another(daemon: Daemon, name: str) -> None:
    """Or `--resume` by title would become ambiguous."""
    folder = project_folder(daemon, name)
    path, other = write_session(folder), write_session(folder, "other")
    for one in (path, other):
        line = {"type": "ai-title", "aiTitle": name, "sessionId": one.stem}
        one.write_text(one.read_text() + json.dumps(line) + "\n")
    daemon.play(name, success())
    assert archived(path).exists()
    assert other.exists()


@about("facts-6-lossy-folder")
def test_directories_that_share_a_project_folder_share_its_sessions(daemon: Daemon, name: str) -> None:
    """Claude finds them there, so they are archived there."""
    places = [daemon.work / f"{name}.b", daemon.work / f"{name}_b"]
    for place in places:
        place.mkdir()
        daemon.play(name, success(), dir=str(place))
    assert [path.suffix for path in daemon.transcripts(places[0])].count(".archived") == 1
    assert daemon.transcripts(places[0]) == daemon.transcripts(places[1])


@about("facts-6-no-spoofing")
def test_a_prompt_that_holds_a_title_does_not_archive(daemon: Daemon, name: str) -> None:
    """Only claude's own title lines count."""
    folder = project_folder(daemon, name)
    path = write_session(folder, "other")
    spoof = json.dumps({"type": "custom-title", "customTitle": name, "sessionId": path.stem})
    line = {"type": "user", "message": {"role": "user", "content": spoof}, "sessionId": path.stem}
    path.write_text(path.read_text() + json.dumps(line) + "\n")
    daemon.play(name, success())
    assert path.exists()


@about("facts-6-2-MB-file")
def test_a_title_far_from_the_end_of_a_large_transcript_counts(daemon: Daemon, name: str) -> None:
    """The whole file is looked at if need be."""
    path = write_session(project_folder(daemon, name), name)
    line = json.dumps({"type": "user", "message": {"role": "user", "content": "z" * 1000}}) + "\n"
    path.write_text(path.read_text() + line * 2500)
    daemon.play(name, success())
    assert archived(path).exists()


def test_sessions_of_other_directories_stay(daemon: Daemon, name: str) -> None:
    """Only the project folder of the turn's directory is touched."""
    project_folder(daemon, name)
    other = daemon.work / f"other-{name}"
    other.mkdir()
    daemon.play(name, success(), dir=str(other))
    daemon.play(name, success())
    assert [path.suffix for path in daemon.transcripts(other)] == [".jsonl"]


@about("decision-18", "facts-6-live-registry")
def test_a_live_session_of_that_name_refuses_the_start(daemon: Daemon, name: str) -> None:
    """It may be the parent itself: it is named and not touched."""
    path = write_session(project_folder(daemon, name), name)
    registry = daemon.home / ".claude" / "sessions" / f"{os.getpid()}.json"
    entry = {"pid": os.getpid(), "sessionId": path.stem, "cwd": str(daemon.work), "name": name}
    registry.write_text(json.dumps(entry | {"procStart": start_time(os.getpid())}))
    text = daemon.refused("start", name=name, prompt_file=str(daemon.work / "recipe.md"))
    assert path.stem in text or str(os.getpid()) in text
    assert path.exists()
    registry.write_text(json.dumps(entry | {"procStart": "1"}))
    daemon.play(name, success())
    assert archived(path).exists(), "an entry of a dead process must not protect a session"
    registry.unlink()


def test_a_registry_that_cannot_be_read_harms_nobody(daemon: Daemon, name: str) -> None:
    """Half-written entries of other claude processes are skipped."""
    path = write_session(project_folder(daemon, name), name)
    folder = daemon.home / ".claude" / "sessions"
    broken = [folder / "1.json", folder / "x.json"]
    broken[0].write_text('{"pid": 1, "sess')
    broken[1].write_text("[]")
    daemon.play(name, success())
    assert archived(path).exists()
    for entry in broken:
        entry.unlink()


def test_continue_archives_nothing(daemon: Daemon, name: str) -> None:
    """It resumes the session that is there."""
    daemon.play(name, success(), held(f"{name}.go"))
    before = daemon.transcripts()
    daemon.open_gate(f"{name}.go")
    daemon.resume(name)
    assert daemon.transcripts() == before
