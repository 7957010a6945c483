"""What a parent session is to be told: the query read strictly, and what is due to whom."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.notices import (
    Asked,
    Question,
    Shown,
    claimed,
    due,
    is_id,
    question_of,
    still_needed,
    withdrawn,
)

UUID = "0f0e0d0c-0b0a-4908-8706-050403020100"
IDS = st.lists(st.sampled_from("abcdefgh"), unique=True)


def test_a_session_alone_asks_to_wait_for_the_next() -> None:
    assert question_of(f"session={UUID}".encode()) == Question(UUID, Asked.NEXT, None)


def test_every_parameter_is_read() -> None:
    query = f"show=open&waiter=w-1&session={quote(UUID)}"
    assert question_of(query.encode()) == Question(UUID, Asked.OPEN, "w-1")


@pytest.mark.parametrize(
    "query",
    [
        b"",
        b"session=",
        b"session=..%2F..%2Fx",
        b"session=.hidden",
        b"session=-p",
        b"session=a%00b",
        b"session=a%0d%0aHost:%20x",
        b"session=%ff%fe",
        "session=ä".encode(),
        b"session=" + b"a" * 10_000,
        b"session=a&session=b",
        b"session=a&waiter=" + b"b" * 200,
        b"session=a&waiter=",
        b"session=a&show=all",
        b"session=a&show=",
        b"session=a&limit=1",
        b"session",
        b"&&&&",
        b"a=1&b=2&c=3&d=4&e=5&f=6&g=7&h=8&i=9&j=10&k=11&session=x",
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_sentence(query: bytes) -> None:
    with pytest.raises(RefusedError) as refused:
        question_of(query)
    assert 10 < len(str(refused.value)) < 200


@given(st.binary(max_size=300))
def test_no_query_does_more_than_be_refused(query: bytes) -> None:
    try:
        question = question_of(query)
    except RefusedError:
        return
    assert is_id(question.session)


def test_each_session_is_due_what_it_has_not_been_shown() -> None:
    opened = ["1", "2", "3"]
    assert due(Question("a"), opened, Shown(frozenset({"2"}))) == ("1", "3")
    assert due(Question("b"), opened, Shown()) == ("1", "2", "3")


def test_a_waiter_that_asks_again_gets_what_its_answer_held() -> None:
    question = Question("a", waiter="w")
    shown = claimed(question, ("1", "2"), Shown(), ["1", "2"])
    assert due(question, ["1", "2", "3"], shown) == ("1", "2", "3")
    assert due(question, ["2"], shown) == ("2",), "what was closed meanwhile is shown to nobody"


def test_another_waiter_of_the_session_does_not() -> None:
    shown = claimed(Question("a", waiter="w"), ("1",), Shown(), ["1"])
    assert due(Question("a", waiter="v"), ["1"], shown) == ()
    assert due(Question("a"), ["1"], shown) == ()


def test_two_programs_without_a_name_are_not_taken_for_one() -> None:
    shown = claimed(Question("a"), ("1",), Shown(), ["1"])
    assert due(Question("a"), ["1"], shown) == ()


def test_a_withdrawn_claim_is_due_again() -> None:
    shown = withdrawn(claimed(Question("a", waiter="w"), ("2",), Shown(frozenset("1")), ["1", "2"]), ["2"])
    assert due(Question("a", waiter="v"), ["1", "2"], shown) == ("2",)


@given(opened=IDS, before=IDS, again=IDS)
def test_what_has_been_claimed_is_not_due_to_the_session_again(
    opened: list[str], before: list[str], again: list[str]
) -> None:
    shown = claimed(Question("a"), due(Question("a"), opened, Shown(frozenset(before))), Shown(), opened)
    assert not set(due(Question("a"), opened, shown)) - set(before)
    assert shown.ids <= {*opened}, "no more is remembered than is open"
    assert still_needed(shown, again).ids == shown.ids & {*again}
