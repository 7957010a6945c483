"""`log`: the turn that is meant, from a file that claude is still writing, and what is said without one."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from hive_subagent_daemon.cli import log as log_module
from hive_subagent_daemon.cli.session_file import SessionPlace
from hive_subagent_daemon.client_main import main
from tests.support.fake_subagents import FakeSubagents
from tests.support.sample_answers import IDLE, KILLED, OUTCOME, RUNNING, STATUS, UNKNOWN
from tests.support.served_tools import served_on_tcp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SESSION = "0f0e0d0c-0b0a-0908-0706-050403020100"
BEGAN = datetime(2026, 1, 1, 12, 0, 0, 500_000, tzinfo=UTC)


@pytest.fixture
def subagents(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSubagents]:
    """Serve a fake service, and follow without pauses."""
    fake = FakeSubagents()
    monkeypatch.setattr(log_module, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(log_module, "ASK_SECONDS", 0.0)
    with served_on_tcp(fake) as url:
        monkeypatch.setenv("HIVE_SUBAGENT_URL", url)
        yield fake


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """Return where the file of the session belongs."""
    (tmp_path / "work").mkdir()
    place = SessionPlace(tmp_path / "claude", directory=tmp_path / "work", session_id=SESSION)
    place.expected.parent.mkdir(parents=True)
    return place.expected


def shown(tmp_path: Path, subagent: dict[str, Any]) -> dict[str, Any]:
    """Return what `status` says of a subagent whose sessions are below tmp_path."""
    here = {"dir": str(tmp_path / "work"), "session_id": SESSION}
    return STATUS | {"subagents": [subagent | here], "claude_config_dir": str(tmp_path / "claude")}


def ended(outcome: dict[str, Any] = OUTCOME) -> dict[str, Any]:
    """Return a subagent whose turn began at BEGAN and has ended."""
    return IDLE | {"last_turn": outcome | {"started_at": BEGAN.isoformat()}}


def record(kind: str, text: str, seconds: float | None = 1, uuid: str | None = None) -> str:
    """Return a record so many seconds after the turn began; None: without a time."""
    made: dict[str, Any] = {"type": kind, "message": {"content": [{"type": "text", "text": text}]}}
    if seconds is not None:
        made["timestamp"] = (BEGAN + timedelta(seconds=seconds)).isoformat()
    return json.dumps(made | ({"uuid": uuid} if uuid else {})) + "\n"


def texts(out: str) -> list[str]:
    """Return what was printed, without times and marks."""
    return [line[11:] for line in out.splitlines() if not line.startswith("--")]


def test_the_last_turn_is_shown_and_how_it_ended(
    subagents: FakeSubagents, session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session.write_text(
        record("user", "first", -60)
        + record("assistant", "old", -59)
        + record("user", "second", 0.1)
        + record("assistant", "new")
    )
    subagents.answers["status"] = shown(tmp_path, ended(KILLED))
    assert main(["log", "writer"]) == 0
    printed = capsys.readouterr()
    assert texts(printed.out) == ["second", "new"]
    assert printed.out.splitlines()[-1].startswith("-- killed by SIGKILL, cause oom")
    assert printed.err == ""


def test_the_whole_session_is_shown_when_asked_for(
    subagents: FakeSubagents, session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session.write_text(record("user", "first", -60) + record("user", "second"))
    subagents.answers["status"] = shown(tmp_path, ended())
    assert main(["log", "writer", "--all"]) == 0
    assert texts(capsys.readouterr().out) == ["first", "second"]


def test_without_times_a_turn_begins_at_the_last_prompt(
    subagents: FakeSubagents, session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session.write_text(record("user", "first", None) + record("user", "second", None))
    subagents.answers["status"] = shown(tmp_path, ended())
    assert main(["log", "writer"]) == 0
    assert texts(capsys.readouterr().out) == ["second"]


def test_an_archived_session_is_shown(
    subagents: FakeSubagents, session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session.with_name(f"{SESSION}.jsonl.archived").write_text(record("assistant", "kept"))
    subagents.answers["status"] = shown(tmp_path, ended())
    assert main(["log", "writer"]) == 0
    assert texts(capsys.readouterr().out) == ["kept"]


def test_a_session_that_is_not_there_names_every_place(
    subagents: FakeSubagents, session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subagents.answers["status"] = shown(tmp_path, ended())
    assert main(["log", "writer"]) == 1
    said = capsys.readouterr().err
    assert str(session) in said
    assert str(tmp_path / "claude/projects") in said


def test_a_turn_that_has_written_nothing_yet_is_no_failure(
    subagents: FakeSubagents, session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subagents.answers["status"] = shown(tmp_path, RUNNING)
    assert main(["log", "reviewer"]) == 0
    assert f"claude has written nothing of this turn yet: {session}" in capsys.readouterr().err


def test_a_name_without_a_session_is_refused(
    subagents: FakeSubagents, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subagents.answers["status"] = STATUS | {"subagents": [UNKNOWN], "claude_config_dir": str(tmp_path)}
    assert main(["log", "nobody"]) == 1
    assert "no session of 'nobody' is known" in capsys.readouterr().err


def test_an_older_daemon_that_does_not_tell_the_place_is_explained(
    subagents: FakeSubagents, capsys: pytest.CaptureFixture[str]
) -> None:
    subagents.answers["status"] = STATUS | {"subagents": [RUNNING]}
    assert main(["log", "reviewer"]) == 1
    assert "older than this command" in capsys.readouterr().err


def story(subagents: FakeSubagents, tmp_path: Path, *steps: Callable[[], object]) -> None:
    """Let one thing happen at each look at a running subagent, which then has ended."""
    rest = list(steps)

    def status(**_arguments: object) -> dict[str, Any]:
        if rest:
            rest.pop(0)()
            return shown(tmp_path, RUNNING | {"turn": "20260101_120000_500_aaaa"})
        return shown(tmp_path, ended() | {"turn": "20260101_120000_500_aaaa"})

    subagents.answers["status"] = status


def test_following_shows_what_comes_each_once_over_a_replaced_file_and_ends_with_the_turn(
    subagents: FakeSubagents, session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = record("user", "one", uuid="1"), record("assistant", "two", uuid="2")
    half, three = two[:20], record("assistant", "three", uuid="3")

    def replace() -> None:
        other = session.with_name("other")
        other.write_text(one + two + three)
        other.rename(session)

    story(
        subagents,
        tmp_path,
        lambda: None,  # nothing is written yet
        lambda: session.write_text(one + half),
        lambda: session.write_text(one + two),
        replace,
        lambda: session.write_text(one + two + three + record("assistant", "four", uuid="4").rstrip()),
    )
    assert main(["log", "reviewer", "-f"]) == 0
    printed = capsys.readouterr().out
    assert texts(printed) == ["one", "two", "three", "four"]
    assert printed.splitlines()[-1] == "-- completed, 1 min 23 s"
