"""Many notices, many wakes, several parents: each notice wakes each parent once, and nothing else does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.claude.real_daemon import TURN_SECONDS
from tests.claude.waking.parents import ListeningParent, PrintingParent
from tests.claude.waking.plugged import CLOSING, PluggedDaemon, continuing, starting
from tests.support.processes import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.offline_model import OfflineModel

AT_ONCE = 100
ROUNDS = 10
WAKES_IN_A_ROW = 8
"""After so many claude ends a parent that prints, unless CLAUDE_CODE_STOP_HOOK_BLOCK_CAP says otherwise."""
AGAIN = f"[[woken]] {continuing('worker', '[[say: once more]]')} [[say: continued]]"
CHAIN = f"{starting('worker', '[[say: done]]')} [[say: started]] {AGAIN}"
QUICK_CLAUDE = """#!/bin/sh
[ "$1" != --version ] || { echo '9.9.9 (stand-in)'; exit; }
until [ -e {gate} ]; do sleep 0.2; done
echo '{result}'
"""
RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "done"}


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


def test_a_hundred_ends_at_once_are_one_wake_of_bounded_length(
    plugged: PluggedDaemon, tmp_path: Path
) -> None:
    plugged.stop()
    quick = tmp_path / "quick-claude"
    quick.write_text(QUICK_CLAUDE.format(gate=plugged.work / "go", result=json.dumps(RESULT)))
    quick.chmod(0o755)
    plugged.run_subagents_by(quick)
    for number in range(AT_ONCE):
        plugged.start(f"w{number}")
    with ListeningParent(plugged, prompt="[[say: waiting]]") as parent:
        parent.waits()
        (plugged.work / "go").touch()
        parent.result(2)
        eventually(lambda: len(plugged.open_loose_ends()) == AT_ONCE, within=TURN_SECONDS, what="all ended")
        plugged.no_hook_waits(within=TURN_SECONDS)
        wakes = parent.wakes()
        assert len(wakes) <= 10
        assert any("more" in wake for wake in wakes)
        assert all(len(wake) < 10_000 for wake in wakes)
        parent.told()


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
        ended = [one["id"] for one in daemon.ok("get_loose_ends", limit=100).content["loose_ends"]]
        assert {one for ids in told for one in ids} <= set(ended) or len(ended) == 100


def test_claude_ends_a_parent_that_prints_after_eight_wakes_in_a_row(plugged: PluggedDaemon) -> None:
    with PrintingParent(plugged, prompt=CHAIN) as parent:
        assert parent.ends(within=2 * TURN_SECONDS) == 0
        assert len(parent.told()) == WAKES_IN_A_ROW
        assert len(parent.results()) == 1
