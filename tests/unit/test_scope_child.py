"""The processes of a turn in a scope: found, counted and killed by its slice, or when claude has left it."""

from __future__ import annotations

import signal
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon import scope_child
from hive_subagent_daemon.cgroups import OomCounters
from hive_subagent_daemon.children import Children
from hive_subagent_daemon.dbus_link import BusError
from hive_subagent_daemon.peer import TcpPeer, UnixPeer
from hive_subagent_daemon.values import Exited, ExitUnknown, Signalled
from tests.support.processes import is_alive
from tests.unit.support_gate import shell, subreaper
from tests.unit.support_process_group import Turns, pids_in
from tests.unit.support_scopes import PARENT, FakeKernel, FakeManager, FakeOomd, launcher_of
from tests.unit.support_started import soon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from hive_subagent_daemon.launcher import Child
    from hive_subagent_daemon.membership import TurnRoot
    from hive_subagent_daemon.peer import Peer

EVENTS = "low 0\nhigh 0\nmax 9\noom 1\noom_kill {kills}\noom_group_kill 0\n"
HIDING = "(env -i PATH=$PATH setsid ../sleeper &);"
UNTIL_IT_IS_THERE = "while [ ! -s pids ]; do sleep 0.01; done"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    """Let control groups be folders."""
    return FakeKernel(tmp_path, monkeypatch)


@pytest.fixture
def manager(kernel: FakeKernel) -> FakeManager:
    """Let a manager do at once what it is asked."""
    return FakeManager(kernel)


@pytest.fixture
def oomd() -> FakeOomd:
    """Let systemd-oomd have killed nothing."""
    return FakeOomd()


@pytest.fixture
async def turns(tmp_path: Path, manager: FakeManager, oomd: FakeOomd) -> AsyncIterator[Turns]:
    """Launch turns in scopes; nothing of them is left when the test ends."""
    with subreaper():
        launched = Turns(
            tmp_path, make=partial(launcher_of, manager=manager, oomd=oomd, folder=tmp_path / "state")
        )
        yield launched
        await launched.kill_all()


def slice_of(child: Child, kernel: FakeKernel) -> Path:
    """Return the cgroup of the slice of a turn."""
    assert child.scope is not None
    return kernel.root / PARENT / f"{child.scope.removesuffix('.scope')}.slice"


async def with_sleeper(turns: Turns, kernel: FakeKernel, name: str, *, then: str) -> tuple[Child, int]:
    """Launch a turn that leaves a hidden process in its scope, and return that one's pid too."""
    child = await turns.launch(name, *shell(f"{HIDING} {UNTIL_IT_IS_THERE}; {then}"))
    [pid] = await pids_in(turns.folder(name), count=1)
    kernel.put(pid, str((slice_of(child, kernel) / str(child.scope)).relative_to(kernel.root)))
    return child, pid


# Emptying


async def test_whatever_is_in_the_scope_is_killed_and_named_though_nothing_else_tells_whose_it_is(
    turns: Turns, kernel: FakeKernel
) -> None:
    """No descent, no mark: by its cgroup alone. Another turn's is not touched."""
    child, pid = await with_sleeper(turns, kernel, "a", then="exit 0")
    _, other = await with_sleeper(turns, kernel, "b", then="exec sleep 600")
    assert await turns.end_of(child) == Exited(0)
    assert child.populated()
    leftovers = await turns.empty(child)
    assert leftovers.killed == (f"sleep ({pid})",)
    assert (leftovers.strays, leftovers.alive) == ((), ())
    assert not child.populated()
    assert not is_alive(pid)
    await soon(lambda: turns.reaped([pid]))
    assert is_alive(other)


async def test_a_running_turn_is_killed_with_all_that_is_in_its_scope(
    turns: Turns, kernel: FakeKernel
) -> None:
    child, pid = await with_sleeper(turns, kernel, "a", then="exec sleep 600")
    leftovers = await turns.empty(child)
    assert {one.rpartition(" ")[2] for one in leftovers.killed} == {f"({pid})", f"({child.pid})"}
    assert not [one for one in (pid, child.pid) if is_alive(one)]
    assert await turns.end_of(child) == Signalled(9)


async def test_a_turn_that_left_nothing_has_no_leftovers(turns: Turns) -> None:
    child = await turns.launch("a", "true")
    await turns.end_of(child)
    leftovers = await turns.empty(child)
    assert (leftovers.killed, leftovers.strays, leftovers.alive) == ((), (), ())


async def test_what_cannot_be_killed_is_named_at_the_limit(
    turns: Turns, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process that the kernel holds (state D)."""
    child, pid = await with_sleeper(turns, kernel, "a", then="exit 0")
    await turns.end_of(child)
    with monkeypatch.context() as patched:
        patched.setattr(scope_child, "EMPTY_TIMEOUT_SECONDS", 0.05)
        patched.setattr("hive_subagent_daemon.cgroups.kill", lambda _: None)
        leftovers = await turns.empty(child)
    assert leftovers.alive == (f"sleep ({pid})",)
    assert is_alive(pid)


# A claude that left


async def test_a_claude_in_its_scope_has_not_strayed(turns: Turns) -> None:
    child = await turns.launch("a", "sleep", "600")
    assert not child.has_strayed()


async def test_a_claude_in_a_cgroup_below_its_scope_has_not_strayed(turns: Turns, kernel: FakeKernel) -> None:
    child = await turns.launch("a", "sleep", "600")
    kernel.put(child.pid, str((slice_of(child, kernel) / str(child.scope) / "x").relative_to(kernel.root)))
    assert not child.has_strayed()


async def test_a_claude_that_left_its_scope_is_found_and_killed_with_what_it_started(
    turns: Turns, kernel: FakeKernel
) -> None:
    child = await turns.launch("a", *shell("../sleeper & wait"))
    [pid] = await pids_in(turns.folder("a"), count=1)
    kernel.put(child.pid, "elsewhere.scope")
    kernel.put(pid, "elsewhere.scope")
    assert child.has_strayed()
    assert child.populated()
    leftovers = await turns.empty(child)
    assert {f"sleep ({pid})", f"sh ({child.pid})"} <= set(leftovers.killed)
    assert leftovers.alive == ()
    assert not [one for one in (pid, child.pid) if is_alive(one)]


async def test_what_a_claude_that_left_its_scope_has_started_is_killed_after_its_end_too(
    turns: Turns, kernel: FakeKernel
) -> None:
    child = await turns.launch("a", *shell("../sleeper & wait"))
    [pid] = await pids_in(turns.folder("a"), count=1)
    for one in (child.pid, pid):
        kernel.put(one, "elsewhere.scope")
    assert child.has_strayed()
    child.signal(signal.SIGKILL)
    await turns.end_of(child)
    assert not child.has_strayed()
    await turns.empty(child)
    assert not is_alive(pid)


# Memory


def counted(child: Child, kernel: FakeKernel, *, kills: int) -> None:
    """Let the slice have counted these kills."""
    (slice_of(child, kernel) / "memory.events").write_text(EVENTS.format(kills=kills))
    (slice_of(child, kernel) / "memory.peak").write_text("4096\n")


async def test_what_the_slice_counted_is_told_after_the_scope_is_gone(
    turns: Turns, kernel: FakeKernel, oomd: FakeOomd
) -> None:
    child = await turns.launch("a", "true")
    await turns.end_of(child)
    assert child.oom_kills() == 0
    counted(child, kernel, kills=2)
    assert child.oom_kills() == 2
    for by_kill in (True, False):
        assert await child.oom(ended_by_kill=by_kill) == OomCounters(2, 4096)
    assert oomd.asked == []


@pytest.mark.parametrize("controller", [True, False])
async def test_where_the_kernel_counted_nothing_systemd_oomd_may_have_killed(
    turns: Turns, kernel: FakeKernel, oomd: FakeOomd, *, controller: bool
) -> None:
    child = await turns.launch("a", "true")
    await turns.end_of(child)
    if controller:
        counted(child, kernel, kills=0)
    before = OomCounters(0, 4096) if controller else None
    assert await child.oom(ended_by_kill=False) == before
    assert oomd.asked == []
    assert await child.oom(ended_by_kill=True) == before
    oomd.has_killed.add(slice_of(child, kernel))
    peak = 4096 if controller else None
    assert await child.oom(ended_by_kill=True) == OomCounters(1, peak, by_oomd=True)


async def test_the_memory_of_a_turn_is_that_of_its_slice_or_else_of_claude_alone(
    turns: Turns, kernel: FakeKernel
) -> None:
    child = await turns.launch("a", "sleep", "600")
    alone = child.memory_bytes()
    assert alone
    (slice_of(child, kernel) / "memory.current").write_text("123\n")
    assert child.memory_bytes() == 123
    assert child.memory_limit_bytes() is None
    (slice_of(child, kernel) / str(child.scope) / "memory.max").write_text("456\n")
    assert child.memory_limit_bytes() == 456


# Who calls


async def test_a_caller_in_a_scope_is_known_as_its_turn_as_long_as_that_runs(
    turns: Turns, kernel: FakeKernel
) -> None:
    child, pid = await with_sleeper(turns, kernel, "a", then="exec sleep 600")
    await turns.launch("b", "sleep", "600")
    turn, launcher = turns.roots["a"].turn, turns.launcher
    cgroup = slice_of(child, kernel)
    ids = [cgroup.stat().st_ino, (cgroup / str(child.scope)).stat().st_ino]
    assert [launcher.turn_of(TcpPeer(0, 7, one)) for one in ids] == [turn, turn]
    scope = f"/{PARENT}/{cgroup.name}/{child.scope}"
    places = [scope, f"{scope}/made/by-claude"]
    assert [launcher.turn_of(UnixPeer(0, 0, pid, one)) for one in places] == [turn, turn]
    await child.release()
    assert [launcher.turn_of(TcpPeer(0, 7, one)) for one in ids] == [None, None]
    assert launcher.turn_of(UnixPeer(0, 0, child.pid, scope)) is None


async def test_a_caller_in_a_cgroup_that_claude_made_below_its_scope_is_known_as_its_turn(
    turns: Turns, kernel: FakeKernel
) -> None:
    """Also in one that is made after we have looked once."""
    child = await turns.launch("a", "sleep", "600")
    scope = f"{PARENT}/{slice_of(child, kernel).name}/{child.scope}"
    for below in ("made", "made/deeper", "later"):
        cgroup_id = kernel.make(f"{scope}/{below}").stat().st_ino
        assert turns.launcher.turn_of(TcpPeer(0, 7, cgroup_id)) == turns.roots["a"].turn


async def test_a_caller_elsewhere_or_of_whom_nothing_is_known_is_no_turns(
    turns: Turns, kernel: FakeKernel
) -> None:
    child = await turns.launch("a", "sleep", "600")
    elsewhere = kernel.make("elsewhere.scope").stat().st_ino
    places = ["/", "/elsewhere.scope", f"/{PARENT}/{child.scope}x/y", None]
    unix = [UnixPeer(0, 0, child.pid, place) for place in places]
    tcp = [TcpPeer(0, 7, elsewhere), TcpPeer(0, 7, None)]
    peers: list[Peer] = [*tcp, *unix]
    for peer in peers:
        assert turns.launcher.turn_of(peer) is None


# What an earlier daemon left


def root_of(turns: Turns, child: Child) -> TurnRoot:
    """Return by what the next daemon recognises a turn."""
    return replace(turns.roots["a"], pid=child.pid, start=child.start)


async def test_what_is_left_in_a_slice_is_found_by_the_name_of_its_scope_and_killed(
    turns: Turns, kernel: FakeKernel, manager: FakeManager
) -> None:
    child, pid = await with_sleeper(turns, kernel, "a", then="exec sleep 600")
    counted(child, kernel, kills=1)
    cgroup = slice_of(child, kernel)
    manager.slices = {cgroup.name: f"/{cgroup.relative_to(kernel.root)}"}
    left = await launcher_of(Children(), manager, FakeOomd(), folder=turns.state).left_behind(
        root_of(turns, child)
    )
    assert left is not None
    assert (left.scope, left.pid, left.populated()) == (child.scope, child.pid, True)
    assert left.signal(signal.SIGINT)
    assert await left.wait() == ExitUnknown()
    assert left.populated()
    assert (await turns.empty(left)).killed == (f"sleep ({pid})",)
    assert await left.oom(ended_by_kill=False) == OomCounters(1, 4096)
    await left.release()
    assert manager.stopped == [cgroup.name]


async def test_a_slice_in_which_nothing_is_left_is_still_told_for_its_counters(
    turns: Turns, kernel: FakeKernel, manager: FakeManager
) -> None:
    child = await turns.launch("a", "true")
    await turns.end_of(child)
    counted(child, kernel, kills=1)
    cgroup = slice_of(child, kernel)
    manager.slices = {cgroup.name: f"/{cgroup.relative_to(kernel.root)}"}
    left = await launcher_of(Children(), manager, FakeOomd(), folder=turns.state).left_behind(
        root_of(turns, child)
    )
    assert left is not None
    assert not left.populated()
    assert not left.signal(signal.SIGINT)
    assert (await turns.empty(left)).killed == ()
    assert await left.oom(ended_by_kill=False) == OomCounters(1, 4096)


async def test_a_slice_without_a_cgroup_has_nothing_but_is_stopped(
    turns: Turns, kernel: FakeKernel, manager: FakeManager
) -> None:
    child = await turns.launch("a", "true")
    await turns.end_of(child)
    manager.slices = {slice_of(child, kernel).name: ""}
    left = await launcher_of(Children(), manager, FakeOomd(), folder=turns.state).left_behind(
        root_of(turns, child)
    )
    assert left is not None
    assert not left.populated()
    assert (await turns.empty(left)).killed == ()
    assert (await left.oom(ended_by_kill=True), left.oom_kills(), left.memory_limit_bytes()) == (
        None,
        0,
        None,
    )
    await left.release()
    assert manager.stopped == [slice_of(child, kernel).name]


async def test_without_a_slice_of_that_name_there_is_nothing_but_what_carries_marks(
    turns: Turns, manager: FakeManager
) -> None:
    child = await turns.launch("a", "sleep", "600")
    launcher = launcher_of(Children(), manager, FakeOomd(), folder=turns.state)
    left = await launcher.left_behind(root_of(turns, child))
    assert left is not None
    assert (left.scope, left.pid) == (None, child.pid)
    await turns.empty(left)
    await turns.end_of(child)
    assert await launcher.left_behind(root_of(turns, child)) is None


async def test_a_turn_that_had_no_scope_is_looked_for_by_its_marks(
    turns: Turns, manager: FakeManager
) -> None:
    """As one of a daemon that ran without scopes."""
    child = await turns.launch("a", "sleep", "600")
    left = await launcher_of(Children(), manager, FakeOomd(), folder=turns.state).left_behind(
        replace(root_of(turns, child), scope=None)
    )
    assert left is not None
    assert left.scope is None


async def test_a_manager_that_does_not_answer_leaves_the_marks(
    turns: Turns, manager: FakeManager, caplog: pytest.LogCaptureFixture
) -> None:
    child = await turns.launch("a", "sleep", "600")
    manager.refuses = BusError("no answer")
    left = await launcher_of(Children(), manager, FakeOomd(), folder=turns.state).left_behind(
        root_of(turns, child)
    )
    assert left is not None
    assert left.pid == child.pid
    assert "systemd cannot be asked what is left of turn" in caplog.text
    manager.refuses = None
