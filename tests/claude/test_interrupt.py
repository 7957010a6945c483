"""Cutting a turn off: in every phase, softly and by force, and going on afterwards (case F4)."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.claude.real_daemon import helper
from tests.support.processes import eventually, is_alive

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.claude.real_daemon import RealDaemon
    from tests.support.offline_model import OfflineModel

SLEEPS = "echo began > began; sleep 300"
HIDES = "setsid sleep 301 & nohup setsid sleep 302 >/dev/null 2>&1 & sleep 303 & echo $! > began; wait"
TRAPS = "trap '' INT TERM; echo began > began; sleep 300 & wait; sleep 300"


def asked(daemon: RealDaemon, model: OfflineModel) -> None:
    """Wait until claude has asked the model."""
    daemon.does("worker", "model")
    model.wait_for_request("basalt")


def retrying(daemon: RealDaemon, _model: OfflineModel) -> None:
    """Wait until claude waits before it asks the API again."""
    daemon.does("worker", "retry")


def in_bash(daemon: RealDaemon, _model: OfflineModel) -> None:
    """Wait until the command runs and the daemon has seen it."""
    eventually((daemon.work / "began").exists, within=60, what="the command running")
    daemon.does("worker", "tool", tool="Bash")


def goes_on(daemon: RealDaemon) -> None:
    """Continue the cut-off session: the answer says that it was cut off, the model knows its prompt."""
    answer = daemon.ok("continue", name="worker", prompt="[[recall: basalt]]").content
    assert answer["previous_turn"]["outcome"] == "killed"
    end = daemon.loose_end("worker", turn=answer["turn"])
    assert (end["outcome"], end["text"]) == ("completed", "system prompt: no, conversation: yes"), end


def interrupted(daemon: RealDaemon) -> dict[str, Any]:
    """Interrupt the turn softly; return its loose end when nothing of it is left."""
    answer = daemon.ok("interrupt", name="worker")
    assert answer.seconds < 5
    assert answer.content["signal"] == "SIGINT"
    end = daemon.loose_end("worker")
    assert (end["outcome"], end["signal"], end["cause"]) == ("killed", "SIGINT", "interrupt")
    assert "killed mid-turn" in end["title"]
    assert daemon.status_of("worker")["state"] == "killed"
    eventually(lambda: not daemon.at_home(), what="nothing of the turn being left")
    return end


@pytest.mark.parametrize(
    ("prompt", "phase"),
    [
        pytest.param("[[silent]]", asked, id="facts-3-sigint-waiting-for-the-api"),
        pytest.param("[[status: 529]]", retrying, id="facts-3-sigint-in-api-retry"),
        pytest.param(f"[[bash: {SLEEPS}]]", in_bash, id="facts-3-sigint-while-bash-runs+case-F4"),
        pytest.param(f"[[bash: {TRAPS}]]", in_bash, id="facts-3-a-child-that-traps"),
        pytest.param(helper(f"[[bash: {SLEEPS}]]"), in_bash, id="facts-3-sigint-in-a-foreground-task"),
    ],
)
def test_a_soft_interrupt_ends_the_turn_and_the_session_goes_on(
    daemon: RealDaemon, model: OfflineModel, prompt: str, phase: Callable[[RealDaemon, OfflineModel], None]
) -> None:
    daemon.begin("worker", f"the word is basalt {prompt}")
    phase(daemon, model)
    interrupted(daemon)
    goes_on(daemon)


@pytest.mark.shows("facts-3-sigint-while-text-streams", "case-F5")
def test_a_soft_interrupt_of_a_streamed_answer_keeps_the_text_so_far(
    daemon: RealDaemon, model: OfflineModel
) -> None:
    daemon.begin("worker", "the word is basalt [[stall: this was said so far]]")
    asked(daemon, model)
    end = interrupted(daemon)
    assert end["text"] in ("this was said so far", None)  # None: the signal was quicker than the text
    goes_on(daemon)


@pytest.mark.shows("facts-4-a-session-of-its-own", "case-B3", "case-F4")
def test_a_forced_interrupt_leaves_nothing_of_what_bash_started(daemon: RealDaemon) -> None:
    pid = daemon.begin("worker", f"the word is basalt [[bash: {HIDES}]]")["pid"]
    child = int(eventually(lambda: _text(daemon), within=60, what="the command running"))
    assert os.getsid(child) != os.getsid(pid)
    eventually(lambda: len(daemon.at_home()) >= 5, what="claude, bash and three sleeps")
    daemon.wrote_down("basalt")
    answer = daemon.ok("interrupt", name="worker", force=True)
    assert daemon.at_home() == []
    assert not is_alive(child)
    assert answer.seconds < 5
    content = answer.content
    assert (content["signal"], content["ended"], content["remaining_processes"]) == ("SIGKILL", True, [])
    assert any("sleep" in shown for shown in content["stopped_processes"])
    end = daemon.loose_end("worker")
    assert (end["outcome"], end["signal"], end["cause"]) == ("killed", "SIGKILL", "forced interrupt")
    goes_on(daemon)
    # The next confirmed spawn has cleared what was told about the killed turn.
    assert "previous_turn" not in daemon.ok("continue", name="worker", prompt="[[say: on]]").content


@pytest.mark.shows("facts-4-run-in-background")
def test_a_result_that_was_out_before_the_interrupt_wins(daemon: RealDaemon) -> None:
    daemon.begin("worker", "[[background: sleep 30]] [[say: was said before]]")
    eventually(lambda: _has_result(daemon), within=60, what="the result being out")
    assert daemon.status_of("worker")["state"] == "running"
    daemon.ok("interrupt", name="worker")
    end = daemon.loose_end("worker")
    assert (end["outcome"], end["text"]) == ("completed", "was said before")


@pytest.mark.shows("facts-3-early-sigint-without-a-handler", "facts-3-very-early-sigkill")
@pytest.mark.parametrize("force", [False, True])
def test_a_turn_cut_off_before_it_began_is_killed_and_a_fresh_start_works(
    daemon: RealDaemon, force: bool
) -> None:
    daemon.begin("worker", "the word is basalt [[silent]]")
    daemon.ok("interrupt", name="worker", force=force)
    end = daemon.loose_end("worker")
    cause = "forced interrupt" if force else "interrupt"
    assert (end["outcome"], end["cause"]) == ("killed", cause)
    again = daemon.resume("worker", "[[say: hello]]")
    # Whether the session exists by then is a race; that its absence is told is not.
    assert again["outcome"] == "completed" or again["error_class"] == "session not found", again
    daemon.completed("worker", "[[say: fresh]]")


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGTERM, id="facts-3-sigterm-is-exit-143"),
        pytest.param(signal.SIGHUP, id="facts-3-sighup-is-exit-129"),
        pytest.param(signal.SIGKILL, id="facts-3-sigkill+facts-4-bash-survives"),
    ],
)
def test_a_signal_from_outside_kills_the_turn_and_what_bash_left_goes_too(
    daemon: RealDaemon, number: signal.Signals
) -> None:
    pid = daemon.begin("worker", f"the word is basalt [[bash: {HIDES}]]")["pid"]
    eventually(lambda: _text(daemon), within=60, what="the command running")
    daemon.wrote_down("basalt")
    os.kill(pid, number)
    end = daemon.loose_end("worker")
    assert (end["outcome"], end["signal"], end["cause"]) == ("killed", number.name, "unknown")
    assert daemon.at_home() == []
    if number == signal.SIGKILL:  # newer versions end their tools themselves at the other two
        assert "sleep" in " ".join(end["warnings"])
    goes_on(daemon)


def _text(daemon: RealDaemon) -> str:
    began = daemon.work / "began"
    return began.read_text().strip() if began.exists() else ""


def _has_result(daemon: RealDaemon) -> bool:
    shown = daemon.status_of("worker")
    assert shown["state"] == "running", shown
    return shown["activity"] is None
