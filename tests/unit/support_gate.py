"""Children at the gate, and what became of them."""

from __future__ import annotations

import ctypes
import os
import select
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from hive_subagent_daemon.gate import ChildSpec, Gated, spawn_gated
from hive_subagent_daemon.values import Exit, Exited, Signalled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT_MILLISECONDS = 10_000
PATH = os.environ.get("PATH", os.defpath)
_SET_SUBREAPER, _GET_SUBREAPER = 36, 37  # prctl(2)
_libc = ctypes.CDLL(None, use_errno=True)


def spec_in(folder: Path, *argv: str, **fields: object) -> ChildSpec:
    """Return what to execute, with files of its own in this folder and the folder as its directory."""
    for name in ("stdin", "stdout", "stderr"):
        (folder / name).touch()
    known: dict[str, Any] = {
        "argv": argv,
        "environment": {"PATH": PATH},
        "dir": folder,
        "umask": 0o022,
        "stdin": folder / "stdin",
        "stdout": folder / "stdout",
        "stderr": folder / "stderr",
        "title": "a turn of a test",
    }
    known.update(fields)
    return ChildSpec(**known)


def shell(script: str) -> tuple[str, ...]:
    """Return the arguments of a shell that runs a script."""
    return ("/bin/sh", "-c", script)


class AtGate:
    """A child that was spawned at the gate by the test, which reaps it."""

    def __init__(self, gated: Gated) -> None:
        """Keep the child."""
        self.gated = gated
        self.pid = gated.pid
        self._open = True
        self._end: Exit | None = None

    def close(self) -> None:
        """Close the gate, once."""
        if self._open:
            self._open = False
            self.gated.close()

    def end(self) -> Exit:
        """Wait for its end under a limit and return how it ended."""
        if self._end is None:
            poll = select.poll()
            poll.register(self.gated.pidfd, select.POLLIN)
            assert poll.poll(LIMIT_MILLISECONDS), "the child did not end"
            found = os.waitid(os.P_PID, self.pid, os.WEXITED)
            assert found is not None
            exited = found.si_code == os.CLD_EXITED
            self._end = Exited(found.si_status) if exited else Signalled(found.si_status)
        return self._end

    def kill(self) -> None:
        """Kill and reap it, if it still runs, and close what belongs to it."""
        self.close()
        if self._end is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.gated.pidfd, signal.SIGKILL)
            self.end()
        os.close(self.gated.pidfd)


@contextmanager
def at_gate(spec: ChildSpec) -> Iterator[AtGate]:
    """Spawn a child at the gate; it is gone when the block ends."""
    child = AtGate(spawn_gated(spec))
    try:
        yield child
    finally:
        child.kill()


@contextmanager
def subreaper() -> Iterator[None]:
    """Be a child subreaper as the daemon is, until the block ends."""
    before = ctypes.c_int()
    _libc.prctl(_GET_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    assert _libc.prctl(_SET_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        _libc.prctl(_SET_SUBREAPER, before.value, 0, 0, 0)
