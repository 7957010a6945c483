"""Turns launched as process groups, each in a folder of its own, and all ended with the test."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import anyio

from hive_subagent_daemon import procfs
from hive_subagent_daemon.children import Children
from hive_subagent_daemon.membership import TurnRoot
from hive_subagent_daemon.process_group import ProcessGroup
from tests.support.processes import is_alive
from tests.support.slices import slices_in
from tests.unit.support_gate import spec_in
from tests.unit.support_started import LIMIT_SECONDS, PATH, soon

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

    from hive_subagent_daemon.launcher import Child, Launcher, Leftovers, Placed
    from hive_subagent_daemon.values import Exit

# Stands for a daemon that dies by SIGKILL: launches one turn, says its pid and start, and waits.
LAUNCHER = """
import asyncio, sys
from pathlib import Path
from hive_subagent_daemon.children import Children, become_subreaper
from hive_subagent_daemon.launcher import Placed
from hive_subagent_daemon.membership import TurnRoot
from hive_subagent_daemon.process_group import ProcessGroup
from tests.support.slices import slices_in
from tests.unit.support_gate import PATH, shell, spec_in

async def main(folder: Path, turn: str, session: str, script: str) -> None:
    become_subreaper()
    async def recorded(placed: Placed) -> None:
        pass
    environment = {"PATH": PATH, "HIVE_SUBAGENT_TURN": turn, "SESSION": session}
    spec = spec_in(folder, *shell(script), environment=environment)
    group = ProcessGroup(Children(), slices_in(folder / "state"))
    child = await group.launch(spec, TurnRoot(turn, session, None, 0), recorded=recorded)
    print(child.pid, child.start, flush=True)
    await asyncio.sleep(600)

asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
"""


def unique() -> str:
    """Return a mark of its own: several runs of the tests must not kill each other's processes."""
    return uuid.uuid4().hex


async def _nothing(_placed: Placed) -> None:
    """Record nothing."""


class Turns:
    """Launches turns by the names of their folders and remembers what it launched."""

    def __init__(self, folder: Path, *, make: Callable[[Children], Launcher] | None = None) -> None:
        """Begin with no turn; the folders are made below this one."""
        self.children = Children()
        self._folder = folder
        self.launcher = (make or self._process_group)(self.children)
        self.roots: dict[str, TurnRoot] = {}
        self._pids: list[int] = []
        self._launched: list[Child] = []
        self._ended: list[Child] = []
        sleeper = folder / "sleeper"
        sleeper.write_text("#!/bin/sh\necho $$ >> pids\nexec sleep 600\n")
        sleeper.chmod(0o755)

    @property
    def state(self) -> Path:
        """The folder in which notes on slices are kept."""
        return self._folder / "state"

    def _process_group(self, children: Children) -> Launcher:
        return ProcessGroup(children, slices_in(self.state))

    def folder(self, name: str) -> Path:
        """Return the folder of one turn."""
        return self._folder / name

    async def launch(
        self, name: str, *argv: str, recorded: Callable[[Placed], Awaitable[None]] = _nothing
    ) -> Child:
        """Launch a turn in its folder."""
        self.folder(name).mkdir()
        turn, session = unique(), unique()
        environment = {"PATH": PATH, "HIVE_SUBAGENT_TURN": turn, "SESSION": session}
        spec = spec_in(self.folder(name), *argv, environment=environment)

        async def noted(placed: Placed) -> None:
            self._pids.append(placed.pid)
            await recorded(placed)

        with anyio.fail_after(LIMIT_SECONDS):
            root = self.roots[name] = TurnRoot(turn, session, None, 0, self.launcher.scope_of(turn))
            child = await self.launcher.launch(spec, root, recorded=noted)
        self._launched.append(child)
        return child

    async def end_of(self, child: Child) -> Exit:
        """Wait under a limit for the end of a turn's claude."""
        with anyio.fail_after(LIMIT_SECONDS):
            ended = await child.wait()
        self._ended.append(child)
        return ended

    async def empty(self, child: Child) -> Leftovers:
        """Kill everything of a turn under a limit."""
        with anyio.fail_after(LIMIT_SECONDS):
            return await child.empty()

    def alive(self) -> list[int]:
        """Return the pids of turns that were launched, or at least recorded, and live."""
        return [pid for pid in self._pids if is_alive(pid)]

    def reaped(self, pids: Iterable[int]) -> bool:
        """Tell whether these processes are gone, zombies included, after reaping what can be reaped."""
        self.children.reap_orphans()
        return all(procfs.process(pid) is None for pid in pids)

    async def kill_all(self) -> None:
        """Kill and reap everything that was launched."""
        for child in self._launched:
            await self.empty(child)
            if child not in self._ended:
                await self.end_of(child)
        self.children.reap_orphans()


async def pids_in(folder: Path, *, count: int) -> list[int]:
    """Return the pids that processes wrote into the file `pids`, once there are this many."""
    path = folder / "pids"

    def written() -> list[int]:
        return [int(word) for word in path.read_text().split()] if path.exists() else []

    await soon(lambda: len(written()) >= count)
    return written()
