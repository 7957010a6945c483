"""The main story: a parent ends its turn, and each end of a subagent's turn begins another of its own."""

from __future__ import annotations

from tests.claude.real_daemon import TURN_SECONDS
from tests.claude.waking.parents import Conversation, ListeningParent, PrintingParent
from tests.claude.waking.plugged import CLOSING, PluggedDaemon, continuing, starting
from tests.claude.waking.terminal import TerminalParent
from tests.support.processes import eventually

STORY = " ".join(
    [
        starting("one", "[[hold: one]] [[say: one is done]]"),
        starting("two", "[[hold: two]] [[say: two is done]]"),
        "[[say: started both]] [[woken]]",
        continuing("one", "[[hold: again]] [[say: one has done more]]"),
        "[[say: continued one]] [[woken]] [[say: noted two]] [[woken]]",
        CLOSING,
        "[[say: all is closed]]",
    ]
)


def play(daemon: PluggedDaemon, parent: Conversation) -> None:
    """Let the subagents of the story end one after the other, and see the parent woken each time."""
    for number, (held, name) in enumerate((("one", "one"), ("two", "two"), ("again", "one")), start=1):
        parent.waits()
        daemon.model.release(held)
        assert f"{name}: " in parent.woken(number)
    eventually(lambda: not daemon.open_loose_ends(), within=TURN_SECONDS, what="the parent closing all")
    assert [len(ids) for ids in parent.told()] == [1, 1, 1]


def test_a_parent_that_listens_begins_a_turn_at_each_end_of_a_subagents_turn(plugged: PluggedDaemon) -> None:
    with ListeningParent(plugged, prompt=STORY) as parent:
        play(plugged, parent)
        parent.result(4)
        assert [one["result"] for one in parent.results()][::3] == ["started both", "all is closed"]
        assert parent.leave() == 0
    plugged.nothing_of_parents_is_left()


def test_a_parent_that_prints_does_not_end_before_its_subagents(plugged: PluggedDaemon) -> None:
    with PrintingParent(plugged, prompt=STORY) as parent:
        play(plugged, parent)
        assert parent.ends() == 0
        assert [one["result"] for one in parent.results()] == ["all is closed"]
    plugged.nothing_of_parents_is_left()


def test_a_parent_in_a_terminal_begins_a_turn_at_each_end_of_a_subagents_turn(plugged: PluggedDaemon) -> None:
    with TerminalParent(plugged, prompt=STORY) as parent:
        play(plugged, parent)
        parent.shows("all is closed")
        parent.write("/exit")
        parent.ends()
    plugged.nothing_of_parents_is_left()
