"""What /proc tells of processes, odd names and vanished ones included."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon import procfs
from tests.support.processes import eventually
from tests.unit.support_started import PATH, Started, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NO_PID = 2**22 - 1


@pytest.fixture
def sleeper() -> Iterator[Started]:
    """Run a process that sleeps, with one variable more."""
    child = start("sleep", "60", environment={"MARK": "a=b"})
    yield child
    reap(child)


def reap(child: Started) -> None:
    """Kill a child and reap it."""
    signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED)
    os.close(child.pidfd)


def test_a_process_tells_its_parent_session_and_start(sleeper: Started) -> None:
    found = procfs.process(sleeper.pid)
    assert found is not None
    assert (found.pid, found.parent, found.session, found.dead) == (
        sleeper.pid,
        os.getpid(),
        sleeper.pid,
        False,
    )
    myself = procfs.process(os.getpid())
    assert myself is not None
    assert (myself.session, myself.parent) == (os.getsid(0), os.getppid())
    assert found.start >= myself.start


@pytest.mark.parametrize("name", ["a) Z 1 2 (b", ") R 1", "(((", "new\nline", "ü", "x", "a b", "0 0 0 0"])
def test_a_name_of_any_kind_does_not_confuse_the_other_fields(tmp_path: Path, name: str) -> None:
    program = tmp_path / name
    shutil.copy(shutil.which("sleep") or "", program)
    child = start(str(program), "60")
    try:
        eventually(lambda: f"{program}\0".encode() in procfs.command_line(child.pid))
        found = procfs.process(child.pid)
        assert found is not None
        assert (found.name, found.parent, found.session) == (name, os.getpid(), child.pid)
        assert not found.dead
    finally:
        reap(child)


def test_a_process_that_waits_to_be_reaped_is_dead_and_tells_nothing_more() -> None:
    child = start("true")
    eventually(lambda: (found := procfs.process(child.pid)) is not None and found.dead)
    assert procfs.command_line(child.pid) == b""
    assert procfs.environment(child.pid) in ([], [b""])
    assert procfs.resident_bytes(child.pid) in (0, None)
    os.waitid(os.P_PID, child.pid, os.WEXITED)
    os.close(child.pidfd)
    assert procfs.process(child.pid) is None


def test_a_process_that_does_not_exist_is_none_and_empty() -> None:
    assert procfs.process(NO_PID) is None
    assert procfs.process(-1) is None
    assert procfs.environment(NO_PID) == []
    assert procfs.command_line(NO_PID) == b""
    assert procfs.resident_bytes(NO_PID) is None
    assert procfs.holds_socket(NO_PID, 1) is False
    procfs.prefer_for_oom_kill(NO_PID, 500)


def test_all_processes_are_told_each_once(sleeper: Started) -> None:
    pids = [found.pid for found in procfs.processes()]
    assert {os.getpid(), sleeper.pid} <= set(pids)
    assert len(pids) == len(set(pids))


def test_environment_and_command_line_are_those_it_was_executed_with(sleeper: Started) -> None:
    assert b"MARK=a=b" in procfs.environment(sleeper.pid)
    assert f"PATH={PATH}".encode() in procfs.environment(sleeper.pid)
    assert procfs.command_line(sleeper.pid) == b"sleep\x0060\0"


def test_resident_memory_is_told_in_bytes() -> None:
    resident = procfs.resident_bytes(os.getpid())
    status = Path("/proc/self/status").read_text()
    shown = int(status.partition("VmRSS:")[2].split()[0]) * 1024
    assert resident is not None
    assert 0.5 * shown < resident < 2 * shown


def test_only_an_open_socket_is_held() -> None:
    with socket.socket(socket.AF_UNIX) as one:
        inode = os.fstat(one.fileno()).st_ino
        assert procfs.holds_socket(os.getpid(), inode)
        assert not procfs.holds_socket(os.getpid(), inode + 1_000_000)
    assert not procfs.holds_socket(os.getpid(), inode)


def test_the_preference_of_the_oom_killer_is_raised_and_never_lowered(sleeper: Started) -> None:
    path = Path(f"/proc/{sleeper.pid}/oom_score_adj")
    before = int(path.read_text())
    for wanted in (500, 700, 300):
        procfs.prefer_for_oom_kill(sleeper.pid, wanted)
    assert int(path.read_text()) == max(700, before)


def test_the_boot_has_one_id() -> None:
    assert procfs.boot_id() == procfs.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@pytest.mark.parametrize("read", [procfs.process, procfs.children, procfs.environment, procfs.command_line])
def test_a_process_that_cannot_be_looked_at_is_not_taken_for_gone(
    read: Callable[[int], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without descriptors nothing in /proc can be opened, though everything runs on."""

    def lacking(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    for name in ("read_text", "read_bytes", "iterdir"):
        monkeypatch.setattr(Path, name, lacking)
    with pytest.raises(OSError, match="Too many open files"):
        read(os.getpid())
