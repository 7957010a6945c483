"""Managers that hang or are not asked any more: what was left in scopes is ended and stopped all the same."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.stub.steps import Step, assistant, forever, init, reach, spawn, success
from tests.support.processes import eventually, is_alive
from tests.support.scripted_daemon import Setting
from tests.systemd.managers import ROOT, SYSTEM, USER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.systemd.conftest import MakeService
    from tests.systemd.managers import Form
    from tests.systemd.service_harness import Service

FALLBACK = "turns run as process groups"
# The manager of the system cannot be stopped by a signal.
HUNG = [(ROOT, "bus"), (USER, "bus"), (USER, "manager")]
START_SECONDS = 40.0  # with the wait for a manager that may still come up
each_hanging = pytest.mark.parametrize(
    ("form", "hung"), [pytest.param(form, hung, id=f"{form.name}-{hung}") for form, hung in HUNG]
)


def pid_of(form: Form, hung: str) -> int:
    """Return the process of the bus or of the user's manager."""
    if hung == "bus":
        return int(form.manager.show("dbus.service", "MainPID"))
    return int(SYSTEM.show(f"user@{form.uid}.service", "MainPID"))


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Keep a process from running for a while."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def hidden(record: str) -> Step:
    """Start a child that only its cgroup gives away."""
    ignored = ["SIGINT", "SIGTERM", "SIGHUP"]
    return spawn(record, own_session=True, double_fork=True, scrubbed=True, ignores=ignored)


def running(service: Service) -> list[int]:
    """Start a turn that stays, and return its processes."""
    turn = [init(), assistant("so far", stop_reason=None), hidden("child"), reach("up"), forever()]
    pid: int = service.start("x", turn).content["pid"]
    service.reached("up")
    return [pid, service.recorded_pid("child")]


def noted(service: Service) -> set[str]:
    """Return the slices that the daemon still has to stop."""
    return {path.name for path in (service.state / "slices").iterdir()}


def configure(service: Service, before: str, after: str) -> None:
    """Let the next daemon ask for another manager."""
    path = service.folder / "config.toml"
    text = path.read_text()
    assert f'"manager" = "{before}"' in text
    path.write_text(text.replace(f'"manager" = "{before}"', f'"manager" = "{after}"'))


def killed_without_warning(service: Service) -> None:
    """Kill the daemon and wait for the next one."""
    daemon = service.main_pid
    service.kill()
    service.is_back(daemon, within=START_SECONDS)


def assert_ended_and_noted(service: Service, pids: list[int], slice_name: str) -> None:
    """Check what the next daemon did without a manager."""
    assert service.ok("status").content["launcher"] == "process group"
    [end] = service.loose_ends("x")
    assert (end["outcome"], end["cause"]) == ("killed", "daemon stopped")
    assert not [pid for pid in pids if is_alive(pid)]
    assert noted(service) == {slice_name}


def assert_stopped_by_the_next(service: Service, form: Form) -> None:
    """Check that a daemon with scopes leaves nothing of it."""
    service.restart()
    assert service.ok("status").content["launcher"] == form.launcher
    eventually(lambda: not service.turn_units(), within=20, what="no unit of the turn")
    eventually(lambda: not noted(service), within=20, what="no slice to be stopped")
    assert service.play("x", success("of use"))["text"] == "of use"


@pytest.fixture
def service(make_service: MakeService) -> Service:
    """Run a daemon that takes the manager that it finds."""
    return make_service(Setting(tables={"scopes": {"manager": "auto"}})).boot()


def slice_of(service: Service) -> str:
    """Return the slice of the only turn."""
    [name] = [unit for unit in service.turn_units() if unit.endswith(".slice")]
    return name


def test_after_a_crash_a_daemon_without_scopes_ends_what_is_in_one(service: Service, form: Form) -> None:
    """By the cgroup in the turn's record; the slice itself is left to a later daemon with scopes."""
    pids = running(service)
    slice_name = slice_of(service)
    configure(service, "auto", "off")
    killed_without_warning(service)
    assert_ended_and_noted(service, pids, slice_name)
    configure(service, "off", "auto")
    assert_stopped_by_the_next(service, form)


@pytest.mark.timeout(180)
@each_hanging
def test_after_a_crash_a_daemon_whose_manager_hangs_ends_what_is_in_a_scope(
    service: Service, form: Form, hung: str
) -> None:
    pids = running(service)
    slice_name = slice_of(service)
    with stopped(pid_of(form, hung)):
        killed_without_warning(service)
        assert any(FALLBACK in warning for warning in service.ok("status").content["warnings"])
        assert_ended_and_noted(service, pids, slice_name)
    assert_stopped_by_the_next(service, form)


@pytest.mark.timeout(180)
@each_hanging
def test_a_daemon_that_is_stopped_while_its_manager_hangs_leaves_no_slice_for_ever(
    service: Service, form: Form, hung: str
) -> None:
    pids = running(service)
    with stopped(pid_of(form, hung)):
        service.stop()
        assert service.show("Result") == "success"
        assert not [pid for pid in pids if is_alive(pid)]
    service.boot()
    eventually(lambda: not service.turn_units(), within=20, what="no unit of the turn")
    eventually(lambda: not noted(service), within=20, what="no slice to be stopped")
    [end] = service.loose_ends("x")
    assert (end["outcome"], end["cause"]) == ("killed", "daemon stopped")


@each_hanging
def test_a_forced_interrupt_does_not_wait_for_a_manager_that_hangs(
    service: Service, form: Form, hung: str
) -> None:
    pids = running(service)
    with stopped(pid_of(form, hung)):
        answer = service.ok("interrupt", name="x", force=True)
        assert (answer.content["ended"], answer.content["signal"]) == (True, "SIGKILL")
        assert answer.seconds < 2.0
        [end] = service.loose_ends("x")
        assert (end["outcome"], end["cause"]) == ("killed", "forced interrupt")
        assert not [pid for pid in pids if is_alive(pid)]
    eventually(lambda: not service.turn_units(), within=20, what="no unit of the turn")
    eventually(lambda: not noted(service), within=20, what="no slice to be stopped")
    assert service.play("x", success("of use"))["text"] == "of use"
