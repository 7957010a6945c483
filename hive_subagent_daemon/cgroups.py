"""Reading and emptying control groups (cgroup v2, cgroups(7)); nothing here asks systemd."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hive_subagent_daemon import procfs
from hive_subagent_daemon.children import send_signal

ROOT: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class OomCounters:
    """What the kernel counted in a cgroup and all below it, those that are gone included.

    `by_oomd`: systemd-oomd killed it, which the kernel does not count. `stops`: systemd ends the rest after
    a kill (OOMPolicy=stop).
    """

    kills: int
    peak_bytes: int | None = None
    by_oomd: bool = False
    stops: bool = False


def is_unified() -> bool:
    """Tell whether cgroup v2 is mounted where it belongs, and open to us."""
    return id_of(ROOT / "cgroup.controllers") is not None


def of_process(pid: int) -> Path | None:
    """Return the folder of the cgroup that a process is in; None when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    return next((at(line.removeprefix("0::")) for line in lines if line.startswith("0::")), None)


def at(path: str) -> Path:
    """Return the folder of a cgroup that systemd or the kernel names by its path."""
    return ROOT / path.lstrip("/")


def processes(cgroup: Path) -> list[procfs.Process]:
    """Return the living processes in a cgroup and all below it. Blocks shortly."""
    pids: set[int] = set()
    for folder, _, _ in os.walk(cgroup):
        with suppress(OSError):
            pids.update(int(line) for line in (Path(folder) / "cgroup.procs").read_text().split())
    found = (procfs.process(pid) for pid in pids)
    return [process for process in found if process is not None and not process.dead]


def is_empty(cgroup: Path) -> bool:
    """Tell whether no process is left in a cgroup, or the cgroup is gone."""
    try:
        return "populated 0" in (cgroup / "cgroup.events").read_text()
    except OSError:
        return True


def kill(cgroup: Path) -> None:
    """Kill every process in a cgroup and below at once, forking and frozen ones too (cgroup.kill).

    Where the kernel is older than 5.14 or the file may not be written, one after the other.
    """
    try:
        (cgroup / "cgroup.kill").write_text("1")
    except OSError:
        for found in processes(cgroup):
            send_signal(found.pid, found.start, signal.SIGKILL)


def oom_counters(cgroup: Path) -> OomCounters | None:
    """Return what the OOM killer did in a cgroup and below; None without a memory controller."""
    kills = _keyed(cgroup / "memory.events", "oom_kill")
    return None if kills is None else OomCounters(kills, _number(cgroup / "memory.peak"))


def memory_bytes(cgroup: Path) -> int | None:
    """Return the memory in use; None without a memory controller."""
    return _number(cgroup / "memory.current")


def memory_limit_bytes(cgroup: Path) -> int | None:
    """Return the lowest memory limit that holds for a cgroup; None when there is none."""
    limits = [_number(folder / "memory.max") for folder in (cgroup, *cgroup.parents)]
    return min((limit for limit in limits if limit is not None), default=None)


def controllers(cgroup: Path) -> frozenset[str]:
    """Return the controllers that can be had below a cgroup."""
    try:
        return frozenset((cgroup / "cgroup.controllers").read_text().split())
    except OSError:
        return frozenset()


def id_of(cgroup: Path) -> int | None:
    """Return the kernel's id of a cgroup, which is the inode number of its folder; None when it is gone."""
    try:
        return cgroup.stat().st_ino
    except OSError:
        return None


def has_children(cgroup: Path) -> bool:
    """Tell whether there are cgroups below one: its folder has more links than its own two."""
    try:
        return cgroup.stat().st_nlink > 2
    except OSError:
        return False


def ids_in(cgroup: Path) -> set[int]:
    """Return the ids of a cgroup and of all below it."""
    found = {id_of(Path(folder)) for folder, _, _ in os.walk(cgroup)}
    return {each for each in found if each is not None}


def path_of(cgroup: Path) -> str:
    """Return the path by which systemd and the kernel name a cgroup."""
    return f"/{'/'.join(cgroup.relative_to(ROOT).parts)}"


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # `max` is no number and means no limit
        return None


def _keyed(path: Path, key: str) -> int | None:
    with suppress(OSError):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == key:
                return int(value)
    return None
