"""The tool `continue`: which session it resumes, what reaches the model, and what it remembers."""

from __future__ import annotations

import hashlib
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.stub.facts import about
from tests.stub.steps import dump, endless, exit_with, held, init, reach, success

if TYPE_CHECKING:
    from tests.stub.conftest import MakeDaemon
    from tests.support.daemon_harness import Daemon


@about("facts-6-resume-by-id", "case-F4")
def test_continue_resumes_by_the_session_id_it_knows(daemon: Daemon, name: str) -> None:
    """The answer is that of a start, the session the same."""
    first = daemon.start(name, success("one"), [dump(f"{name}.dump"), *held(f"{name}.go", "two")]).content
    daemon.loose_end(name)
    answer = daemon.ok("continue", name=name, prompt="and now?")
    content = answer.content
    assert {"name", "state", "turn", "pid", "session_id", "dir", "scope"} <= set(content)
    assert content["session_id"] == first["session_id"]
    assert content["turn"] > first["turn"], "turn ids sort by time"
    assert content.get("previous_turn") is None
    assert answer.seconds < 2
    seen = daemon.seen(f"{name}.dump")
    assert seen["flags"]["--resume"] == first["session_id"]
    assert "--session-id" not in seen["flags"]
    assert seen["stdin"] == "and now?"
    daemon.open_gate(f"{name}.go")
    assert daemon.loose_end(name, turn=content["turn"])["text"] == "two"


@about("facts-6-resume-by-title")
def test_a_name_that_only_claude_knows_is_resumed_by_title(own_daemon: Daemon) -> None:
    """Deleting the state directory loses no session."""
    own_daemon.play("a", success("one"), [dump("a.dump"), *success("two")])
    session_id = own_daemon.status_of("a")["session_id"]
    own_daemon.stop()
    shutil.rmtree(own_daemon.state)
    own_daemon.boot()
    assert own_daemon.status_of("a")["state"] == "unknown"
    end = own_daemon.resume("a")
    assert (end["outcome"], end["text"]) == ("completed", "two")
    assert own_daemon.seen("a.dump")["flags"]["--resume"] == "a"
    assert end["session_id"] == own_daemon.status_of("a")["session_id"] == session_id


@about("facts-6-title")
def test_an_unknown_session_is_a_failed_turn_that_says_where_it_was_looked_for(
    daemon: Daemon, name: str
) -> None:
    """Claude's `--resume` is the authority; its message, both places and a hint are told."""
    daemon.ok("continue", name=name, prompt="hello?")
    end = daemon.loose_end(name)
    assert (end["outcome"], end["error_class"]) == ("failed", "session not found")
    told = f"{end['error']} {end['text']} {end['warnings']}"
    assert "does not match any session title" in told
    assert str(daemon.home / ".claude") in told
    assert str(daemon.work) in told
    assert "dir" in told


@about("case-F10", "facts-6-cleanup")
def test_a_transcript_that_is_gone_is_session_not_found(daemon: Daemon, name: str) -> None:
    """Claude's own cleanup may delete it; by id the message differs."""
    daemon.play(name, success())
    session_id = daemon.status_of(name)["session_id"]
    [path] = [one for one in daemon.transcripts() if one.stem == session_id]
    path.unlink()
    end = daemon.resume(name)
    assert (end["outcome"], end["error_class"]) == ("failed", "session not found")
    assert "No conversation found" in str(end["error"])
    assert str(daemon.home / ".claude") in f"{end['error']} {end['text']}"


@about("facts-6-matches-2-sessions")
def test_a_title_that_two_sessions_share_fails_with_claudes_words(daemon: Daemon, name: str) -> None:
    """The turn fails, the daemon does not choose."""
    for number in (1, 2):
        other = daemon.play(f"{name}-{number}", success())
        path = next(one for one in daemon.transcripts() if one.stem == other["session_id"])
        title = f'{{"type": "custom-title", "customTitle": "{name}"}}\n'
        path.write_text(path.read_text() + title)
    end = daemon.resume(name)
    assert end["outcome"] == "failed"
    assert "matches 2 sessions" in end["error"]


@about("case-F2", "facts-6-other-cwd")
def test_dir_overrides_where_the_session_was_last_run(daemon: Daemon, name: str) -> None:
    """It is told, it is tried there, and remembered."""
    other = daemon.work / f"other-{name}"
    other.mkdir()
    daemon.play(name, success("one"), success("two"))
    answer = daemon.ok("continue", name=name, prompt="x", dir=str(other)).content
    assert answer["dir"] == str(other)
    end = daemon.loose_end(name, turn=answer["turn"])
    assert (end["error_class"], end["dir"]) == ("session not found", str(other))
    assert daemon.resume(name, dir=str(daemon.work))["text"] == "two"


@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param("/clear", id="facts-5-a-leading-slash-case-G7"),
        pytest.param("/nosuch x", id="facts-5-an-unknown-command"),
        pytest.param("/tmp/foo is a path", id="facts-5-a-path"),
        pytest.param("  /compact", id="facts-5-a-slash-after-spaces"),
        pytest.param("\ufeff/clear", id="facts-5-a-slash-after-a-byte-order-mark"),
        pytest.param("\n/usage", id="facts-5-a-slash-on-the-second-line"),
    ],
)
def test_a_prompt_with_a_leading_slash_reaches_the_model_as_text(
    daemon: Daemon, name: str, prompt: str
) -> None:
    """No local command runs, and the words are the sender's, in `trigger` and in `prompt`."""
    turns = [[dump(f"{name}.{number}"), *success("from the model")] for number in range(2)]
    assert daemon.play(name, *turns, trigger=prompt)["text"] == "from the model"
    assert daemon.resume(name, prompt)["text"] == "from the model"
    for number in range(2):
        stdin = daemon.seen(f"{name}.{number}")["stdin"]
        assert not stdin.startswith("/")
        assert stdin.endswith(prompt)


@about("case-G6")
@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param("x", id="case-G5-one-byte"),
        pytest.param("-x --help", id="facts-5-a-leading-dash"),
        pytest.param("nul \x00 byte", id="facts-5-nul"),
        pytest.param("\u4e16\u754c" * 150_000, id="facts-5-a-megabyte-of-unicode"),
        pytest.param("x" * 9_999_999, id="facts-5-9.9-MB"),
    ],
)
def test_a_prompt_reaches_claude_byte_for_byte(daemon: Daemon, name: str, prompt: str) -> None:
    """Then stdin ends."""
    daemon.play(name, success(), [dump(f"{name}.dump"), *success()])
    daemon.resume(name, prompt)
    seen = daemon.seen(f"{name}.dump")
    assert seen["stdin_bytes"] == len(prompt.encode())
    assert seen["stdin_sha256"] == hashlib.sha256(prompt.encode()).hexdigest()


def test_continuing_a_killed_turn_says_so_and_by_what(daemon: Daemon, name: str) -> None:
    """Nobody builds on cut-off work; the next confirmed spawn clears that record."""
    daemon.start(name, [init(), reach(f"{name}.up"), *endless()[1:]], success(), success())
    daemon.reached(f"{name}.up")
    daemon.ok("interrupt", name=name, force=True)
    answer = daemon.ok("continue", name=name, prompt="go on")
    previous = answer.content["previous_turn"]
    assert (previous["outcome"], previous["signal"]) == ("killed", "SIGKILL")
    assert previous["cause"] == "forced interrupt"
    assert "killed" in answer.text
    daemon.loose_end(name, turn=answer.content["turn"])
    again = daemon.ok("continue", name=name, prompt="go on").content
    assert again.get("previous_turn") is None
    daemon.loose_end(name, turn=again["turn"])


def test_a_refused_continue_does_not_clear_the_record_of_a_kill(daemon: Daemon, name: str) -> None:
    """Only a confirmed spawn does."""
    daemon.start(name, [init(), reach(f"{name}.up"), *endless()[1:]], success())
    daemon.reached(f"{name}.up")
    daemon.ok("interrupt", name=name, force=True)
    daemon.refused("continue", name=name, prompt=" ")
    daemon.refused("continue", name=name, prompt="x", dir="/no/such/place")
    assert daemon.status_of(name)["state"] == "killed"
    answer = daemon.ok("continue", name=name, prompt="x").content
    assert answer["previous_turn"]["outcome"] == "killed"
    daemon.loose_end(name, turn=answer["turn"])


@about("case-B6", "facts-12-two-resumes")
def test_of_twenty_continues_at_once_one_runs(daemon: Daemon, name: str) -> None:
    """The others are refused clearly; there is one process."""
    daemon.play(name, success(), held(f"{name}.go"))
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: daemon.call("continue", name=name, prompt="x"), range(20)))
    accepted = [answer for answer in answers if not answer.is_error]
    assert len(accepted) == 1
    assert all(name in answer.text for answer in answers if answer.is_error)
    assert daemon.processes() == [accepted[0].content["pid"]]
    daemon.open_gate(f"{name}.go")
    daemon.loose_end(name, turn=accepted[0].content["turn"])


def test_a_failed_turn_can_be_continued(daemon: Daemon, name: str) -> None:
    """Only a running name is refused."""
    daemon.play(name, [init(), exit_with(1)], success("back"))
    assert daemon.resume(name)["text"] == "back"


def test_everything_remembered_survives_a_restart(make_daemon: MakeDaemon) -> None:
    """Directory, session id, model and prompt copy are used without being given again."""
    daemon = make_daemon().boot()
    place = daemon.work / "place"
    place.mkdir()
    recipe = daemon.work / "gone.md"
    recipe.write_text("remember me")
    first = daemon.play(
        "a", success(), [dump("a.dump"), *success()], dir="place", model="opus", prompt_file=str(recipe)
    )
    recipe.unlink()
    daemon.restart()
    known = daemon.status_of("a")
    assert (known["state"], known["dir"], known["session_id"]) == ("idle", str(place), first["session_id"])
    assert known["last_turn"]["outcome"] == "completed"
    daemon.resume("a")
    seen = daemon.seen("a.dump")
    assert seen["flags"]["--resume"] == first["session_id"]
    assert (seen["cwd"], seen["flags"]["--model"]) == (str(place), "opus")
    assert seen["prompt_file"]["text"] == "remember me"
