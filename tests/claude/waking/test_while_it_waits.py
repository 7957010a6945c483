"""What can happen while a hook waits: to the subagent, the daemon, the conversation and the parent."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.claude.waking.parents import ListeningParent, PrintingParent
from tests.claude.waking.plugged import PluggedDaemon, starting
from tests.claude.waking.terminal import TerminalParent
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.claude.waking.parents import Parent
    from tests.support.offline_model import OfflineModel

WAITING = f"{starting('worker', '[[hold: done]] [[say: done]]')} [[say: started]]"


def test_a_parent_is_told_that_its_subagent_was_killed(plugged: PluggedDaemon) -> None:
    with ListeningParent(plugged, prompt=WAITING) as parent:
        parent.waits()
        plugged.ok("interrupt", name="worker", force=True)
        told = parent.woken()
        assert "worker: " in told
        assert "forced interrupt" in told
        assert "cut off" in told
        parent.result(2)


def test_a_hook_goes_on_waiting_over_a_crash_of_the_daemon(plugged: PluggedDaemon) -> None:
    with ListeningParent(plugged, prompt=WAITING) as parent:
        parent.waits()
        plugged.kill()
        assert len(plugged.waiting_hooks()) == 1
        plugged.boot()
        assert "daemon stopped" in parent.woken()
        parent.result(2)
        assert len(parent.told()) == 1


def test_a_daemon_that_is_restarted_tells_of_what_it_stopped_once(plugged: PluggedDaemon) -> None:
    with ListeningParent(plugged, prompt=WAITING) as parent:
        parent.waits()
        plugged.restart()
        assert "daemon stopped" in parent.woken()
        parent.result(2)
        parent.ask("[[say: and then]]")
        assert parent.result(3)["result"] == "and then"
        assert len(parent.told()) == 1
        plugged.no_hook_waits()


def test_a_persons_prompt_leaves_one_hook_waiting_which_wakes_once(
    plugged: PluggedDaemon, model: OfflineModel
) -> None:
    with ListeningParent(plugged, prompt=WAITING) as parent:
        parent.waits()
        for number, word in enumerate(("one", "two", "three"), start=2):
            parent.ask(f"[[say: {word}]]")
            assert parent.result(number)["result"] == word
        parent.waits()
        model.release("done")
        assert "worker: " in parent.woken()
        assert parent.result(5)["result"] == "Noted."
        plugged.no_hook_waits()
        assert len(parent.told()) == 1


def test_a_persons_prompt_tells_what_ended_while_the_parent_was_at_work(plugged: PluggedDaemon) -> None:
    plugged.completed("worker", "[[say: done early]]")
    with ListeningParent(plugged, prompt="[[say: begun]]") as parent:
        parent.result()
        [request] = parent.requests()
        assert str(request).count("done early") == 1
        parent.ask("[[say: second]]")
        parent.result(2)
        assert str(parent.requests()[-1]).count("done early") == 1
        plugged.no_hook_waits()
        assert parent.wakes() == []


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=["kill", "term", "int"])
@pytest.mark.parametrize("kind", [ListeningParent, PrintingParent], ids=["listening", "printing"])
def test_nothing_is_left_of_a_parent_that_a_signal_ends(
    plugged: PluggedDaemon, kind: type[Parent], sent: signal.Signals
) -> None:
    with kind(plugged, prompt=WAITING) as parent:
        parent.waits()
        parent.process.send_signal(sent)
        parent.ends()
        plugged.nothing_of_parents_is_left()


def test_nothing_is_left_of_a_parent_whose_terminal_is_closed(plugged: PluggedDaemon) -> None:
    with TerminalParent(plugged, prompt=WAITING) as parent:
        parent.waits()
        parent.close()
        plugged.nothing_of_parents_is_left()


def test_a_half_typed_prompt_stays_where_it_is_when_a_hook_wakes(
    plugged: PluggedDaemon, model: OfflineModel
) -> None:
    with TerminalParent(plugged, prompt=WAITING) as parent:
        parent.waits()
        parent.write("[[say: typed to", enter=False)
        model.release("done")
        parent.woken()
        parent.shows("Noted.")
        parent.write(" the end]]")
        parent.shows("typed to the end]]")
        eventually(lambda: "typed to the end" in str(parent.requests()[-1]), within=20, what="the prompt")
