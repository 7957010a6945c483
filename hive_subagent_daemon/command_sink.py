"""Sinks that are programs: the loose end on standard input, taken when the program exits with 0 in time.

The program gets the environment that turns get of the daemon's (nothing of systemd's, nothing of claude's,
nothing that is configured for turns), the id of the loose end in a variable, and a session of its own. When
it ends or its time is up, everything that it has started is killed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import signal
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from hive_subagent_daemon import claude_command, procfs
from hive_subagent_daemon.deliveries import Answer, failed, of_exit
from hive_subagent_daemon.gate import OOM_SCORE, RESETTABLE, inherited_descriptors
from hive_subagent_daemon.membership import DELIVERY_VARIABLE, TurnRoot, deliveries
from hive_subagent_daemon.process_group import GroupChild
from hive_subagent_daemon.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hive_subagent_daemon.children import Children
    from hive_subagent_daemon.sink_values import CommandSink

_log = logging.getLogger(__name__)

RUN_SECONDS: Final = 60.0
REAP_SECONDS: Final = 2.0
KEY_VARIABLE: Final = "HIVE_SUBAGENT_LOOSE_END"


@dataclass(frozen=True)
class Program:
    """A running program of a sink; the pidfd is its owner's to close."""

    pid: int
    pidfd: int
    start: int


class CommandCarrier:
    """Runs one program for each attempt."""

    def __init__(
        self, sink: CommandSink, children: Children, *, environ: Mapping[str, str], state_dir: Path
    ) -> None:
        """Run it as a child beside the turns; `environ` is the daemon's own environment.

        By its state directory a daemon knows the programs again that an earlier one left.
        """
        self._argv = sink.argv
        self._children = children
        self._environment = claude_command.inherited_environment(environ)
        self._mark = hashlib.sha256(f"{state_dir}\0{sink.id}".encode()).hexdigest()[:16]
        self._is_first = True

    async def carry(self, loose_end_id: str, body: bytes) -> Answer:
        """Try once, and return what the program made of it; within RUN_SECONDS and the time to kill it."""
        if self._is_first:
            await self._end_earlier()
            self._is_first = False
        mark = f"{self._mark}-{secrets.token_hex(8)}"
        environment = self._environment | {KEY_VARIABLE: loose_end_id, DELIVERY_VARIABLE: mark}
        try:
            running = await self._children.spawn(
                partial(spawn, self._argv, environment, stdin=body), beside=True
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL in the environment
            reason = error.strerror if isinstance(error, OSError) else error
            return failed(f"it cannot be executed: {reason}")
        root = TurnRoot(mark, None, running.pid, running.start, variable=DELIVERY_VARIABLE)
        answer = failed(f"it was not done within {RUN_SECONDS:.0f} s and was killed")
        try:
            with anyio.move_on_after(RUN_SECONDS):
                answer = of_exit(await self._children.wait(running.pid))
        finally:
            with anyio.CancelScope(shield=True):
                await self._end(root)
        return answer

    async def _end_earlier(self) -> None:
        """Kill what a crashed daemon left of this sink's program: nobody else ends it, and we begin anew."""
        for mark in await in_thread(deliveries, self._mark):
            _log.warning("a program of sink %s that an earlier daemon left is killed", self._argv[0])
            await self._end(TurnRoot(mark, None, None, 0, variable=DELIVERY_VARIABLE))

    async def _end(self, root: TurnRoot) -> None:
        """Leave nothing of a program, and reap it if it has not ended by itself."""
        await GroupChild(self._children, root, not_ours=frozenset(), foreign=True).empty()
        if root.pid in self._children.beside:
            with anyio.move_on_after(REAP_SECONDS):
                await self._children.wait(root.pid)


def spawn(argv: tuple[str, ...], environment: Mapping[str, str], *, stdin: bytes) -> Program:
    """Start a program with this standard input; raises OSError. Blocks until it is executed.

    The input is a file in memory: a program that does not read it holds up nobody. What it prints is dropped;
    its errors go where the daemon's own do.
    """
    content = os.memfd_create("loose-end", os.MFD_CLOEXEC)
    try:
        with os.fdopen(content, "wb", closefd=False) as file:
            file.write(stdin)
        os.lseek(content, 0, os.SEEK_SET)
        pid = os.posix_spawnp(
            argv[0],
            argv,
            dict(environment),
            file_actions=[
                *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in inherited_descriptors()),
                (os.POSIX_SPAWN_DUP2, content, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0o600),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=RESETTABLE,
        )
    finally:
        os.close(content)
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)  # a child of ours that is not reaped yet: still this one
        raise
    procfs.prefer_for_oom_kill(pid, OOM_SCORE)
    found = procfs.process(pid)
    return Program(pid, pidfd, found.start if found else 0)
