"""Claude's records as entries (the records are those of claude 2.1.197), and how they are shown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon.cli.log import Shown, rendered
from hive_subagent_daemon.cli.transcript import Entry, Kind, entries_of, is_prompt, moment_of, records_in

WHEN = "2026-11-30T22:14:02.894Z"
PLAIN = Shown(full=False, colour=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "message", "content", "text", "input", "is_error", "timestamp", "subtype", "name"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


def user(content: object, **more: object) -> dict[str, Any]:
    """Return a record of what claude was given."""
    return {"type": "user", "message": {"role": "user", "content": content}, "timestamp": WHEN} | more


def claude(*blocks: dict[str, Any], **more: object) -> dict[str, Any]:
    """Return a record of what claude said."""
    return {"type": "assistant", "message": {"content": list(blocks)}, "timestamp": WHEN} | more


def answered(content: object, **more: object) -> dict[str, Any]:
    """Return a record of what a tool answered."""
    return user([{"type": "tool_result", "tool_use_id": "t", "content": content} | more])


NOTIFICATION = (
    "<task-notification>\n<status>completed</status>\n<summary>sleep ended</summary>\n</task-notification>"
)


@pytest.mark.parametrize(
    ("record", "kind", "text"),
    [
        (user("do it"), Kind.PROMPT, "do it"),
        (user([{"type": "text", "text": "do it"}]), Kind.PROMPT, "do it"),
        (user("[Request interrupted by user]"), Kind.ERROR, "[Request interrupted by user]"),
        (user(NOTIFICATION), Kind.NOTE, "sleep ended"),
        (user("long", isCompactSummary=True), Kind.NOTE, "a summary of the conversation so far"),
        (claude({"type": "text", "text": "done"}), Kind.TEXT, "done"),
        (
            claude({"type": "text", "text": "API Error: 529"}, isApiErrorMessage=True),
            Kind.ERROR,
            "API Error: 529",
        ),
        (
            claude({"type": "tool_use", "name": "Bash", "input": {"description": "d", "command": "ls -l"}}),
            Kind.TOOL,
            "Bash  ls -l",
        ),
        (claude({"type": "tool_use", "name": "X", "input": {"n": 1}}), Kind.TOOL, 'X  {"n": 1}'),
        (claude({"type": "tool_use", "name": "X", "input": {}}), Kind.TOOL, "X"),
        (answered("printed", is_error=False), Kind.RESULT, "printed"),
        (answered("Exit code 2", is_error=True), Kind.ERROR, "Exit code 2"),
        (answered(""), Kind.RESULT, "(no output)"),
        (answered([{"type": "text", "text": "a"}, {"type": "image"}]), Kind.RESULT, "a\n[image]"),
        (
            {"type": "system", "subtype": "compact_boundary"},
            Kind.NOTE,
            "the conversation so far was compacted",
        ),
    ],
)
def test_a_record_becomes_what_it_says(record: dict[str, Any], kind: Kind, text: str) -> None:
    [entry] = entries_of(record)
    assert (entry.kind, entry.text) == (kind, text)


@pytest.mark.parametrize(
    "record",
    [
        {"type": "custom-title", "customTitle": "worker"},
        {"type": "queue-operation", "operation": "enqueue", "content": "do it", "timestamp": WHEN},
        {"type": "attachment", "attachment": {"type": "skill_listing", "content": "x"}},
        user("a caveat", isMeta=True),
        claude({"type": "text", "text": "I am a helper"}, isSidechain=True),
        claude({"type": "thinking", "thinking": "hm"}),
        claude({"type": "text", "text": "  "}),
    ],
)
def test_book_keeping_and_helpers_are_not_shown(record: dict[str, Any]) -> None:
    assert list(entries_of(record)) == []


@given(JSON)
def test_no_record_makes_it_fail(record: object) -> None:
    if isinstance(record, dict):
        list(entries_of(record))
        is_prompt(record)
        moment_of(record)
    line = json.dumps(record).encode()
    assert records_in(line) == (record if isinstance(record, dict) else None) or records_in(line) is None


@given(st.binary(max_size=200))
def test_no_line_makes_it_fail(line: bytes) -> None:
    records_in(line)


def test_a_record_behind_a_torn_one_is_found() -> None:
    whole = json.dumps({"parentUuid": None} | user("go on")).encode()
    torn = json.dumps({"parentUuid": None} | user("lost")).encode()[:40]
    found = records_in(torn + whole)
    assert found is not None
    assert [entry.text for entry in entries_of(found)] == ["go on"]
    assert records_in(torn) is None


def entry(kind: Kind, text: str) -> Entry:
    """Return an entry without a time."""
    return Entry(kind, text, None)


def test_long_results_are_cut_and_texts_are_not() -> None:
    many = "\n".join(map(str, range(30)))
    cut = rendered(entry(Kind.RESULT, many), PLAIN).splitlines()
    assert cut[-1].endswith("… 22 more lines (--full shows all)")
    assert [line.strip("| ") for line in cut[:8]] == list(map(str, range(8)))
    assert len(rendered(entry(Kind.TEXT, many), PLAIN).splitlines()) == 30
    assert len(rendered(entry(Kind.RESULT, many), Shown(full=True, colour=False)).splitlines()) == 30
    wide = rendered(entry(Kind.RESULT, "x" * 9000), PLAIN)
    assert len(wide) < 2100
    assert wide.endswith("…")


def test_an_entry_has_its_time_and_a_mark_that_needs_no_colour() -> None:
    moment = moment_of(user("x"))
    assert moment is not None
    shown = rendered(Entry(Kind.TOOL, "Bash  ls", moment), PLAIN)
    assert shown == f"{moment.astimezone():%H:%M:%S} * Bash  ls"
    assert "\x1b[1mBash  ls\x1b[0m" in rendered(
        Entry(Kind.TOOL, "Bash  ls", moment), Shown(full=False, colour=True)
    )


def test_a_conversation_cannot_talk_to_the_terminal() -> None:
    shown = rendered(entry(Kind.TEXT, "\x1b[2J\x9b1mé\r\nnext\rover\u202e"), PLAIN)
    assert shown.split("\n") == [f"{'':11}\\x1b[2J\\x9b1mé", f"{'':11}next\\x0dover\\u202e"]
