"""Every child is reaped, ours with its exit, adopted orphans without anybody taking them for ours."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from hive_subagent_daemon import procfs
from hive_subagent_daemon.children import Children, send_signal, start_of
from hive_subagent_daemon.values import Exit, Exited, ExitUnknown, Signalled
from tests.support.processes import eventually, is_alive
from tests.unit.support_gate import shell, subreaper
from tests.unit.support_started import LIMIT_SECONDS, PATH, Started, soon, start

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def children() -> Iterator[Children]:
    """Be a subreaper with no child, as a daemon that has just started."""
    with subreaper():
        yield Children()


async def spawned(children: Children, *argv: str) -> Started:
    """Spawn a child through the daemon's children."""
    return await children.spawn(lambda: start(*argv))


async def end_of(children: Children, child: Started) -> Exit:
    """Wait under a limit for the end of a child."""
    with anyio.fail_after(LIMIT_SECONDS):
        return await children.wait(child.pid)


def open_descriptors() -> int:
    """Return how many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


async def short(
    children: Children, *argv: str, within_seconds: float = LIMIT_SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run a short program."""
    return await children.run(argv, environment={"PATH": PATH}, timeout_seconds=within_seconds)


# Our own children


@pytest.mark.parametrize("code", [0, 1, 2, 97, 126, 127, 128, 129, 143, 255])
async def test_an_exit_code_is_told_as_it_is(children: Children, code: int) -> None:
    child = await spawned(children, *shell(f"exit {code}"))
    assert await end_of(children, child) == Exited(code)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGRTMIN]
)
async def test_a_signal_is_told_apart_from_an_exit_code(children: Children, number: signal.Signals) -> None:
    child = await spawned(children, "sleep", "60")
    os.kill(child.pid, number)
    assert await end_of(children, child) == Signalled(number)


async def test_a_child_is_signalled_though_no_descriptor_is_left(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the one that we have of it; else a refused start would wait for its end for ever."""

    def lacking(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    child = await spawned(children, "sleep", "60")
    monkeypatch.setattr(os, "pidfd_open", lacking)
    with pytest.raises(OSError, match="Too many open files"):
        send_signal(child.pid, 0, signal.SIGKILL)
    assert children.signal(child.pid, signal.SIGKILL) is True
    await soon(lambda: not is_alive(child.pid))
    assert children.signal(child.pid, signal.SIGKILL) is False, "it had ended already"
    assert await end_of(children, child) == Signalled(signal.SIGKILL)
    assert children.signal(child.pid, signal.SIGKILL) is None, "it is not ours any more"


async def test_a_child_that_ended_long_ago_still_tells_how(children: Children) -> None:
    child = await spawned(children, *shell("exit 7"))
    await soon(lambda: not is_alive(child.pid))
    for _ in range(3):
        children.reap_orphans()
    assert await end_of(children, child) == Exited(7)


async def test_a_child_is_gone_and_its_descriptor_closed_after_the_wait(children: Children) -> None:
    await end_of(children, await spawned(children, "true"))
    before = open_descriptors()
    for _ in range(5):
        await end_of(children, await spawned(children, "true"))
    assert open_descriptors() == before


async def test_children_are_waited_for_at_once_each_with_its_own_exit(children: Children) -> None:
    found: dict[int, Exit] = {}

    async def one(code: int) -> None:
        found[code] = await end_of(children, await spawned(children, *shell(f"exit {code}")))

    async with anyio.create_task_group() as waiting:
        for code in range(20):
            waiting.start_soon(one, code)
    assert found == {code: Exited(code) for code in range(20)}


async def test_a_wait_that_is_cancelled_leaves_the_child_alone(children: Children) -> None:
    child = await spawned(children, "sleep", "60")
    with anyio.move_on_after(0.05) as given_up:
        await children.wait(child.pid)
    assert given_up.cancelled_caught
    os.kill(child.pid, signal.SIGKILL)
    assert await end_of(children, child) == Signalled(9)


async def test_an_end_that_somebody_else_has_reaped_is_not_known(children: Children) -> None:
    child = await spawned(children, "true")
    await soon(lambda: not is_alive(child.pid))
    Children().reap_orphans()
    assert await end_of(children, child) == ExitUnknown()


async def test_a_spawn_that_fails_leaves_the_children_as_they_were(children: Children) -> None:
    with pytest.raises(FileNotFoundError):
        await spawned(children, "/nowhere/program")
    assert children.none_but(None)
    assert await end_of(children, await spawned(children, "true")) == Exited(0)


async def test_only_a_child_that_was_waited_for_is_forgotten(children: Children) -> None:
    first, second = await spawned(children, "true"), await spawned(children, "true")
    assert not children.none_but(first.pid)
    await end_of(children, second)
    assert children.none_but(first.pid)
    assert not children.none_but(None)
    await end_of(children, first)
    assert children.none_but(None)


# Orphans


def orphan_of(script: str) -> int:
    """Let a shell leave a process behind; return its pid, which is now a child of this process."""
    read_end, write_end = os.pipe()
    with os.fdopen(read_end) as told:
        pid = os.posix_spawnp(
            "sh",
            ("sh", "-c", f"({script}) >/dev/null & echo $!"),
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, write_end, 1)],
        )
        os.close(write_end)
        orphan = int(told.readline())
    os.waitpid(pid, 0)
    eventually(lambda: parent_of(orphan) in (os.getpid(), None))
    return orphan


def parent_of(pid: int) -> int | None:
    """Return the parent of a process."""
    found = procfs.process(pid)
    return found.parent if found else None


async def test_an_orphan_that_ends_is_reaped(children: Children) -> None:
    orphan = orphan_of("exec true")
    await soon(lambda: not is_alive(orphan))
    children.reap_orphans()
    assert procfs.process(orphan) is None


async def test_a_living_orphan_is_left_alone(children: Children) -> None:
    orphan = orphan_of("exec sleep 60")
    children.reap_orphans()
    assert is_alive(orphan)
    os.kill(orphan, signal.SIGKILL)
    await soon(lambda: not is_alive(orphan))
    children.reap_orphans()
    assert procfs.process(orphan) is None


async def test_an_orphan_behind_an_ended_child_is_reaped_when_that_is_waited_for(children: Children) -> None:
    child = await spawned(children, *shell("exit 4"))
    await soon(lambda: not is_alive(child.pid))
    orphans = [orphan_of("exec true") for _ in range(3)]
    await soon(lambda: not any(map(is_alive, orphans)))
    children.reap_orphans()
    assert await end_of(children, child) == Exited(4)
    assert [procfs.process(orphan) for orphan in orphans] == [None, None, None]


async def test_the_exit_of_a_child_is_never_taken_by_the_reaping_of_orphans(children: Children) -> None:
    """Reaping goes on at each SIGCHLD, also while children are being spawned in worker threads."""
    ended: list[Exit] = []

    async def one(code: int) -> None:
        ended.append(await end_of(children, await spawned(children, *shell(f"exit {code}"))))

    async def reaping() -> None:
        while True:
            children.reap_orphans()
            await anyio.sleep(0.0005)

    async with anyio.create_task_group() as beside:
        beside.start_soon(reaping)
        async with anyio.create_task_group() as waiting:
            for code in range(40):
                waiting.start_soon(one, code)
        beside.cancel_scope.cancel()
    assert sorted(found.code for found in ended if isinstance(found, Exited)) == list(range(40))


# Short programs


async def test_a_short_program_tells_its_exit_and_what_it_printed(children: Children) -> None:
    done = await short(children, *shell("echo out; echo err >&2; exit 3"))
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")


async def test_a_short_program_gets_the_environment_that_it_is_given_and_nothing_of_ours(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What systemd tells the daemon (NOTIFY_SOCKET and such) is not for its children."""
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/notify")
    done = await children.run(("/usr/bin/env",), environment={"A": "b"}, timeout_seconds=LIMIT_SECONDS)
    assert done.stdout == "A=b\n"


async def test_a_short_program_is_not_confused_with_orphans(children: Children) -> None:
    """Its exit must not be taken by the reaping that goes on meanwhile."""

    async def reaping() -> None:
        while True:
            children.reap_orphans()
            await anyio.sleep(0.0005)

    async with anyio.create_task_group() as beside:
        beside.start_soon(reaping)
        done = [await short(children, *shell("exit 5")) for _ in range(5)]
        beside.cancel_scope.cancel()
    assert [program.returncode for program in done] == [5] * 5


async def test_while_a_program_runs_there_is_another_child(children: Children, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")

    async def run() -> None:
        await short(children, *shell(f"read word < '{tmp_path}/gate'"))

    async with anyio.create_task_group() as running:
        running.start_soon(run)
        await soon(lambda: not children.none_but(None))
        await anyio.to_thread.run_sync((tmp_path / "gate").write_text, "go\n")
    assert children.none_but(None)


async def test_a_program_that_takes_too_long_or_is_missing_is_an_error(children: Children) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        await short(children, "sleep", "60", within_seconds=0.05)
    with pytest.raises(FileNotFoundError):
        await short(children, "/nowhere/program")
    assert children.none_but(None)


# Signals


def test_exactly_the_process_that_is_meant_is_signalled() -> None:
    child = start("sleep", "60")
    started = start_of(child.pid)
    assert started is not None
    assert send_signal(child.pid, started - 1, signal.SIGKILL) is False
    assert is_alive(child.pid)
    assert send_signal(child.pid, started, signal.SIGKILL) is True
    eventually(lambda: not is_alive(child.pid))
    assert start_of(child.pid) is None  # it only waits to be reaped
    assert send_signal(child.pid, started, signal.SIGKILL) is False
    os.waitid(os.P_PID, child.pid, os.WEXITED)
    assert send_signal(child.pid, started, signal.SIGKILL) is False
    os.close(child.pidfd)


def test_a_process_that_may_not_be_signalled_or_does_not_exist_is_told() -> None:
    assert send_signal(2**22 - 1, 7, signal.SIGTERM) is False
    assert send_signal(-1, 7, signal.SIGTERM) is False
    assert send_signal(0, 7, signal.SIGTERM) is False


def test_signalling_leaves_no_descriptor_open() -> None:
    before = open_descriptors()
    for pid in (os.getpid(), 2**22 - 1):
        send_signal(pid, -1, signal.SIGTERM)
    assert open_descriptors() == before
