"""Reading /proc: who descends from whom, who carries which mark, when a process started (proc(5)).

A process that is gone reads as nothing. A lack of descriptors or memory is no sign of that: it is raised
(OSError), or what still runs would be taken for gone.
"""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROC = Path("/proc")
_LACKING: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


@dataclass(frozen=True)
class Process:
    """One process as /proc/PID/stat shows it; `start` in clock ticks since boot tells it from a later one."""

    pid: int
    name: str
    state: str
    parent: int
    session: int
    start: int

    @property
    def dead(self) -> bool:
        """Whether it has ended and only waits to be reaped."""
        return self.state in "ZX"


def process(pid: int) -> Process | None:
    """Return one process, or None when there is none with this pid."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError as error:
        raise_lack(error)
        return None
    # The name may hold blanks and brackets, so the fixed fields are counted from the last bracket.
    before, _, after = text.rpartition(")")
    fields = after.split()
    name = before.partition("(")[2]
    return Process(pid, name, fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def age_seconds(start: int) -> float:
    """Return how long ago a process started whose start time this is, the machine's sleep included."""
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return max(0.0, since_boot - start / os.sysconf("SC_CLK_TCK"))


def raise_lack(error: OSError) -> None:
    """Raise an error again that tells of a lack, not of a process that is gone."""
    if error.errno in _LACKING:
        raise error


def processes() -> Iterator[Process]:
    """Yield every process there is."""
    with os.scandir(_PROC) as entries:
        for entry in entries:
            if entry.name.isdigit() and (found := process(int(entry.name))) is not None:
                yield found


def children(pid: int) -> list[int]:
    """Return the pids of the children of a process (all its threads'); empty when it has ended."""
    found: list[int] = []
    try:
        for task in (_PROC / str(pid) / "task").iterdir():
            found += _children_of_thread(task)
    except OSError as error:
        raise_lack(error)
    return found


def _children_of_thread(task: Path) -> list[int]:
    try:
        return [int(child) for child in (task / "children").read_text().split()]
    except OSError as error:
        raise_lack(error)
        return []


def environment(pid: int) -> list[bytes]:
    """Return the `NAME=value` entries that a process was executed with; empty when they may not be read."""
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError as error:
        raise_lack(error)
        return []


def command_line(pid: int) -> bytes:
    """Return the arguments of a process, NUL-separated; empty when it has ended."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError as error:
        raise_lack(error)
        return b""


def resident_bytes(pid: int) -> int | None:
    """Return the resident memory of one process, None when it has ended."""
    try:
        pages = int((_PROC / str(pid) / "statm").read_text().split()[1])
    except (OSError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def holds_socket(pid: int, inode: int) -> bool:
    """Tell whether a process has the socket with this inode open."""
    wanted = f"socket:[{inode}]"
    try:
        with os.scandir(_PROC / str(pid) / "fd") as entries:
            return any(_target(Path(entry.path)) == wanted for entry in entries)
    except OSError as error:
        raise_lack(error)
        return False


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def prefer_for_oom_kill(pid: int, score: int) -> None:
    """Raise the score that makes the kernel's OOM killer choose this process; never lower it."""
    path = _PROC / str(pid) / "oom_score_adj"
    try:
        if int(path.read_text()) < score:
            path.write_text(str(score))
    except OSError:
        return  # gone already, or a sandbox without the right: the score is a preference only


@cache
def boot_id() -> str:
    """Return the id of this boot of the kernel, the same until the next reboot."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
