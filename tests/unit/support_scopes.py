"""A manager and control groups in folders of the test; the processes in them are real."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from typing_extensions import override

from hive_subagent_daemon import cgroups
from hive_subagent_daemon.config_values import ScopeChoice, Scopes
from hive_subagent_daemon.oomd import OomdWatch
from hive_subagent_daemon.scopes import Place, ScopeLauncher
from hive_subagent_daemon.systemd_bus import SystemdBus
from tests.support.processes import is_alive
from tests.support.slices import slices_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

    from hive_subagent_daemon.children import Children
    from hive_subagent_daemon.dbus_link import BusError
    from hive_subagent_daemon.systemd_bus import Property

PARENT = "agents.slice"
INSTANCE = "0f0e0d0c"


class FakeKernel:
    """Control groups as folders; a process is where it was put, and nowhere else."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take the place of the kernel's."""
        self.root = folder / "cgroup"
        self.root.mkdir()
        self._where: dict[int, Path] = {}
        monkeypatch.setattr(cgroups, "ROOT", self.root)
        monkeypatch.setattr(cgroups, "of_process", self._of_process)
        monkeypatch.setattr(cgroups, "is_empty", lambda cgroup: not cgroups.processes(cgroup))

    def make(self, path: str) -> Path:
        """Make a control group in which processes are killed one by one."""
        folder = self.root
        for part in Path(path).parts:
            folder /= part
            (folder / "cgroup.kill").mkdir(parents=True, exist_ok=True)
        return folder

    def put(self, pid: int, path: str) -> Path:
        """Move a process into a control group."""
        if (before := self._where.get(pid)) is not None:
            listed = before / "cgroup.procs"
            listed.write_text("".join(f"{one}\n" for one in listed.read_text().split() if int(one) != pid))
        folder = self._where[pid] = self.make(path)
        with (folder / "cgroup.procs").open("a") as file:
            file.write(f"{pid}\n")
        return folder

    def _of_process(self, pid: int) -> Path | None:
        return self._where.get(pid, self.root) if is_alive(pid) else None


class FakeManager(SystemdBus):
    """A manager that does at once what it is asked, unless the test wants otherwise.

    `scopes` were made with their properties, `stopped` were stopped. `refuses` is the error of all calls;
    `puts_into` another place for the processes than was asked for; `slices` are the cgroups of slices of an
    earlier daemon.
    """

    def __init__(self, kernel: FakeKernel) -> None:
        """Nothing was asked yet."""
        super().__init__(Path("/nowhere"))
        self.kernel = kernel
        self.scopes: list[tuple[str, dict[str, tuple[str, Any]]]] = []
        self.stopped: list[str] = []
        self.refuses: BusError | None = None
        self.puts_into: str | None = None
        self.slices: dict[str, str] = {}
        self.on_start: Callable[[int], None] = lambda _: None
        self.hold: anyio.Event | None = None
        self.closed = False

    @override
    async def keep_connected(self) -> None:
        """Have nothing to do."""
        await anyio.sleep_forever()

    @override
    async def start_scope(self, name: str, properties: Sequence[Property]) -> None:
        """Put the process into its scope."""
        known = dict(properties)
        self.scopes.append((name, known))
        if self.hold is not None:
            await self.hold.wait()
        if self.refuses is not None:
            raise self.refuses
        [pid] = known["PIDs"][1]
        self.on_start(pid)
        self.kernel.put(pid, self.puts_into or f"{PARENT}/{known['Slice'][1]}/{name}")

    @override
    async def stop_unit(self, name: str) -> None:
        """Take note of it."""
        await anyio.lowlevel.checkpoint()
        if self.refuses is not None:
            raise self.refuses
        self.stopped.append(name)

    @override
    async def cgroup_of_slice(self, name: str) -> str | None:
        """Tell what the test says."""
        if self.refuses is not None:
            raise self.refuses
        return self.slices.get(name)

    @override
    async def close(self) -> None:
        """Take note of it."""
        self.closed = True


class FakeOomd(OomdWatch):
    """Tells of what the test says that systemd-oomd has killed."""

    def __init__(self) -> None:
        """Nothing was killed."""
        super().__init__(Path("/nowhere"))
        self.has_killed: set[Path] = set()
        self.asked: list[Path] = []

    @override
    async def killed(self, cgroup: Path) -> bool:
        """Tell what the test says."""
        self.asked.append(cgroup)
        return cgroup in self.has_killed


def launcher_of(
    children: Children,
    manager: FakeManager,
    oomd: FakeOomd,
    *,
    folder: Path,
    scopes: Scopes | None = None,
    own_unit: str | None = None,
) -> ScopeLauncher:
    """Return the launcher that is tested; it keeps notes in a folder."""
    return ScopeLauncher(
        children,
        manager,
        scopes=scopes or Scopes(ScopeChoice.USER),
        place=Place(PARENT, INSTANCE, own_unit),
        to_stop=slices_in(folder),
        oomd=oomd,
        description="user scope",
    )
