"""What a steerable turn is told line by line, and when all is said to it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon.skim import TAKEN_MESSAGES, Seen, skim
from hive_subagent_daemon.stream_input import interrupt_request, is_finished, message, still_unread
from tests.unit.support_evidence import error, result, seen
from tests.unit.support_streams import assistant, filler, init, lines
from tests.unit.support_streams import result as result_event


def taken(message_id: str, text: str = "less") -> dict[str, Any]:
    """Return claude's word that it has taken a message."""
    content = {"role": "user", "content": text}
    return {"type": "user", "message": content, "uuid": message_id, "isReplay": True}


@given(st.text(min_size=1))
def test_a_message_is_one_line_of_ascii_that_holds_the_text(text: str) -> None:
    made = message(text)
    assert made.line.endswith(b"\n")
    assert len(made.line.decode("ascii").splitlines()) == 1
    event = json.loads(made.line)
    assert (event["type"], event["uuid"], event["message"]["role"]) == ("user", made.id, "user")
    assert event["message"]["content"] == (f" {text}" if text.startswith("/") else text)


def test_an_interrupt_takes_back_what_was_not_read_before_it_interrupts() -> None:
    requests = [json.loads(line) for line in interrupt_request(("a", "b")).splitlines()]
    assert [one["type"] for one in requests] == ["control_request"] * 3
    assert [one["request"] for one in requests] == [
        {"subtype": "cancel_async_message", "message_uuid": "a"},
        {"subtype": "cancel_async_message", "message_uuid": "b"},
        {"subtype": "interrupt"},
    ]
    assert len({one["request_id"] for one in requests}) == 3


def test_a_message_that_claude_shows_again_has_been_read_however_much_stands_around_it() -> None:
    stream = lines(init(), taken("a"), filler(200_000), taken("b", "x" * 100_000), filler(200_000))
    after = skim(Seen(), stream, offset=0)
    assert still_unread(("a", "c", "b"), after) == ("c",)


def test_only_so_many_messages_are_remembered() -> None:
    stream = lines(*(taken(str(number)) for number in range(TAKEN_MESSAGES + 5)))
    assert len(skim(Seen(), stream, offset=0).taken) <= TAKEN_MESSAGES


def test_a_message_is_no_answer_to_a_tool_and_leaves_a_retry_alone() -> None:
    retrying = {"type": "system", "subtype": "api_retry", "attempt": 2, "max_retries": 10}
    after = skim(Seen(), lines(init(), retrying, taken("a")), offset=0)
    assert after.activity is not None
    assert after.activity.kind == "retry"


@pytest.mark.parametrize(
    ("known", "unread", "waited", "finished"),
    [
        (seen(), (), 99.0, False),  # no result yet
        (seen(result(), round_open=True), (), 99.0, False),  # at work again
        (seen(result()), (), 0.0, True),
        (seen(result()), ("a",), 0.0, False),  # its round will begin
        (seen(result(), round_due=True), (), 0.0, False),  # read, its round will begin
        (seen(result()), ("a",), 31.0, True),  # claude does not care for it
        (seen(result(), round_due=True), (), 31.0, True),
        (seen(result(rounds=0)), ("a",), 0.0, True),  # refused by a hook of the user's
        (seen(result("", rounds=0)), ("a",), 0.0, False),  # about what a killed turn had left
        (seen(result(rounds=0)), ("a", "b"), 0.0, False),  # one of them, the other is to come
        (seen(result(rounds=0), round_due=True), ("a",), 0.0, False),
        (seen(error()), ("a",), 0.0, True),
        (seen(result(is_error=None)), ("a",), 0.0, True),
    ],
)
def test_the_input_ends_when_nothing_more_is_to_be_said(
    known: Seen, unread: tuple[str, ...], waited: float, *, finished: bool
) -> None:
    assert is_finished(known, unread, waited_seconds=waited, grace_seconds=30.0) is finished


def test_a_message_that_was_read_with_a_tools_result_needs_no_round_of_its_own() -> None:
    stream = lines(init(), taken("first"), taken("b"), assistant("done"), result_event())
    after = skim(Seen(), stream, offset=0)
    assert is_finished(after, still_unread(("b",), after), waited_seconds=0.0, grace_seconds=30.0)


def test_a_message_that_was_read_after_the_result_holds_the_input_open() -> None:
    stream = lines(init(), taken("first"), result_event(), taken("b"))
    after = skim(Seen(), stream, offset=0)
    assert not is_finished(after, (), waited_seconds=0.0, grace_seconds=30.0)
