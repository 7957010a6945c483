"""Many notices, many wakes, several parents: each notice wakes each parent once, and nothing else does."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon import clock
from tests.claude.real_daemon import TURN_SECONDS
from tests.claude.waking.parents import ListeningParent, PrintingParent
from tests.claude.waking.plugged import CLOSING, PluggedDaemon, continuing, starting
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.support.offline_model import OfflineModel

AT_ONCE = 100
ROUNDS = 10
MEDIAN_SECONDS = 1.0
WAKES_IN_A_ROW = 8
"""More than these, each without the use of a tool, claude takes for a hook that is stuck."""
AGAIN = f"[[woken]] {continuing('worker', '[[say: once more]]')} [[say: continued]]"
CHAIN = f"{starting('worker', '[[say: done]]')} [[say: started]] {AGAIN}"


def test_two_parents_are_both_told_of_the_same_end_and_each_once(
    plugged: PluggedDaemon, model: OfflineModel
) -> None:
    first_prompt = f"{starting('worker', '[[hold: done]] [[say: done]]')} [[say: started]]"
    with ListeningParent(plugged, prompt=first_prompt) as first:
        first.waits()
        with ListeningParent(plugged, prompt="[[say: I am another]]") as second:
            second.result()
            plugged.hooks_wait(2)
            model.release("done")
            assert first.woken() != ""
            assert second.woken() != ""
            assert first.told() == second.told()
            first.ask(f"{CLOSING} [[say: closed]]")
            assert first.result(3)["result"] == "closed"
            plugged.no_hook_waits()
            assert (len(first.wakes()), len(second.wakes())) == (1, 1)


def test_a_hundred_ends_at_once_are_few_wakes_of_bounded_length(plugged: PluggedDaemon) -> None:
    names = [f"w{number}" for number in range(AT_ONCE)]
    plugged.run_stand_ins(names)
    with ListeningParent(plugged, prompt="[[say: waiting]]") as parent:
        parent.waits()
        plugged.let_end(*names)
        eventually(lambda: plugged.open_loose_ends() == AT_ONCE, within=TURN_SECONDS, what="all ended")
        parent.woken_at_least(1)
        plugged.no_hook_waits(within=TURN_SECONDS)
        parent.told()
        wakes = parent.wakes()
        assert len(wakes) <= AT_ONCE / 10
        assert any(" more: " in wake for wake in wakes)
        assert all(len(wake) < 10_000 for wake in wakes)


def test_nothing_wakes_a_parent_but_what_it_was_never_told(plugged: PluggedDaemon) -> None:
    wakes_follow_ends(plugged, rounds=ROUNDS)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_nothing_wakes_a_parent_but_what_it_was_never_told_in_a_long_run(plugged: PluggedDaemon) -> None:
    wakes_follow_ends(plugged, rounds=10 * ROUNDS)


def wakes_follow_ends(daemon: PluggedDaemon, *, rounds: int) -> None:
    """Have a parent give a subagent turn after turn, with prompts of a person in between."""
    with ListeningParent(daemon, prompt=CHAIN) as parent:
        for number in range(1, rounds + 1):
            parent.woken_at_least(number)
            if number % 4 == 0:
                parent.ask(f"[[say: a person]] {AGAIN}")
        parent.process.kill()
        parent.ends()
        told = parent.told()
        assert len(told) >= rounds
        taken = [parent.woken_at(number) - ended_at(daemon, ids[-1]) for number, ids in enumerate(told, 1)]
    median = statistics.median(taken)
    print(f"from a subagent's end to the parent's next turn: median {median:.3f} s, most {max(taken):.3f} s")
    assert median < MEDIAN_SECONDS


def ended_at(daemon: PluggedDaemon, loose_end: str) -> float:
    """Return when the turn of a loose end ended, by the clock that tests measure with."""
    [found] = daemon.ok("get_loose_ends", ids=[loose_end]).content["loose_ends"]
    return clock.from_text(found["ended_at"]).timestamp() - time.time() + time.monotonic()


def test_claude_ends_a_printing_parent_that_was_woken_nine_times_and_used_no_tool(
    plugged: PluggedDaemon,
) -> None:
    names = [f"w{number}" for number in range(WAKES_IN_A_ROW + 2)]
    plugged.run_stand_ins(names)
    with PrintingParent(plugged, prompt="[[say: waiting]] [[woken]] [[say: noted]]") as parent:
        for number, name in enumerate(names[:-1], start=1):
            parent.waits()
            plugged.let_end(name)
            if number <= WAKES_IN_A_ROW:
                parent.woken(number)
        assert parent.ends() == 0
        assert len(parent.told()) == WAKES_IN_A_ROW
    assert plugged.open_loose_ends() == WAKES_IN_A_ROW + 1
    assert plugged.status_of(names[-1])["state"] == "running"
    plugged.let_end(names[-1])


def test_a_printing_parent_that_uses_tools_is_woken_as_often_as_there_is_news(plugged: PluggedDaemon) -> None:
    names = [f"w{number}" for number in range(WAKES_IN_A_ROW + 2)]
    plugged.run_stand_ins(names)
    with PrintingParent(plugged, prompt=f"[[say: waiting]] [[woken]] {CLOSING} [[say: noted]]") as parent:
        for number, name in enumerate(names, start=1):
            parent.waits()
            plugged.let_end(name)
            parent.woken(number)
        assert parent.ends() == 0
        assert len(parent.told()) == len(names)
        assert parent.result()["result"] == "noted"
    assert plugged.open_loose_ends() == 0
