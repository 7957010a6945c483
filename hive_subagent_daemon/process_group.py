"""Turns without systemd: a session of their own, and descendants found by descent and by marks.

claude runs each shell command in a session of its own, so killing a process group is not enough. A process
belongs to a turn when it descends from claude, is in claude's session, or carries the turn's mark or claude's
session id in its environment. One that hides from all of these (its environment cleared and its parents gone)
is an unmarked orphan: it is killed once no other turn runs that it could belong to.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import anyio

from hive_subagent_daemon import procfs
from hive_subagent_daemon.children import Children, send_signal, start_of
from hive_subagent_daemon.gate import ChildSpec, spawn_gated
from hive_subagent_daemon.launcher import Child, Leftovers, Placed
from hive_subagent_daemon.membership import TurnRoot, delivery_of, living, members, with_descendants
from hive_subagent_daemon.pidfd_exit import exit_of
from hive_subagent_daemon.scope_child import ScopeChild
from hive_subagent_daemon.threads import in_thread
from hive_subagent_daemon.unit_names import units_of_scope
from hive_subagent_daemon.values import Exit, ExitUnknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from hive_subagent_daemon.peer import Peer
    from hive_subagent_daemon.slices_to_stop import SlicesToStop

_log = logging.getLogger(__name__)

EMPTY_TIMEOUT_SECONDS: Final = 3.0
_PAUSE_SECONDS: Final = 0.01
_QUIET_LOOKS: Final = 2  # a fork can slip past one look at /proc, not past two


class ProcessGroup:
    """Spawns turns as plain children of the daemon."""

    def __init__(self, children: Children, to_stop: SlicesToStop) -> None:
        """Reap through `children`; child processes that are there already are never taken for a turn's.

        Slices of earlier turns go to `to_stop`: without a manager they can be emptied but not stopped.
        """
        self._children = children
        self._to_stop = to_stop
        self._not_ours = frozenset(found.pid for found in living() if found.parent == os.getpid())

    @property
    def description(self) -> str:
        """Always `process group`."""
        return "process group"

    @property
    def makes_scopes(self) -> bool:
        """Never."""
        return False

    async def run(self) -> None:
        """Nothing to keep up."""

    def scope_of(self, turn: str) -> None:
        """No turn gets a scope."""

    async def launch(
        self, spec: ChildSpec, root: TurnRoot, *, recorded: Callable[[Placed], Awaitable[None]]
    ) -> Child:
        """Spawn at the gate, let it be recorded, release it (see Launcher)."""
        gated = await self._children.spawn(lambda: spawn_gated(spec))
        child = self.child(replace(root, pid=gated.pid, start=gated.start))
        try:
            async with AsyncExitStack() as undo:
                undo.push_async_callback(give_up, child)
                await recorded(Placed(gated.pid, gated.start))
                await gated.release()
                undo.pop_all()
        finally:
            gated.close()
        return child

    async def left_behind(self, root: TurnRoot) -> Child | None:
        """Look for the turn's processes (see Launcher), also in the cgroup of the scope that it had."""
        if root.scope is None:
            return await self.marked(root)
        units = units_of_scope(root.scope)
        child = ScopeChild(self, self.child(root, foreign=True), units, turn=root.turn)
        if child.find(root):
            return child
        if root.cgroup is None:  # it can be there without having been recorded
            await self._to_stop.add(units.slice)
        return await self.marked(root)

    async def marked(self, root: TurnRoot) -> GroupChild | None:
        """Look for the turn's processes by their marks."""
        group = self.child(root, foreign=True)
        return group if await in_thread(group.populated) else None

    @property
    def stops_after_oom(self) -> bool:
        """Never, as far as we know of scopes that an earlier daemon made."""
        return False

    async def stop(self, child: ScopeChild) -> None:
        """Have the slice of an earlier turn stopped as soon as there is a manager."""
        await self._to_stop.add(child.units.slice)

    async def oomd_killed(self, _cgroup: Path) -> bool:
        """Not known."""
        return False

    def reap_orphans(self) -> None:
        """Reap what was killed and became ours."""
        self._children.reap_orphans()

    def turn_of(self, peer: Peer) -> None:
        """No scope tells."""

    def trouble(self) -> None:
        """Nothing that could be in trouble."""

    def child(self, root: TurnRoot, *, foreign: bool = False) -> GroupChild:
        """Return the processes of one turn; `foreign` when an earlier daemon spawned them."""
        return GroupChild(self._children, root, not_ours=self._not_ours, foreign=foreign)


async def give_up(child: Child) -> None:
    """Leave nothing of a child that did not come to run."""
    with anyio.CancelScope(shield=True):
        child.signal(signal.SIGKILL)
        await child.wait()
        await child.empty()
        await child.release()


class GroupChild:
    """The processes of one turn, found by descent and by marks; see Child."""

    def __init__(
        self, children: Children, root: TurnRoot, *, not_ours: frozenset[int], foreign: bool = False
    ) -> None:
        """Take what they are recognised by; `not_ours` are never taken for the turn's."""
        self._children = children
        self._not_ours = not_ours
        self._root = root
        self._foreign = foreign
        self._held: int | None = None

    @property
    def pid(self) -> int:
        """The pid of claude, 0 when it is not known."""
        return self._root.pid or 0

    @property
    def start(self) -> int:
        """When it started."""
        return self._root.start

    @property
    def scope(self) -> None:
        """There is none."""
        return None

    def hold(self) -> bool:
        """Hold on to claude, also to one that an earlier daemon spawned; answer whether it lives.

        The descriptor is opened before the start time is compared, so that a reused pid is never held.
        """
        if not self._foreign or self._held is not None:
            return self.signal(0)
        try:
            descriptor = os.pidfd_open(self.pid)
        except (ProcessLookupError, OverflowError):  # a damaged record can hold any number
            return False
        except OSError as error:
            if error.errno == errno.EINVAL:  # likewise
                return False
            raise  # no descriptor is left: it may live, and must not be stopped for that
        if start_of(self.pid) != self.start:
            os.close(descriptor)
            return False
        self._held = descriptor
        return True

    async def wait(self) -> Exit:
        """Return how claude ended; of one that is not our child, what the kernel tells."""
        if not self._foreign:
            return await self._children.wait(self.pid)
        if self._held is None:  # one that is held may have ended already
            with suppress(OSError):
                self.hold()
        if self._held is None:
            return ExitUnknown()
        try:
            await anyio.wait_readable(self._held)
            return await exit_of(self._held)
        finally:
            os.close(self._held)
            self._held = None

    def signal(self, number: int) -> bool:
        """Signal claude itself."""
        known = None if self._foreign else self._children.signal(self.pid, number)
        if known is not None:
            return known
        return self.pid > 0 and send_signal(self.pid, self.start, number)

    def populated(self) -> bool:
        """Tell whether any process is known to be this turn's. Blocks for some milliseconds."""
        return bool(self._living()[0])

    async def oom(self, *, ended_by_kill: bool) -> None:
        """Nothing is counted without a cgroup of its own."""

    def oom_kills(self) -> int:
        """Nothing is counted."""
        return 0

    async def release(self) -> None:
        """Nothing is kept."""

    def has_strayed(self) -> bool:
        """Nowhere to stray from."""
        return False

    def memory_bytes(self) -> int | None:
        """The resident memory of claude itself."""
        return procfs.resident_bytes(self.pid)

    def memory_limit_bytes(self) -> None:
        """Nothing limits it."""

    async def empty(self) -> Leftovers:
        """Kill members until two looks find none; bounded by EMPTY_TIMEOUT_SECONDS."""
        deadline = time.monotonic() + EMPTY_TIMEOUT_SECONDS
        killed: dict[int, str] = {}
        strays: dict[int, str] = {}
        quiet = 0
        while quiet < _QUIET_LOOKS:
            members, orphans = await in_thread(self._living)
            self._children.reap_orphans()
            killed |= _named(members)
            strays |= _named(orphans)
            left = [*members, *orphans]
            quiet = 0 if left else quiet + 1
            if left and time.monotonic() > deadline:
                alive = tuple(_named(left).values())
                _log.error("still alive after SIGKILL: %s", ", ".join(alive))
                return Leftovers(tuple(killed.values()), tuple(strays.values()), alive)
            for found in left:
                send_signal(found.pid, found.start, signal.SIGKILL)
            if left:
                await anyio.sleep(_PAUSE_SECONDS)
        return Leftovers(tuple(killed.values()), tuple(strays.values()))

    def _living(self) -> tuple[list[procfs.Process], list[procfs.Process]]:
        """Return the members, and the orphans that only this turn or an earlier one can have left."""
        beside = self._children.beside  # asked for before and after: one may end or begin meanwhile
        among = living()
        found = members(self._root, among)
        if self._foreign or not self._children.none_but(self.pid):
            return found, []
        known = {member.pid for member in found}
        not_ours = self._not_ours | beside | self._children.beside
        orphans = with_descendants([p for p in among if _is_orphan(p, not_ours)], among)
        return found, [orphan for orphan in orphans if orphan.pid not in known]


def _is_orphan(found: procfs.Process, not_ours: frozenset[int]) -> bool:
    return found.parent == os.getpid() and found.pid not in not_ours and delivery_of(found.pid) is None


def _named(found: list[procfs.Process]) -> dict[int, str]:
    return {process.pid: f"{process.name} ({process.pid})" for process in found}
