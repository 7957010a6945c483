"""An event loop that hangs is noticed by systemd."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from tests.stub.steps import endless, held
from tests.support.processes import eventually, is_alive
from tests.systemd.service_harness import Units

if TYPE_CHECKING:
    from tests.systemd.conftest import MakeService


def test_a_blocked_event_loop_is_restarted(make_service: MakeService) -> None:
    service = make_service(units=Units(lines=("WatchdogSec=1500ms",))).boot()
    turn = service.start("x", endless()).content
    daemon = service.main_pid
    os.kill(daemon, signal.SIGUSR1)
    service.is_back(daemon)
    assert service.show("NRestarts") == "1"
    assert "Watchdog timeout" in service.log
    [end] = service.loose_ends("x")
    assert (end["turn"], end["outcome"], end["cause"]) == (turn["turn"], "killed", "daemon stopped")
    assert not is_alive(turn["pid"])


def test_a_daemon_at_work_keeps_the_watchdog_quiet(make_service: MakeService) -> None:
    service = make_service(units=Units(lines=("WatchdogSec=1500ms",))).boot()
    daemon = service.main_pid
    began = int(service.show("WatchdogTimestampMonotonic"))
    service.start("x", held("go"))

    def has_passed() -> bool:
        return int(service.show("WatchdogTimestampMonotonic")) > began + 3 * 1_500_000

    eventually(has_passed, within=20, what="three times the limit of the watchdog")
    service.open_gate("go")
    assert service.loose_end("x")["outcome"] == "completed"
    assert (service.main_pid, service.show("NRestarts")) == (daemon, "0")
