"""Turns in transient systemd scopes, each in a slice of its own.

The slice outlives the scope: after the end its counters tell whether the kernel killed for lack of memory,
without a race and over a restart of the daemon. Then it is stopped, and no unit of the turn is left.
"""

from __future__ import annotations

import logging
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import anyio

from hive_subagent_daemon import cgroups
from hive_subagent_daemon.config_values import UNLIMITED, OomPolicy, Percent
from hive_subagent_daemon.dbus_link import BusError
from hive_subagent_daemon.gate import ChildSpec, spawn_gated
from hive_subagent_daemon.launcher import Child, Placed, PlacingError
from hive_subagent_daemon.peer import Peer, TcpPeer, UnixPeer
from hive_subagent_daemon.process_group import ProcessGroup, give_up
from hive_subagent_daemon.scope_child import ScopeChild
from hive_subagent_daemon.unit_names import TurnUnits, turn_units, units_of_scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from hive_subagent_daemon.children import Children
    from hive_subagent_daemon.config_values import Amount, Scopes
    from hive_subagent_daemon.membership import TurnRoot
    from hive_subagent_daemon.oomd import OomdWatch
    from hive_subagent_daemon.process_group import GroupChild
    from hive_subagent_daemon.slices_to_stop import SlicesToStop
    from hive_subagent_daemon.systemd_bus import Property, SystemdBus

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """Where the units of turns are: below which slice, with whose id, and beside which unit of our own.

    `own_unit` is the daemon's service where the same manager runs it.
    """

    parent_slice: str
    instance: str
    own_unit: str | None = None


class ScopeLauncher:
    """Spawns turns in scopes of one systemd manager."""

    def __init__(
        self,
        children: Children,
        bus: SystemdBus,
        *,
        scopes: Scopes,
        place: Place,
        to_stop: SlicesToStop,
        oomd: OomdWatch,
        description: str,
    ) -> None:
        """Make units with these properties at this place."""
        self._children = children
        self._bus = bus
        self._scopes = scopes
        self._place = place
        self._oomd = oomd
        self._description = description
        self._to_stop = to_stop
        self._groups = ProcessGroup(children, to_stop)
        self._held: dict[str, ScopeChild] = {}

    @property
    def description(self) -> str:
        """`system scope` or `user scope`."""
        return self._description

    @property
    def stops_after_oom(self) -> bool:
        """Whether systemd ends a whole scope after the kernel has killed one process of it."""
        return self._scopes.oom_policy is OomPolicy.STOP

    @property
    def makes_scopes(self) -> bool:
        """Always."""
        return True

    def scope_of(self, turn: str) -> str:
        """Return the name of the scope of a turn; the same at every call."""
        return turn_units(self._place.parent_slice, instance=self._place.instance, turn=turn).scope

    async def launch(
        self, spec: ChildSpec, root: TurnRoot, *, recorded: Callable[[Placed], Awaitable[None]]
    ) -> Child:
        """Gate, scope, record, release (see Launcher): nothing escapes, since nothing has run before."""
        units = units_of_scope(root.scope or self.scope_of(root.turn))
        gated = await self._children.spawn(lambda: spawn_gated(spec))
        group = self._groups.child(replace(root, pid=gated.pid, start=gated.start))
        child = ScopeChild(self, group, units, turn=root.turn)
        try:
            async with AsyncExitStack() as undo:
                undo.push_async_callback(self._give_up_unplaced, group, units.slice)
                await self._put(child, title=spec.title)
                undo.pop_all()
                undo.push_async_callback(give_up, child)
                self._held[root.turn] = child
                await recorded(child.placed())
                await gated.release()
                undo.pop_all()
        finally:
            gated.close()
        return child

    async def left_behind(self, root: TurnRoot) -> Child | None:
        """Return what an earlier daemon left of a turn, by the name of its own scope or by marks."""
        if root.scope is None:
            return await self._groups.left_behind(root)
        units = units_of_scope(root.scope)
        try:
            path = await self._bus.cgroup_of_slice(units.slice)
        except BusError as error:
            _log.error("systemd cannot be asked what is left of turn %s: %s", root.turn, error)
            return await self._groups.left_behind(root)
        child = ScopeChild(self, self._groups.child(root, foreign=True), units, turn=root.turn)
        if path:
            child.take_over(cgroups.at(path))
        # Not a unit of this manager: perhaps of another one, which made it before a change of `manager`.
        if path is None and not child.find(root):
            return await self._groups.marked(root)
        self._held[root.turn] = child  # until it is stopped: those inside it can call
        return child

    def turn_of(self, peer: Peer) -> str | None:
        """Return the running turn whose scope a peer is in: by the cgroup in which its socket was made."""
        match peer:
            case TcpPeer(cgroup_id=int() as cgroup_id):
                return next((turn for turn, child in self._held.items() if child.holds(cgroup_id)), None)
            case UnixPeer(cgroup=str() as cgroup):
                parts = cgroup.split("/")
                return next((turn for turn, child in self._held.items() if child.scope in parts), None)
            case _:
                return None

    def trouble(self) -> str | None:
        """Say that systemd cannot be reached."""
        return self._bus.trouble

    async def stop(self, child: ScopeChild) -> None:
        """Stop the slice of a turn, so that no unit of it is left; if that fails, it is done later."""
        self._held.pop(child.turn, None)
        try:
            await self._bus.stop_unit(child.units.slice)
        except BusError as error:
            _log.warning("the slice %s is not stopped yet: %s", child.units.slice, error)
            await self._to_stop.add(child.units.slice)

    async def run(self) -> None:
        """Keep the connection, hear of systemd-oomd, and stop what could not be stopped; until cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._bus.keep_connected, name="connection to systemd")
                tasks.start_soon(self._oomd.run, name="systemd-oomd")
                tasks.start_soon(self._to_stop.run, self._bus.stop_unit, name="slices to stop")
        finally:
            with anyio.CancelScope(shield=True):
                await self._bus.close()

    async def oomd_killed(self, cgroup: Path) -> bool:
        """Tell whether systemd-oomd says that it killed in a cgroup."""
        return await self._oomd.killed(cgroup)

    def reap_orphans(self) -> None:
        """Reap what was killed and became ours."""
        self._children.reap_orphans()

    async def _give_up_unplaced(self, gate: GroupChild, slice_name: str) -> None:
        """Kill a child that waits at the gate, and reap it only when systemd will not touch its pid any more.

        A manager that did not answer may still carry out what it was asked; by then the pid must not be
        somebody else's.
        """
        with anyio.CancelScope(shield=True):
            gate.signal(signal.SIGKILL)
            await self._to_stop.add(slice_name, then=gate.wait)

    async def _put(self, child: ScopeChild, *, title: str) -> None:
        """Have systemd put the child into its scope, and see for ourselves that it is there."""
        units = child.units
        try:
            await self._bus.start_scope(units.scope, self._properties(units, child.pid, title))
        except BusError as error:
            message = f"systemd did not make the scope {units.scope}: {error}"
            raise PlacingError(message) from error
        cgroup = cgroups.of_process(child.pid)
        if cgroup is None or cgroup.name != units.scope:
            where = f"in {cgroup.name}" if cgroup else "gone"
            message = f"systemd said that the process is in {units.scope}, but it is {where}"
            raise PlacingError(message)
        child.put_in(cgroup)

    def _properties(self, units: TurnUnits, pid: int, title: str) -> list[Property]:
        scopes = self._scopes
        weight: list[Property] = [("CPUWeight", ("t", scopes.cpu_weight))] if scopes.cpu_weight else []
        own_unit = self._place.own_unit
        before: list[Property] = [("Before", ("as", [own_unit]))] if own_unit else []
        # systemd takes no TasksMaxScale of the whole.
        tasks_max = UNLIMITED if scopes.tasks_max == Percent(100) else scopes.tasks_max
        return [
            ("PIDs", ("au", [pid])),
            ("Slice", ("s", units.slice)),
            ("Description", ("s", title)),
            ("OOMPolicy", ("s", scopes.oom_policy.value)),
            # Not kept as failed after an OOM kill or a time-out: the slice has what is to be known.
            ("CollectMode", ("s", "inactive-or-failed")),
            *_limit("MemoryMax", scopes.memory_max),
            *_limit("MemoryHigh", scopes.memory_high),
            *_limit("MemorySwapMax", scopes.memory_swap_max),
            *_limit("TasksMax", tasks_max),
            *weight,
            # At a shutdown the daemon is stopped first: it tells how its turns ended.
            *before,
        ]


def _limit(name: str, amount: Amount | None) -> list[Property]:
    """Return the property that sets a limit; a part of the whole has a property of its own."""
    match amount:
        case None:
            return []
        case Percent(value):
            return [(f"{name}Scale", ("u", value * (2**32 - 1) // 100))]
        case _:
            return [(name, ("t", amount))]
