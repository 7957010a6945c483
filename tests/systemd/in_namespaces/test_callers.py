"""Whoever calls from inside a turn is refused, however it hides; the parent is served."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.stub.steps import Step, endless, forever, init, reach
from tests.support.processes import eventually
from tests.support.scripted_daemon import Setting
from tests.systemd.in_namespaces.calling_claude import (
    answered,
    call_as,
    connected,
    start_request,
    write_claude,
)
from tests.systemd.service_harness import Units

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.systemd.conftest import MakeService
    from tests.systemd.service_harness import Service


@pytest.fixture
def listening_at(open_folder: Path) -> str:
    """Return the path of the daemon's Unix socket."""
    return str(open_folder / "s")


@pytest.fixture
def service(make_service: MakeService, open_folder: Path, listening_at: str) -> Service:
    """Run a daemon with a Unix socket too, whose turns know how to call."""
    claude = write_claude(open_folder / "calling-claude")
    return make_service(Setting(top={"claude": claude}), units=Units(listen=(f"unix:{listening_at}",))).boot()


@contextlib.contextmanager
def frozen(service: Service) -> Iterator[None]:
    """Keep the daemon from accepting anything."""
    pid = service.main_pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def playing(service: Service, *steps: Step) -> None:
    """Start a turn that waits for the test, then plays these steps and stays."""
    gate: Step = {"do": "wait_for", "gate": "go"}
    service.start("x", [init(), reach("up"), gate, *steps, reach("played"), forever()])
    service.reached("up")
    service.script("evil", endless())


def answer(service: Service) -> str:
    """Return what the caller was answered."""
    service.reached("answer", within=30)
    return (service.scripts / "answer").read_text()


def assert_only_x(service: Service) -> None:
    """Check that no call from inside has had an effect."""
    assert [one["name"] for one in service.ok("status").content["subagents"]] == ["x"]


@pytest.mark.parametrize("over", ["tcp", "unix"])
@pytest.mark.parametrize("way", ["itself", "cgroup-below", "bridge"])
def test_a_process_of_a_turn_is_refused(service: Service, listening_at: str, way: str, over: str) -> None:
    """Also in a cgroup that it has made below its scope."""
    address = listening_at if over == "unix" else service.port
    playing(service, call_as(way, "answer", address=address))
    service.open_gate("go")
    assert " 403" in answer(service)
    assert_only_x(service)
    assert "comes from inside turn" in service.log


@pytest.mark.parametrize("way", ["heir", "heir-of-a-known"])
def test_a_connection_that_outlived_who_made_it_is_refused(
    service: Service, listening_at: str, way: str
) -> None:
    """Its child sends: over one that was accepted before that end, or after."""
    playing(service, call_as(way, "answer", address=listening_at))
    with frozen(service) if way == "heir" else contextlib.nullcontext():
        service.open_gate("go")
        service.reached("answer.gone")
    assert " 403" in answer(service)
    assert_only_x(service)
    assert ("has ended" if way == "heir" else "comes from inside turn") in service.log


@pytest.mark.parametrize("over", ["tcp", "unix"])
@pytest.mark.parametrize("late", [True, False], ids=["gone-before-it-is-accepted", "at-once"])
def test_who_sends_and_is_gone_has_no_effect(
    service: Service, listening_at: str, over: str, *, late: bool
) -> None:
    address = listening_at if over == "unix" else service.port
    playing(service, *(call_as("in-passing", "answer", address=address) for _ in range(1 if late else 10)))
    with frozen(service) if late else contextlib.nullcontext():
        service.open_gate("go")
        service.reached("played")
    eventually(lambda: "refused POST" in service.log, within=20, what="a refusal in the log")
    assert_only_x(service)


@pytest.mark.parametrize("over", ["tcp", "unix"])
def test_the_parent_is_served_while_turns_run(service: Service, listening_at: str, over: str) -> None:
    """With the same request as theirs."""
    playing(service)
    request = start_request("evil", str(service.work / "recipe.md"))
    with contextlib.closing(connected(listening_at if over == "unix" else service.port)) as connection:
        assert " 200" in answered(connection, request)
    assert service.status_of("evil")["state"] == "running"
