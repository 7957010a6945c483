"""The tool `interrupt`: softly by SIGINT to claude alone, or by force to everything of the turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stub.facts import about
from tests.stub.steps import (
    Step,
    assistant,
    background_ended,
    endless,
    exit_with,
    forever,
    init,
    interrupted_result,
    on_signal,
    reach,
    result,
    sleep,
    spawn,
    success,
    tool_result,
    tool_use,
)
from tests.support.processes import eventually, is_alive

if TYPE_CHECKING:
    from tests.support.daemon_harness import Daemon


def running(daemon: Daemon, name: str, *steps: Step) -> int:
    """Start a turn that plays these steps and then stays; return claude's pid when it is that far."""
    turn = [init(), assistant("so far", stop_reason=None), *steps, reach(f"{name}.up"), forever()]
    pid: int = daemon.start(name, turn, success("resumed")).content["pid"]
    daemon.reached(f"{name}.up")
    return pid


@pytest.mark.parametrize("force", [False, True])
def test_interrupt_is_refused_when_nothing_runs(daemon: Daemon, name: str, force: bool) -> None:
    """There is no queued state to cancel: unknown, idle and killed names alike."""
    assert name in daemon.refused("interrupt", name=name, force=force)
    daemon.play(name, success(), [init(), exit_with(143)])
    assert name in daemon.refused("interrupt", name=name, force=force)
    daemon.resume(name)
    assert name in daemon.refused("interrupt", name=name, force=force)


@about("facts-3-sigint-waiting-for-the-api", "facts-3-resume-after-an-interruption", "case-F5")
def test_a_soft_interrupt_lets_claude_shut_down(daemon: Daemon, name: str) -> None:
    """Exit code 0 and no result: killed by our SIGINT."""
    pid = running(daemon, name)
    answer = daemon.ok("interrupt", name=name)
    assert answer.content["name"] == name
    assert answer.content["signal"] == "SIGINT"
    assert answer.content["ended"] is True
    assert answer.content["outcome"]["outcome"] == "killed"
    assert answer.seconds < 5
    assert not is_alive(pid)
    end = daemon.loose_end(name)
    assert (end["outcome"], end["signal"], end["cause"]) == ("killed", "SIGINT", "interrupt")
    assert end["text"] == "so far", "case F5: the partial text is carried"
    state = daemon.status_of(name)
    assert (state["state"], state["last_turn"]["cause"]) == ("killed", "interrupt")
    assert daemon.resume(name)["text"] == "resumed"


SOFT_ENDS = [
    pytest.param([interrupted_result(), exit_with(0)], id="facts-3-sigint-while-text-streams"),
    pytest.param(
        [
            tool_result("The user doesn't want to proceed with this tool use.", is_error=True),
            interrupted_result("aborted_tools"),
            exit_with(1),
        ],
        id="facts-3-sigint-while-bash-runs",
    ),
    pytest.param(
        [interrupted_result("aborted_tools"), exit_with(0)], id="facts-3-sigint-while-an-mcp-call-runs"
    ),
    pytest.param([interrupted_result(), exit_with(0)], id="facts-3-sigint-in-a-retry-pause"),
    pytest.param(
        [background_ended(status="stopped"), exit_with(0)], id="facts-3-sigint-in-a-foreground-task"
    ),
    pytest.param([result("quickly done after all"), exit_with(0)], id="decision-4-a-result-after-the-signal"),
    pytest.param([exit_with(1)], id="decision-4-an-error-code-without-a-result"),
]


@about("decision-4")
@pytest.mark.parametrize("steps", SOFT_ENDS)
def test_what_claude_says_after_the_signal_does_not_change_that_it_was_killed(
    daemon: Daemon, name: str, steps: list[Step]
) -> None:
    """Only a result from before the signal counts."""
    running(daemon, name, tool_use("Bash"), on_signal("SIGINT", steps))
    daemon.ok("interrupt", name=name)
    end = daemon.loose_end(name)
    assert (end["outcome"], end["signal"], end["cause"]) == ("killed", "SIGINT", "interrupt")


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    ("written", "outcome"),
    [
        pytest.param(result("finished"), "completed", id="a-success"),
        pytest.param(result("broken", is_error=True, api_error_status=500), "failed", id="an-error"),
    ],
)
def test_a_result_from_before_the_signal_wins(
    daemon: Daemon,
    name: str,
    force: bool,
    written: Step,
    outcome: str,
) -> None:
    """The turn is what that result says, not killed."""
    running(daemon, name, written)
    answer = daemon.ok("interrupt", name=name, force=force)
    end = daemon.loose_end(name)
    assert (end["outcome"], end["cause"]) == (outcome, None)
    if answer.content["ended"]:
        assert answer.content["outcome"]["outcome"] == outcome
    assert daemon.status_of(name)["state"] == "idle"


@about("case-B5", "facts-3-a-child-that-traps")
def test_a_claude_that_takes_its_time_is_still_shutting_down(daemon: Daemon, name: str) -> None:
    """The answer comes within five seconds and says so."""
    pid = running(daemon, name, on_signal("SIGINT", [reach(f"{name}.int"), sleep(5.5), exit_with(0)]))
    answer = daemon.ok("interrupt", name=name)
    assert answer.seconds < 5
    assert (answer.content["ended"], answer.content["outcome"]) == (False, None)
    assert str(pid) in answer.text or "shutting down" in answer.text
    assert daemon.status_of(name)["state"] == "running"
    end = daemon.loose_end(name)
    assert (end["outcome"], end["signal"], end["cause"]) == ("killed", "SIGINT", "interrupt")


@about("decision-4")
def test_force_after_a_soft_interrupt_that_was_ignored(daemon: Daemon, name: str) -> None:
    """The verdict names the stronger one."""
    pid = running(daemon, name, on_signal("SIGINT"))
    assert daemon.ok("interrupt", name=name).content["ended"] is False
    answer = daemon.ok("interrupt", name=name, force=True)
    assert (answer.content["signal"], answer.content["ended"]) == ("SIGKILL", True)
    assert answer.seconds < 5
    assert not is_alive(pid)
    end = daemon.loose_end(name)
    assert (end["outcome"], end["signal"], end["cause"]) == ("killed", "SIGKILL", "forced interrupt")


TRAPS = ["SIGINT", "SIGTERM", "SIGHUP"]
KINDS = [
    pytest.param({}, id="facts-4-a-plain-child"),
    pytest.param({"own_session": True}, id="facts-4-a-session-of-its-own"),
    pytest.param({"own_session": True, "ignores": TRAPS}, id="facts-4-traps-signals"),
    pytest.param({"own_session": True, "double_fork": True}, id="facts-4-setsid-nohup-in-the-background"),
    pytest.param({"own_session": True, "holds_output": True}, id="case-A3-holds-the-output-open"),
    pytest.param({"own_session": True, "scrubbed": True}, id="an-empty-environment"),
    pytest.param({"own_session": True, "scrubbed": True, "double_fork": True}, id="empty-and-orphaned"),
]


@about("case-B3", "case-B5", "case-B8")
@pytest.mark.parametrize("kind", KINDS)
def test_force_answers_only_when_everything_of_the_turn_is_gone(
    daemon: Daemon, name: str, kind: dict[str, object]
) -> None:
    """No descendant acts after the answer, whatever it did to hide."""
    record = f"{name}.child"
    pid = running(daemon, name, spawn(record) | kind)
    child = daemon.recorded_pid(record)
    eventually((daemon.scripts / f"{record}.beat").exists)
    answer = daemon.ok("interrupt", name=name, force=True)
    left = [one for one in (pid, child) if is_alive(one)]
    assert answer.content["ended"] is True
    assert not left, f"alive after the answer: {left}"
    beat = (daemon.scripts / f"{record}.beat").read_text()
    assert answer.seconds < 5
    assert "SIGKILL" in answer.text, "case B8: the answer says what ended"
    assert (daemon.scripts / f"{record}.beat").read_text() == beat
    end = daemon.loose_end(name)
    assert (end["outcome"], end["signal"], end["cause"]) == ("killed", "SIGKILL", "forced interrupt")


def test_a_soft_interrupt_goes_to_claude_alone(daemon: Daemon, name: str) -> None:
    """Its children are claude's to stop; what it leaves behind is killed when the turn ends."""
    record = f"{name}.child"
    steps = [reach(f"{name}.int"), sleep(0.05), exit_with(0)]
    running(daemon, name, spawn(record, own_session=True), on_signal("SIGINT", steps))
    child = daemon.recorded_pid(record)
    daemon.ok("interrupt", name=name)
    daemon.reached(f"{name}.int")
    daemon.loose_end(name)
    assert not is_alive(child)


def test_two_interrupts_at_once_give_one_loose_end(daemon: Daemon, name: str) -> None:
    """The second finds it running or not; either way one notice comes."""
    running(daemon, name)
    daemon.call("interrupt", name=name)
    daemon.call("interrupt", name=name, force=True)
    daemon.loose_end(name)
    assert len(daemon.loose_ends(name)) == 1


def test_interrupting_one_subagent_leaves_the_others_alone(daemon: Daemon, name: str) -> None:
    """Force kills what belongs to that turn and nothing else."""
    other = f"{name}-other"
    record = f"{other}.child"
    turn = [init(), spawn(record, own_session=True, double_fork=True), *endless()[1:]]
    pid = daemon.start(other, turn).content["pid"]
    child = daemon.recorded_pid(record)
    running(daemon, name)
    daemon.ok("interrupt", name=name, force=True)
    daemon.loose_end(name)
    assert is_alive(pid)
    assert is_alive(child)
    daemon.ok("interrupt", name=other, force=True)


@about("facts-3-very-early-sigkill")
def test_a_session_killed_before_it_was_written_is_not_found_later(daemon: Daemon, name: str) -> None:
    """The kill is told first, then claude's refusal to resume, and a new start works."""
    daemon.start(name, [reach(f"{name}.up"), forever()], success("fresh"))
    daemon.reached(f"{name}.up")
    daemon.ok("interrupt", name=name, force=True)
    assert daemon.loose_end(name)["outcome"] == "killed"
    answer = daemon.ok("continue", name=name, prompt="x").content
    assert answer["previous_turn"]["outcome"] == "killed"
    assert daemon.loose_end(name, turn=answer["turn"])["error_class"] == "session not found"
    assert daemon.play(name, success("fresh"))["text"] == "fresh"


@pytest.mark.parametrize("force", [False, True])
def test_an_interrupt_may_meet_the_end_of_the_turn(daemon: Daemon, name: str, force: bool) -> None:
    """It answers or is refused, and what happened is told once (case F3)."""
    for number in range(25):
        one = f"{name}-{number}"
        daemon.start(one, [init(), result(), reach(f"{one}.done"), sleep(0.002 * number)])
        daemon.reached(f"{one}.done")
        answer = daemon.call("interrupt", name=one, force=force)
        assert "Internal error" not in answer.text
        assert daemon.loose_end(one)["outcome"] == "completed"
        assert len(daemon.loose_ends(one)) == 1
