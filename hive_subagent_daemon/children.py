"""Waiting for our processes: the children we spawned by pidfd, adopted orphans by reaping what is unknown.

The daemon is a child subreaper (PR_SET_CHILD_SUBREAPER(2const)): when claude ends, what it left running
becomes our child, can be found and killed, and has to be reaped here. An unknown pid is reaped and never
attributed.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import select
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import anyio

from hive_subagent_daemon import procfs
from hive_subagent_daemon.threads import in_thread
from hive_subagent_daemon.values import Exit, Exited, ExitUnknown, Signalled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_log = logging.getLogger(__name__)
_PR_SET_CHILD_SUBREAPER: Final = 36


def become_subreaper() -> None:
    """Let orphaned descendants become children of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        _log.warning("not a child subreaper (%s): orphans may be overlooked", os.strerror(ctypes.get_errno()))


class Spawned(Protocol):
    """A child that was just created; the pidfd is ours to close."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def pidfd(self) -> int:
        """A descriptor that becomes readable when it ends (pidfd_open(2))."""


SpawnedT = TypeVar("SpawnedT", bound=Spawned)


class Children:
    """All child processes of the daemon. Use only from the event loop's thread, except `spawn`."""

    def __init__(self) -> None:
        """Start with no child."""
        self._pidfds: dict[int, int] = {}
        self._beside: set[int] = set()
        self._spawning = 0

    async def spawn(self, spawn: Callable[[], SpawnedT], *, beside: bool = False) -> SpawnedT:
        """Run a blocking function that creates one child, in a worker thread, and take charge of it.

        One `beside` the turns is no turn's, and none of their processes can be a child of it.
        """
        self._spawning += 1
        try:
            spawned = await in_thread(spawn)
            self._pidfds[spawned.pid] = spawned.pidfd
            if beside:
                self._beside.add(spawned.pid)
            return spawned
        finally:
            self._spawning -= 1
            self.reap_orphans()

    async def run(
        self, argv: Sequence[str], *, environment: Mapping[str, str], timeout_seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a short program to its end and return what it printed; errors are those of `subprocess.run`.

        It gets this environment and nothing of ours, which holds what systemd meant for the daemon alone.
        """
        self._spawning += 1
        try:
            return await in_thread(_run_program, argv, environment, timeout_seconds)
        finally:
            self._spawning -= 1
            self.reap_orphans()

    def signal(self, pid: int, number: int) -> bool | None:
        """Signal a child of ours; answer whether it was still there, None for one that is not ours.

        With the descriptor that there is: it works when no other can be had.
        """
        if (pidfd := self._pidfds.get(pid)) is None:
            return None
        waiting = select.poll()
        waiting.register(pidfd, select.POLLIN)
        if waiting.poll(0):
            return False  # it has ended and only waits to be reaped
        with suppress(OSError):
            signal.pidfd_send_signal(pidfd, number)
            return True
        return False

    def none_but(self, pid: int | None) -> bool:
        """Tell whether this is the only child, those beside the turns left out, and none is being spawned."""
        return not self._spawning and not self._pidfds.keys() - self._beside - {pid}

    @property
    def beside(self) -> frozenset[int]:
        """The pids of the living children that are no turn's."""
        return frozenset(self._beside)

    async def wait(self, pid: int) -> Exit:
        """Return how a child of ours ended, once it has; the pid is then free for another process.

        Cancelling leaves the child alone. Called once for each child.
        """
        await anyio.wait_readable(self._pidfds[pid])
        try:
            os.close(self._pidfds.pop(pid))
            return _reap(pid)
        finally:
            self._beside.discard(pid)
            self.reap_orphans()

    def reap_orphans(self) -> None:
        """Reap every ended child that we did not spawn; called at SIGCHLD.

        Not while a spawn is under way: its pid is not known yet. A known child that is still to be reaped by
        `wait` hides others behind it; its own reaping calls this again.
        """
        if self._spawning:
            return
        with suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if ended.si_pid in self._pidfds:
                    return
                os.waitid(os.P_PID, ended.si_pid, os.WEXITED | os.WNOHANG)


def _reap(pid: int) -> Exit:
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        ended = None
    if ended is None:
        _log.error("the exit status of process %d is not known", pid)
        return ExitUnknown()
    return Exited(ended.si_status) if ended.si_code == os.CLD_EXITED else Signalled(ended.si_status)


def _run_program(
    argv: Sequence[str], environment: Mapping[str, str], timeout_seconds: float
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, capture_output=True, text=True, errors="replace", check=False,
        stdin=subprocess.DEVNULL, env=dict(environment), timeout=timeout_seconds,
    )  # fmt: skip


def start_of(pid: int) -> int | None:
    """Return when a living process started; one that only waits to be reaped cannot be signalled."""
    found = procfs.process(pid)
    return found.start if found and not found.dead else None


def send_signal(pid: int, start: int, number: int) -> bool:
    """Signal exactly the process that had this pid and start time; answer whether it was there.

    The pidfd is opened before the start time is compared, so that a reused pid is never hit. Any error but
    that there is no such process is raised (OSError), a lack of descriptors above all: it may still be there.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except (ProcessLookupError, OverflowError):  # a damaged record can hold any number
        return False
    except OSError as error:
        if error.errno == errno.EINVAL:  # likewise
            return False
        raise
    try:
        if start_of(pid) != start:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
