"""One line of claude's output becomes one typed event, whatever its bytes are."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hive_subagent_daemon import events
from hive_subagent_daemon.events import (
    Assistant,
    BackgroundBegan,
    BackgroundEnded,
    Init,
    LimitTold,
    Noise,
    Other,
    Result,
    Retry,
    ToolResults,
    parse,
)
from tests.unit import support_streams as streams

if TYPE_CHECKING:
    from collections.abc import Iterator

EVENTS = get_args(events.Event)
LONGEST_MEASURED_BYTES = 6_002_626
KEYS = (
    "type", "subtype", "session_id", "model", "claude_code_version", "mcp_servers", "name", "status", "error",
    "attempt", "max_retries", "error_status", "task_id", "description", "task_type", "patch", "is_error",
    "id",
    "errors", "result", "api_error_status", "terminal_reason", "stop_reason", "num_turns", "total_cost_usd",
    "message", "content", "text", "tool_use_id", "rate_limit_info", "resetsAt",
)  # fmt: skip
WORDS = ("system", "result", "assistant", "user", "init", "api_retry", "task_started", "task_updated", "text")

any_text = st.one_of(st.sampled_from(WORDS), st.text(st.characters(), max_size=8))
any_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), any_text),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)
any_event = st.builds(
    lambda fields, kind, subtype: {**fields, "type": kind, "subtype": subtype},
    st.dictionaries(st.sampled_from(KEYS), any_json, max_size=10),
    st.sampled_from(["system", "result", "assistant", "user", "rate_limit_event"]),
    st.sampled_from(["init", "api_retry", "task_started", "task_updated", "task_notification", "success"]),
)


def texts_in(value: object) -> Iterator[str]:
    """Yield every text of an event that may be stored or shown."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from texts_in(list(value.values()))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from texts_in(item)


def fields_of(event: events.Event) -> list[Any]:
    """Return the values of an event's fields."""
    return [getattr(event, field.name) for field in dataclasses.fields(event)]


@given(st.one_of(st.binary(), st.binary().map(lambda rest: b'{"type":"result",' + rest)))
@example(b'{"type":"result","result":"\xff\xfe"}')
@example(b"\xef\xbb\xbf{}")
@example(b'{"type":')
def test_no_bytes_make_the_parser_fail(line: bytes) -> None:
    assert isinstance(parse(line), EVENTS)


@given(any_event)
def test_no_value_of_any_field_makes_the_parser_fail_and_all_texts_can_be_stored(
    event: dict[str, Any],
) -> None:
    parsed = parse(json.dumps(event).encode())
    assert isinstance(parsed, EVENTS)
    for text in texts_in(fields_of(parsed)):
        text.encode("utf-8")


@given(any_event)
def test_blanks_between_the_parts_of_a_line_make_no_difference(event: dict[str, Any]) -> None:
    compact = json.dumps(event, separators=(",", ":")).encode()
    spaced = json.dumps(event).encode()
    assert repr(parse(compact)) == repr(parse(spaced)) == repr(parse(b"  " + spaced + b" \r\n"))


@pytest.mark.parametrize(
    "line", [b"", b"\n", b"  \t\r\n", b"plain words", b"[1]", b"null", b"1", b'"x"', b"\xff"]
)
def test_a_line_that_is_no_object_is_noise(line: bytes) -> None:
    assert parse(line) == Noise(broken=False)


@pytest.mark.parametrize(
    "line",
    [b"{", b'{"type"', b'{"type":"result"', b"{}{}", b'{"type":"result"}{"type":"result"}', b"{'a':1}"],
)
def test_a_line_that_begins_an_object_and_is_none_is_broken(line: bytes) -> None:
    assert parse(line) == Noise(broken=True)


@pytest.mark.parametrize(
    "line",
    [b"{}", b'{"type":null}', b'{"type":["result"]}', b'{"type":"stream_event"}', b'{"type":"system"}',
     b'{"type":"system","subtype":{"a":1}}', b'{"type":"system","subtype":"of_next_year"}',
     b'{"type":"Result"}'],
)  # fmt: skip
def test_an_event_that_nobody_knows_is_tolerated(line: bytes) -> None:
    assert parse(line) == Other()


@pytest.mark.parametrize("opening", [b"[", b'{"a":'], ids=["lists", "objects"])
@pytest.mark.parametrize("depth", [100, 900, *range(930, 1010, 7), 5_000, 200_000])
def test_nesting_of_any_depth_does_not_make_the_parser_fail(opening: bytes, depth: int) -> None:
    closing = b"]" if opening == b"[" else b"}"
    deep = opening * depth + b"1" + closing * depth
    for key in (b"errors", b"result", b"message"):
        line = b'{"type":"result","is_error":true,"' + key + b'":[' + deep + b"]}"
        assert isinstance(parse(line), Result | Noise)


@pytest.mark.parametrize(
    "number",
    [
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "-1e999",
        str(10**400),
        str(2**53),
        "true",
        '"7"',
        "null",
        "[]",
        "{}",
    ],
)
def test_a_number_that_is_none_of_use_counts_as_not_told(number: str) -> None:
    line = f'{{"type":"result","num_turns":{number},"total_cost_usd":{number},"api_error_status":{number}}}'
    parsed = parse(line.encode())
    assert isinstance(parsed, Result)
    assert (parsed.rounds, parsed.cost_usd, parsed.api_status) == (None, None, None)


def test_a_number_with_more_digits_than_python_converts_is_a_broken_line() -> None:
    assert parse(b'{"type":"result","num_turns":' + b"7" * 5_000 + b"}") == Noise(broken=True)


def test_a_fraction_is_no_count_but_a_cost() -> None:
    parsed = parse(b'{"type":"result","num_turns":1.0,"total_cost_usd":3}')
    assert isinstance(parsed, Result)
    assert (parsed.rounds, parsed.cost_usd) == (None, 3.0)


@pytest.mark.parametrize("value", ["null", "0", '"false"', "[]", "{}", "1"])
def test_only_a_true_boolean_says_whether_a_result_is_an_error(value: str) -> None:
    parsed = parse(f'{{"type":"result","is_error":{value}}}'.encode())
    assert isinstance(parsed, Result)
    assert parsed.is_error is None


@pytest.mark.parametrize("escape", ["\\ud800", "\\udfff", "\\udc00\\ud800"])
def test_half_a_surrogate_pair_becomes_something_that_can_be_stored(escape: str) -> None:
    parsed = parse(f'{{"type":"result","result":"a{escape}z","errors":["{escape}"]}}'.encode())
    assert isinstance(parsed, Result)
    assert parsed.text.startswith("a")
    assert parsed.text.endswith("z")
    for text in (parsed.text, *parsed.errors):
        text.encode("utf-8")


def test_a_whole_surrogate_pair_and_raw_bytes_keep_their_character() -> None:
    parsed = parse('{"type":"result","result":"\\ud83d\\ude00 \U0001f600 \u00fc"}'.encode())
    assert isinstance(parsed, Result)
    assert parsed.text == "\U0001f600 \U0001f600 \u00fc"


def test_bytes_that_are_not_utf_8_are_replaced() -> None:
    parsed = parse(b'{"type":"result","result":"a\xff\xc3z"}')
    assert isinstance(parsed, Result)
    assert parsed.text == "a\ufffd\ufffdz"


@pytest.mark.parametrize("spaced", [False, True], ids=["compact", "spaced"])
def test_a_line_of_six_million_bytes_is_read_whole(*, spaced: bool) -> None:
    text = "x" * LONGEST_MEASURED_BYTES
    parsed = parse(streams.line(streams.result(text), spaced=spaced))
    assert isinstance(parsed, Result)
    assert parsed.text == text


# Shapes as measured (facts, sections 2 to 4, 8 and 9)


def test_the_first_event_tells_session_model_version_and_servers() -> None:
    servers = [
        {"name": "docs", "status": "failed"},
        {"name": "st"},
        {"status": "connected"},
        "junk",
        {"name": 7},
    ]
    event = streams.init(model="claude-x[1m]", claude_code_version="2.1.197", mcp_servers=servers)
    assert parse(streams.line(event)) == Init(
        streams.SESSION, "claude-x[1m]", "2.1.197", {"docs": "failed", "st": "unknown"}
    )


def test_an_api_retry_tells_attempt_and_error() -> None:
    measured = (
        b'{"type":"system","subtype":"api_retry","attempt":7,"max_retries":10,'
        b'"retry_delay_ms":37607.6,"error_status":529,"error":"overloaded"}'
    )
    assert parse(measured) == Retry(7, 10, "529 overloaded")
    assert parse(streams.line(streams.retry(2, error_status=None, error="unknown"))) == Retry(
        2, 10, "unknown"
    )
    assert parse(streams.line(streams.retry(2, error_status=None, error=None))) == Retry(2, 10, None)


def test_an_interrupted_result_is_told_by_its_terminal_reason() -> None:
    for reason, aborted in [("aborted_streaming", True), ("aborted_tools", True), ("completed", False)]:
        event = streams.result("", subtype="error_during_execution", is_error=True, terminal_reason=reason)
        parsed = parse(streams.line(event))
        assert isinstance(parsed, Result)
        assert parsed.aborted is aborted


def test_every_field_of_a_result_is_kept() -> None:
    event = streams.result(
        "t", subtype="error_max_turns", is_error=True, terminal_reason="max_turns", api_error_status=400,
        stop_reason="refusal", errors=["Reached maximum number of turns (1)", 7, {"a": 1}], num_turns=3,
    )  # fmt: skip
    errors = ("Reached maximum number of turns (1)", "7", "{'a': 1}")
    assert parse(streams.line(event)) == Result(
        True, "error_max_turns", "t", 400, "max_turns", "refusal", errors, 3, 0.25, streams.SESSION
    )


def background(subtype: str, **fields: object) -> events.Event:
    """Parse an event about background work."""
    return parse(streams.line(streams.system(subtype, task_id="b1", **fields)))


def test_background_work_begins_with_what_it_is() -> None:
    assert background("task_started", description="sleep 99") == BackgroundBegan("b1", "sleep 99")
    assert background("task_started", task_type="local_bash") == BackgroundBegan("b1", "local_bash")
    assert background("task_started") == BackgroundBegan("b1", "b1")


@pytest.mark.parametrize(
    ("status", "finished"),
    [
        ("completed", True),
        ("failed", True),
        ("error", True),
        ("stopped", False),
        ("killed", False),
        ("cancelled", False),
    ],
)
def test_background_work_ends_finished_or_cut_off(status: str, *, finished: bool) -> None:
    ended = BackgroundEnded("b1", finished)
    assert background("task_notification", status=status) == ended
    assert background("task_updated", status=status) == ended
    assert background("task_updated", patch={"status": status}) == ended


def test_what_only_tells_of_background_work_ends_none() -> None:
    assert background("task_updated", patch={"status": "running"}) == Other()
    assert background("task_updated") == Other()
    assert background("task_progress") == Other()
    assert background("task_notification") == BackgroundEnded("b1", finished=True)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"status": "rejected", "resetsAt": 1_764_547_200}, LimitTold(1_764_547_200)),
        ({"status": "allowed", "resetsAt": 1_764_547_200}, Other()),
        ({"status": "allowed_warning", "resetsAt": 1_764_547_200}, Other()),
        ({"status": "rejected"}, Other()),
        ({"status": "rejected", "resetsAt": "soon"}, Other()),
        ({"resetsAt": 1_764_547_200}, Other()),
        ("rejected", Other()),
        (None, Other()),
    ],
)
def test_a_usage_limit_is_told_when_it_was_hit(told: object, expected: events.Event) -> None:
    assert parse(streams.line({"type": "rate_limit_event", "rate_limit_info": told})) == expected


def test_a_message_of_the_model_tells_its_texts_and_the_tools_it_asks_for() -> None:
    content = [
        {"type": "text", "text": "one"}, {"type": "tool_use", "id": "t1", "name": "Bash"}, "junk",
        {"type": "text", "text": "two"}, {"type": "tool_use", "id": "t2"},
        {"type": "tool_use", "name": "lost"},
        {"type": "thinking", "thinking": "hm"}, {"type": "text"},
    ]  # fmt: skip
    event = {"type": "assistant", "message": {"content": content}}
    assert parse(streams.line(event)) == Assistant("one\ntwo\n", {"t1": "Bash", "t2": "tool"})


def test_the_synthetic_message_tells_the_kind_of_an_api_error() -> None:
    event = streams.assistant("API Error: 529", error="overloaded")
    assert parse(streams.line(event)) == Assistant("API Error: 529", {}, "overloaded")


@pytest.mark.parametrize("message", [None, 7, "text", [], {"content": "text"}, {"content": [7, None]}])
def test_a_message_of_another_shape_has_no_parts(message: object) -> None:
    assert parse(streams.line({"type": "assistant", "message": message})) == Assistant("", {})
    assert parse(streams.line({"type": "user", "message": message})) == ToolResults(frozenset())


def test_answers_to_tool_calls_tell_their_ids() -> None:
    content = [{"type": "tool_result", "tool_use_id": "t1"}, {"type": "tool_result", "tool_use_id": "t2"}]
    event = {"type": "user", "message": {"content": [*content, {"type": "text", "tool_use_id": "t3"}]}}
    assert parse(streams.line(event)) == ToolResults(frozenset({"t1", "t2"}))
