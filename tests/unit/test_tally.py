"""What is counted: each end of a turn once, by words of closed sets, from the first scrape on."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon import clock
from hive_subagent_daemon.deliveries import TAKEN, Answer, Reply, failed
from hive_subagent_daemon.tally import Ending, Histogram, Tally
from hive_subagent_daemon.values import Cause, ErrorClass, Oom, OutcomeKind, Verdict
from tests.unit.support_records import OUTCOME, any_outcome, loose_end, outcome

COMPLETED = Ending(OutcomeKind.COMPLETED)


def test_every_way_to_end_is_there_from_the_beginning_with_none() -> None:
    endings = Tally([]).so_far().endings
    assert set(endings.values()) == {0}
    assert {ending.outcome for ending in endings} == set(OutcomeKind)
    assert {ending.cause for ending in endings} == {"", *Cause}
    assert {ending.error_class for ending in endings} == {"", *ErrorClass}


def test_an_end_is_counted_with_its_duration_its_cost_and_its_kills() -> None:
    tally = Tally([])
    tally.ended(OUTCOME)
    killed = Verdict(OutcomeKind.KILLED, cause=Cause.OOM, oom=Oom(kills=2))
    tally.ended(replace(outcome(killed), duration_seconds=7.0))
    counts = tally.so_far()
    assert counts.endings[COMPLETED] == counts.endings[Ending("killed", cause="oom")] == 1
    assert sum(counts.endings.values()) == 2
    assert counts.oom_kills == 2
    assert counts.durations.total == OUTCOME.duration_seconds + 7
    assert (counts.costs.at_most[-1], counts.costs.total) == (1, OUTCOME.verdict.cost_usd)


def test_what_never_ran_took_no_time() -> None:
    tally = Tally([])
    tally.ended(outcome(Verdict(OutcomeKind.COULD_NOT_START, error="gone")))
    assert tally.so_far().durations.at_most[-1] == 0


@given(st.lists(any_outcome, max_size=5))
def test_whatever_the_outcomes_are_their_number_is_right(outcomes: list[object]) -> None:
    tally = Tally([])
    for one in outcomes:
        assert isinstance(one, type(OUTCOME))
        tally.ended(one)
    assert sum(tally.so_far().endings.values()) == len(outcomes)


def test_attempts_are_counted_by_answer_and_the_delay_of_what_was_taken() -> None:
    tally = Tally(["hook", "other"])
    ended_at = clock.as_text(clock.now() - timedelta(seconds=100))
    late = loose_end()
    late = replace(late, outcome=replace(late.outcome, ended_at=ended_at))
    for answer in (failed("no"), failed("no"), Answer(Reply.REFUSED), TAKEN):
        tally.answered("hook", late, answer)
    hook, other = (tally.so_far().sinks[sink] for sink in ("hook", "other"))
    assert hook.attempts == {"taken": 1, "refused": 1, "failed": 2}
    assert set(other.attempts.values()) == {0}
    assert hook.delays.total == pytest.approx(100, abs=5)
    assert hook.delays.at_most[-1] == 1


def test_a_wall_clock_that_was_set_back_makes_no_negative_delay() -> None:
    tally = Tally(["hook"])
    ahead = clock.as_text(clock.now() + timedelta(days=1))
    end = loose_end()
    tally.answered("hook", replace(end, outcome=replace(end.outcome, ended_at=ahead)), TAKEN)
    assert tally.so_far().sinks["hook"].delays.total == 0


@given(st.lists(st.floats(0, 1000), max_size=30))
def test_a_histogram_counts_what_is_at_most_each_bound(values: list[float]) -> None:
    histogram = Histogram((1.0, 10.0, 100.0))
    for value in values:
        histogram.observe(value)
    observed = histogram.so_far()
    expected = [sum(value <= bound for value in values) for bound in observed.bounds]
    assert observed.at_most == (*expected, len(values))
    assert observed.total == pytest.approx(sum(values))
