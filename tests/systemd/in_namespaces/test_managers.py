"""Managers that are not there, hide, or go away while the daemon runs."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.stub.steps import endless, success
from tests.support.processes import eventually, is_alive
from tests.support.scripted_daemon import Setting
from tests.systemd.managers import ALONE, OTHER_USER, ROOT, SYSTEM, USER, cgroup_of, run
from tests.systemd.service_harness import Units

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.systemd.conftest import MakeService
    from tests.systemd.managers import Form
    from tests.systemd.service_harness import Service

FALLBACK = "turns run as process groups:"
NO_SOCKET = Units(has_socket=False)
# What ProtectHome= does to /run/user; the homes themselves may hold the Python of these tests.
HIDDEN = Units(has_socket=False, lines=("InaccessiblePaths=/run/user",))


numbers = itertools.count()


def both_units(scope: str) -> set[str]:
    """Return the units of a turn that has this scope."""
    return {scope, scope.removesuffix("scope") + "slice"}


def scopes(manager: str) -> Setting:
    """Return a setting that asks for this manager."""
    return Setting(tables={"scopes": {"manager": manager}})


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Keep a process from running for a while."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("form", [ALONE], ids=["without-linger"])
def test_without_a_manager_turns_are_process_groups_and_it_is_said_loudly(make_service: MakeService) -> None:
    service = make_service(units=NO_SOCKET).boot()
    [warning] = [entry for entry in service.journal() if FALLBACK in str(entry["MESSAGE"])]
    assert int(warning["PRIORITY"]) == 4
    assert "linger" in warning["MESSAGE"]
    status = service.ok("status").content
    assert status["launcher"] == "process group"
    assert any(FALLBACK in each for each in status["warnings"])
    assert service.start("y", endless()).content["scope"] is None
    assert service.play("x", success())["outcome"] == "completed"


@pytest.mark.parametrize(
    ("form", "units", "advice"),
    [
        pytest.param(ALONE, NO_SOCKET, "enable-linger", id="without-linger"),
        pytest.param(USER, HIDDEN, "ProtectHome", id="hidden"),
    ],
)
def test_a_manager_that_was_asked_for_and_is_not_there_is_an_error_with_advice(
    make_service: MakeService, units: Units, advice: str
) -> None:
    service = make_service(scopes("user"), units=units)
    service.install()
    assert run("systemctl", "start", service.unit).returncode != 0
    assert advice in service.log
    SYSTEM.systemctl("reset-failed", service.unit)


@pytest.mark.parametrize("form", [USER], ids=["user"])
def test_the_system_manager_is_for_root_alone(make_service: MakeService) -> None:
    service = make_service(scopes("system"), units=NO_SOCKET)
    service.install()
    assert run("systemctl", "start", service.unit).returncode != 0
    assert "only root" in service.log
    SYSTEM.systemctl("reset-failed", service.unit)


def test_scopes_that_are_off_are_no_warning(make_service: MakeService) -> None:
    service = make_service(scopes("off")).boot()
    turn = service.start("x", endless()).content
    assert turn["scope"] is None
    assert cgroup_of(turn["pid"]) == f"/system.slice/{service.unit}"
    assert FALLBACK not in service.log
    assert service.ok("status").content["warnings"] == []


@pytest.fixture
def managers_reconnected() -> Iterator[None]:
    """Afterwards let logind and the users' managers find the system's bus: by themselves they do not."""
    yield
    SYSTEM.systemctl("restart", "systemd-logind.service")
    for form in (USER, OTHER_USER):
        form.manager.systemctl("daemon-reexec")


def starts(service: Service) -> bool:
    """Try to start a turn in a scope; a refusal must give the reason."""
    name = f"y{next(numbers)}"
    service.script(name, success())
    answer = service.call("start", name=name, prompt_file=str(service.work / "recipe.md"))
    assert not answer.is_error or "systemd" in answer.text
    return not answer.is_error and bool(answer.content["scope"])


@pytest.mark.usefixtures("managers_reconnected")
def test_a_bus_that_was_restarted_is_found_again(service: Service, form: Form) -> None:
    """A start in between is refused, or works; what runs is not touched."""
    turn = service.start("x", endless()).content
    form.manager.systemctl("restart", "dbus.service")
    eventually(lambda: starts(service), within=30, what="a start in a scope")
    assert is_alive(turn["pid"])
    eventually(lambda: "the connection to systemd" in service.log, what="a word on the lost connection")


@pytest.mark.usefixtures("managers_reconnected")
@pytest.mark.parametrize("form", [ROOT], ids=["root"])
def test_a_stop_together_with_the_bus_is_told_from_a_restart(make_service: MakeService) -> None:
    """As at a shutdown: the bus goes last."""
    service = make_service(Setting(top={"on_restart": "adopt"})).boot()
    pid = service.start("x", endless()).content["pid"]
    bus = ("dbus.socket", "dbus.service")
    SYSTEM.systemctl("stop", "--", service.unit, *bus)
    assert not is_alive(pid)
    SYSTEM.systemctl("start", "--", *bus, service.unit)
    [end] = service.loose_ends("x")
    assert (end["outcome"], end["cause"]) == ("killed", "daemon stopped")


@pytest.mark.usefixtures("managers_reconnected")
@pytest.mark.parametrize("form", [USER], ids=["user"])
def test_a_users_manager_that_lost_the_systems_bus_refuses_until_it_is_executed_again(
    service: Service, form: Form
) -> None:
    """Processes of a system service come into its scopes through that bus only (systemd 252)."""
    turn = service.start("x", endless()).content
    SYSTEM.systemctl("restart", "dbus.service")
    starts(service)
    for each in (form, OTHER_USER):
        each.manager.systemctl("daemon-reexec")
    eventually(lambda: starts(service), within=30, what="a start in a scope")
    assert is_alive(turn["pid"])
    eventually(lambda: service.turn_units() == both_units(turn["scope"]), within=20, what="no other unit")


@pytest.mark.parametrize("form", [USER], ids=["user"])
def test_a_restart_of_the_users_manager_ends_the_turns_and_no_more(service: Service, form: Form) -> None:
    """The service requires that manager, so that it is restarted with it; its socket stays."""
    turn = service.start("x", endless()).content
    SYSTEM.systemctl("restart", f"user@{form.uid}.service")
    eventually(lambda: not is_alive(turn["pid"]), what="the end of the turn")
    [end] = service.loose_ends("x")
    assert (end["turn"], end["outcome"]) == (turn["turn"], "killed")
    assert service.play("y", success())["outcome"] == "completed"
    assert service.ok("status").content["launcher"] == "user scope"


@pytest.mark.parametrize("form", [USER], ids=["user"])
def test_a_manager_that_does_not_answer_refuses_the_start(service: Service, form: Form) -> None:
    """The gate closes: claude is not run, and the next start works."""
    manager = int(SYSTEM.show(f"user@{form.uid}.service", "MainPID"))
    service.ok("status")
    with stopped(manager):
        service.script("x", success())
        answer = service.call("start", name="x", prompt_file=str(service.work / "recipe.md"))
        assert answer.is_error
        assert "systemd" in answer.text
        assert answer.seconds < 5
        assert not service.processes()
    eventually(lambda: not service.turn_units(), within=20, what="no unit of the refused turn")
    assert service.play("x", success())["outcome"] == "completed"
