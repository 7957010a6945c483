"""The live table as a picture of a whole screen, and what `--watch` prints where nothing can be redrawn."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from hive_subagent_daemon.cli import watch
from hive_subagent_daemon.cli.live import picture
from hive_subagent_daemon.cli.watch import Look
from hive_subagent_daemon.client import BusyError, Endpoint, ToolAnswer, UnreachableError
from hive_subagent_daemon.client_main import main
from hive_subagent_daemon.errors import RefusedError
from tests.support.sample_answers import IDLE, RUNNING, STATUS

if TYPE_CHECKING:
    from collections.abc import Mapping

ADDRESS = "http://127.0.0.1:7310/mcp"
TOOLS = st.text(max_size=40) | st.just("検索ツール" * 5)


def drawn(look: Look, *, columns: int, lines: int) -> list[str]:
    """Return the lines of the picture."""
    console = Console(file=io.StringIO(), width=columns, height=lines, color_system=None, emoji=False)
    console.print(picture(look, ADDRESS, columns=columns, lines=lines))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().split("\n")[:-1]


def many(count: int, **more: object) -> dict[str, Any]:
    """Return an answer about many running subagents."""
    return STATUS | {"subagents": [RUNNING | {"name": f"busy-{number}"} for number in range(count)]} | more


@settings(max_examples=60)
@given(
    subagents=st.lists(st.tuples(st.text("ab-", min_size=1, max_size=63), TOOLS), max_size=30),
    columns=st.integers(20, 220),
    lines=st.integers(8, 50),
    away=st.booleans(),
)
def test_a_picture_is_never_larger_than_its_screen(
    subagents: list[tuple[str, str]], columns: int, lines: int, *, away: bool
) -> None:
    shown = [RUNNING | {"name": name, "activity": {"kind": "tool", "tool": tool}} for name, tool in subagents]
    look = Look(STATUS | {"subagents": shown}, trouble="No daemon at all." * 20 if away else None)
    made = drawn(look, columns=columns, lines=lines)
    assert max(map(cell_len, made)) <= columns
    assert len(made) <= lines


def test_rows_that_do_not_fit_are_counted() -> None:
    made = drawn(Look(many(50, launcher="user scope")), columns=80, lines=24)
    rows = [line for line in made if line.startswith("busy-")]
    assert len(made) <= 24
    assert made[-1] == f"… {50 - len(rows)} more: this screen is full."
    assert len(rows) >= 18


def test_a_screen_that_is_large_enough_shows_all() -> None:
    made = drawn(Look(many(50)), columns=80, lines=60)
    assert len([line for line in made if line.startswith("busy-")]) == 50
    assert not [line for line in made if "more" in line]


def test_a_daemon_that_is_away_is_told_above_the_last_table() -> None:
    made = drawn(Look(many(1), "No daemon at \x1b[.", 63.0), columns=100, lines=24)
    assert made[1] == "Not answering for 1m03s, trying again. No daemon at \\x1b[."
    assert made[3].startswith("busy-0")


def changes(monkeypatch: pytest.MonkeyPatch, *answers: dict[str, Any] | Exception) -> None:
    """Let `--watch` meet these answers, then be interrupted."""
    rest = list(answers)

    def call_tool(_endpoint: Endpoint, _tool: str, _arguments: Mapping[str, Any]) -> ToolAnswer:
        if not rest:
            raise KeyboardInterrupt
        answer = rest.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return ToolAnswer("", answer)

    monkeypatch.setattr(watch, "call_tool", call_tool)
    monkeypatch.setattr(watch, "PAUSE_SECONDS", 0.0)


def test_in_a_pipe_each_change_is_a_line_and_an_absence_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    older = many(1) | {"subagents": [RUNNING | {"age_seconds": 60.0, "running_seconds": 300.0}]}
    changes(
        monkeypatch,
        STATUS | {"subagents": [RUNNING]},
        older,
        UnreachableError("No daemon."),
        BusyError("It is stopping."),
        STATUS | {"subagents": [IDLE | {"name": "reviewer"}]},
    )
    assert main(["status", "--watch"]) == 130
    printed = capsys.readouterr()
    assert [line[10:] for line in printed.out.splitlines()] == [
        "reviewer: running, Bash",
        "No daemon.",
        "The daemon answers again.",
        "reviewer: idle, completed",
    ]
    assert printed.err == ""


def test_as_json_each_change_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    idle = STATUS | {"subagents": [IDLE]}
    changes(monkeypatch, STATUS, STATUS, UnreachableError("No daemon."), idle)
    assert main(["status", "--watch", "--json"]) == 130
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [STATUS, idle]


@pytest.mark.parametrize(("error", "code"), [(UnreachableError("No daemon."), 3), (RefusedError("No."), 1)])
def test_a_daemon_that_is_not_there_at_first_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    changes(monkeypatch, error)
    assert main(["status", "--watch"]) == code
