"""`wait`: which turns are waited for, what is printed of their ends, and the code that tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hive_subagent_daemon.cli import wait as wait_module
from hive_subagent_daemon.client import Endpoint, ToolAnswer, UnreachableError, call_tool
from hive_subagent_daemon.client_main import main
from hive_subagent_daemon.errors import RefusedError
from tests.support.fake_subagents import FakeSubagents
from tests.support.sample_answers import FAILED, IDLE, OUTCOME, RUNNING, STATUS, UNKNOWN, loose_end
from tests.support.served_tools import served_on_tcp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TURN = RUNNING["turn"]


@pytest.fixture
def subagents(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSubagents]:
    """Serve a fake service that is asked without pauses."""
    fake = FakeSubagents()
    monkeypatch.setattr(wait_module, "PAUSE_SECONDS", 0.001)
    with served_on_tcp(fake) as url:
        monkeypatch.setenv("HIVE_SUBAGENT_URL", url)
        yield fake


def tells(subagents: FakeSubagents, **looks: list[dict[str, Any]]) -> None:
    """Let `status` tell these of each subagent, one after the other, the last again and again."""

    def status(name: str) -> dict[str, Any]:
        rest = looks[name]
        shown = rest.pop(0) if len(rest) > 1 else rest[0]
        return STATUS | {"subagents": [shown | {"name": name}]}

    subagents.answers["status"] = status
    subagents.answers["wait"] = waits(status)


def waits(status: Callable[..., dict[str, Any]], *, most: int = 50) -> Callable[..., dict[str, Any]]:
    """Return what answers `wait` at once, with as many subagents as there is room for."""

    def wait(*, names: list[str], **_more: object) -> dict[str, Any]:
        shown = [status(name)["subagents"][0] for name in names[:most]]
        return {"ended": [], "timed_out": True, "subagents": shown, "more": len(names) - len(shown)}

    return wait


def done(outcome: dict[str, Any] | None = None, turn: str = TURN) -> dict[str, Any]:
    """Return a subagent whose turn has ended."""
    return IDLE | {"turn": turn, "last_turn": (outcome or OUTCOME) | {"turn": turn}}


def test_all_are_waited_for_and_the_first_to_end_is_told_first(
    subagents: FakeSubagents, capsys: pytest.CaptureFixture[str]
) -> None:
    tells(subagents, a=[RUNNING, RUNNING, RUNNING, done()], b=[RUNNING, done()])
    assert main(["wait", "a", "b"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "b: completed, 1 min 23 s, 7 rounds, $0.43",
        "a: completed, 1 min 23 s, 7 rounds, $0.43",
    ]
    assert printed.err == ""


def test_the_daemon_is_asked_once_for_all_and_singly_for_those_that_had_no_room(
    subagents: FakeSubagents, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = {name: [RUNNING, done()] for name in "abc"}
    tells(subagents, **looks)
    status = subagents.answers["status"]
    assert callable(status)
    subagents.answers["wait"] = waits(status, most=2)
    assert main(["wait", "a", "b", "c"]) == 0
    asked = [(tool, arguments.get("names") or arguments["name"]) for tool, arguments in subagents.calls]
    assert asked == [
        ("status", "a"),
        ("status", "b"),
        ("status", "c"),
        ("wait", ["a", "b", "c"]),
        ("status", "c"),
    ]
    assert subagents.calls[3][1]["timeout_seconds"] == wait_module.SILENT_SECONDS
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_one_that_did_not_complete_makes_the_code_1(
    subagents: FakeSubagents, capsys: pytest.CaptureFixture[str]
) -> None:
    tells(subagents, a=[done()], b=[done(FAILED)])
    assert main(["wait", "a", "b"]) == 1
    assert "b: failed (limit), limited until 2026-01-01T17:00:00Z: You have" in capsys.readouterr().out


def test_of_one_that_does_not_run_the_last_turn_counts(subagents: FakeSubagents) -> None:
    tells(subagents, a=[done()])
    assert main(["wait", "a", "a"]) == 0
    assert len(subagents.calls) == 1


def test_a_name_that_nobody_knows_is_code_1_and_said(
    subagents: FakeSubagents, capsys: pytest.CaptureFixture[str]
) -> None:
    tells(subagents, a=[UNKNOWN])
    assert main(["wait", "a"]) == 1
    assert capsys.readouterr().out == "a: nothing is known of a turn under this name\n"


def test_a_turn_after_which_another_was_started_is_told_from_its_loose_end(
    subagents: FakeSubagents, capsys: pytest.CaptureFixture[str]
) -> None:
    tells(subagents, a=[RUNNING, RUNNING | {"turn": "next"}])
    subagents.answers["get_loose_ends"] = {"loose_ends": [loose_end(TURN, FAILED)], "remaining": 0}
    assert main(["wait", "a"]) == 1
    assert capsys.readouterr().out.startswith("a: failed")
    assert subagents.calls[-1] == ("get_loose_ends", {"name": None, "ids": [TURN], "limit": 10})


def test_a_daemon_that_refuses_to_wait_is_asked_for_the_status(
    subagents: FakeSubagents, capsys: pytest.CaptureFixture[str]
) -> None:
    tells(subagents, a=[RUNNING, RUNNING, done()])
    subagents.answers["wait"] = RefusedError("The daemon is stopping, so there is nothing to wait for.")
    assert main(["wait", "a"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("a: completed")
    assert printed.err == ""


def away(monkeypatch: pytest.MonkeyPatch, *, after: int, times: int) -> None:
    """Let the daemon be away for some calls after some that it answers."""
    count = iter(range(100_000))

    def called(endpoint: Endpoint, tool: str, arguments: dict[str, Any], **more: float) -> ToolAnswer:
        if after <= next(count) < after + times:
            message = "No daemon at all."
            raise UnreachableError(message)
        return call_tool(endpoint, tool, arguments, **more)

    monkeypatch.setattr(wait_module, "call_tool", called)


def test_a_daemon_that_restarts_is_waited_for_and_that_is_said_once(
    subagents: FakeSubagents, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tells(subagents, a=[RUNNING, done()])
    away(monkeypatch, after=1, times=3)
    assert main(["wait", "a"]) == 0
    assert capsys.readouterr().err == "hive-subagent: No daemon at all. Still waiting.\n"


def test_a_daemon_that_stays_away_is_code_3(
    subagents: FakeSubagents, monkeypatch: pytest.MonkeyPatch
) -> None:
    tells(subagents, a=[RUNNING])
    away(monkeypatch, after=1, times=10_000)
    monkeypatch.setattr(wait_module, "AWAY_SECONDS", -wait_module.SILENT_SECONDS)
    assert main(["wait", "a"]) == 3


def test_a_daemon_that_was_never_there_is_code_3_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wait", "a", "--socket", "/nonexistent/socket"]) == 3
    assert "No daemon at" in capsys.readouterr().err


def test_without_a_name_it_is_bad_usage() -> None:
    assert main(["wait"]) == 2
