"""Sessions on claude's own terms: found by id and title, where they were run, archived at a fresh start."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.claude.outside_claude import OutsideClaude
from tests.claude.real_daemon import PATH

if TYPE_CHECKING:
    from tests.claude.real_daemon import MakeDaemon, RealDaemon
    from tests.support.offline_model import OfflineModel

ODD_FOLDERS = ("q.b_c d", "é ü 漢字 🦀", "long-" + "x" * 120 + "/" + "y" * 120)


def archived(path: Path, number: int | None = None) -> Path:
    """Return the name that a session's file gets."""
    return Path(f"{path}.archived" + ("" if number is None else f".{number}"))


@pytest.mark.shows("facts-6-other-title")
def test_an_unknown_session_fails_with_the_words_of_claude_and_where_it_was_looked_for(
    daemon: RealDaemon,
) -> None:
    end = daemon.resume("nobody", "[[say: hello]]")
    assert (end["outcome"], end["error_class"]) == ("failed", "session not found")
    assert "does not match any session title" in end["error"]
    assert str(daemon.home / ".claude") in end["error"]
    assert str(daemon.work) in end["error"]
    assert "`dir`" in end["error"]
    assert daemon.status_of("nobody")["state"] == "idle"


@pytest.mark.shows("facts-6-no-conversation-found", "case-F10")
def test_a_session_whose_transcript_is_gone_fails_and_a_fresh_start_works(daemon: RealDaemon) -> None:
    session = daemon.completed("worker", "[[say: noted]]")["session_id"]
    daemon.transcript(session).unlink()
    end = daemon.resume("worker", "[[say: hello]]")
    assert (end["outcome"], end["error_class"]) == ("failed", "session not found")
    assert session in end["error"]
    assert str(daemon.work) in end["error"]
    daemon.completed("worker", "[[say: fresh]]")


@pytest.mark.shows("facts-6-resume-by-title")
def test_a_deleted_state_directory_loses_no_session(daemon: RealDaemon) -> None:
    first = daemon.completed("worker", "the word is basalt [[say: noted]]")
    daemon.stop()
    shutil.rmtree(daemon.state)
    daemon.boot()
    assert daemon.status_of("worker")["state"] == "unknown"
    end = daemon.continued("worker", "[[recall: basalt]]")
    assert end["text"].endswith("conversation: yes")
    assert end["session_id"] == first["session_id"]
    assert daemon.continued("worker", "[[recall: basalt]]")["session_id"] == first["session_id"]


@pytest.mark.shows("case-F1")
def test_a_child_that_changes_directory_is_continued_where_it_was_started(daemon: RealDaemon) -> None:
    started_in, other = daemon.work / "a", daemon.work / "b"
    started_in.mkdir()
    other.mkdir()
    daemon.completed("worker", f"[[bash: cd {other} && pwd]]", dir="a")
    end = daemon.continued("worker", "[[bash: pwd]]")
    assert end["dir"] == str(started_in)
    assert daemon.continued("worker", "[[recall: pwd]]")["text"].endswith("conversation: yes")


@pytest.mark.shows("case-F2")
@pytest.mark.parametrize(
    ("in_repository", "since"),
    [
        pytest.param(True, (2, 1, 197), id="facts-6-one-git-repository"),
        pytest.param(False, (2, 1, 332), id="facts-6-other-cwd"),
    ],
)
def test_continue_in_another_directory_works_there_or_says_that_the_session_is_not_known_there(
    daemon: RealDaemon, claude_version: tuple[int, ...], *, in_repository: bool, since: tuple[int, ...]
) -> None:
    other = daemon.work / "other"
    other.mkdir()
    if in_repository:
        subprocess.run(["git", "init", "--quiet", daemon.work], check=True, env={"PATH": PATH})
    first = daemon.completed("worker", "the word is basalt [[say: noted]]")
    end = daemon.resume("worker", "[[bash: pwd]]", dir=str(other))
    assert end["dir"] == str(other)
    if end["outcome"] == "completed":
        assert end["text"].endswith(str(other))
    else:  # older versions find a session only where it was run
        assert claude_version < since
        assert end["error_class"] == "session not found"
        assert str(other) in end["error"]
    expected = str(other if end["outcome"] == "completed" else daemon.work)
    again = daemon.continued("worker", "[[recall: basalt]]")
    assert (again["dir"], again["session_id"]) == (expected, first["session_id"])
    assert daemon.status_of("worker")["dir"] == expected
    assert again["text"].endswith("conversation: yes")


@pytest.mark.shows("facts-6-archiving")
def test_a_second_start_archives_the_first_session_and_the_name_leads_to_the_new_one(
    daemon: RealDaemon,
) -> None:
    first = daemon.transcript(daemon.completed("worker", "andesite [[say: one]]")["session_id"])
    content = first.read_bytes()
    second = daemon.transcript(daemon.completed("worker", "basalt [[say: two]]")["session_id"])
    assert not first.exists()
    assert archived(first).read_bytes() == content
    archived(second).write_text("an archive that was there before")
    third = daemon.transcript(daemon.completed("worker", "chert [[say: three]]")["session_id"])
    assert archived(second).read_text() == "an archive that was there before"
    assert b"basalt [[say: two]]" in archived(second, 1).read_bytes()
    daemon.stop()
    shutil.rmtree(daemon.state)
    daemon.boot()
    end = daemon.continued("worker", "[[recall: basalt]]")
    assert end["session_id"] == third.stem
    assert end["text"].endswith("conversation: no")


@pytest.mark.shows("facts-6-live-registry")
def test_a_live_session_of_a_user_with_that_title_refuses_the_start(
    daemon: RealDaemon, model: OfflineModel
) -> None:
    with OutsideClaude(daemon, model, "--name=worker") as outside:
        outside.ask("the word is basalt [[say: noted]]")
        [transcript] = daemon.transcripts()
        reason = daemon.refused("start", name="worker", prompt_file=str(daemon.work / "recipe.md"))
        assert str(outside.process.pid) in reason
        assert transcript.stem in reason
        assert daemon.transcripts() == [transcript]
        outside.end()
    daemon.completed("worker", "[[say: noted]]")
    assert archived(transcript).exists()


@pytest.mark.shows("facts-6-titles")
def test_a_finished_session_of_a_user_is_continued_by_its_title_in_any_case(
    daemon: RealDaemon, model: OfflineModel
) -> None:
    with OutsideClaude(daemon, model, "--name=Worker") as outside:
        outside.ask("the word is basalt [[say: noted]]")
        outside.end()
    end = daemon.continued("worker", "[[recall: basalt]]")
    assert end["text"].endswith("conversation: yes")
    daemon.completed("worker", "[[say: noted]]")
    assert archived(daemon.transcripts()[0].parent / f"{end['session_id']}.jsonl").exists()


@pytest.mark.shows("facts-6-folders")
def test_our_name_of_the_project_folder_is_the_one_of_claude(daemon: RealDaemon) -> None:
    turns = {}
    for number, folder in enumerate(ODD_FOLDERS):
        (daemon.work / folder).mkdir(parents=True)
        turns[f"worker-{number}"] = daemon.begin(f"worker-{number}", "[[say: one]]", dir=folder)
    for name, answer in turns.items():
        daemon.loose_end(name, turn=answer["turn"])
        again = daemon.begin(name, "[[say: two]]", dir=answer["dir"])
        assert daemon.loose_end(name, turn=again["turn"])["outcome"] == "completed"
        [old] = (daemon.home / ".claude" / "projects").glob(f"*/{answer['session_id']}.jsonl*")
        assert old.name.endswith(".archived")


@pytest.mark.shows("facts-6-claude-config-dir")
def test_a_config_directory_of_its_own_holds_the_sessions(make_daemon: MakeDaemon, tmp_path: Path) -> None:
    config = tmp_path / "config"
    daemon = make_daemon(environment={"CLAUDE_CONFIG_DIR": str(config)}).boot()
    session = daemon.completed("worker", "[[say: one]]")["session_id"]
    daemon.completed("worker", "[[say: two]]")
    [old] = config.glob(f"projects/*/{session}.jsonl*")
    assert old.name.endswith(".archived")
    assert not (daemon.home / ".claude" / "projects").exists()
    end = daemon.resume("nobody", "[[say: three]]")
    assert str(config) in end["error"]


@pytest.mark.shows("facts-6-dash")
def test_a_name_that_begins_with_a_dash_is_a_title_like_any_other(daemon: RealDaemon) -> None:
    daemon.completed("-p", "the word is basalt [[say: noted]]")
    daemon.stop()
    shutil.rmtree(daemon.state)
    daemon.boot()
    assert daemon.continued("-p", "[[recall: basalt]]")["text"].endswith("conversation: yes")
