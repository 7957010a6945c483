"""Turns in scopes outlive a restart, an upgrade and a crash of their daemon, but not a stop."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.stub.steps import call, endless, exit_with, held, init, reach, result, success, wait_for
from tests.support.processes import eventually, is_alive
from tests.support.scripted_daemon import Setting
from tests.systemd.managers import SYSTEM, USER, cgroup_of
from tests.systemd.service_harness import Units, write_program

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.systemd.conftest import MakeService
    from tests.systemd.managers import Form
    from tests.systemd.service_harness import Service

ADOPTING = Setting(top={"on_restart": "adopt"})


@pytest.fixture
def adopting(make_service: MakeService) -> Service:
    """Run a daemon that adopts."""
    return make_service(ADOPTING).boot()


def restart(service: Service) -> None:
    """Restart it as an administrator does."""
    service.restart()


def try_restart(service: Service) -> None:
    """Restart it as packages do."""
    SYSTEM.systemctl("try-restart", "--", service.unit)


def crash(service: Service) -> None:
    """Kill it and let systemd start it again."""
    pid = service.main_pid
    service.kill()
    service.is_back(pid)


def upgrade(service: Service) -> None:
    """Install another package, at another path, and restart."""
    service.program = write_program(service.folder / "newer")
    service.install()
    service.restart()
    assert str(service.folder / "newer") in service.show("ExecStart")


@pytest.mark.parametrize("end", [restart, try_restart, crash, upgrade])
def test_a_running_turn_does_not_notice(adopting: Service, end: Callable[[Service], None]) -> None:
    """The same process in the same scope; then its one loose end, and no unit is left."""
    turn = adopting.start("x", held("go")).content
    place, daemon = cgroup_of(turn["pid"]), adopting.main_pid
    end(adopting)
    assert adopting.main_pid != daemon
    found = adopting.status_of("x")
    assert (found["state"], found["turn"]) == ("running", turn["turn"])
    assert cgroup_of(turn["pid"]) == place
    adopting.open_gate("go")
    assert adopting.loose_end("x")["outcome"] == "completed"
    assert len(adopting.loose_ends("x")) == 1
    eventually(lambda: not adopting.turn_units(), what="no unit of the turn")
    assert adopting.resume("x")["outcome"] == "completed"


def test_its_exit_is_told_and_its_interrupt_works(adopting: Service) -> None:
    """Also of what is nobody's child of the daemon; a forced one empties the scope."""
    adopting.start("code", [init(), reach("up"), wait_for("go"), exit_with(3)])
    adopting.reached("up")
    pids = {name: adopting.start(name, endless()).content["pid"] for name in ("soft", "hard")}
    adopting.restart()
    adopting.open_gate("go")
    kernel = tuple(int(part) for part in os.uname().release.split(".")[:2])
    assert adopting.loose_end("code")["outcome"] == ("failed" if kernel >= (6, 15) else "lost")
    for name, force in (("soft", False), ("hard", True)):
        adopting.ok("interrupt", name=name, force=force)
        assert adopting.loose_end(name)["cause"] == ("forced interrupt" if force else "interrupt")
        assert not is_alive(pids[name])
    eventually(lambda: not adopting.turn_units(), what="no unit of a turn")


def test_whoever_calls_from_inside_an_adopted_turn_is_known(adopting: Service) -> None:
    """By the cgroup of its scope, which the daemon has not made itself."""
    adopting.start("x", [init(), reach("up"), wait_for("go"), call(adopting.port, "answer"), result()])
    adopting.reached("up")
    adopting.restart()
    adopting.open_gate("go")
    adopting.reached("answer")
    assert " 403" in (adopting.scripts / "answer").read_text()
    assert adopting.loose_end("x")["outcome"] == "completed"


def test_a_stop_is_for_good(adopting: Service) -> None:
    """Of the service, or of its socket, which takes the service along; the next daemon reports it too."""
    for unit in (adopting.unit, adopting.socket_unit):
        turn = adopting.start("x", endless()).content
        adopting.restart()
        SYSTEM.systemctl("stop", "--", unit)
        adopting.comes_to("inactive")
        assert not is_alive(turn["pid"])
        assert not adopting.turn_units()
        SYSTEM.systemctl("start", "--", adopting.unit)
        end = adopting.loose_end("x", turn=turn["turn"])
        assert (end["outcome"], end["cause"]) == ("killed", "daemon stopped")


@pytest.mark.parametrize("form", [USER], ids=["user"])
@pytest.mark.parametrize("verb", ["stop", "restart"])
def test_the_end_of_the_users_manager_is_a_stop(adopting: Service, form: Form, verb: str) -> None:
    """The scopes end with it, also where systemd restarts both."""
    manager = f"user@{form.uid}.service"
    pid = adopting.start("x", endless()).content["pid"]
    SYSTEM.systemctl(verb, "--", manager)
    assert not is_alive(pid)
    SYSTEM.systemctl("start", "--", manager, adopting.unit)
    [end] = adopting.loose_ends("x")
    assert (end["outcome"], end["signal"], end["cause"]) == ("killed", "SIGINT", "daemon stopped")


@pytest.mark.parametrize("form", [USER], ids=["user"])
def test_a_turn_does_not_notice_that_the_watchdog_kills_its_daemon(make_service: MakeService) -> None:
    """It is a crash like any other."""
    service = make_service(ADOPTING, units=Units(lines=("WatchdogSec=1500ms",))).boot()
    turn, daemon = service.start("x", held("go")).content, service.main_pid
    os.kill(daemon, signal.SIGUSR1)
    service.is_back(daemon)
    assert "Watchdog timeout" in service.log
    assert (service.status_of("x")["turn"], is_alive(turn["pid"])) == (turn["turn"], True)
    service.open_gate("go")
    assert service.loose_end("x")["outcome"] == "completed"


def test_a_turn_that_ended_while_no_daemon_ran_is_judged_by_what_it_left(make_service: MakeService) -> None:
    """It has its result; its slice is gone afterwards."""
    service = make_service(ADOPTING, units=Units(lines=("RestartSec=3s",))).boot()
    pid = service.start("x", held("go"), success("again")).content["pid"]
    daemon = service.main_pid
    service.kill()
    service.open_gate("go")
    eventually(lambda: not is_alive(pid), what="the turn's end")
    service.is_back(daemon)
    [end] = [service.loose_end("x")]
    assert end["outcome"] == "completed"
    assert not service.turn_units()


def test_process_groups_inside_a_service_are_not_promised_to_survive(make_service: MakeService) -> None:
    """systemd kills what is left in the service: the daemon says so and stops them itself."""
    setting = Setting(top={"on_restart": "adopt"}, tables={"scopes": {"manager": "off"}})
    service = make_service(setting).boot()
    assert 'on_restart = "adopt" has no effect' in service.ok("status").text
    service.start("x", endless())
    service.restart()
    [end] = service.loose_ends("x")
    assert (end["outcome"], end["cause"]) == ("killed", "daemon stopped")


def test_a_sigterm_of_somebody_else_counts_as_a_restart(adopting: Service) -> None:
    """Nothing says that it is for good: the turn goes on, and the next daemon has it."""
    turn = adopting.start("x", held("go")).content
    daemon = adopting.main_pid
    os.kill(daemon, signal.SIGTERM)
    eventually(lambda: not is_alive(daemon), what="the daemon's end")
    assert is_alive(turn["pid"])
    SYSTEM.systemctl("start", "--", adopting.unit)
    assert adopting.status_of("x")["turn"] == turn["turn"]
    adopting.open_gate("go")
    assert adopting.loose_end("x")["outcome"] == "completed"
