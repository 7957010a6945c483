"""What becomes of a loose end on its way to a sink: decided by values alone."""

from __future__ import annotations

import math
import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon.deliveries import (
    ASIDE_SECONDS,
    TAKEN,
    Answer,
    Queue,
    Reply,
    Step,
    failed,
    of_exit,
    of_status,
    pause_seconds,
)
from hive_subagent_daemon.values import Exited, ExitUnknown, Signalled

if TYPE_CHECKING:
    from hive_subagent_daemon.values import Exit

REFUSED = Answer(Reply.REFUSED, "it answered with status 400")
FAILED = failed("there is no connection")
MIDDLE = 0.5  # the chance that spreads nothing


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_is_taken(status: int) -> None:
    assert of_status(status) == TAKEN


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 451, 499])
def test_a_4xx_blames_the_notice(status: int) -> None:
    assert of_status(status) == Answer(Reply.REFUSED, f"it answered with status {status}")


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599, 600, 999])
def test_other_statuses_blame_the_sink(status: int) -> None:
    assert of_status(status) == failed(f"it answered with status {status}")


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
def test_a_redirect_is_not_followed_and_blames_the_sink(status: int) -> None:
    answer = of_status(status)
    assert answer.reply is Reply.FAILED
    assert "use the final URL" in answer.reason


@pytest.mark.parametrize(
    ("exit_", "answer"),
    [
        (Exited(0), TAKEN),
        (Exited(1), failed("its exit code was 1")),
        (Exited(127), failed("its exit code was 127")),
        (Exited(65), Answer(Reply.REFUSED, "its exit code was 65")),
        (Signalled(signal.SIGKILL), failed("it was killed by SIGKILL")),
        (Signalled(40), failed("it was killed by signal 40")),
        (ExitUnknown(), failed("how it ended is not known")),
    ],
)
def test_a_program_takes_a_notice_by_exit_code_0_alone(exit_: Exit, answer: Answer) -> None:
    assert of_exit(exit_) == answer


def test_the_pause_doubles_from_one_second_to_sixty() -> None:
    pauses = [pause_seconds(tries, chance=MIDDLE) for tries in range(1, 10)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert pause_seconds(10**6, chance=MIDDLE) == 60


@given(tries=st.integers(1, 10**9), chance=st.floats(0, 1))
def test_the_pause_is_spread_by_a_fifth(tries: int, chance: float) -> None:
    middle = pause_seconds(tries, chance=MIDDLE)
    assert 0.8 * middle <= pause_seconds(tries, chance=chance) * 1.000001
    assert pause_seconds(tries, chance=chance) <= 1.2 * middle * 1.000001


def test_the_spread_depends_on_chance() -> None:
    assert pause_seconds(1, chance=0.0) == pytest.approx(0.8)
    assert pause_seconds(1, chance=1.0) == pytest.approx(1.2)


def attempt(queue: Queue, answer: Answer, *, now: float) -> tuple[str, Step]:
    """Make the attempt that is due now, and everything that follows from its answer."""
    loose_end_id = queue.next(now)
    assert loose_end_id is not None, "nothing is due"
    step = queue.step(loose_end_id, answer)
    match step:
        case Step.DONE:
            queue.done(loose_end_id)
        case Step.STEPS_ASIDE:
            queue.step_aside(loose_end_id, now=now, chance=MIDDLE)
        case Step.AGAIN:
            queue.again(loose_end_id, answer, now=now, chance=MIDDLE)
    return loose_end_id, step


def test_notices_are_tried_in_order_and_each_at_once_when_the_one_before_is_taken() -> None:
    queue = Queue(["a", "b"])
    queue.add("c")
    assert [attempt(queue, TAKEN, now=0) for _ in "abc"] == [(one, Step.DONE) for one in "abc"]
    assert (queue.next(0), queue.due_at(), len(queue)) == (None, math.inf, 0)


def test_one_that_fails_holds_up_the_later_ones_for_ever() -> None:
    queue = Queue(["a", "b"])
    now = 0.0
    for tries in range(1, 200):
        assert attempt(queue, FAILED, now=now) == ("a", Step.AGAIN)
        assert queue.next(now) is None
        assert queue.due_at() == now + pause_seconds(tries, chance=MIDDLE)
        now = queue.due_at()
    assert attempt(queue, TAKEN, now=now) == ("a", Step.DONE)
    assert attempt(queue, FAILED, now=now) == ("b", Step.AGAIN)
    assert queue.due_at() == now + 1  # back-off begins anew


def test_the_fifth_refusal_lets_the_later_ones_pass_at_once() -> None:
    queue = Queue(["a", "b", "c"])
    now = 0.0
    for _ in range(4):
        assert attempt(queue, REFUSED, now=now) == ("a", Step.AGAIN)
        now = queue.due_at()
    assert attempt(queue, REFUSED, now=now) == ("a", Step.STEPS_ASIDE)
    assert [attempt(queue, TAKEN, now=now)[0] for _ in "bc"] == ["b", "c"]
    assert (len(queue), queue.next(now), queue.due_at()) == (1, None, now + ASIDE_SECONDS)


def test_failures_in_between_do_not_count_as_refusals_and_do_not_erase_them() -> None:
    queue = Queue(["a"])
    now = 0.0
    for _ in range(4):
        for answer in (FAILED, REFUSED):
            assert attempt(queue, answer, now=now) == ("a", Step.AGAIN)
            now = queue.due_at()
    assert attempt(queue, REFUSED, now=now) == ("a", Step.STEPS_ASIDE)


def test_one_that_stepped_aside_is_tried_every_ten_minutes_until_it_is_taken() -> None:
    queue = Queue([], ["a"])
    now = 0.0
    for answer in (REFUSED, FAILED, REFUSED, REFUSED, REFUSED, REFUSED, REFUSED):
        assert attempt(queue, answer, now=now) == ("a", Step.AGAIN)
        assert queue.due_at() == now + ASIDE_SECONDS
        now = queue.due_at()
    assert attempt(queue, TAKEN, now=now) == ("a", Step.DONE)
    assert len(queue) == 0


def test_one_that_stepped_aside_comes_after_those_that_wait_but_not_after_their_pauses() -> None:
    queue = Queue(["b", "c"], ["a"])
    assert attempt(queue, TAKEN, now=0) == ("b", Step.DONE)
    assert attempt(queue, FAILED, now=0) == ("c", Step.AGAIN)
    assert attempt(queue, REFUSED, now=0) == ("a", Step.AGAIN)
    assert queue.due_at() == 1


def test_one_that_is_there_already_is_not_added_again() -> None:
    queue = Queue(["b"], ["a"])
    queue.add("a")
    queue.add("b")
    assert (list(queue.waiting), list(queue.aside)) == (["b"], ["a"])


@given(
    replies=st.lists(st.sampled_from([TAKEN, REFUSED, FAILED]), max_size=60),
    count=st.integers(1, 5),
)
def test_whatever_is_answered_nothing_is_lost_and_nothing_comes_again_once_taken(
    replies: list[Answer], count: int
) -> None:
    """Each is always in the queue or taken, and those never refused five times are taken in order."""
    queue = Queue([str(n) for n in range(count)])
    now, taken, aside = 0.0, [], set()
    for answer in replies:
        if not len(queue):
            break
        now = max(now, queue.due_at())
        loose_end_id, step = attempt(queue, answer, now=now)
        assert loose_end_id not in taken
        if step is Step.DONE:
            taken.append(loose_end_id)
        elif step is Step.STEPS_ASIDE:
            aside.add(loose_end_id)
    assert sorted([*taken, *queue.waiting, *queue.aside]) == [str(n) for n in range(count)]
    in_order = [one for one in taken if one not in aside]
    assert in_order == sorted(in_order)
