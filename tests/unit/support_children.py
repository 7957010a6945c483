"""Children and a launcher without processes, which only a test moves."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import anyio

from hive_subagent_daemon.gate import SpawnError
from hive_subagent_daemon.launcher import Leftovers
from hive_subagent_daemon.values import Exit, Exited, ExitUnknown, Signalled
from tests.unit import support_streams as streams

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from hive_subagent_daemon.gate import ChildSpec
    from hive_subagent_daemon.membership import TurnRoot

START_TICKS = 7


class FakeChild:
    """A child that ends when a test says so, or at a signal unless it is stubborn."""

    scope: str | None = None

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
        self.exit: Exit | None = None
        self.gone = anyio.Event()
        self._stdout = stdout

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

    async def empty(self) -> Leftovers:
        """Kill it."""
        self.emptied += 1
        killed = () if self.gone.is_set() else (f"claude ({self.pid})",)
        self.end(Signalled(signal.SIGKILL))
        return Leftovers(killed)

    def memory_bytes(self) -> int | None:
        """Tell that it is not known."""
        return None

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
    """Launches fake children; `fails` at a step, `held` there until the test lets it go on."""

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

    async def launch(
        self, spec: ChildSpec, root: TurnRoot, *, recorded: Callable[[int, int], Awaitable[None]]
    ) -> FakeChild:
        """Let it be recorded, then release it (see Launcher)."""
        assert root.pid is None
        self.specs.append(spec)
        if self.fails == "create":
            message = "no process could be created: Resource temporarily unavailable"
            raise SpawnError(message)
        child = FakeChild(1_000_000 + len(self.specs), spec.stdout, stubborn=self.stubborn)
        self.created()
        await recorded(child.pid, child.start)
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
