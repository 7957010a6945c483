"""Turns without systemd: everything that a turn started is found and killed, and nothing else is."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

import anyio
import pytest

from hive_subagent_daemon import procfs
from hive_subagent_daemon.children import Children
from hive_subagent_daemon.gate import SpawnError
from hive_subagent_daemon.launcher import Placed
from hive_subagent_daemon.membership import TurnRoot
from hive_subagent_daemon.process_group import ProcessGroup
from hive_subagent_daemon.values import Exited, ExitUnknown, Signalled
from tests.support.processes import is_alive
from tests.support.slices import slices_in
from tests.unit.support_gate import shell, subreaper
from tests.unit.support_process_group import LAUNCHER, Turns, pids_in, unique
from tests.unit.support_started import LIMIT_SECONDS, PATH, soon
from tests.unit.support_storage import other_python

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

# Each leaves processes behind that do not end by themselves. The sleeper appends its pid to the file `pids`.
LEFT_BEHIND = {
    "child": "../sleeper &",
    "session-of-its-own": "setsid ../sleeper &",
    "double-fork": "(setsid sh -c '../sleeper &' &);",
    "nohup": "nohup setsid ../sleeper >/dev/null 2>&1 &",
    "ignores-every-polite-signal": "setsid sh -c 'trap \"\" INT TERM HUP QUIT; exec ../sleeper' &",
    "stopped": "setsid sh -c 'echo $$ >> pids; kill -STOP $$; exec ../sleeper' &",
    "environment-cleared": "env -i PATH=$PATH ../sleeper &",
    "only-the-session-id": "env -i PATH=$PATH CLAUDE_CODE_SESSION_ID=$SESSION setsid ../sleeper &",
    "only-the-mark": "env -i PATH=$PATH HIVE_SUBAGENT_TURN=$HIVE_SUBAGENT_TURN setsid ../sleeper &",
    "an-orphan-that-hides": "(env -i PATH=$PATH setsid ../sleeper &);",
    "a-family-that-hides": "(env -i PATH=$PATH setsid sh -c 'echo $$ >> pids; ../sleeper; :' &);",
    "a-loop-that-spawns-more": (
        "setsid sh -c 'echo $$ >> pids; while :; do setsid ../sleeper & sleep 0.02; done' &"
    ),
}
UNTIL_IT_IS_THERE = "while [ ! -s pids ]; do sleep 0.01; done"


@pytest.fixture
async def turns(tmp_path: Path) -> AsyncIterator[Turns]:
    """Launch turns as a daemon that has just started; nothing of them is left when the test ends."""
    with subreaper():
        launched = Turns(tmp_path)
        yield launched
        await launched.kill_all()


@pytest.fixture
def bystander() -> Iterator[int]:
    """Run a child of this process that is no turn's, since before the launcher was made."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield process.pid
        process.kill()


# One turn


async def test_a_turn_is_recorded_before_it_executes_and_running_afterwards(turns: Turns) -> None:
    seen: list[tuple[Placed, bytes, bytes]] = []

    async def recorded(placed: Placed) -> None:
        stdout = (turns.folder("a") / "stdout").read_bytes()
        seen.append((placed, procfs.command_line(placed.pid), stdout))
        await anyio.lowlevel.checkpoint()

    child = await turns.launch("a", *shell("echo executed; exec sleep 600"), recorded=recorded)
    ((placed, command_line, stdout),) = seen
    assert placed == Placed(child.pid, child.start, None)
    assert (child.scope, child.memory_limit_bytes()) == (None, None)
    assert b"hive-subagent-gate" in command_line
    assert stdout == b""
    assert b"hive-subagent-gate" not in procfs.command_line(child.pid)
    assert child.memory_bytes()


async def test_the_end_of_a_turn_is_told_and_its_signal_too(turns: Turns) -> None:
    ended = await turns.launch("a", *shell("exit 7"))
    assert await turns.end_of(ended) == Exited(7)
    assert ended.signal(signal.SIGINT) is False
    assert ended.memory_bytes() is None
    running = await turns.launch("b", "sleep", "600")
    assert running.signal(signal.SIGINT) is True
    assert await turns.end_of(running) == Signalled(2)


async def test_a_signal_reaches_claude_alone(turns: Turns) -> None:
    """Its children are claude's to stop."""
    child = await turns.launch("a", *shell("../sleeper & wait"))
    (pid,) = await pids_in(turns.folder("a"), count=1)
    child.signal(signal.SIGINT)
    assert await turns.end_of(child) == Signalled(2)
    assert is_alive(pid)


async def test_a_claude_that_has_ended_cannot_be_signalled_though_nobody_waited_for_it(turns: Turns) -> None:
    """A signal that reached nobody must not be taken for what ended the turn."""
    child = await turns.launch("a", *shell("exit 7"))
    await soon(lambda: not is_alive(child.pid))
    assert child.signal(signal.SIGINT) is False
    assert await turns.end_of(child) == Exited(7)


@pytest.mark.parametrize("script", LEFT_BEHIND.values(), ids=LEFT_BEHIND.keys())
async def test_what_a_turn_left_behind_is_killed_and_named(turns: Turns, script: str) -> None:
    child = await turns.launch("a", *shell(f"{script} {UNTIL_IT_IS_THERE}"))
    await turns.end_of(child)
    pids = await pids_in(turns.folder("a"), count=1)
    leftovers = await turns.empty(child)
    assert leftovers.alive == ()
    assert not [pid for pid in pids if is_alive(pid)]
    assert all(any(f"({pid})" in one for one in (*leftovers.killed, *leftovers.strays)) for pid in pids)
    assert not [pid for pid in await pids_in(turns.folder("a"), count=1) if is_alive(pid)]


@pytest.mark.parametrize("script", LEFT_BEHIND.values(), ids=LEFT_BEHIND.keys())
async def test_a_running_turn_is_killed_with_all_that_it_started(turns: Turns, script: str) -> None:
    """As cases B3 asks for: the answer comes when nothing is left."""
    child = await turns.launch("a", *shell(f"{script} exec sleep 600"))
    pids = await pids_in(turns.folder("a"), count=1)
    leftovers = await turns.empty(child)
    assert leftovers.alive == ()
    assert not [pid for pid in (*pids, child.pid) if is_alive(pid)]
    assert any(f"({child.pid})" in one for one in leftovers.killed)
    assert await turns.end_of(child) == Signalled(9)


async def test_a_turn_that_left_nothing_has_no_leftovers(turns: Turns) -> None:
    child = await turns.launch("a", "true")
    await turns.end_of(child)
    leftovers = await turns.empty(child)
    assert (leftovers.killed, leftovers.alive) == ((), ())


async def test_what_was_killed_is_reaped_too(turns: Turns) -> None:
    child = await turns.launch("a", *shell(LEFT_BEHIND["an-orphan-that-hides"]))
    await turns.end_of(child)
    pids = await pids_in(turns.folder("a"), count=1)
    await turns.empty(child)
    await soon(lambda: turns.reaped(pids))


# Several turns, and what is no turn


@pytest.mark.parametrize(
    "kind", ["session-of-its-own", "double-fork", "only-the-session-id", "only-the-mark"]
)
async def test_the_end_of_one_turn_harms_no_process_of_another(turns: Turns, kind: str) -> None:
    first = await turns.launch("a", *shell(f"{LEFT_BEHIND[kind]} exec sleep 600"))
    second = await turns.launch("b", *shell(f"{LEFT_BEHIND[kind]} exec sleep 600"))
    mine, others = [await pids_in(turns.folder(name), count=1) for name in "ab"]
    await turns.empty(first)
    assert not [pid for pid in mine if is_alive(pid)]
    assert all(is_alive(pid) for pid in (*others, second.pid))


async def test_an_orphan_that_hides_is_killed_when_no_turn_runs_that_it_could_belong_to(turns: Turns) -> None:
    hiding = shell(f"{LEFT_BEHIND['an-orphan-that-hides']} {UNTIL_IT_IS_THERE}")
    first, second = await turns.launch("a", *hiding), await turns.launch("b", "sleep", "600")
    await turns.end_of(first)
    (orphan,) = await pids_in(turns.folder("a"), count=1)
    await turns.empty(first)
    assert is_alive(orphan)  # it might be the other turn's
    second.signal(signal.SIGKILL)
    await turns.end_of(second)
    leftovers = await turns.empty(second)
    assert not is_alive(orphan)
    assert any(f"({orphan})" in one for one in leftovers.strays)
    assert leftovers.killed == ()


async def test_a_child_from_before_the_first_turn_is_never_touched(bystander: int, turns: Turns) -> None:
    """Whoever started the daemon may have left it children (a shell that execs it, for one)."""
    child = await turns.launch("a", "true")
    await turns.end_of(child)
    await turns.empty(child)
    assert is_alive(bystander)


async def test_a_short_program_of_the_daemon_is_not_taken_for_an_orphan(turns: Turns) -> None:
    child = await turns.launch("a", "true")
    await turns.end_of(child)
    done: list[int] = []

    async def probe() -> None:
        found = await turns.children.run(
            shell("sleep 0.2; exit 5"), environment={"PATH": PATH}, timeout_seconds=LIMIT_SECONDS
        )
        done.append(found.returncode)

    async with anyio.create_task_group() as beside:
        beside.start_soon(probe)
        await soon(lambda: not turns.children.none_but(None))
        await turns.empty(child)
    assert done == [5]


# Launches that do not come to run


async def test_a_program_that_cannot_be_executed_leaves_nothing(turns: Turns) -> None:
    with pytest.raises(SpawnError, match="not found"):
        await turns.launch("a", "/nowhere/claude")
    assert turns.children.none_but(None)
    assert turns.alive() == []


@pytest.mark.parametrize("error", [OSError(28, "full"), RuntimeError("x")], ids=["full-disk", "any-other"])
async def test_a_turn_that_cannot_be_recorded_is_never_executed(turns: Turns, error: Exception) -> None:
    async def refused(_placed: Placed) -> None:
        raise error

    with pytest.raises(type(error)):
        await turns.launch("a", *shell("echo executed"), recorded=refused)
    assert (turns.folder("a") / "stdout").read_bytes() == b""
    assert turns.children.none_but(None)
    assert turns.alive() == []


async def test_a_launch_that_is_cancelled_leaves_nothing(turns: Turns) -> None:
    async def forever(_placed: Placed) -> None:
        await anyio.sleep_forever()

    with anyio.move_on_after(0.1) as given_up:
        await turns.launch("a", *shell("echo executed"), recorded=forever)
    assert given_up.cancelled_caught
    assert (turns.folder("a") / "stdout").read_bytes() == b""
    assert turns.children.none_but(None)
    assert turns.alive() == []


async def test_many_turns_launched_at_once_all_run_and_all_end(turns: Turns) -> None:
    async def one(name: str) -> None:
        child = await turns.launch(name, *shell(f"{LEFT_BEHIND['session-of-its-own']} exec sleep 600"))
        await pids_in(turns.folder(name), count=1)
        await turns.empty(child)
        assert await turns.end_of(child) == Signalled(9)

    async with anyio.create_task_group() as launching:
        for number in range(8):
            launching.start_soon(one, f"n{number}")
    assert turns.children.none_but(None)
    assert turns.alive() == []


# What an earlier daemon left


@pytest.mark.parametrize("known", ["pid", "marks"])
async def test_what_an_earlier_daemon_left_is_found_signalled_and_killed(tmp_path: Path, known: str) -> None:
    turn, session = unique(), unique()
    script = f"{LEFT_BEHIND['double-fork']} {LEFT_BEHIND['only-the-session-id']} exec sleep 600"
    Turns(tmp_path)
    (tmp_path / "a").mkdir()
    with other_python(LAUNCHER, str(tmp_path / "a"), turn, session, script) as daemon:
        pid, start = map(int, (await anyio.to_thread.run_sync(daemon.wait_for_line)).split())
        pids = await pids_in(tmp_path / "a", count=2)
    root = TurnRoot(turn, session, *((pid, start) if known == "pid" else (None, 0)))
    launcher = ProcessGroup(Children(), slices_in(tmp_path / "state"))
    left = await launcher.left_behind(root)
    assert left is not None
    assert is_alive(pid)
    assert left.signal(signal.SIGINT) is (known == "pid")
    with anyio.fail_after(LIMIT_SECONDS):
        assert await left.wait() in (Signalled(signal.SIGINT), ExitUnknown())  # as far as the kernel tells
        leftovers = await left.empty()
    assert leftovers.alive == ()
    assert not [one for one in (*pids, pid) if is_alive(one)]
    assert await launcher.left_behind(root) is None


async def test_a_process_that_only_has_the_pid_of_an_old_turn_is_none_of_it(
    bystander: int, tmp_path: Path
) -> None:
    found = procfs.process(bystander)
    assert found is not None
    launcher = ProcessGroup(Children(), slices_in(tmp_path / "state"))
    assert await launcher.left_behind(TurnRoot(unique(), None, bystander, found.start + 1)) is None
    assert await launcher.left_behind(TurnRoot(unique(), None, bystander, found.start - 1)) is None
    assert is_alive(bystander)


async def test_what_an_earlier_daemon_left_includes_no_unmarked_child_of_ours(
    turns: Turns, bystander: int
) -> None:
    root = TurnRoot(unique(), None, None, 0)
    child = await turns.launch("a", "sleep", "600")
    assert await turns.launcher.left_behind(root) is None
    assert is_alive(child.pid)
    assert is_alive(bystander)
    assert is_alive(os.getpid())
