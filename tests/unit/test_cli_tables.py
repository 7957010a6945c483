"""The table of `status`: what each cell says, what fits, what a pipe gets, and nothing hostile."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon.cli.details import details_of
from hive_subagent_daemon.cli.tables import (
    GAP,
    HEADINGS,
    layout,
    plain_lines,
    remarks_of,
    rows_of,
    short,
)
from tests.support.sample_answers import FAILED, IDLE, KILLED, LOST, OUTCOME, RUNNING, STATUS, UNKNOWN

NOW = datetime(2026, 1, 1, 12, 11, 23, tzinfo=UTC)
EVIL = "\x1b]0;owned\x07\x9b31m\r\u202e"


def answer(*subagents: dict[str, Any], **more: object) -> dict[str, Any]:
    """Return a status answer about these subagents."""
    return STATUS | {"subagents": list(subagents)} | more


def cells(subagent: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of one subagent."""
    [row] = rows_of(answer(subagent), now=NOW)
    return row.row.cells


def ended(outcome: dict[str, Any], state: str = "idle") -> dict[str, Any]:
    """Return a subagent whose last turn ended like this."""
    return IDLE | {"state": state, "last_turn": outcome}


def test_a_running_subagent_shows_ages_memory_and_tool() -> None:
    assert cells(RUNNING) == ("reviewer", "running", "3s", "2m05s", "250M", "-", "Bash 1m01s")


def test_an_idle_one_shows_when_it_ended_how_long_it_took_and_what_it_cost() -> None:
    assert cells(IDLE) == ("writer", "idle", "10m00s", "1m23s", "-", "$0.43", "completed")


def test_one_of_which_nothing_is_known_says_so() -> None:
    assert cells(UNKNOWN)[1:] == ("unknown", "-", "-", "-", "-", "nothing is known of it")


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (KILLED, "oom, SIGKILL"),
        (KILLED | {"cause": "unknown", "oom": None}, "signal SIGKILL, cause unknown"),
        (KILLED | {"cause": "daemon stopped", "signal": "SIGINT"}, "daemon stopped, SIGINT"),
        (LOST, "how it ended is not known [1 warning]"),
        (FAILED, "failed (limit), limited until 2026-01-01T17:00:00Z: You have reached your limit"),
        (OUTCOME | {"warnings": ["a", "b"]}, "completed [2 warnings]"),
    ],
)
def test_the_last_column_says_first_what_tells_most_of_an_ending(outcome: dict[str, Any], said: str) -> None:
    assert cells(ended(outcome))[-1] == said


@pytest.mark.parametrize(
    ("activity", "said"),
    [
        (None, "-"),
        ({"kind": "starting", "since_seconds": 4}, "no output yet 4s"),
        ({"kind": "model", "since_seconds": 4}, "model 4s"),
        ({"kind": "tool", "tool": None}, "a tool"),
        ({"kind": "retry", "attempt": 3, "max_attempts": 10, "error": "529"}, "API retry 3/10 (529)"),
    ],
)
def test_what_a_running_one_does_is_told_in_few_words(activity: dict[str, Any] | None, said: str) -> None:
    assert cells(RUNNING | {"activity": activity})[-1] == said


def test_a_stalled_one_and_missing_servers_are_marked_without_colour() -> None:
    row = cells(RUNNING | {"stalled": True, "mcp_problems": ["docs: failed"]})
    assert row[-1] == "STALLED, Bash 1m01s [1 warning]"


def test_a_stall_that_the_table_shows_is_not_warned_of_again() -> None:
    silent = "reviewer has been silent for 7 min 0 s: it may be stuck."
    other = "writer2 has been silent for 7 min 0 s: it may be stuck."
    stalled = answer(RUNNING | {"stalled": True}, warnings=["disk full", other, silent])
    assert [each.text for each in remarks_of(stalled)][:2] == ["Warning: disk full", f"Warning: {other}"]
    assert len(remarks_of(stalled)) == 3
    quiet = answer(RUNNING, warnings=[silent])
    assert remarks_of(quiet)[0].text == f"Warning: {silent}"


def test_the_daemons_own_troubles_stand_below_the_table() -> None:
    said = [each.text for each in remarks_of(answer(more=7, undelivered=2, warnings=["a\nb"]))]
    assert said == [
        "No subagents yet.",
        "… and 7 more.",
        "Undelivered: 2 loose ends wait for a sink.",
        "Warning: a b",
        "Launcher: process group (no scopes).",
    ]


def test_a_pipe_gets_every_cell_whole_and_no_spaces_at_the_ends() -> None:
    long = RUNNING | {"name": "n" * 63, "activity": {"kind": "tool", "tool": "t" * 300}}
    lines = plain_lines(rows_of(answer(long, IDLE), now=NOW))
    assert lines[0].split() == list(HEADINGS)
    assert lines[1].split() == ["n" * 63, "running", "3s", "2m05s", "250M", "-", "t" * 300]
    assert all(line == line.rstrip() for line in lines)
    assert (
        len({line.index(word) for line, word in zip(lines, ("STATE", "running", "idle"), strict=True)}) == 1
    )


NAMES = st.text("abc-", min_size=1, max_size=63)


@given(st.lists(NAMES, min_size=1, max_size=20), st.integers(20, 250))
def test_no_layout_is_wider_than_its_terminal(names: list[str], width: int) -> None:
    rows = rows_of(answer(*(RUNNING | {"name": name} for name in names)), now=NOW)
    fits = layout(rows, width)
    assert sum(fits.widths) + GAP * (len(fits.widths) - 1) <= width
    assert all(each > 0 for each in fits.widths)
    assert fits.columns[:2] == (0, 1)


def test_usual_subagents_have_all_columns_at_80_and_fewer_where_it_is_narrow() -> None:
    rows = rows_of(answer(RUNNING, IDLE, ended(KILLED, "killed")), now=NOW)
    assert layout(rows, 80).columns == (0, 1, 2, 3, 4, 5, 6)
    assert layout(rows, 64).columns == (0, 1, 2, 3, 4, 6)
    assert layout(rows, 45).columns == (0, 1, 2, 6)
    assert layout(rows, 20).columns == (0, 1)


def test_details_tell_everything_and_the_last_text_whole() -> None:
    lines = details_of(ended(KILLED | {"text_length": 9000}, "killed"), now=NOW, colour=False)
    said = "\n".join(lines)
    assert lines[0] == "writer"
    assert "  state:       killed" in lines
    assert "  last turn:   killed by SIGKILL, cause oom (2 killed by the kernel, peak 210 MiB, " in said
    assert "  ended:       2026-01-01T12:01:23Z (10m00s ago)" in lines
    assert lines[-2:] == ["I was just", "[… 9,000 characters in all]"]


def test_details_tell_whether_messages_reach_a_turn_and_which_wait() -> None:
    said = "\n".join(details_of(RUNNING | {"steerable": True, "unread_messages": 2}, now=NOW, colour=False))
    assert "  steerable:   yes, messages not read yet: 2" in said
    assert "steerable" not in "\n".join(details_of(RUNNING, now=NOW, colour=False))


def test_nothing_hostile_reaches_a_terminal() -> None:
    retry = {"kind": "retry", "attempt": 1, "max_attempts": 2, "error": EVIL}
    evil = [
        RUNNING | {"activity": {"kind": "tool", "tool": EVIL}, "mcp_problems": [EVIL], "dir": EVIL},
        RUNNING | {"activity": retry, "model": EVIL},
        ended(FAILED | {"error": EVIL, "text": EVIL, "warnings": [EVIL], "limited_until": EVIL}),
        ended(KILLED | {"signal": EVIL}),
    ]
    whole = answer(*evil, warnings=[EVIL])
    said = [*plain_lines(rows_of(whole, now=NOW)), *(each.text for each in remarks_of(whole))]
    for each in evil:
        said += details_of(each, now=NOW, colour=False)
    assert not set("\x1b\x07\x9b\r\u202e") & set("".join(said))
    assert "\\x1b]0;owned\\x07\\x9b31m" in "".join(said)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (-3, "0s"),
        (59.9, "59s"),
        (60, "1m00s"),
        (3599, "59m59s"),
        (3600, "1h00m"),
        (90000, "1d01h"),
    ],
)
def test_lengths_of_time_are_short(seconds: float | None, text: str) -> None:
    assert short(seconds) == text
