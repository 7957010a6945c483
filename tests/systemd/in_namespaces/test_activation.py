"""The socket unit: the first caller starts the daemon, and nobody is turned away while it comes and goes."""

from __future__ import annotations

import contextlib
import http.client
from typing import TYPE_CHECKING

import pytest

from tests.stub.steps import dump, endless, success
from tests.support.calling import Caller, UnixConnection, await_answers, finish, health
from tests.support.processes import eventually, is_alive
from tests.support.sockets import free_port
from tests.systemd.managers import SYSTEM
from tests.systemd.service_harness import Units

if TYPE_CHECKING:
    from pathlib import Path

    from tests.systemd.conftest import MakeService
    from tests.systemd.managers import Form
    from tests.systemd.service_harness import Service

ACTIVATIONS = 20
WITHHELD = ("LISTEN_", "NOTIFY_SOCKET", "WATCHDOG_", "INVOCATION_ID", "JOURNAL_STREAM", "STATE_DIRECTORY")


def test_the_first_connection_starts_the_daemon(make_service: MakeService) -> None:
    service = make_service().listen()
    assert (service.show("ActiveState"), service.main_pid) == ("inactive", 0)
    assert service.play("x", success("here"))["text"] == "here"
    assert service.show("ActiveState") == "active"


def test_every_address_of_the_socket_is_served(make_service: MakeService, open_folder: Path) -> None:
    """IPv4, IPv6 and a Unix socket at once; any of them starts the daemon."""
    path, port = open_folder / "s", free_port()
    service = make_service(units=Units(listen=(f"[::1]:{port}", f"unix:{path}"))).listen()
    for connection in (UnixConnection(path), http.client.HTTPConnection("::1", port, timeout=20)):
        with contextlib.closing(connection):
            health(connection)
    assert not service.call("status").is_error
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_uid == service.form.uid


@pytest.mark.timeout(180)
def test_twenty_activations_in_a_row_lose_no_request(make_service: MakeService) -> None:
    """While it is stopped and started again by the next caller, others call without a pause."""
    service = make_service().listen()
    health_caller, tool_caller = Caller(service.port, tool=False), Caller(service.port, tool=True)
    callers = [health_caller, tool_caller]
    seen = set()
    try:
        for _ in range(ACTIVATIONS):
            await_answers(callers, 4)
            seen.add(service.main_pid)
            SYSTEM.systemctl("stop", "--", service.unit)
    finally:
        finish(callers)
    assert [caller.losses for caller in callers] == [[], []]
    assert len(seen - {0}) == ACTIVATIONS
    assert service.show("ActiveState") in ("active", "inactive")
    assert SYSTEM.show(service.socket_unit, "ActiveState") == "active"


def test_the_address_works_again_after_a_restart_and_after_a_crash(service: Service) -> None:
    caller = Caller(service.port, tool=False)
    try:
        await_answers([caller], 2)
        service.restart()
        await_answers([caller], 2)
        pid = service.main_pid
        service.kill()
        service.is_back(pid)
        await_answers([caller], 2)
    finally:
        finish([caller])
    # Of a daemon that is killed, the connections that it has accepted are lost: one at most is open.
    assert len(caller.losses) <= 1


def test_nothing_of_what_systemd_passed_in_reaches_a_turn(make_service: MakeService) -> None:
    service = make_service(units=Units(lines=("WatchdogSec=30",))).listen()
    service.play("x", [dump("seen"), *success()])
    seen = service.seen("seen")
    assert not [name for name in seen["environment"] if name.startswith(WITHHELD)]
    assert sorted(map(int, seen["files"])) == [0, 1, 2]
    assert not [file for file in seen["files"].values() if file["target"].startswith("socket:")]


def test_a_stop_of_the_socket_stops_the_daemon_and_its_turns(service: Service, form: Form) -> None:
    turn = service.start("x", endless()).content
    SYSTEM.systemctl("stop", "--", service.socket_unit)
    service.comes_to("inactive")
    eventually(lambda: not is_alive(turn["pid"]), what="the end of the turn")
    assert not service.turn_units(), form
