"""Lets system calls of a daemon fail, and its wall clock jump, from inside its own process.

What is watched is what the package asks of the kernel for its state directory and its processes: opening,
listing, reading, syncing, renaming, removing, and creating a process. Each call is an operation with a name
and a number (`fsync loose-ends/partial #2`), the same in every run of the same story. One of them can be made
to fail once, or it and all that follow it for a while, at most until the test removes a file.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar
from unittest import mock

from hive_subagent_daemon import clock, storage

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

T = TypeVar("T")
P = ParamSpec("P")
PATH_EVENTS = (
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.truncate",
    "os.listdir",
    "open",
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
ON_DESCRIPTORS = ("fsync", "pread", "fstat", "posix_fallocate")
LASTING_SECONDS = 0.6
OF_PROCESSES = ("pipe2", "pidfd_open")


@dataclass(frozen=True)
class Fault:
    """Which operation fails with which error; `while_there`: then all fail while this file exists.

    At most for LASTING_SECONDS."""

    error: str
    operation: str
    while_there: str | None = None


class FaultLayer:
    """Counts the operations of one daemon by their names, and lets the chosen one fail."""

    def __init__(
        self, root: Path, *, place: Callable[[str], str], trace: Path | None, fault: Fault | None
    ) -> None:
        """Watch a daemon with the state directory `root`; `place` names a path in it alike in every run."""
        self._root = str(root)
        self._place = place
        self._fault = fault
        self._trace = os.open(trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) if trace else None
        self._met: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._inside = threading.local()
        self._until = 0.0

    def meet(self, what: str) -> None:
        """Count this operation; fail if it is the chosen one, or one of those that fail for a while."""
        if getattr(self._inside, "layer", False):
            return
        self._inside.layer = True
        try:
            with self._lock:
                self._met[what] += 1
                operation = f"{what} #{self._met[what]}"
            if self._trace is not None:
                os.write(self._trace, f"{operation}\n".encode())
            failing = self._is_failing(operation)
        finally:
            self._inside.layer = False
        if failing:
            self._fail(what)

    def _is_failing(self, operation: str) -> bool:
        if self._fault is None:
            return False
        lasting = self._fault.while_there
        if operation == self._fault.operation:
            if lasting is not None:
                Path(lasting).touch()
                self._until = time.monotonic() + LASTING_SECONDS
            return True
        return lasting is not None and time.monotonic() < self._until and Path(lasting).exists()

    def _fail(self, what: str) -> NoReturn:
        assert self._fault is not None
        number = getattr(errno, self._fault.error)
        raise OSError(number, f"{os.strerror(number)} (the fault layer, at {what})")

    def on_audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take what Python audits for an operation: all that names a path, and the creation of a process."""
        if event == "os.posix_spawn":
            self.meet("posix_spawn")
        elif event in PATH_EVENTS and isinstance(arguments[0], str | bytes | os.PathLike):
            writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
            path = os.fsdecode(arguments[0])
            if path.startswith(f"{self._root}/"):
                self.meet(f"{'write' if writes else event} {self._place(path)}")

    def on_descriptor(self, name: str, call: Callable[P, T]) -> Callable[P, T]:
        """Return a call on a descriptor, watched where that is of a file in the state directory."""

        @functools.wraps(call)
        def watched(*arguments: P.args, **named: P.kwargs) -> T:
            """Meet the call, which may fail it, then make it."""
            path = str(Path(f"/proc/self/fd/{arguments[0]}").readlink())
            if path.startswith(f"{self._root}/"):
                self.meet(f"{name} {self._place(path.removesuffix(' (deleted)'))}")
            return call(*arguments, **named)

        return watched

    def anyhow(self, name: str, call: Callable[P, T]) -> Callable[P, T]:
        """Return a call that is always watched."""

        @functools.wraps(call)
        def watched(*arguments: P.args, **named: P.kwargs) -> T:
            """Meet the call, which may fail it, then make it."""
            self.meet(name)
            return call(*arguments, **named)

        return watched

    def install(self) -> None:
        """Watch this process from now on."""
        for name in ON_DESCRIPTORS:
            mock.patch.object(os, name, self.on_descriptor(name, getattr(os, name))).start()
        for name in (*OF_PROCESSES, "statvfs"):
            mock.patch.object(os, name, self.anyhow(name, getattr(os, name))).start()
        renaming = "_rename_without_replacing"
        mock.patch.object(storage, renaming, self.anyhow("renameat2", getattr(storage, renaming))).start()
        sys.addaudithook(self.on_audit)


def let_the_clock_jump(offset: Path) -> None:
    """Let the wall clock of this process be off by as many seconds as stand in a file, now and later."""
    true_time, true_now = time.time, clock.now

    def off_by() -> float:
        """Return by how many seconds the clock is off now."""
        return float(offset.read_text()) if offset.exists() else 0.0

    def jumping_now() -> datetime:
        """Return the moment that the jumped clock shows."""
        return true_now() + timedelta(seconds=off_by())

    def jumping_time() -> float:
        """Return the seconds that the jumped clock shows."""
        return true_time() + off_by()

    mock.patch.object(time, "time", jumping_time).start()
    mock.patch.object(clock, "now", jumping_now).start()
