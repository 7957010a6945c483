"""The seam between a turn and what holds its processes (`process_group` is the implementation)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hive_subagent_daemon.gate import ChildSpec
    from hive_subagent_daemon.membership import TurnRoot
    from hive_subagent_daemon.values import Exit


@dataclass(frozen=True)
class Leftovers:
    """What emptying a turn did: which processes were killed, and which are alive in spite of it.

    `strays` were killed too, but nothing told whose they were.
    """

    killed: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()
    alive: tuple[str, ...] = ()


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

    async def wait(self) -> Exit:
        """Return how claude itself ended, once it has. Called once."""

    def signal(self, number: int) -> bool:
        """Signal claude itself; answer whether it was still there."""

    async def empty(self) -> Leftovers:
        """Kill everything of the turn and return when nothing is left, or at the limit with what is."""

    def memory_bytes(self) -> int | None:
        """The memory in use now; None when it is not known."""


class Launcher(Protocol):
    """Creates children and finds what an earlier daemon left behind."""

    @property
    def description(self) -> str:
        """`system scope`, `user scope` or `process group`."""

    async def launch(
        self, spec: ChildSpec, root: TurnRoot, *, recorded: Callable[[int, int], Awaitable[None]]
    ) -> Child:
        """Spawn a child; `recorded(pid, start)` is awaited while it has executed nothing yet.

        Returns once the program is executing; raises SpawnError when it is not, and leaves nothing then.
        """

    async def left_behind(self, root: TurnRoot) -> Child | None:
        """Return what is still alive of a turn of an earlier daemon, None when nothing is."""
