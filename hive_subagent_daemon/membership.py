"""Which processes belong to which turn, told from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon import procfs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

DELIVERY_VARIABLE: Final = "HIVE_SUBAGENT_DELIVERY"  # marks the processes of a sink's program


@dataclass(frozen=True)
class TurnRoot:
    """By what the processes of a turn are recognised.

    `pid` and `start` name claude itself, None and 0 when it is not known; `session_id` is claude's; `scope`
    is the systemd scope that it was to get, `cgroup` that of its slice, once it has one; `variable` is the
    mark, whose value is the turn's id. The processes of an `adopted` turn do not descend from us.
    """

    turn: str
    session_id: str | None
    pid: int | None
    start: int
    scope: str | None = None
    cgroup: str | None = None
    variable: str = "HIVE_SUBAGENT_TURN"
    adopted: bool = False

    def owns(self, found: procfs.Process) -> bool:
        """Tell whether a process is claude itself, in claude's session, or carries a mark of the turn."""
        if self.pid and found.pid == self.pid:
            return found.start == self.start
        if found.start < self.start:
            return False  # older than the turn: whatever it carries, it is not the turn's
        return (bool(self.pid) and found.session == self.pid) or self._marks(found.pid)

    def _marks(self, pid: int) -> bool:
        entries = procfs.environment(pid)
        if f"{self.variable}={self.turn}".encode() in entries:
            return True
        return self.session_id is not None and f"CLAUDE_CODE_SESSION_ID={self.session_id}".encode() in entries


def delivery_of(pid: int) -> str | None:
    """Return the mark of a process of a sink's program, None for every other one."""
    start = f"{DELIVERY_VARIABLE}=".encode()
    found = (entry.removeprefix(start) for entry in procfs.environment(pid) if entry.startswith(start))
    return next((mark.decode("latin-1") for mark in found), None)


def deliveries(sink: str) -> set[str]:
    """Return the marks of all living programs of one sink. Blocks for some milliseconds."""
    marks = {delivery_of(found.pid) for found in living()}
    return {mark for mark in marks if mark is not None and mark.startswith(f"{sink}-")}


def living() -> list[procfs.Process]:
    """Return every process that has not ended. Blocks for some milliseconds."""
    return [found for found in procfs.processes() if not found.dead]


def members(root: TurnRoot, among: Iterable[procfs.Process]) -> list[procfs.Process]:
    """Return the processes of one turn: those it owns and all that descend from them, never ourselves."""
    among = list(among)
    if any(found.pid == root.pid and found.start != root.start for found in among):
        root = replace(root, pid=None)  # the pid is another's now, and so is the session of that number
    return with_descendants([found for found in among if root.owns(found)], among)


def with_descendants(
    roots: Iterable[procfs.Process], among: Iterable[procfs.Process]
) -> list[procfs.Process]:
    """Return the given processes and all that descends from them, never ourselves."""
    children: dict[int, list[procfs.Process]] = {}
    for found in among:
        children.setdefault(found.parent, []).append(found)
    reached: dict[int, procfs.Process] = {}
    waiting = list(roots)
    while waiting:
        found = waiting.pop()
        if found.pid not in reached and found.pid != os.getpid():
            reached[found.pid] = found
            waiting += children.get(found.pid, [])
    return list(reached.values())


def turn_with_process(pid: int, roots: Iterable[TurnRoot]) -> str | None:
    """Return the turn that a process belongs to; `unknown` when it is ours but nothing tells it. Blocks."""
    return _turn_with(lambda found: found.pid == pid, list(roots))


def turn_with_socket(inode: int, roots: Iterable[TurnRoot]) -> str | None:
    """Return the turn one of whose processes has this socket open; see `turn_with_process`. Blocks."""
    return _turn_with(lambda found: procfs.holds_socket(found.pid, inode), list(roots))


def _turn_with(wanted: Callable[[procfs.Process], bool], roots: list[TurnRoot]) -> str | None:
    """Look among our own descendants: as child subreaper we are above whatever our turns have started."""
    if not roots:
        return None
    above: dict[int, procfs.Process] = {}
    for found in _descendants(os.getpid()):
        above[found.pid] = found
        if wanted(found):
            return _turn_of(found, above, roots) or "unknown"
    return _adopted_with(wanted, [root for root in roots if root.adopted])


def _adopted_with(wanted: Callable[[procfs.Process], bool], roots: list[TurnRoot]) -> str | None:
    """Look among the processes of turns that an earlier daemon has spawned."""
    among = living() if roots else []
    for root in roots:
        if any(wanted(found) for found in members(root, among)):
            return root.turn
    return None


def _turn_of(found: procfs.Process, above: dict[int, procfs.Process], roots: list[TurnRoot]) -> str | None:
    """Return the turn that owns a process or else the nearest of its ancestors."""
    process: procfs.Process | None = found
    while process is not None:
        for root in roots:
            if root.owns(process):
                return root.turn
        process = above.get(process.parent)
    return None


def _descendants(pid: int) -> Iterator[procfs.Process]:
    """Yield all that descends from a process, parents before their children."""
    waiting = procfs.children(pid)
    while waiting:
        found = procfs.process(waiting.pop())
        if found is not None and not found.dead:
            yield found
            waiting += procfs.children(found.pid)
