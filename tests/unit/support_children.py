"""Children and a launcher without processes, which only a test moves."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import anyio

from hive_subagent_daemon.gate import SpawnError
from hive_subagent_daemon.launcher import Leftovers, Placed, PlacingError
from hive_subagent_daemon.values import Exit, Exited, ExitUnknown, Signalled
from tests.unit import support_streams as streams

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from hive_subagent_daemon.cgroups import OomCounters
    from hive_subagent_daemon.gate import ChildSpec
    from hive_subagent_daemon.membership import TurnRoot
    from hive_subagent_daemon.peer import Peer

START_TICKS = 7


class FakeChild:
    """A child that ends when a test says so, or at a signal unless it is stubborn.

    `counters` is what is counted of it for lack of memory, `oom_asked` how that was asked for; `strays` says
    that it has left its scope; `on_release` is called when it is let go of.
    """

    scope: str | None = None
    counters: OomCounters | None = None
    strays = False
    memory: int | None = None
    limit: int | None = None

    def __init__(
        self, pid: int, stdout: Path | None = None, *, stubborn: bool = False, foreign: bool = False
    ) -> None:
        """Run; `foreign` when an earlier daemon spawned it, and pid 0 when nobody knows which one it is."""
        self.pid = pid
        self.start = START_TICKS
        self.stubborn = stubborn
        self.foreign = foreign
        self.signals: list[int] = []
        self.emptied = 0
        self.released = 0
        self.on_release: Callable[[], None] = lambda: None
        self.oom_asked: list[bool] = []
        self.exit: Exit | None = None
        self.gone = anyio.Event()
        self._stdout = stdout

    def hold(self) -> bool:
        """Answer whether it lives."""
        return self.pid != 0 and not self.gone.is_set()

    async def wait(self) -> Exit:
        """Return how it ended, once it has; at once for one that nobody knows."""
        if self.pid == 0:
            return ExitUnknown()
        await self.gone.wait()
        assert self.exit is not None
        return ExitUnknown() if self.foreign else self.exit

    def signal(self, number: int) -> bool:
        """Take a signal; an obedient child ends by it. Number 0 only asks whether it is there."""
        if self.gone.is_set() or self.pid == 0:
            return False
        if number == 0:
            return True
        self.signals.append(number)
        if number == signal.SIGKILL or not self.stubborn:
            self.end(Signalled(number))
        return True

    def populated(self) -> bool:
        """Tell whether it lives."""
        return not self.gone.is_set()

    async def empty(self) -> Leftovers:
        """Kill it."""
        self.emptied += 1
        killed = () if self.gone.is_set() else (f"claude ({self.pid})",)
        self.end(Signalled(signal.SIGKILL))
        return Leftovers(killed)

    async def oom(self, *, ended_by_kill: bool) -> OomCounters | None:
        """Return what the test has counted; nothing once it was let go of."""
        self.oom_asked.append(ended_by_kill)
        return None if self.released else self.counters

    def oom_kills(self) -> int:
        """Return what the test has counted so far."""
        return self.counters.kills if self.counters else 0

    async def release(self) -> None:
        """Let go of it."""
        self.released += 1
        self.on_release()

    def has_strayed(self) -> bool:
        """Tell what the test says."""
        return self.strays

    def memory_bytes(self) -> int | None:
        """Tell what the test says."""
        return self.memory

    def memory_limit_bytes(self) -> int | None:
        """Tell what the test says."""
        return self.limit

    def says(self, *events: dict[str, Any]) -> None:
        """Write events to its output."""
        assert self._stdout is not None
        with self._stdout.open("ab") as file:
            file.write(streams.lines(*events))

    def end(self, exit_: Exit | None = None) -> None:
        """End it; only the first end counts."""
        self.exit = self.exit or exit_ or Exited(0)
        self.gone.set()

    def succeed(self, text: str = "done") -> None:
        """Let it say that it is done, and end."""
        self.says(streams.init(), streams.result(text))
        self.end()


class FakeLauncher:
    """Launches fake children; `fails` at a step, `held` there until the test lets it go on.

    With `scopes` each turn has one, and `limit` is the memory limit that holds for it.
    """

    description = "process group"

    def __init__(self) -> None:
        """Launch whatever is asked for."""
        self.specs: list[ChildSpec] = []
        self.children: list[FakeChild] = []
        self.left: dict[str, FakeChild] = {}
        self.looked_for: list[TurnRoot] = []
        self.fails: str | None = None
        self.created: Callable[[], None] = lambda: None
        self.at_the_gate: Callable[[], None] = lambda: None
        self.go_on: anyio.Event | None = None
        self.stubborn = False
        self.scopes = False
        self.limit: int | None = None
        self.in_trouble: str | None = None
        self.held: dict[Peer, str] = {}

    @property
    def makes_scopes(self) -> bool:
        """Whether the test wants scopes."""
        return self.scopes

    async def run(self) -> None:
        """Nothing to keep up."""

    def scope_of(self, turn: str) -> str | None:
        """Name the scope of a turn."""
        return f"unit-{turn}.scope" if self.scopes else None

    def turn_of(self, peer: Peer) -> str | None:
        """Tell what the test says."""
        return self.held.get(peer)

    def trouble(self) -> str | None:
        """Tell what the test says."""
        return self.in_trouble

    async def launch(
        self, spec: ChildSpec, root: TurnRoot, *, recorded: Callable[[Placed], Awaitable[None]]
    ) -> FakeChild:
        """Let it be recorded, then release it (see Launcher)."""
        assert root.pid is None
        self.specs.append(spec)
        if self.fails == "create":
            message = "no process could be created: Resource temporarily unavailable"
            raise SpawnError(message)
        if self.fails == "place":
            message = f"systemd did not make the scope {root.scope}: it exists"
            raise PlacingError(message)
        child = FakeChild(1_000_000 + len(self.specs), spec.stdout, stubborn=self.stubborn)
        child.scope, child.limit = root.scope, self.limit
        self.created()
        cgroup = f"/{root.scope.removesuffix('scope')}slice" if root.scope else None
        await recorded(Placed(child.pid, child.start, cgroup, self.limit))
        self.at_the_gate()
        if self.go_on is not None:
            await self.go_on.wait()
        if self.fails == "exec":
            message = "claude: not found"
            raise SpawnError(message)
        self.children.append(child)
        return child

    async def left_behind(self, root: TurnRoot) -> FakeChild | None:
        """Return what the test has left of this turn."""
        self.looked_for.append(root)
        return self.left.get(root.turn)
