"""A parent is warned when the turns before failed alike, and not when one of them got through."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from hive_subagent_daemon import clock
from hive_subagent_daemon.values import ErrorClass, Outcome, OutcomeKind, Verdict
from hive_subagent_daemon.walls import ADVICE, RECENT, at_the_end, wall
from tests.unit.support_records import OUTCOME

NOW = clock.from_text("2026-01-31T12:00:00.000Z")
DONE = Verdict(OutcomeKind.COMPLETED, text="done")
KILLED = Verdict(OutcomeKind.KILLED)


def failed(error_class: ErrorClass, *, limited_until: str | None = None) -> Verdict:
    """Return the verdict on a failed turn."""
    return Verdict(OutcomeKind.FAILED, error_class=error_class, error="why", limited_until=limited_until)


def ended(*verdicts: Verdict, ago: timedelta = timedelta(minutes=1)) -> list[Outcome]:
    """Return turns of different names that ended one after the other, the last one so long ago."""
    return [
        replace(
            OUTCOME,
            name=f"s{number}",
            verdict=verdict,
            ended_at=clock.as_text(NOW - ago - timedelta(seconds=len(verdicts) - number)),
        )
        for number, verdict in enumerate(verdicts)
    ]


@pytest.mark.parametrize("error_class", ADVICE)
def test_two_turns_that_failed_alike_are_a_wall(error_class: ErrorClass) -> None:
    told = wall(ended(failed(error_class), failed(error_class)), now=NOW)
    assert told is not None
    assert str(error_class) in told
    assert "s1, s0" in told
    assert ADVICE[error_class] in told


@pytest.mark.parametrize(
    "verdicts",
    [
        pytest.param([], id="nothing-ended-yet"),
        pytest.param([failed(ErrorClass.LIMIT)], id="one-alone"),
        pytest.param([failed(ErrorClass.LIMIT), failed(ErrorClass.LIMIT), DONE], id="one-got-through"),
        pytest.param([failed(ErrorClass.LIMIT), DONE, failed(ErrorClass.LIMIT)], id="one-in-between"),
        pytest.param([failed(ErrorClass.LIMIT), failed(ErrorClass.AUTH)], id="for-different-reasons"),
        pytest.param([failed(ErrorClass.CONTEXT)] * 3, id="for-a-reason-of-their-own"),
        pytest.param([failed(ErrorClass.NO_RESULT)] * 3, id="for-an-unknown-reason"),
        pytest.param([KILLED, KILLED], id="cut-off"),
        pytest.param([replace(failed(ErrorClass.BUDGET), at_own_bound=True)] * 3, id="at-own-bounds"),
    ],
)
def test_what_says_nothing_of_the_next_turn_is_no_wall(verdicts: list[Verdict]) -> None:
    assert wall(ended(*verdicts), now=NOW) is None


def test_a_turn_that_was_cut_off_hides_no_wall() -> None:
    assert wall(ended(failed(ErrorClass.AUTH), KILLED, failed(ErrorClass.AUTH), KILLED), now=NOW) is not None


def test_a_wall_of_long_ago_is_none() -> None:
    ends = [failed(ErrorClass.LIMIT)] * 2
    assert wall(ended(*ends, ago=RECENT - timedelta(minutes=1)), now=NOW) is not None
    assert wall(ended(*ends, ago=RECENT + timedelta(minutes=1)), now=NOW) is None


def test_of_many_some_are_named_and_until_when_the_limit_holds_is_told() -> None:
    ends = [*[failed(ErrorClass.LIMIT)] * 7, failed(ErrorClass.LIMIT, limited_until="3:45pm (UTC)")]
    told = wall(ended(*ends), now=NOW)
    assert told is not None
    assert "last 8 turns" in told
    assert "and 3 more" in told
    assert "limited until 3:45pm (UTC)" in told


@pytest.mark.parametrize("error_class", ADVICE)
def test_the_notice_of_a_turn_tells_of_those_before_it(error_class: ErrorClass) -> None:
    *before, last = ended(failed(error_class), failed(error_class))
    told = at_the_end(last, before)
    assert told == f"The last 2 turns failed alike ({error_class}: s1, s0). {ADVICE[error_class]}"


@pytest.mark.parametrize(
    ("before", "last"),
    [
        pytest.param([], failed(ErrorClass.LIMIT), id="the-first"),
        pytest.param([failed(ErrorClass.LIMIT)] * 2, DONE, id="got-through"),
        pytest.param([failed(ErrorClass.LIMIT)] * 2, KILLED, id="cut-off"),
        pytest.param([failed(ErrorClass.LIMIT)] * 2, failed(ErrorClass.AUTH), id="for-a-reason-of-its-own"),
    ],
)
def test_the_notice_of_a_turn_that_met_no_wall_again_says_nothing(
    before: list[Verdict], last: Verdict
) -> None:
    *earlier, newest = ended(*before, last)
    assert at_the_end(newest, earlier) is None


def test_a_wall_of_long_ago_is_not_met_again() -> None:
    [newest] = ended(failed(ErrorClass.LIMIT))
    assert at_the_end(newest, ended(failed(ErrorClass.LIMIT), ago=RECENT + timedelta(minutes=2))) is None
