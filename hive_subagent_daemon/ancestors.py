"""Whether those still live for whom a hook's command works: the claude that runs it, the reader of its text.

claude runs a hook by `/bin/sh -c` in a session of its own, with sockets as stdout and stderr. Killed, it
takes neither with it (2.1.197: not even at SIGTERM and SIGINT), so the command has to look: at its parent, at
what is above a parent that is a shell, and at whether the reader of its stderr has gone.
"""

from __future__ import annotations

import os
import select
import time
from pathlib import Path
from typing import Final

SHELLS: Final = frozenset({"sh", "dash", "bash", "ash", "ksh", "mksh", "zsh", "fish", "busybox"})
MOST_LEVELS: Final = 5
STDERR: Final = 2


class Ancestors:
    """Watches them by descriptors, so that waiting costs nothing."""

    def __init__(self) -> None:
        """Begin to watch: the parent and, through shells, what started them."""
        self._poll: Final = select.poll()
        self._poll.register(STDERR, 0)  # an end of its reader is told without being asked for
        self._gone = not _is_open(STDERR)
        self._watched: Final[set[int]] = {STDERR}
        pid, child = os.getppid(), os.getpid()
        for _ in range(MOST_LEVELS):
            if not self._watch(pid, child):
                return
            command, parent = _command_and_parent(pid)
            if command not in SHELLS:
                return
            pid, child = parent, pid

    def wait(self, *, beside: int | None = None, seconds: float | None = None) -> bool:
        """Wait until a descriptor is readable, for so long at most; False as soon as an ancestor has gone.

        True means that it is readable, or that the time is up.
        """
        ends = None if seconds is None else time.monotonic() + seconds
        if beside is not None:
            self._poll.register(beside, select.POLLIN)
        try:
            while not self._gone:
                left = None if ends is None else max(ends - time.monotonic(), 0) * 1000
                found = self._poll.poll(left)
                self._gone = any(descriptor in self._watched for descriptor, _ in found)
                if not self._gone:
                    return True
            return False
        finally:
            if beside is not None:
                self._poll.unregister(beside)

    def _watch(self, pid: int, child: int) -> bool:
        """Watch a process that is the parent of `child`; False when there is nothing to go on from."""
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._gone = True
            return False
        except OSError:
            return False  # a kernel or a sandbox without pidfds: the end of our reader is told all the same
        if _command_and_parent(child)[1] != pid:
            self._gone = True  # it ended while we looked, and the number may be another's now
            return False
        self._watched.add(descriptor)
        self._poll.register(descriptor, select.POLLIN)
        return True


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _command_and_parent(pid: int) -> tuple[str, int]:
    """Return the name and the parent of a process; an empty name and 0 when it has gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return "", 0
    name, _, rest = stat.partition("(")[2].rpartition(")")
    return name, int(rest.split()[1])
