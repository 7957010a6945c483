"""Look at processes through /proc, and wait for conditions under a limit."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
POLL_SECONDS = 0.01
PATIENCE = 4  # limits are written for a quiet machine; what comes true costs nothing by a longer one


def eventually(condition: Callable[[], T], *, within: float = 5.0, what: str = "the condition") -> T:
    """Return what the condition gives as soon as that is true; fail long after a quiet machine had it."""
    within *= PATIENCE
    limit = time.monotonic() + within
    while not (found := condition()):
        if time.monotonic() > limit:
            message = f"{what} did not come true within {within:g} s (last: {found!r})"
            raise AssertionError(message)
        time.sleep(POLL_SECONDS)
    return found


def is_alive(pid: int) -> bool:
    """Tell whether this process exists and is more than a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment that a process was started with; empty when it is gone."""
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return {}
    pairs = [part.partition("=") for part in content.decode(errors="replace").split("\0")]
    return {key: value for key, _, value in pairs}


def turn_processes(scripts: Path) -> list[int]:
    """Return the pids of all living processes of turns whose scripts lie in this folder."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if is_alive(pid) and belongs_to(pid, scripts)]


def belongs_to(pid: int, scripts: Path) -> bool:
    """Tell whether this process was started in a turn of the daemon with that script folder."""
    environment = environment_of(pid)
    return "HIVE_SUBAGENT_TURN" in environment and environment.get("STUB_SCRIPTS") == str(scripts)
