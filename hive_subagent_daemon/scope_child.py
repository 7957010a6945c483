"""The processes of one turn in a scope: held, counted and emptied by the cgroup of the turn's slice."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

import anyio

from hive_subagent_daemon import cgroups
from hive_subagent_daemon.launcher import Leftovers, Placed
from hive_subagent_daemon.threads import in_thread

if TYPE_CHECKING:
    from pathlib import Path

    from hive_subagent_daemon.membership import TurnRoot
    from hive_subagent_daemon.process_group import GroupChild
    from hive_subagent_daemon.unit_names import TurnUnits
    from hive_subagent_daemon.values import Exit

_log = logging.getLogger(__name__)

EMPTY_TIMEOUT_SECONDS: Final = 3.0
_PAUSE_SECONDS: Final = 0.002
_MAX_PAUSE_SECONDS: Final = 0.05


class Keeper(Protocol):
    """What a child needs of its launcher."""

    @property
    def stops_after_oom(self) -> bool:
        """Whether systemd ends a whole scope after the kernel has killed one process of it."""

    async def stop(self, child: ScopeChild) -> None:
        """Stop the slice of a turn."""

    async def oomd_killed(self, cgroup: Path) -> bool:
        """Tell whether systemd-oomd says that it killed in a cgroup."""

    def reap_orphans(self) -> None:
        """Reap what was killed and became ours."""


class ScopeChild:
    """The processes of one turn, held by the cgroup of its slice; see Child."""

    def __init__(self, keeper: Keeper, group: GroupChild, units: TurnUnits, *, turn: str) -> None:
        """Take the units that hold the processes, and the other way to find them."""
        self.units = units
        self.turn = turn
        self.slice_cgroup: Path | None = None
        self._ids: set[int] = set()
        self._keeper = keeper
        self._strayed = False
        self._group = group

    def put_in(self, scope_cgroup: Path) -> None:
        """Take note of where systemd has put the processes."""
        self.slice_cgroup = scope_cgroup.parent
        self._ids = cgroups.ids_in(scope_cgroup.parent)

    def placed(self) -> Placed:
        """Return what is recorded of it while it waits at the gate."""
        cgroup = cgroups.path_of(self.slice_cgroup) if self.slice_cgroup else None
        return Placed(self.pid, self.start, cgroup, self.memory_limit_bytes())

    def find(self, root: TurnRoot) -> bool:
        """Look for the cgroup that the turn's record names; tell whether it is there."""
        cgroup = None if root.cgroup is None else cgroups.at(root.cgroup)
        if cgroup is None or cgroup.name != self.units.slice or cgroups.id_of(cgroup) is None:
            return False
        self.take_over(cgroup)
        return True

    def take_over(self, slice_cgroup: Path) -> None:
        """Take note of where an earlier daemon had systemd put the processes."""
        self.slice_cgroup = slice_cgroup
        self._ids = cgroups.ids_in(slice_cgroup)

    def holds(self, cgroup_id: int) -> bool:
        """Tell whether a cgroup is that of the turn, or one that a process of it has made below."""
        if cgroup_id in self._ids:
            return True
        if self.slice_cgroup is not None and cgroups.has_children(self.slice_cgroup / self.scope):
            self._ids = cgroups.ids_in(self.slice_cgroup)
        return cgroup_id in self._ids

    @property
    def pid(self) -> int:
        """The pid of claude, 0 when it is not known."""
        return self._group.pid

    @property
    def start(self) -> int:
        """When it started."""
        return self._group.start

    @property
    def scope(self) -> str:
        """The name of the scope."""
        return self.units.scope

    def hold(self) -> bool:
        """Hold on to claude."""
        return self._group.hold()

    async def wait(self) -> Exit:
        """Return how claude ended."""
        return await self._group.wait()

    def signal(self, number: int) -> bool:
        """Signal claude itself."""
        return self._group.signal(number)

    def populated(self) -> bool:
        """Tell whether any process is in the slice, or has strayed from it."""
        held = self.slice_cgroup is not None and not cgroups.is_empty(self.slice_cgroup)
        return held or (self.has_strayed() and self._group.populated())

    async def empty(self) -> Leftovers:
        """Kill everything in the slice at once, and what has strayed; bounded by EMPTY_TIMEOUT_SECONDS."""
        strayed = self.has_strayed() or self._strayed
        leftovers = Leftovers() if self.slice_cgroup is None else await self._empty_cgroup(self.slice_cgroup)
        if not strayed:
            return leftovers
        return leftovers + await self._group.empty()

    async def _empty_cgroup(self, cgroup: Path) -> Leftovers:
        if cgroups.is_empty(cgroup):
            return Leftovers()
        killed = await in_thread(_named, cgroup)
        deadline = time.monotonic() + EMPTY_TIMEOUT_SECONDS
        pause = _PAUSE_SECONDS
        while not cgroups.is_empty(cgroup):
            cgroups.kill(cgroup)
            if time.monotonic() > deadline:
                alive = await in_thread(_named, cgroup)
                _log.error("still alive after SIGKILL in %s: %s", self.scope, ", ".join(alive))
                return Leftovers(killed, alive=alive)
            await anyio.sleep(pause)
            pause = min(pause * 1.5, _MAX_PAUSE_SECONDS)
            self._keeper.reap_orphans()
        return Leftovers(killed)

    async def oom(self, *, ended_by_kill: bool) -> cgroups.OomCounters | None:
        """Return what the kernel counted in the slice, or what systemd-oomd says of it."""
        if self.slice_cgroup is None:
            return None
        counters = cgroups.oom_counters(self.slice_cgroup)
        if counters is not None:
            counters = replace(counters, stops=self._keeper.stops_after_oom)
        by_kernel = counters is not None and counters.kills > 0
        if ended_by_kill and not by_kernel and await self._keeper.oomd_killed(self.slice_cgroup):
            peak = counters.peak_bytes if counters else None
            return cgroups.OomCounters(1, peak, by_oomd=True)
        return counters

    def oom_kills(self) -> int:
        """Return what the kernel has counted so far."""
        counters = cgroups.oom_counters(self.slice_cgroup) if self.slice_cgroup else None
        return counters.kills if counters else 0

    async def release(self) -> None:
        """Stop the slice."""
        await self._keeper.stop(self)

    def has_strayed(self) -> bool:
        """Tell whether claude lives in another cgroup than its scope."""
        cgroup = cgroups.of_process(self.pid) if self.pid else None
        elsewhere = cgroup is not None and self.scope not in cgroup.parts and self.signal(0)
        self._strayed = self._strayed or elsewhere
        return elsewhere

    def memory_bytes(self) -> int | None:
        """The memory of the whole slice; of claude alone without a memory controller."""
        counted = cgroups.memory_bytes(self.slice_cgroup) if self.slice_cgroup else None
        return self._group.memory_bytes() if counted is None else counted

    def memory_limit_bytes(self) -> int | None:
        """The lowest limit that holds for the scope, as the kernel shows it."""
        return cgroups.memory_limit_bytes(self.slice_cgroup / self.scope) if self.slice_cgroup else None


def _named(cgroup: Path) -> tuple[str, ...]:
    return tuple(f"{found.name} ({found.pid})" for found in cgroups.processes(cgroup))
