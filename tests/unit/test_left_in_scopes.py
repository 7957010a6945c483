"""What is left in a scope is found without a manager too, by the cgroup in the turn's record."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest

from hive_subagent_daemon import slices_to_stop
from hive_subagent_daemon.cgroups import OomCounters
from hive_subagent_daemon.children import Children
from hive_subagent_daemon.dbus_link import BusError
from hive_subagent_daemon.process_group import ProcessGroup
from hive_subagent_daemon.values import Exited
from tests.support.processes import is_alive
from tests.support.slices import slices_in
from tests.unit.support_gate import shell, subreaper
from tests.unit.support_process_group import Turns, pids_in
from tests.unit.support_scopes import PARENT, FakeKernel, FakeManager, FakeOomd, launcher_of
from tests.unit.support_turns import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from hive_subagent_daemon.launcher import Child, Launcher, Placed
    from hive_subagent_daemon.membership import TurnRoot

HIDING = "(env -i PATH=$PATH setsid ../sleeper &); while [ ! -s pids ]; do sleep 0.01; done; exit 0"


class Left:
    """A turn in a scope whose claude has ended, and a child of it that nothing but its cgroup tells of."""

    def __init__(self, turns: Turns, kernel: FakeKernel, manager: FakeManager) -> None:
        """Launch nothing yet."""
        self.turns = turns
        self.kernel = kernel
        self.manager = manager
        self.pid = 0
        self.slice = ""
        self._placed: list[Placed] = []

    async def leave(self) -> None:
        """Let the turn run and leave its child."""

        async def record(placed: Placed) -> None:
            self._placed.append(placed)
            await anyio.lowlevel.checkpoint()

        child = await self.turns.launch("a", *shell(HIDING), recorded=record)
        assert child.scope is not None
        self.slice = f"{child.scope.removesuffix('.scope')}.slice"
        assert await self.turns.end_of(child) == Exited(0)
        [self.pid] = await pids_in(self.turns.folder("a"), count=1)
        self.kernel.put(self.pid, f"{PARENT}/{self.slice}/{child.scope}")

    @property
    def root(self) -> TurnRoot:
        """By what the next daemon recognises the turn."""
        [placed] = self._placed
        return replace(self.turns.roots["a"], pid=placed.pid, start=placed.start, cgroup=placed.cgroup)

    def next_launcher(self, *, without: str) -> Launcher:
        """Return the launcher of the next daemon, which has no manager: not at all, or one that hangs."""
        if without == "scopes":
            return ProcessGroup(Children(), slices_in(self.turns.state))
        self.manager.refuses = BusError("no answer")
        return launcher_of(Children(), self.manager, FakeOomd(), folder=self.turns.state)

    def noted(self) -> list[str]:
        """Return the slices that are noted to be stopped."""
        return [path.name for path in (self.turns.state / "slices").iterdir()]


@pytest.fixture
async def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Left]:
    """Leave a turn in its scope."""
    monkeypatch.setattr(slices_to_stop, "RETRY_SECONDS", 0.01)
    kernel = FakeKernel(tmp_path, monkeypatch)
    manager = FakeManager(kernel)
    make = partial(launcher_of, manager=manager, oomd=FakeOomd(), folder=tmp_path / "state")
    with subreaper():
        turns = Turns(tmp_path, make=make)
        found = Left(turns, kernel, manager)
        await found.leave()
        yield found
        manager.refuses = None
        await turns.kill_all()


async def found_by(launcher: Launcher, root: TurnRoot) -> Child:
    """Return what this launcher finds of a turn."""
    child = await launcher.left_behind(root)
    assert child is not None
    return child


@pytest.mark.parametrize("without", ["scopes", "an-answer"])
async def test_a_hidden_child_is_killed_by_the_recorded_cgroup_and_its_slice_stopped_later(
    left: Left, without: str
) -> None:
    """Double fork, a session of its own and no environment: no descent and no mark tells of it."""
    child = await found_by(left.next_launcher(without=without), left.root)
    assert child.populated()
    assert (await left.turns.empty(child)).killed == (f"sleep ({left.pid})",)
    assert not is_alive(left.pid)
    assert not child.populated()
    await child.release()
    assert left.noted() == [left.slice]
    assert left.manager.stopped == []
    left.manager.refuses = None
    later = launcher_of(Children(), left.manager, FakeOomd(), folder=left.turns.state)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(later.run)
        await until(lambda: left.manager.stopped == [left.slice] and not left.noted())
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("without", ["scopes", "an-answer"])
async def test_an_empty_slice_is_noted_too_and_its_counters_are_told(left: Left, without: str) -> None:
    launcher = left.next_launcher(without=without)
    await left.turns.empty(await found_by(launcher, left.root))
    (left.kernel.root / PARENT / left.slice / "memory.events").write_text("oom_kill 2\n")
    child = await found_by(launcher, left.root)
    assert not child.populated()
    assert await child.oom(ended_by_kill=False) == OomCounters(2)
    await child.release()
    assert left.noted() == [left.slice]


@pytest.mark.parametrize(
    "cgroup", [None, f"/{PARENT}", f"/{PARENT}/gone.slice", "/", "/../../etc"], ids=lambda path: str(path)
)
async def test_a_cgroup_that_is_not_the_slice_of_the_turn_is_left_alone(
    left: Left, cgroup: str | None
) -> None:
    """A damaged record must not have anything else killed."""
    launcher = left.next_launcher(without="scopes")
    assert await launcher.left_behind(replace(left.root, cgroup=cgroup)) is None
    assert is_alive(left.pid)


async def test_a_cgroup_that_is_gone_is_not_looked_for(left: Left) -> None:
    await left.turns.empty(await found_by(left.next_launcher(without="scopes"), left.root))
    (left.kernel.root / PARENT / left.slice).rename(left.kernel.root / "away")
    assert await left.next_launcher(without="scopes").left_behind(left.root) is None
    assert left.noted() == []


@pytest.mark.parametrize("without", ["scopes", "an-answer"])
async def test_the_slice_of_a_turn_that_was_not_recorded_with_it_is_stopped_later_too(
    left: Left, without: str
) -> None:
    """The daemon died in between, or the record was lost: only the name of the scope is known."""
    launcher = left.next_launcher(without=without)
    await left.turns.empty(await found_by(launcher, left.root))
    child = await launcher.left_behind(replace(left.root, cgroup=None, pid=None, start=0))
    if child is not None:
        await child.release()
    assert left.noted() == [left.slice]
