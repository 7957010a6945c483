"""Idle exit under systemd: a service that has nothing to do is gone until the next call, and loses none."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.stub.steps import held, sleep, success, wait_for
from tests.support.calling import Caller, await_answers, finish
from tests.support.processes import eventually
from tests.support.scripted_daemon import Setting
from tests.systemd.managers import SYSTEM, processes_in

if TYPE_CHECKING:
    from tests.conftest import TellFigure
    from tests.systemd.conftest import MakeService
    from tests.systemd.service_harness import Service

IDLE_SECONDS = 0.5
SHORT_SECONDS = 0.05
CALLERS = 4
GONE_SECONDS = 60.0


def idling(seconds: float = IDLE_SECONDS, **more: object) -> Setting:
    """Return the setting of a daemon that leaves soon."""
    return Setting(top={"idle_exit_seconds": seconds, **more})


def is_gone(service: Service) -> None:
    """Wait until the service has ended, as one that has done its work."""
    service.comes_to("inactive", within=GONE_SECONDS)
    assert [service.show(name) for name in ("Result", "MainPID", "NRestarts")] == ["success", "0", "0"]
    assert SYSTEM.show(service.socket_unit, "ActiveState") == "active"


def private_kib(pid: int) -> int:
    """Return the memory that only this process has."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def test_an_idle_service_costs_no_memory_and_the_next_call_brings_it_back(
    make_service: MakeService, figure: TellFigure
) -> None:
    service = make_service(idling()).listen()
    turn = service.start("x", held("go", "first")).content["turn"]
    cgroup, private = service.show("ControlGroup"), private_kib(service.main_pid)
    service.open_gate("go")
    end = service.loose_end("x", turn=turn)
    is_gone(service)
    figure(f"private memory of a daemon that stays: {private} KiB, of one that has left: none")
    assert not processes_in(cgroup)
    began = time.monotonic()
    assert service.loose_ends("x") == [end]
    figure(f"first answer after an exit: {(time.monotonic() - began) * 1000:.0f} ms")
    service.script("x", success("second"))
    assert service.resume("x")["text"] == "second"
    is_gone(service)
    assert service.log.count("leaving after 0.5 s") == 2


@pytest.mark.parametrize("on_restart", ["stop", "adopt"])
def test_a_running_turn_keeps_the_service(make_service: MakeService, on_restart: str) -> None:
    """One that outlives a restart keeps the daemon that has taken it over."""
    service = make_service(idling(on_restart=on_restart)).listen()
    service.start("x", [wait_for("go"), sleep(5 * IDLE_SECONDS), *success()])
    if on_restart == "adopt":
        service.restart()
    service.open_gate("go")
    is_gone(service)
    assert service.log.index(" ended: ") < service.log.index("leaving after")
    assert service.loose_end("x")["outcome"] == "completed"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "activations", [pytest.param(30, id="some"), pytest.param(300, id="many", marks=pytest.mark.long)]
)
def test_activations_in_a_row_lose_no_request_and_hit_no_start_limit(
    make_service: MakeService, activations: int, figure: TellFigure
) -> None:
    """Callers meet every moment of an exit; nobody is turned away, not even with a word."""
    service = make_service(idling(SHORT_SECONDS)).listen()
    pause = 4 * SHORT_SECONDS
    callers = [Caller(service.port, tool=bool(each % 2), pause_seconds=pause) for each in range(CALLERS)]
    began = time.monotonic()
    try:
        while service.log.count("leaving after") < activations:
            await_answers(callers, CALLERS, within=GONE_SECONDS)
            assert not any(caller.losses for caller in callers)
    finally:
        finish(callers)
    assert [loss for caller in callers for loss in caller.losses] == []
    assert sum(caller.stopping_answers for caller in callers) == 0
    eventually(lambda: service.show("ActiveState") == "inactive", within=GONE_SECONDS, what="the last exit")
    is_gone(service)
    assert "limit" not in service.log
    exits, answers = service.log.count("leaving after"), sum(caller.answers for caller in callers)
    figure(f"{exits} activations in {time.monotonic() - began:.0f} s: {answers} calls answered, 0 lost")
