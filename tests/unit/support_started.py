"""Small real processes, and waiting for conditions while the event loop goes on."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from tests.support.processes import POLL_SECONDS, eventually, is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LIMIT_SECONDS = 30.0
PATH = os.environ.get("PATH", os.defpath)


@dataclass(frozen=True)
class Started:
    """A process that was just created."""

    pid: int
    pidfd: int


def start(*argv: str, environment: Mapping[str, str] | None = None) -> Started:
    """Create a child process in a session of its own; /proc tells of its program when this returns."""
    known = {"PATH": PATH, **(environment or {})}
    pid = os.posix_spawnp(argv[0], argv, known, setsid=True)
    # In the middle of an exec the kernel shows an empty command line and environment for a moment.
    eventually(lambda: Path(f"/proc/{pid}/cmdline").read_bytes() or not is_alive(pid))
    return Started(pid, os.pidfd_open(pid))


async def soon(condition: Callable[[], object], *, within: float = LIMIT_SECONDS) -> None:
    """Return as soon as the condition is true; fail when the limit has passed."""
    limit = time.monotonic() + within
    while not condition():
        assert time.monotonic() < limit, "the condition did not come true in time"
        await anyio.sleep(POLL_SECONDS)


def own_cgroup() -> str | None:
    """Return the path of our own control group as /proc names it; None without cgroup v2."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
