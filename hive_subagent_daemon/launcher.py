"""The seam between a turn and what holds its processes: `scopes`, or `process_group` without systemd."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from hive_subagent_daemon.gate import SpawnError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hive_subagent_daemon.cgroups import OomCounters
    from hive_subagent_daemon.gate import ChildSpec
    from hive_subagent_daemon.membership import TurnRoot
    from hive_subagent_daemon.peer import Peer
    from hive_subagent_daemon.values import Exit


class PlacingError(SpawnError):
    """The child got no scope, so nothing was executed; the message says why."""


@dataclass(frozen=True)
class Leftovers:
    """What emptying a turn did: which processes were killed, and which are alive in spite of it.

    `strays` were killed too, but nothing told whose they were.
    """

    killed: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()
    alive: tuple[str, ...] = ()

    def __add__(self, other: Leftovers) -> Leftovers:
        """Return what both have done."""
        return Leftovers(self.killed + other.killed, self.strays + other.strays, self.alive + other.alive)


@dataclass(frozen=True)
class Placed:
    """A child that waits at the gate: its pid, its start time, the cgroup of its slice, its memory limit."""

    pid: int
    start: int
    cgroup: str | None = None
    memory_limit_bytes: int | None = None


class Child(Protocol):
    """The processes of one turn: claude itself and all that it started."""

    @property
    def pid(self) -> int:
        """The process id of claude."""

    @property
    def start(self) -> int:
        """When it started, in clock ticks since boot; with the pid it names the process for good."""

    @property
    def scope(self) -> str | None:
        """The name of the systemd scope, None without one."""

    def hold(self) -> bool:
        """Hold on to claude, so that `wait` is told how it ends; answer whether it lives."""

    async def wait(self) -> Exit:
        """Return how claude itself ended, once it has. Called once."""

    def signal(self, number: int) -> bool:
        """Signal claude itself; answer whether it was still there."""

    def populated(self) -> bool:
        """Tell whether any process of the turn is left. Blocks for some milliseconds."""

    async def empty(self) -> Leftovers:
        """Kill everything of the turn and return when nothing is left, or at the limit with what is."""

    async def oom(self, *, ended_by_kill: bool) -> OomCounters | None:
        """Return what was killed for lack of memory, None when that is not known.

        `ended_by_kill`: claude ended by a SIGKILL that is not ours, or nothing tells how: perhaps by
        systemd-oomd.
        """

    def oom_kills(self) -> int:
        """Return how many processes the kernel has killed for lack of memory so far; 0 when not known."""

    async def release(self) -> None:
        """Let go of what was kept for `oom`: no unit of the turn is left. Called when its end is stored."""

    def has_strayed(self) -> bool:
        """Tell whether claude is no longer where it was put, so that it cannot be held or measured there."""

    def memory_bytes(self) -> int | None:
        """The memory in use now; None when it is not known."""

    def memory_limit_bytes(self) -> int | None:
        """The memory limit that holds now, read back from the kernel; None when there is none."""


class Launcher(Protocol):
    """Creates children and finds what an earlier daemon left behind."""

    @property
    def description(self) -> str:
        """`system scope`, `user scope` or `process group`."""

    @property
    def makes_scopes(self) -> bool:
        """Whether turns have a cgroup of their own, so that `turn_of` is certain where the kernel tells."""

    async def run(self) -> None:
        """Keep up what is needed, until cancelled."""

    def scope_of(self, turn: str) -> str | None:
        """Return the name of the scope that a new turn will get, None without scopes."""

    async def launch(
        self, spec: ChildSpec, root: TurnRoot, *, recorded: Callable[[Placed], Awaitable[None]]
    ) -> Child:
        """Spawn a child; `recorded` is awaited while it has executed nothing yet.

        Returns once the program is executing; raises SpawnError when it is not, and leaves nothing then.
        """

    async def left_behind(self, root: TurnRoot) -> Child | None:
        """Return what there still is of a turn of an earlier daemon, None when there is nothing."""

    def turn_of(self, peer: Peer) -> str | None:
        """Return the running turn whose scope a peer is in, None when no scope tells."""

    def trouble(self) -> str | None:
        """Say what would refuse every turn now."""
