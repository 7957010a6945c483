"""The command `hive-subagent`: what each command calls, prints and returns."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from hive_subagent_daemon.cli import turns
from hive_subagent_daemon.client_main import main
from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.values import USUAL_TERMS, Terms
from tests.support.fake_subagents import FakeSubagents
from tests.support.sample_answers import ANSWERS, STATUS, loose_end
from tests.support.served_tools import served_on_tcp

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def subagents(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSubagents]:
    """Serve a fake service at the address that the environment names."""
    fake = FakeSubagents()
    with served_on_tcp(fake) as url:
        monkeypatch.setenv("HIVE_SUBAGENT_URL", url)
        yield fake


@pytest.mark.parametrize(
    ("arguments", "tool", "received"),
    [
        (["interrupt", "a"], "interrupt", {"name": "a", "force": False}),
        (["interrupt", "a", "--force"], "interrupt", {"name": "a", "force": True}),
        (["steer", "a", "less"], "steer", {"name": "a", "text": "less"}),
        (["steer", "--", "-p", "-x"], "steer", {"name": "-p", "text": "-x"}),
        (["status"], "status", {"name": None}),
        (["status", "a"], "status", {"name": "a"}),
        (["status", "--", "-p"], "status", {"name": "-p"}),
        (["loose-ends"], "get_loose_ends", {"name": None, "ids": None, "limit": 100}),
        (["loose-ends", "--close", "x", "y"], "close_loose_ends", {"ids": ["x", "y"]}),
        (
            ["continue", "a", "do it", "--model", "opus"],
            "continue",
            {"name": "a", "prompt": "do it", "model": "opus", "dir": None, "terms": USUAL_TERMS},
        ),
        (
            ["continue", "--", "-p", "-x"],
            "continue",
            {"name": "-p", "prompt": "-x", "model": None, "dir": None, "terms": USUAL_TERMS},
        ),
    ],
)
def test_a_command_calls_its_tool_and_prints_the_text(
    subagents: FakeSubagents,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    tool: str,
    received: dict[str, Any],
) -> None:
    assert main(arguments) == 0
    assert subagents.calls == [(tool, received)]
    printed = capsys.readouterr()
    assert printed.out.strip()
    assert printed.err == ""


def test_files_of_a_start_are_those_of_the_caller(
    subagents: FakeSubagents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["start", "a", "p.md", "--dir", "sub", "--trigger", "go", "--model", ""]) == 0
    here = {"prompt_file": f"{tmp_path}/p.md", "dir": f"{tmp_path}/sub"}
    assert subagents.calls == [
        ("start", {"name": "a", "trigger": "go", "model": "", "terms": USUAL_TERMS} | here)
    ]


def test_what_a_turn_may_take_is_passed_on(subagents: FakeSubagents) -> None:
    bounds = ["--timeout", "90", "--max-budget-usd", "1.5", "--max-turns", "7"]
    for words in (["start", "a", "/p.md", *bounds], ["continue", "a", "go", *bounds]):
        assert main(words) == 0
        given = subagents.calls[-1][1]["terms"].bounds
        assert (given.timeout_seconds, given.max_budget_usd, given.max_turns) == (90, 1.5, 7)
        assert main([*words, "--steerable"]) == 0
        assert subagents.calls[-1][1]["terms"] == Terms(given, steerable=True)
    assert main(["start", "a", "/p.md", "--max-turns", "few"]) == 2


def test_a_directory_that_was_not_given_is_left_to_the_daemon(subagents: FakeSubagents) -> None:
    main(["start", "a", "/p.md"])
    assert subagents.calls[0][1]["dir"] is None


@pytest.mark.parametrize(
    "arguments", [["continue", "a"], ["continue", "a", "-"], ["steer", "a"], ["steer", "a", "-"]]
)
def test_a_prompt_may_come_by_stdin(
    subagents: FakeSubagents, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("zwei\nZeilen ä\n".encode())))
    assert main(arguments) == 0
    received = subagents.calls[0][1]
    assert received["text" if arguments[0] == "steer" else "prompt"] == "zwei\nZeilen ä\n"


@pytest.mark.parametrize(
    ("prompt", "message"), [(b"\xff", "not valid UTF-8 at byte 0"), (b"x" * 101, "more than 100 bytes")]
)
def test_a_prompt_on_stdin_that_cannot_be_sent_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], prompt: bytes, message: str
) -> None:
    monkeypatch.setattr(turns, "MAX_PROMPT_BYTES", 100)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(prompt)))
    assert main(["continue", "a"]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [(["status", "--json"], STATUS), (["loose-ends", "--json"], ANSWERS["get_loose_ends"])],
)
def test_json_is_the_structured_answer(
    subagents: FakeSubagents, capsys: pytest.CaptureFixture[str], arguments: list[str], answer: dict[str, Any]
) -> None:
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out) == answer
    assert len(subagents.calls) == 1


def test_a_refusal_is_code_1_with_the_reason_on_stderr(
    subagents: FakeSubagents, capsys: pytest.CaptureFixture[str]
) -> None:
    subagents.answers["start"] = RefusedError("'a' runs since 3 s: interrupt it first.")
    assert main(["start", "a", "p.md"]) == 1
    printed = capsys.readouterr()
    assert printed.err == "hive-subagent: 'a' runs since 3 s: interrupt it first.\n"
    assert printed.out == ""


def test_an_id_that_nobody_knows_is_code_1(
    subagents: FakeSubagents, capsys: pytest.CaptureFixture[str]
) -> None:
    subagents.answers["close_loose_ends"] = {"closed": ["a"], "unknown": ["b"]}
    assert main(["loose-ends", "--close", "a", "b"]) == 1
    printed = capsys.readouterr()
    assert "Closed: a." in printed.out
    assert "no loose end has the id b." in printed.err


def test_a_loose_end_that_is_named_is_shown_whole_and_one_that_is_not_there_is_code_1(
    subagents: FakeSubagents, capsys: pytest.CaptureFixture[str]
) -> None:
    long = loose_end("a") | {"text": "x" * 9000, "text_length": 9000}
    subagents.answers["get_loose_ends"] = {"loose_ends": [long], "remaining": 0}
    assert main(["loose-ends", "a"]) == 0
    assert "x" * 9000 in capsys.readouterr().out
    assert main(["loose-ends", "a", "b"]) == 1
    assert "no loose end has the id b." in capsys.readouterr().err
    assert subagents.calls[-1] == ("get_loose_ends", {"name": None, "ids": ["a", "b"], "limit": 10})


def test_a_name_that_begins_with_a_dash_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["interrupt", "-pq"]) == 2
    assert "If '-pq' is the name of a subagent, write it after --" in capsys.readouterr().err
    assert main(["status", "--Nope"]) == 2
    assert "name of a subagent" not in capsys.readouterr().err


def test_no_daemon_is_code_3(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["status", "--socket", str(tmp_path / "none.sock")]) == 3
    assert "No daemon at the socket" in capsys.readouterr().err


def test_the_address_may_stand_before_or_after_the_command_and_beats_the_environment(
    subagents: FakeSubagents, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = os.environ["HIVE_SUBAGENT_URL"]
    monkeypatch.setenv("HIVE_SUBAGENT_URL", "nonsense")
    assert main(["--url", url, "status"]) == 0
    assert main(["status", "--url", url]) == 0
    assert main(["--socket", "/nonexistent", "status", "--url", url]) == 0
    assert len(subagents.calls) == 3


def test_a_bad_address_in_the_environment_is_bad_usage_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HIVE_SUBAGENT_URL", "ftp://x")
    assert main(["status"]) == 2
    assert "$HIVE_SUBAGENT_URL: 'ftp://x' cannot be used" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nope"],
        ["start", "a"],
        ["status", "--nope"],
        ["interrupt", "a", "--forc"],
        ["loose-ends", "--close"],
        ["loose-ends", "--close", "x", "--close-all"],
        ["--url", "http://x", "--socket", "y", "status"],
    ],
)
def test_bad_usage_is_code_2(arguments: list[str]) -> None:
    assert main(arguments) == 2


def test_help_and_version_are_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert main(["--help"]) == 0
    assert "loose-ends" in capsys.readouterr().out


def test_control_characters_of_a_subagent_do_not_reach_the_terminal(
    subagents: FakeSubagents, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = loose_end("a-1") | {"text": "\x1b]0;owned\x07\r\x9b1m é\n\tend"}
    subagents.answers["get_loose_ends"] = {"loose_ends": [evil], "remaining": 0}
    assert main(["loose-ends"]) == 0
    assert "\\x1b]0;owned\\x07\\x0d\\x9b1m é\n\tend" in capsys.readouterr().out


def fill_inbox(subagents: FakeSubagents, count: int) -> list[str]:
    """Put loose ends into the service, which shows three at most and gets one more at the first closing."""
    open_ids = [f"id-{number}" for number in range(count)]

    def show(*, limit: int, **_others: object) -> dict[str, Any]:
        shown = open_ids[: min(limit, 3)]
        return {"loose_ends": [loose_end(one) for one in shown], "remaining": len(open_ids) - len(shown)}

    def close(ids: list[str]) -> dict[str, Any]:
        if "late" not in open_ids:
            open_ids.append("late")
        for one in ids:
            open_ids.remove(one)
        return {"closed": ids, "unknown": []}

    subagents.answers["get_loose_ends"] = show
    subagents.answers["close_loose_ends"] = close
    return open_ids


@pytest.mark.parametrize("count", [1, 3, 4, 7])
def test_closing_all_shows_each_and_leaves_what_came_up_meanwhile(
    subagents: FakeSubagents, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    open_ids = fill_inbox(subagents, count)
    assert main(["loose-ends", "--close-all"]) == 0
    assert open_ids == ["late"]
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if line.startswith("id-")] == [
        f"id-{number}" for number in range(count)
    ]
    assert out.endswith(f"Closed {count} loose end{'' if count == 1 else 's'}.\n")


def test_closing_all_of_none_closes_none(
    subagents: FakeSubagents, capsys: pytest.CaptureFixture[str]
) -> None:
    subagents.answers["get_loose_ends"] = {"loose_ends": [], "remaining": 0}
    assert main(["loose-ends", "--close-all"]) == 0
    assert capsys.readouterr().out == "Closed 0 loose ends.\n"


def test_closing_all_that_stops_half_way_prints_what_it_has_closed(
    subagents: FakeSubagents, capsys: pytest.CaptureFixture[str]
) -> None:
    fill_inbox(subagents, 7)
    close = subagents.answers["close_loose_ends"]
    assert callable(close)

    def close_once(ids: list[str]) -> dict[str, Any]:
        subagents.answers["close_loose_ends"] = RefusedError("The disk is full.")
        return close(ids)

    subagents.answers["close_loose_ends"] = close_once
    assert main(["loose-ends", "--close-all", "--json"]) == 1
    printed = capsys.readouterr()
    assert [one["id"] for one in json.loads(printed.out)["closed"]] == ["id-0", "id-1", "id-2"]
    assert "The disk is full." in printed.err


def run(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "hive_subagent_daemon.client_main", *arguments],
        env=dict(os.environ) | environment,
        capture_output=True,
        timeout=30,
        check=False,
    )


def test_output_is_safe_in_a_terminal_without_unicode(subagents: FakeSubagents) -> None:
    subagents.answers["status"] = STATUS | {"subagents": [], "warnings": ["räum auf"]}
    ended = run(["status"], PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"Warning: r\\xe4um auf" in ended.stdout


def test_a_reader_that_has_gone_is_no_traceback(subagents: FakeSubagents) -> None:
    command = f"{sys.executable} -m hive_subagent_daemon.client_main status --json; echo code $? >&2"
    subagents.answers["status"] = STATUS | {"warnings": ["x" * 200_000]}
    piped = ["bash", "-c", f"({command}) | head -c 1"]
    ended = subprocess.run(piped, capture_output=True, timeout=30, check=False)
    assert ended.stderr == b"code 1\n"


def test_the_command_does_without_the_sdk_and_pydantic() -> None:
    loaded = "import sys, hive_subagent_daemon.client_main; print([m for m in sys.modules if '.' not in m])"
    ended = subprocess.run([sys.executable, "-c", loaded], capture_output=True, timeout=30, check=True)
    assert b"'hive_subagent_daemon'" in ended.stdout
    assert not [
        name for name in (b"'mcp'", b"'mcp_types'", b"'pydantic'", b"'anyio'") if name in ended.stdout
    ]
