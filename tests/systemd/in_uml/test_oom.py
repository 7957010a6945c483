"""Who was killed for lack of memory, and who by somebody: told apart, by a daemon that lives on."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.stub.steps import Step, assistant, forever, init, reach, result, wait_for
from tests.support.looking import metric
from tests.support.processes import eventually, is_alive
from tests.support.scripted_daemon import Setting
from tests.systemd.hungry_claude import eat, feed
from tests.systemd.managers import SYSTEM, USER
from tests.systemd.service_harness import Units

if TYPE_CHECKING:
    from tests.systemd.conftest import MakeService
    from tests.systemd.service_harness import Service

LIMIT_BYTES = 60 * 1024 * 1024
TOO_MUCH_BYTES = 200 * 1024 * 1024
only_as_user = pytest.mark.parametrize("form", [USER], ids=["user"])
EATING = [init(), assistant("so far", stop_reason=None), eat(size_bytes=TOO_MUCH_BYTES), result()]
FEEDING = [init(), feed("child", size_bytes=TOO_MUCH_BYTES), reach("survived"), result("went on")]


def limited(make_service: MakeService, *, policy: str = "continue") -> Service:
    """Run a daemon whose turns may have little memory."""
    scopes = {"memory_max": LIMIT_BYTES, "memory_swap_max": 0, "oom_policy": policy}
    return make_service(Setting(tables={"scopes": scopes})).boot()


def assert_kills(end: dict[str, Any], *, kills: int) -> None:
    """Check what a loose end says of memory."""
    assert end["oom"]["limit_bytes"] == LIMIT_BYTES
    assert LIMIT_BYTES * 0.9 < end["oom"]["peak_bytes"] <= LIMIT_BYTES * 1.05
    assert end["oom"]["kills"] == kills


def assert_lives_on(service: Service, daemon: int) -> None:
    """Check that it is still the same daemon, and of use."""
    assert (service.main_pid, service.show("ActiveState")) == (daemon, "active")
    assert not service.turn_units()
    assert not service.form.manager.failed_units()
    assert service.play("next", [init(), result("of use")])["text"] == "of use"


def test_a_claude_that_takes_too_much_is_killed_and_the_cause_is_told(make_service: MakeService) -> None:
    service = limited(make_service)
    daemon = service.main_pid
    end = service.play("x", EATING)
    assert (end["outcome"], end["signal"], end["cause"]) == ("killed", "SIGKILL", "oom")
    assert_kills(end, kills=1)
    assert end["text"] == "so far"
    state = service.status_of("x")
    assert (state["state"], state["last_turn"]["cause"]) == ("killed", "oom")
    assert_lives_on(service, daemon)


@only_as_user
def test_three_that_take_too_much_at_once_take_nobody_with_them(make_service: MakeService) -> None:
    """Each is in a scope of its own, apart from the daemon and from a turn that is modest."""
    service = limited(make_service)
    daemon = service.main_pid
    modest = service.start("modest", [init(), reach("up"), forever()]).content["pid"]
    service.reached("up")
    for name in ("x", "y", "z"):
        service.start(name, EATING)
    ends = [service.loose_end(name, within=60) for name in ("x", "y", "z")]
    assert [(end["outcome"], end["cause"]) for end in ends] == [("killed", "oom")] * 3
    assert metric(service.port, "hive_subagent_oom_kills_total") == sum(end["oom"]["kills"] for end in ends)
    assert 0 < metric(service.port, "hive_subagent_turns_memory_bytes") < LIMIT_BYTES
    assert service.status_of("modest")["state"] == "running"
    assert is_alive(modest)
    service.ok("interrupt", name="modest", force=True)
    assert service.loose_end("modest")["cause"] == "forced interrupt"
    assert_lives_on(service, daemon)


def test_a_process_of_claude_that_takes_too_much_is_a_warning(make_service: MakeService) -> None:
    """claude goes on, and its own outcome counts."""
    service = limited(make_service)
    daemon = service.main_pid
    end = service.play("x", FEEDING)
    assert (end["outcome"], end["cause"], end["text"]) == ("completed", None, "went on")
    assert_kills(end, kills=1)
    assert any("for lack of memory" in warning for warning in end["warnings"])
    assert not is_alive(service.recorded_pid("child"))
    assert_lives_on(service, daemon)


def test_a_kill_from_outside_is_not_taken_for_lack_of_memory(make_service: MakeService) -> None:
    service = limited(make_service)
    daemon = service.main_pid
    pid = service.start("x", [init(), reach("up"), forever()]).content["pid"]
    service.reached("up")
    running = service.status_of("x")
    assert running["memory_limit_bytes"] == LIMIT_BYTES
    assert 0 < running["memory_bytes"] < LIMIT_BYTES
    os.kill(pid, signal.SIGKILL)
    end = service.loose_end("x")
    assert (end["outcome"], end["signal"], end["cause"]) == ("killed", "SIGKILL", "unknown")
    assert (end["oom"] or {"kills": 0})["kills"] == 0
    assert_lives_on(service, daemon)


@only_as_user
def test_a_kill_from_outside_after_a_child_ran_out_of_memory_is_no_oom_kill(
    make_service: MakeService,
) -> None:
    service = limited(make_service)
    pid = service.start("x", [*FEEDING[:-1], forever()]).content["pid"]
    service.reached("survived", within=30)
    looked_at(service)
    os.kill(pid, signal.SIGKILL)
    end = service.loose_end("x")
    assert (end["outcome"], end["signal"], end["cause"]) == ("killed", "SIGKILL", "unknown")
    assert_kills(end, kills=1)


def looked_at(service: Service) -> None:
    """Wait until the daemon has looked at the turn's counters, which it does once a second."""
    began = service.status_of("x")["running_seconds"]
    eventually(lambda: service.status_of("x")["running_seconds"] > began + 3, within=20, what="a look")


@only_as_user
def test_the_limit_that_is_told_is_the_one_that_was_set_last(make_service: MakeService) -> None:
    """Somebody may change it while the turn runs."""
    service = limited(make_service)
    gate: Step = {"do": "wait_for", "gate": "go"}
    scope = service.start("x", [init(), reach("up"), gate, *EATING[1:]]).content["scope"]
    service.reached("up")
    more = LIMIT_BYTES + 20 * 1024 * 1024
    service.form.manager.systemctl("set-property", "--runtime", "--", scope, f"MemoryMax={more}")
    assert service.status_of("x")["memory_limit_bytes"] == more
    looked_at(service)
    service.open_gate("go")
    end = service.loose_end("x", within=30)
    assert (end["outcome"], end["cause"]) == ("killed", "oom")
    assert (end["oom"]["limit_bytes"], end["oom"]["kills"]) == (more, 1)
    assert LIMIT_BYTES < end["oom"]["peak_bytes"] <= more * 1.05


@only_as_user
def test_what_claude_outlived_before_a_crash_of_the_daemon_does_not_explain_its_end(
    make_service: MakeService,
) -> None:
    service = limited(make_service)
    pid = service.start("x", [*FEEDING[:-1], forever()]).content["pid"]
    service.reached("survived", within=30)
    looked_at(service)
    daemon = service.main_pid
    os.kill(daemon, signal.SIGSTOP)  # it sees nothing of what follows
    os.kill(pid, signal.SIGKILL)
    service.kill()
    service.is_back(daemon)
    [end] = service.loose_ends("x")
    assert (end["outcome"], end["cause"], end["oom"]["kills"]) == ("lost", "unknown", 1)
    assert_lives_on(service, service.main_pid)


@only_as_user
def test_a_claude_that_ran_out_of_memory_while_no_daemon_ran_is_told_by_the_next_one(
    make_service: MakeService,
) -> None:
    """The counters of its slice outlive it; one that was adopted is told likewise."""
    service = adopting(make_service)
    scripts = {name: [init(), reach(f"{name} up"), wait_for(f"go {name}"), *EATING[1:]] for name in "xy"}
    pids = {name: service.start(name, steps).content["pid"] for name, steps in scripts.items()}
    for name in scripts:
        service.reached(f"{name} up")
    daemon = service.main_pid
    service.kill()
    service.open_gate("go x")
    eventually(lambda: not is_alive(pids["x"]), within=30, what="the kill for lack of memory")
    assert service.main_pid == 0, "a daemon has seen it"
    SYSTEM.systemctl("start", "--", service.unit)
    service.is_back(daemon)
    [_] = service.loose_ends("x")
    assert service.status_of("y")["state"] == "running"
    service.open_gate("go y")
    for name in scripts:
        end = service.loose_end(name, within=30)
        assert (end["outcome"], end["signal"], end["cause"]) == ("killed", "SIGKILL", "oom")
        assert_kills(end, kills=1)
        assert end["text"] == "so far"
    assert_lives_on(service, service.main_pid)


def adopting(make_service: MakeService) -> Service:
    """Run a daemon that adopts and that systemd does not start again by itself."""
    scopes = {"memory_max": LIMIT_BYTES, "memory_swap_max": 0}
    setting = Setting(top={"on_restart": "adopt"}, tables={"scopes": scopes})
    return make_service(setting, units=Units(lines=("Restart=no",))).boot()


@only_as_user
@pytest.mark.parametrize(("policy", "signal_name"), [("stop", "SIGTERM"), ("kill", "SIGKILL")])
def test_a_policy_that_ends_the_scope_for_a_child_is_told_as_lack_of_memory(
    make_service: MakeService, policy: str, signal_name: str
) -> None:
    service = limited(make_service, policy=policy)
    daemon = service.main_pid
    end = service.play("x", [*FEEDING[:-1], forever()])
    assert (end["outcome"], end["signal"], end["cause"]) == ("killed", signal_name, "oom")
    assert end["oom"]["kills"] >= 1
    assert_lives_on(service, daemon)
