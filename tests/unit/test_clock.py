"""Times as text, and turn ids that sort by time whatever the wall clock does."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon import clock

MOMENT = datetime(2026, 1, 31, 12, 0, 0, 7_000, UTC)
moments = st.datetimes(datetime(2001, 1, 1), datetime(2999, 12, 31), timezones=st.just(UTC))


def test_a_time_is_told_in_utc_with_milliseconds() -> None:
    assert clock.as_text(MOMENT) == "2026-01-31T12:00:00.007Z"
    assert clock.as_text(MOMENT.replace(microsecond=0)) == "2026-01-31T12:00:00.000Z"
    elsewhere = MOMENT.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert clock.as_text(elsewhere) == "2026-01-31T12:00:00.007Z"


@given(moments)
def test_a_time_survives_as_text_to_the_millisecond(moment: datetime) -> None:
    read = clock.from_text(clock.as_text(moment))
    assert timedelta(0) <= moment - read < timedelta(milliseconds=1)
    assert read.tzinfo is not None


@given(st.lists(moments, min_size=2, max_size=30))
def test_turn_ids_sort_in_their_order_though_the_clock_steps_back(times: list[datetime]) -> None:
    ids: list[str] = []
    for moment in times:
        ids.append(clock.new_turn_id(moment, ids[-1] if ids else None))
    assert all(before < after for before, after in pairwise(ids))
    assert all(re.fullmatch(r"[0-9a-z_]{24}", turn) for turn in ids)


def test_turn_ids_of_the_same_moment_differ_and_sort() -> None:
    ids = [clock.new_turn_id(MOMENT, None)]
    for _ in range(2_000):
        ids.append(clock.new_turn_id(MOMENT, ids[-1]))
    assert len(set(ids)) == 2_001
    assert ids == sorted(ids)


@pytest.mark.parametrize(
    "before", ["20261231_235959_999_ffff", "20260228_235959_999_0000", "20269999_999999_999_ffff"]
)
def test_a_turn_id_sorts_behind_the_last_one_of_a_day_or_year(before: str) -> None:
    following = clock.new_turn_id(MOMENT - timedelta(days=400), before)
    assert following > before
    assert len(following) == len(before)


@given(moments)
def test_an_id_of_ours_is_told_from_any_other_text(moment: datetime) -> None:
    turn = clock.new_turn_id(moment, None)
    assert clock.is_turn_id(turn)
    arabic = "\u0663" * 8 + turn[8:]
    for foreign in (
        "",
        turn[:-1],
        f"{turn}0",
        f" {turn}",
        f"{turn}\n",
        turn.replace("_", "-"),
        arabic,
        "../x",
    ):
        assert not clock.is_turn_id(foreign)


@given(moments)
def test_a_turn_id_tells_when_its_turn_began(moment: datetime) -> None:
    told = clock.turn_time(clock.new_turn_id(moment, None))
    assert timedelta(0) <= moment - told < timedelta(seconds=1)


@pytest.mark.parametrize("turn", ["", "x", "20269999_999999_999_ffff", "not-a-turn-id-of-any-kind"])
def test_an_id_that_names_no_time_counts_as_now(turn: str) -> None:
    before = clock.now()
    assert before <= clock.turn_time(turn) <= clock.now()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"), (0, "0 s"), (0.9, "0 s"), (59.9, "59 s"), (60, "1 min 0 s"), (185, "3 min 5 s"),
        (3_599, "59 min 59 s"), (3_600, "1 h 0 min"), (7_440, "2 h 4 min"), (86_399, "23 h 59 min"),
        (86_400, "1 d 0 h"), (93_600, "1 d 2 h"),
    ],
)  # fmt: skip
def test_a_length_of_time_is_told_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert clock.lasting(seconds) == text
