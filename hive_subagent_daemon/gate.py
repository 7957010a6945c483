"""Spawning a program held at a gate, so that it is recorded and placed before its first instruction runs.

A small `sh` waits for one line on its standard input and only then becomes the program (exec keeps the pid).
Closed without that line, because the daemon died, it ends without executing anything. Its messages begin
with a marker, by which a refused exec is told from a program that ran and failed.
"""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
from typing_extensions import override

from hive_subagent_daemon import procfs
from hive_subagent_daemon.errors import SubagentError

if TYPE_CHECKING:
    from collections.abc import Mapping

MARKER: Final = "hive-subagent-gate"
NOT_RELEASED: Final = f"{MARKER}: closed before the release"
EXEC_TIMEOUT_SECONDS: Final = 10.0
NAMELESS_SECONDS: Final = 1.0
LEFT_GATE_SECONDS: Final = 2.0
OOM_SCORE: Final = 500

_SCRIPT: Final = f"""\
read -r word || {{ echo '{NOT_RELEASED}' >&2; exit 97; }}
umask "$1" && cd -- "$2" && if [ "$3" ]; then exec <"$3"; else exec <&3 3<&-; fi || exit 97
shift 3
exec "$@"
"""
_SHELL: Final = "/bin/sh"
_FIFO: Final = 3
_SHELL_POSITION: Final = re.compile(r"^\s*(?:line )?\d+: (?:exec: )?|^\s+")  # `4: exec: claude: not found`
_GATE_COMMAND_LINE: Final = "\0".join((_SHELL, "-c", _SCRIPT, MARKER, "")).encode()
# SIGKILL and SIGSTOP cannot be set; the two below SIGRTMIN are the C library's own.
RESETTABLE: Final = [s for s in signal.valid_signals() if s not in (signal.SIGKILL, signal.SIGSTOP)]


class SpawnError(SubagentError):
    """The program was not executed; the message says why."""


@dataclass(frozen=True)
class ChildSpec:
    """What to execute and with which files; the environment holds secrets and stays out of `repr`.

    `title` says what it is, for people. A FIFO as stdin needs a writer already.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    dir: Path
    umask: int
    stdin: Path
    stdout: Path
    stderr: Path
    title: str
    stdin_is_fifo: bool = False

    @override
    def __repr__(self) -> str:
        """Show the program only."""
        return f"ChildSpec({self.argv[0]!r}, dir={str(self.dir)!r})"


@dataclass(frozen=True)
class Gated:
    """A child that waits at the gate: a session leader with default signal dispositions and an empty mask."""

    pid: int
    pidfd: int
    start: int
    stderr: Path
    release_fd: int

    def close(self) -> None:
        """Close the gate; a child that was not released ends without having executed anything."""
        os.close(self.release_fd)

    async def release(self) -> None:
        """Let the child execute its program and return once it has.

        Raises SpawnError when the program could not be executed.
        """
        with suppress(BrokenPipeError):  # the gate is gone: what it said stands in stderr
            os.write(self.release_fd, b"go\n")
        await self._executed()
        if (complaint := self._complaint()) is not None:
            raise SpawnError(complaint)

    async def _executed(self) -> None:
        """Wait until the process is something else than the gate, or has ended."""
        began = time.monotonic()
        pause = 0.0002
        while is_gate(self.pid, patient=time.monotonic() - began < NAMELESS_SECONDS):
            if time.monotonic() - began > EXEC_TIMEOUT_SECONDS:
                message = f"the program was not executed within {EXEC_TIMEOUT_SECONDS:.0f} seconds"
                raise SpawnError(message)
            await anyio.sleep(pause)
            pause = min(pause * 1.5, 0.01)

    def _complaint(self) -> str | None:
        """Return what the gate itself wrote to stderr, without the marker; None when it wrote nothing."""
        found = procfs.process(self.pid)
        if found is not None and not found.dead:
            return None
        return gate_complaint(self.stderr)


def is_gate(pid: int, *, patient: bool) -> bool:
    """Tell whether a process still is the gate.

    In the middle of an exec the kernel shows an empty command line for a moment: only a patient look takes
    that for the gate, since a program can also empty its own.
    """
    shown = procfs.command_line(pid)
    if shown:
        return shown.startswith(_GATE_COMMAND_LINE)
    found = procfs.process(pid)
    return patient and found is not None and not found.dead


async def left_gate(pid: int) -> bool:
    """Return once a process of an earlier daemon is not the gate any more, with whether it came that far.

    Without that daemon a gate ends by itself, or executes its program if it had been released.
    """
    began = time.monotonic()
    while is_gate(pid, patient=time.monotonic() - began < NAMELESS_SECONDS):
        if time.monotonic() - began > LEFT_GATE_SECONDS:
            return False
        await anyio.sleep(0.001)
    return True


def gate_complaint(stderr: Path) -> str | None:
    """Return the gate's own message at the start of a turn's stderr, None when the program was executed."""
    with stderr.open("rb") as file:
        head = file.read(1000).decode("utf-8", "replace")
    if not head.startswith(f"{MARKER}:"):
        return None
    return _SHELL_POSITION.sub("", head.splitlines()[0].removeprefix(f"{MARKER}:"))


def spawn_gated(spec: ChildSpec) -> Gated:
    """Start the gate of a child. Blocks for about a millisecond; raises SpawnError."""
    with ExitStack() as undo:
        try:
            read_end, write_end = os.pipe2(os.O_CLOEXEC)
            undo.callback(os.close, write_end)
            try:
                pid = _spawn_shell(spec, read_end)
            finally:
                os.close(read_end)
            undo.callback(os.kill, pid, signal.SIGKILL)  # a child of ours that is not reaped: still this one
            pidfd = os.pidfd_open(pid)
        except (OSError, ValueError) as error:  # ValueError: a NUL in an argument or the environment
            reason = error.strerror if isinstance(error, OSError) else error
            message = f"no process could be created: {reason}"
            raise SpawnError(message) from error
        undo.pop_all()
    procfs.prefer_for_oom_kill(pid, OOM_SCORE)
    found = procfs.process(pid)
    return Gated(pid, pidfd, found.start if found else 0, spec.stderr, write_end)


def inherited_descriptors() -> list[int]:
    """Return the descriptors that we were started with and would pass on; our own are all close-on-exec."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        descriptor = int(entry.name)
        with suppress(OSError):  # closed by another thread, or by the end of this listing
            if descriptor > 2 and os.get_inheritable(descriptor):
                found.append(descriptor)
    return found


def _spawn_shell(spec: ChildSpec, gate: int) -> int:
    """Create the process, with the gate as its standard input.

    posix_spawn(3), not fork: it can reset ignored signals, which a daemon started in the background of a
    shell script has inherited and would pass on (SIGINT ignored would make claude deaf to an interrupt).
    """
    append = os.O_WRONLY | os.O_APPEND
    # Opened here, while we write: a shell that opened it after our death would wait for a writer for ever.
    fifo = [(os.POSIX_SPAWN_OPEN, _FIFO, os.fspath(spec.stdin), os.O_RDONLY, 0)] if spec.stdin_is_fifo else []
    stdin = "" if spec.stdin_is_fifo else str(spec.stdin)
    argv = (_SHELL, "-c", _SCRIPT, MARKER, f"{spec.umask:04o}", str(spec.dir), stdin, *spec.argv)
    return os.posix_spawn(
        _SHELL,
        argv,
        dict(spec.environment),
        file_actions=[
            *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in inherited_descriptors()),
            (os.POSIX_SPAWN_DUP2, gate, 0),
            *fifo,
            (os.POSIX_SPAWN_OPEN, 1, os.fspath(spec.stdout), append, 0o600),
            (os.POSIX_SPAWN_OPEN, 2, os.fspath(spec.stderr), append, 0o600),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=RESETTABLE,
    )
