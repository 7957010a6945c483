"""The end of a turn is the end of its process: the exit grace, what is left behind, background work."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.stub.facts import about
from tests.stub.steps import (
    assistant,
    background_ended,
    background_started,
    die_by,
    exit_with,
    forever,
    init,
    on_signal,
    reach,
    result,
    sleep,
    spawn,
    success,
    system,
    wait_for,
)
from tests.support.daemon_harness import Setting
from tests.support.processes import eventually, is_alive

if TYPE_CHECKING:
    from tests.stub.conftest import MakeDaemon
    from tests.support.daemon_harness import Daemon

GRACE_SECONDS = 0.5


@about("case-A1", "case-A3", "facts-4-kept-by-a-child")
def test_a_process_that_stays_after_its_result_is_stopped_after_the_grace(daemon: Daemon, name: str) -> None:
    """The outcome is the result's."""
    pid = daemon.start(name, [*success("final"), reach(f"{name}.done"), forever()]).content["pid"]
    daemon.reached(f"{name}.done")
    began = time.monotonic()
    end = daemon.loose_end(name, within=GRACE_SECONDS + 2)
    assert time.monotonic() - began > GRACE_SECONDS * 0.6, "the grace must be waited for"
    assert (end["outcome"], end["text"], end["signal"]) == ("completed", "final", None)
    assert daemon.status_of(name)["state"] == "idle"
    assert not is_alive(pid)


@about("case-A1")
def test_a_process_that_ignores_signals_after_its_result_is_killed(daemon: Daemon, name: str) -> None:
    """The turn ends all the same."""
    steps = [init(), on_signal("SIGINT"), on_signal("SIGTERM"), *success("final")[1:], forever()]
    pid = daemon.start(name, steps).content["pid"]
    end = daemon.loose_end(name)
    assert (end["outcome"], end["text"]) == ("completed", "final")
    assert not is_alive(pid)


@about("decision-12")
def test_the_grace_counts_from_the_last_output_after_a_result(make_daemon: MakeDaemon) -> None:
    """A process that still writes is still shutting down; a later result counts."""
    daemon = make_daemon(Setting(limits={"exit_grace_seconds": 1.0})).boot()
    chatter = [step for number in range(5) for step in (sleep(0.4), system("status", status=f"s{number}"))]
    end = daemon.play("a", [init(), result("early"), *chatter, result("late")])
    assert (end["outcome"], end["text"]) == ("completed", "late")


LEFTOVERS = [
    pytest.param({}, id="facts-4-a-plain-child"),
    pytest.param({"own_session": True}, id="facts-4-a-session-of-its-own"),
    pytest.param({"own_session": True, "ignores": ["SIGINT", "SIGTERM"]}, id="facts-4-traps-signals"),
    pytest.param({"own_session": True, "double_fork": True}, id="facts-4-nohup-survives-a-normal-end"),
    pytest.param({"holds_output": True}, id="case-A3-holds-the-output-open"),
    pytest.param({"own_session": True, "scrubbed": True}, id="an-empty-environment"),
]


@about("case-A3")
@pytest.mark.parametrize("kind", LEFTOVERS)
@pytest.mark.parametrize("last", [exit_with(0), die_by("SIGKILL")], ids=["exit", "facts-3-sigkill"])
def test_what_a_turn_leaves_behind_is_killed_when_it_ends(
    daemon: Daemon, name: str, kind: dict[str, object], last: dict[str, object]
) -> None:
    """A child that lives on does not delay the end of the turn, and does not live on."""
    record = f"{name}.child"
    daemon.start(name, [init(), spawn(record) | kind, result("done"), last])
    child = daemon.recorded_pid(record)
    end = daemon.loose_end(name)
    assert end["outcome"] == "completed"
    eventually(lambda: not is_alive(child), within=2, what="the end of the child")


def test_children_of_a_running_turn_live(daemon: Daemon, name: str) -> None:
    """Only at the end of their own turn are they killed, not at that of another."""
    record = f"{name}.child"
    kind = {"own_session": True, "double_fork": True, "scrubbed": True}
    daemon.start(name, [init(), spawn(record) | kind, wait_for(f"{name}.go"), result()])
    child = daemon.recorded_pid(record)
    daemon.play(f"{name}-other", success())
    assert is_alive(child)
    daemon.open_gate(f"{name}.go")
    daemon.loose_end(name)


@about("case-A10", "case-A14", "facts-4-background-task")
def test_background_work_is_waited_for_longer_than_the_grace(daemon: Daemon, name: str) -> None:
    """Work that claude reports as running is not cut off."""
    steps = [
        init(),
        background_started(kind="local_agent"),
        result("early"),
        wait_for(f"{name}.go"),
        background_ended(),
        assistant("late"),
        result("late"),
    ]
    daemon.start(name, steps)
    limit = time.monotonic() + 4 * GRACE_SECONDS
    while time.monotonic() < limit:
        assert daemon.status_of(name)["state"] == "running"
    daemon.open_gate(f"{name}.go")
    end = daemon.loose_end(name)
    assert (end["outcome"], end["text"], end["warnings"]) == ("completed", "late", [])


@about("case-A10", "case-A14")
@pytest.mark.parametrize("kind", ["local_bash", "local_agent"])
def test_background_work_that_is_left_is_a_warning(daemon: Daemon, name: str, kind: str) -> None:
    """The turn has ended, its work may not have."""
    end = daemon.play(name, [init(), background_started(kind=kind), result("early")])
    assert end["outcome"] == "completed"
    assert any("background" in warning for warning in end["warnings"])


@about("facts-4-killed-at-exit")
def test_background_work_that_claude_stopped_at_exit_is_a_warning(daemon: Daemon, name: str) -> None:
    """Claude kills its background shells five seconds after the result."""
    steps = [
        init(),
        background_started(),
        result("early"),
        system("task_updated", task_id="bg1", patch={"status": "killed"}),
        background_ended(status="stopped"),
    ]
    end = daemon.play(name, steps)
    assert end["outcome"] == "completed"
    assert any("background" in warning for warning in end["warnings"])


@about("case-B2", "facts-12-eight-at-once")
def test_twenty_turns_leave_no_process(daemon: Daemon, name: str) -> None:
    """An idle subagent holds nothing."""
    names = [f"{name}-{number}" for number in range(20)]
    for one in names:
        daemon.start(one, success())
    for one in names:
        assert daemon.loose_end(one)["outcome"] == "completed"
    assert daemon.processes() == []
    assert [path for path in daemon.turn_folders() if (path / "stdout").exists()] == []


@about("facts-4-both-results-at-the-end")
def test_a_result_that_was_held_back_is_followed_by_the_true_one(daemon: Daemon, name: str) -> None:
    """Both are printed together at the end, after background work that claude waited for."""
    steps = [
        init(),
        background_started(kind="local_agent"),
        background_ended(),
        result("early"),
        result("late"),
    ]
    end = daemon.play(name, steps)
    assert (end["outcome"], end["text"], end["warnings"]) == ("completed", "late", [])
