"""The texts for people: what they say, and that no answer of the contract can break them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon import answers, clock
from hive_subagent_daemon.tools import TOOLS
from tests.support import sample_answers as sample
from tests.support.schema_values import fits, values_of

if TYPE_CHECKING:
    from hive_subagent_daemon.tools import ToolBinding

BINDINGS = {binding.tool.name: binding for binding in TOOLS}
SCHEMAS = {name: binding.tool.output_schema or {} for name, binding in BINDINGS.items()}


def anything(tool: str) -> st.SearchStrategy[tuple[str, Any]]:
    """Return a strategy for the answers of a tool, with its name."""
    return st.tuples(st.just(tool), values_of(SCHEMAS[tool]))


@given(st.one_of([anything(tool) for tool in BINDINGS]))
def test_every_answer_of_the_contract_has_a_text(answer: tuple[str, Any]) -> None:
    tool, structured = answer
    assert BINDINGS[tool].text(structured)


@pytest.mark.parametrize("binding", TOOLS, ids=lambda binding: binding.tool.name)
def test_the_sample_answers_fit_the_schemas_with_additions_and_without(binding: ToolBinding[Any]) -> None:
    schema = SCHEMAS[binding.tool.name]
    answer = sample.ANSWERS[binding.tool.name]
    assert fits(answer | {"added_later": [1]}, schema)
    for field in schema["required"]:
        assert not fits({key: value for key, value in answer.items() if key != field}, schema)


@pytest.mark.parametrize(
    "outcome", [sample.OUTCOME, sample.KILLED, sample.FAILED, sample.COULD_NOT_START, sample.LOST]
)
def test_each_outcome_fits_as_a_loose_end_and_as_the_last_turn(outcome: dict[str, Any]) -> None:
    loose_ends = {"loose_ends": [sample.loose_end("x", outcome)], "remaining": 0}
    assert fits(loose_ends, SCHEMAS["get_loose_ends"])
    idle = sample.IDLE | {"last_turn": outcome}
    assert fits(sample.STATUS | {"subagents": [idle]}, SCHEMAS["status"])


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (sample.OUTCOME, "completed"),
        (sample.KILLED, "killed by SIGKILL, cause oom (2 killed by the kernel, peak 210 MiB, limit 200 MiB)"),
        (sample.KILLED | {"signal": None, "cause": None, "oom": None}, "killed by a signal, cause unknown"),
        (sample.FAILED, "failed (limit), limited until 2026-01-01T17:00:00Z: You have reached your limit"),
        (sample.FAILED | {"error": "x" * 300, "limited_until": None}, f"failed (limit): {'x' * 200}…"),
        (sample.COULD_NOT_START, "could not start: You have reached your limit"),
        (sample.LOST, "lost: how it ended is not known"),
    ],
)
def test_how_a_turn_ended_fits_on_one_line(outcome: dict[str, Any], text: str) -> None:
    assert answers.how_it_ended(outcome) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (59.9, "59 s"),
        (125, "2 min 5 s"),
        (3600 * 3 + 61, "3 h 1 min"),
        (86400 * 2 + 3600, "2 d 1 h"),
    ],
)
def test_lengths_of_time_are_shown_in_two_units(seconds: float, text: str) -> None:
    assert clock.lasting(seconds) == text


def test_a_start_says_where_its_end_will_show() -> None:
    text = answers.started(sample.STARTED)
    assert text.startswith("Started 'reviewer' (turn 20260101t120000-1, pid 4711) in /srv/project.")
    assert "get_loose_ends" in text
    assert "scope x.scope" in answers.started(sample.STARTED | {"scope": "x.scope"})


def test_a_continue_warns_of_a_previous_turn_that_was_cut_off() -> None:
    assert "do not build on" not in answers.continued(sample.STARTED)
    text = answers.continued(sample.STARTED | {"previous_turn": sample.KILLED})
    assert text.startswith("Continued 'reviewer'")
    assert "cut off (killed by SIGKILL, cause oom" in text


def test_an_interrupt_tells_whether_the_turn_has_ended_and_what_is_left() -> None:
    assert "still shutting down" in answers.interrupted(sample.INTERRUPTED)
    ended = sample.INTERRUPTED | {"ended": True}
    assert "the turn has ended, completed." in answers.interrupted(ended | {"outcome": sample.OUTCOME})
    unneeded = ended | {"signal": None, "outcome": sample.OUTCOME}
    assert answers.interrupted(unneeded) == (
        "No signal was needed for 'reviewer': the turn has ended, completed."
    )
    assert fits(unneeded, SCHEMAS["interrupt"])
    left = answers.interrupted(ended | {"stopped_processes": ["7 bash"], "remaining_processes": ["9 sleep"]})
    assert left.endswith("the turn has ended. Stopped: 7 bash. Could not be stopped: 9 sleep.")


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({}, "reviewer: running for 2 min 5 s, last output 3 s ago, in Bash for 1 min 1 s, 250 MiB"),
        ({"memory_bytes": 2**21, "memory_limit_bytes": 100 * 2**20}, "in Bash for 1 min 1 s, 2 of 100 MiB"),
        ({"stalled": True, "activity": None, "memory_bytes": None}, "last output 3 s ago (STALLED)"),
        ({"activity": {"kind": "starting", "since_seconds": 2}}, "no output yet for 2 s"),
        ({"activity": {"kind": "model"}}, "waiting for the model"),
        (
            {"activity": {"kind": "retry", "attempt": 3, "max_attempts": 10, "error": "overloaded"}},
            "API retry 3 of 10 (overloaded)",
        ),
        ({"mcp_problems": ["docs: failed"]}, "MCP servers: docs: failed"),
    ],
)
def test_a_running_subagent_shows_the_age_of_its_output_and_what_it_does(
    changed: dict[str, Any], text: str
) -> None:
    running = sample.RUNNING | changed
    assert text in answers.status_shown(sample.STATUS | {"subagents": [running]})


def test_a_status_counts_what_it_does_not_show_and_repeats_warnings() -> None:
    text = answers.status_shown(sample.STATUS | {"more": 3, "undelivered": 2, "warnings": ["no scopes"]})
    assert text.splitlines()[1:] == [
        "writer: idle, last turn completed",
        "nobody: unknown",
        "… and 3 more.",
        "2 loose ends are not delivered to their sinks yet.",
        "Warning: no scopes",
        "Launcher: process group (no scopes).",
    ]


@pytest.mark.parametrize("launcher", ["user scope", "system scope"])
def test_a_status_has_no_words_for_a_launcher_that_makes_scopes(launcher: str) -> None:
    quiet = sample.STATUS | {"subagents": [], "launcher": launcher}
    assert answers.status_shown(quiet) == "No subagents yet."


def test_a_loose_end_shows_its_id_the_numbers_and_the_beginning_of_its_text() -> None:
    shown = answers.loose_ends_shown({"loose_ends": [sample.loose_end("a-1")], "remaining": 2})
    assert shown.splitlines() == [
        "a-1  reviewer: completed",
        "1 min 23 s, 7 rounds, 0.43 USD, opus, ended 2026-01-01T12:01:23Z",
        "All tests pass.",
        "",
        "2 more are open.",
    ]
    long = sample.loose_end("a-1") | {"text": "x" * 4000, "text_length": 9000}
    assert "[… 9,000 characters in all]" in answers.loose_ends_shown({"loose_ends": [long], "remaining": 0})
    assert answers.loose_ends_shown({"loose_ends": [], "remaining": 0}) == "No open loose ends."


def test_a_closing_names_what_it_did_not_know() -> None:
    assert answers.closed({"closed": ["a", "b"], "unknown": ["c"]}) == "Closed: a, b. Unknown: c."
    assert answers.closed({"closed": [], "unknown": []}) == "Nothing closed."


def test_a_depth_that_no_turn_can_have_widens_no_line() -> None:
    """A damaged record holds any number: this one took all memory as an indentation."""
    shown = answers.status_shown(sample.STATUS | {"subagents": [sample.RUNNING | {"depth": 3_398_745_031}]})
    assert len(shown) < 2000
