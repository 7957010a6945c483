"""Turns in scopes: in place before the first instruction, emptied whole, and never a unit that is left."""

from __future__ import annotations

import os
import signal
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest

from hive_subagent_daemon import procfs, slices_to_stop
from hive_subagent_daemon.config_values import UNLIMITED, OomPolicy, Percent, ScopeChoice, Scopes
from hive_subagent_daemon.dbus_link import BusError
from hive_subagent_daemon.gate import SpawnError
from hive_subagent_daemon.launcher import Placed, PlacingError
from hive_subagent_daemon.unit_names import TurnUnits, turn_units
from hive_subagent_daemon.values import Exited, Signalled
from tests.support.processes import eventually, is_alive
from tests.unit.support_gate import shell, subreaper
from tests.unit.support_process_group import Turns
from tests.unit.support_scopes import INSTANCE, PARENT, FakeKernel, FakeManager, FakeOomd, launcher_of
from tests.unit.support_started import soon
from tests.unit.support_turns import LIMIT_SECONDS, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


NEVER = BusError("systemd was not done within 1.7 s")
SLEEP = shell("exec sleep 600")


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    """Let control groups be folders, and pauses be short."""
    monkeypatch.setattr(slices_to_stop, "RETRY_SECONDS", 0.01)
    return FakeKernel(tmp_path, monkeypatch)


@pytest.fixture
def manager(kernel: FakeKernel) -> FakeManager:
    """Let a manager do at once what it is asked."""
    return FakeManager(kernel)


@asynccontextmanager
async def launching(folder: Path, manager: FakeManager, wanted: Scopes | None = None) -> AsyncIterator[Turns]:
    """Launch turns in such scopes; nothing of them is left when the block ends."""
    make = partial(launcher_of, manager=manager, oomd=FakeOomd(), scopes=wanted, folder=folder / "state")
    with subreaper():
        launched = Turns(folder, make=make)
        try:
            yield launched
        finally:
            manager.refuses = None
            await launched.kill_all()


@pytest.fixture
async def turns(tmp_path: Path, manager: FakeManager) -> AsyncIterator[Turns]:
    """Launch turns in scopes without limits."""
    async with launching(tmp_path, manager) as launched:
        yield launched


def units(turns: Turns, name: str = "a") -> TurnUnits:
    """Return the units of a turn."""
    return turn_units(PARENT, instance=INSTANCE, turn=turns.roots[name].turn)


async def stopped_later(turns: Turns, manager: FakeManager, slice_name: str) -> None:
    """Let the launcher run until it has stopped this slice."""
    async with anyio.create_task_group() as running:
        running.start_soon(turns.launcher.run)
        await until(lambda: manager.stopped == [slice_name])
        await anyio.sleep(0.05)
        assert manager.stopped == [slice_name]  # once
        running.cancel_scope.cancel()


async def gone_without_a_trace(turns: Turns) -> None:
    """Check that a turn that did not come to run has executed nothing and left no process."""
    assert (turns.folder("a") / "stdout").read_bytes() == b""
    assert turns.children.none_but(None)
    assert turns.alive() == []


async def gone_when_its_slice_is(turns: Turns, manager: FakeManager) -> None:
    """Check that nothing was executed, and that the pid of the gate is kept until systemd lets go of it."""
    await soon(zombies)
    [gate] = zombies()
    assert turns.alive() == []
    assert manager.stopped == []
    assert noted(turns) == [units(turns).slice]
    manager.refuses = None
    await stopped_later(turns, manager, units(turns).slice)
    assert procfs.process(gate) is None
    assert noted(turns) == []
    await gone_without_a_trace(turns)


def zombies() -> list[int]:
    """Return the children of ours that are dead and not reaped, so that their pids are nobody else's."""
    found = [procfs.process(pid) for pid in procfs.children(os.getpid())]
    return [one.pid for one in found if one is not None and one.dead]


def noted(turns: Turns) -> list[str]:
    """Return the slices that a later daemon would stop."""
    return sorted(path.name for path in (turns.state / "slices").iterdir())


# Launching


async def test_a_turn_is_in_its_scope_then_recorded_and_only_then_executed(
    turns: Turns, manager: FakeManager, kernel: FakeKernel
) -> None:
    story: list[tuple[str, bool, bytes]] = []

    def look(step: str, pid: int) -> None:
        """Take note of what the process is."""
        shown = eventually(lambda: procfs.command_line(pid))  # in the middle of an exec it is empty
        waits = b"hive-subagent-gate" in shown
        story.append((step, waits, (turns.folder("a") / "stdout").read_bytes()))

    async def recorded(placed: Placed) -> None:
        """Take note of it, and that the process is in its place."""
        look("recorded", placed.pid)
        cgroup = kernel.root / PARENT / units(turns).slice / units(turns).scope
        assert str(placed.pid) in (cgroup / "cgroup.procs").read_text()

    manager.on_start = partial(look, "placed")
    child = await turns.launch("a", *shell("echo executed; exec sleep 600"), recorded=recorded)
    assert story == [("placed", True, b""), ("recorded", True, b"")]
    assert child.scope == units(turns).scope == turns.launcher.scope_of(turns.roots["a"].turn)
    assert b"hive-subagent-gate" not in procfs.command_line(child.pid)
    child.signal(signal.SIGINT)
    assert await turns.end_of(child) == Signalled(2)


async def test_a_scope_without_limits_has_those_of_systemd(turns: Turns, manager: FakeManager) -> None:
    child = await turns.launch("a", *SLEEP)
    [(name, properties)] = manager.scopes
    assert name == units(turns).scope
    assert properties == {
        "PIDs": ("au", [child.pid]),
        "Slice": ("s", units(turns).slice),
        "Description": ("s", "a turn of a test"),
        "OOMPolicy": ("s", "continue"),
        "CollectMode": ("s", "inactive-or-failed"),
    }


async def test_a_scope_is_stopped_after_the_unit_of_the_daemon_at_a_shutdown(
    tmp_path: Path, manager: FakeManager
) -> None:
    make = partial(
        launcher_of, manager=manager, oomd=FakeOomd(), folder=tmp_path / "state", own_unit="x.service"
    )
    with subreaper():
        turns = Turns(tmp_path, make=make)
        await turns.launch("a", *SLEEP)
        await turns.kill_all()
    assert manager.scopes[0][1]["Before"] == ("as", ["x.service"])


@pytest.mark.parametrize(
    ("wanted", "properties"),
    [
        (Scopes(memory_max=1), {"MemoryMax": ("t", 1)}),
        (Scopes(memory_swap_max=0), {"MemorySwapMax": ("t", 0)}),
        (Scopes(memory_max=UNLIMITED), {"MemoryMax": ("t", 2**64 - 1)}),
        (Scopes(memory_high=2**40), {"MemoryHigh": ("t", 2**40)}),
        (Scopes(tasks_max=50), {"TasksMax": ("t", 50)}),
        (Scopes(cpu_weight=10), {"CPUWeight": ("t", 10)}),
        (Scopes(memory_max=Percent(100)), {"MemoryMaxScale": ("u", 2**32 - 1)}),
        (Scopes(memory_high=Percent(50)), {"MemoryHighScale": ("u", (2**32 - 1) // 2)}),
        (Scopes(memory_swap_max=Percent(1)), {"MemorySwapMaxScale": ("u", (2**32 - 1) // 100)}),
        (Scopes(tasks_max=Percent(10)), {"TasksMaxScale": ("u", (2**32 - 1) // 10)}),
        (Scopes(tasks_max=Percent(100)), {"TasksMax": ("t", 2**64 - 1)}),  # else systemd refuses
    ],
)
async def test_each_limit_has_its_property(
    tmp_path: Path, manager: FakeManager, wanted: Scopes, properties: dict[str, object]
) -> None:
    """A part of the whole has another one than an absolute number."""
    async with launching(tmp_path, manager, wanted) as turns:
        await turns.launch("a", *SLEEP)
    [(_, asked)] = manager.scopes
    usual = {"PIDs", "Slice", "Description", "OOMPolicy", "CollectMode"}
    assert {name: value for name, value in asked.items() if name not in usual} == properties


@pytest.mark.parametrize("policy", OomPolicy)
async def test_the_policy_is_passed_on_and_whether_it_stops_the_rest_is_told(
    tmp_path: Path, manager: FakeManager, policy: OomPolicy
) -> None:
    wanted = Scopes(ScopeChoice.USER, oom_policy=policy)
    async with launching(tmp_path, manager, wanted) as turns:
        child = await turns.launch("a", *SLEEP)
        assert manager.scopes[0][1]["OOMPolicy"] == ("s", policy.value)
        (manager.kernel.root / PARENT / units(turns).slice / "memory.events").write_text("oom_kill 1\n")
        counters = await child.oom(ended_by_kill=False)
        assert counters is not None
        assert counters.stops is (policy is OomPolicy.STOP)


async def test_the_limit_that_is_recorded_is_the_one_that_the_kernel_shows(
    turns: Turns, manager: FakeManager, kernel: FakeKernel
) -> None:
    """Not the one that was asked for: the slice above may have a lower one."""
    (kernel.make(PARENT) / "memory.max").write_text("4096\n")
    recorded: list[Placed] = []

    async def record(placed: Placed) -> None:
        """Keep it."""
        recorded.append(placed)
        await anyio.lowlevel.checkpoint()

    child = await turns.launch("a", *SLEEP, recorded=record)
    assert [(each.pid, each.start, each.memory_limit_bytes) for each in recorded] == [
        (child.pid, child.start, 4096)
    ]
    assert child.memory_limit_bytes() == 4096
    assert manager.scopes


# Launches that do not come to run


async def test_a_scope_that_is_refused_is_said_so_and_leaves_nothing(
    turns: Turns, manager: FakeManager
) -> None:
    """What systemd may still make of it is stopped later, when it can be reached again."""
    manager.refuses = NEVER
    with pytest.raises(PlacingError) as error:
        await turns.launch("a", *shell("echo executed"))
    assert str(error.value) == f"systemd did not make the scope {units(turns).scope}: {NEVER}"
    await gone_when_its_slice_is(turns, manager)


async def test_a_process_that_is_not_where_systemd_says_is_never_executed(
    turns: Turns, manager: FakeManager
) -> None:
    manager.puts_into = "elsewhere.scope"
    with pytest.raises(PlacingError) as error:
        await turns.launch("a", *shell("echo executed"))
    assert str(error.value) == (
        f"systemd said that the process is in {units(turns).scope}, but it is in elsewhere.scope"
    )
    await gone_when_its_slice_is(turns, manager)


async def test_a_gate_that_dies_while_it_is_placed_is_told(turns: Turns, manager: FakeManager) -> None:
    def kill(pid: int) -> None:
        """Kill the gate, and wait until it is dead."""
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    manager.on_start = kill
    with pytest.raises(PlacingError, match="but it is gone"):
        await turns.launch("a", *shell("echo executed"))
    await gone_when_its_slice_is(turns, manager)


@pytest.mark.parametrize("error", [OSError(28, "full"), RuntimeError("x")], ids=["full-disk", "any-other"])
async def test_a_turn_that_cannot_be_recorded_is_never_executed_and_its_slice_is_stopped(
    turns: Turns, manager: FakeManager, error: Exception
) -> None:
    async def refused(_placed: Placed) -> None:
        raise error

    with pytest.raises(type(error)):
        await turns.launch("a", *shell("echo executed"), recorded=refused)
    await gone_without_a_trace(turns)
    assert manager.stopped == [units(turns).slice]


async def test_a_program_that_cannot_be_executed_leaves_nothing(turns: Turns, manager: FakeManager) -> None:
    with pytest.raises(SpawnError, match="not found") as error:
        await turns.launch("a", "/nowhere/claude")
    assert not isinstance(error.value, PlacingError)
    await gone_without_a_trace(turns)
    assert manager.stopped == [units(turns).slice]


async def test_a_launch_that_is_cancelled_while_it_is_recorded_leaves_nothing(
    turns: Turns, manager: FakeManager
) -> None:
    async def forever(_placed: Placed) -> None:
        await anyio.sleep_forever()

    with anyio.move_on_after(0.1) as given_up:
        await turns.launch("a", *shell("echo executed"), recorded=forever)
    assert given_up.cancelled_caught
    await gone_without_a_trace(turns)
    assert manager.stopped == [units(turns).slice]


async def test_a_launch_that_is_cancelled_while_systemd_works_leaves_nothing(
    turns: Turns, manager: FakeManager
) -> None:
    manager.hold = anyio.Event()
    with anyio.move_on_after(0.1) as given_up:
        await turns.launch("a", *shell("echo executed"))
    assert given_up.cancelled_caught
    await gone_when_its_slice_is(turns, manager)


# The end of the units


async def test_the_slice_is_stopped_when_it_is_let_go_of(turns: Turns, manager: FakeManager) -> None:
    child = await turns.launch("a", *shell("exit 7"))
    assert await turns.end_of(child) == Exited(7)
    await turns.empty(child)
    assert manager.stopped == []
    await child.release()
    assert manager.stopped == [units(turns).slice]


async def test_a_slice_that_cannot_be_stopped_now_is_stopped_later(
    turns: Turns, manager: FakeManager, caplog: pytest.LogCaptureFixture
) -> None:
    """As while the user's manager is restarted; the end of the turn does not wait for it."""
    child = await turns.launch("a", "true")
    await turns.end_of(child)
    manager.refuses = NEVER
    with anyio.fail_after(LIMIT_SECONDS):
        await child.release()
    assert "is not stopped yet" in caplog.text
    async with anyio.create_task_group() as running:
        running.start_soon(turns.launcher.run)
        await anyio.sleep(0.05)  # it is tried, in vain
        assert manager.stopped == []
        manager.refuses = None
        await until(lambda: manager.stopped == [units(turns).slice])
        running.cancel_scope.cancel()


def _are_stopped(turns: Turns, manager: FakeManager, names: tuple[str, ...]) -> bool:
    return {units(turns, name).slice for name in names} <= set(manager.stopped)


async def test_several_slices_are_stopped_later_and_again_others_after_them(
    turns: Turns, manager: FakeManager
) -> None:
    async with anyio.create_task_group() as running:
        running.start_soon(turns.launcher.run)
        for names in (("a", "b"), ("c", "d")):
            manager.refuses = NEVER
            for name in names:
                with pytest.raises(PlacingError):
                    await turns.launch(name, "true")
            manager.refuses = None
            await until(partial(_are_stopped, turns, manager, names))
        running.cancel_scope.cancel()
    assert len(manager.stopped) == 4


async def test_the_end_of_the_daemon_closes_the_connection(turns: Turns, manager: FakeManager) -> None:
    async with anyio.create_task_group() as running:
        running.start_soon(turns.launcher.run)
        await anyio.wait_all_tasks_blocked()
        assert not manager.closed
        running.cancel_scope.cancel()
    assert manager.closed


async def test_the_launcher_says_what_it_is_and_what_refuses_every_turn(
    turns: Turns, manager: FakeManager
) -> None:
    launcher = turns.launcher
    assert (launcher.description, launcher.makes_scopes, launcher.trouble()) == ("user scope", True, None)
    manager.trouble = "no systemd manager answers: x"
    assert launcher.trouble() == "no systemd manager answers: x"


async def test_many_turns_at_once_have_scopes_of_their_own_and_all_end(
    turns: Turns, manager: FakeManager
) -> None:
    async def one(name: str) -> None:
        child = await turns.launch(name, *SLEEP)
        await turns.empty(child)
        assert await turns.end_of(child) == Signalled(9)
        await child.release()

    async with anyio.create_task_group() as launching:
        for number in range(8):
            launching.start_soon(one, f"n{number}")
    assert len({name for name, _ in manager.scopes}) == 8
    assert sorted(manager.stopped) == sorted(units(turns, f"n{number}").slice for number in range(8))
    await soon(lambda: turns.reaped(turns.alive()))
    assert not [pid for pid in turns.alive() if is_alive(pid)]
