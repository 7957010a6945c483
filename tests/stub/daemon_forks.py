"""Daemons of the harness that are forked instead of executed, so that hundreds of them can be killed."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.daemon_harness import LISTENING, REPOSITORY
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from tests.support.daemon_harness import Daemon

BOOT_SECONDS = 20.0
END_SECONDS = 20.0


@dataclass(frozen=True)
class Fork:
    """One forked daemon process."""

    forks: Forks
    pid: int
    pidfd: int

    def is_gone(self, *, within: float = 0.0) -> bool:
        """Tell whether the process has ended, at the latest after this time."""
        return bool(select.select([self.pidfd], [], [], within)[0])

    def ends(self) -> int:
        """Wait until the process has ended and return its exit code, negative for a signal."""
        assert self.is_gone(within=END_SECONDS), "the daemon did not end"
        os.close(self.pidfd)
        return self.forks.order(do="reap", pid=self.pid)

    def kill(self) -> None:
        """Kill the daemon without warning, if it still runs."""
        signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        self.ends()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask the daemon to stop, and return its exit code."""
        signal.pidfd_send_signal(self.pidfd, number)
        return self.ends()


class Forks:
    """The program `killing_daemon`, ready to fork daemons while the context lasts."""

    def __enter__(self) -> Forks:
        """Start the program."""
        words = [sys.executable, "-m", "tests.stub.killing_daemon"]
        environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}
        self._program = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the program."""
        self._program.communicate(timeout=END_SECONDS)

    def order(self, **order: object) -> int:
        """Give one order and return the number that answers it."""
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        print(json.dumps(order), file=self._program.stdin, flush=True)
        return int(self._program.stdout.readline())

    def boot(
        self,
        daemon: Daemon,
        *,
        instant: str | None = None,
        trace: Path | None = None,
        faults: Mapping[str, object] | None = None,
    ) -> Fork:
        """Fork a daemon and return once it serves or is gone; `daemon` is then connected to it."""
        offset = len(daemon.log)
        pid = self.order(
            do="fork",
            config=str(daemon.write_config()),
            log=str(daemon.log_file),
            folder=str(daemon.folder),
            state=str(daemon.state),
            environment={"PATH": "/usr/bin:/bin", "HOME": str(daemon.home), "LANG": "C.UTF-8"},
            instant=instant,
            trace=str(trace) if trace else None,
            faults=faults,
        )
        fork = Fork(self, pid, os.pidfd_open(pid))

        def serves() -> bool:
            """Tell whether it serves or is gone."""
            found = LISTENING.search(daemon.log[offset:])
            daemon.port = int(found[1]) if found else 0
            return found is not None or fork.is_gone()

        eventually(serves, within=BOOT_SECONDS, what="the daemon serving")
        return fork
