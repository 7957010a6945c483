"""What a daemon costs that nobody calls: processor time, and how often it wakes up."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.figures import Figure
from tests.benchmarks.services import benchmark_service
from tests.systemd.managers import USER

IDLE_SECONDS = 60
SETTLE_SECONDS = 3
WATCHDOG_SECONDS = 30
LIMIT_PERCENT = 0.1
LIMIT_WAKE_UPS = 1.0


@dataclass(frozen=True)
class Spent:
    """What the threads of a process have used so far: nanoseconds of processor, and waits."""

    nanoseconds: int
    waits: int


def measure() -> list[Figure]:
    """Leave a daemon alone that has run a turn in a scope and answers a watchdog."""
    with benchmark_service(USER, lines=[f"WatchdogSec={WATCHDOG_SECONDS}"]) as service:
        service.boot()
        service.ok("start", name="warm", prompt_file=str(service.work / "recipe.md"))
        service.finished("warm")
        assert service.ok("status").content["launcher"] == USER.launcher
        time.sleep(SETTLE_SECONDS)  # what follows a start and a turn is not idleness
        pid = service.main_pid
        before, began = _spent(pid), time.monotonic()
        time.sleep(IDLE_SECONDS)
        after, seconds = _spent(pid), time.monotonic() - began
    spent_ms, wake_ups = (after.nanoseconds - before.nanoseconds) / 1e6, after.waits - before.waits
    share = spent_ms / seconds / 10
    how = (
        f"{spent_ms:.1f} ms and {wake_ups} wake-ups in {seconds:.0f} s, connected to the user's manager, "
        f"watchdog of {WATCHDOG_SECONDS} s"
    )
    return [
        Figure("processor time of the idle daemon", share, LIMIT_PERCENT, "% of a core", how),
        Figure("wake-ups of the idle daemon", wake_ups / seconds, LIMIT_WAKE_UPS, "a second", how),
    ]


def _spent(pid: int) -> Spent:
    """Sum up over all threads: what belongs to a process as a whole is too coarse, or its first thread's."""
    nanoseconds = waits = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            nanoseconds += int((thread / "schedstat").read_text().split()[0])
            lines = (thread / "status").read_text().splitlines()
            waits += next(int(line.split()[1]) for line in lines if line.startswith("voluntary_"))
    return Spent(nanoseconds, waits)
