"""Run `hive-subagent notices` as claude runs a hook, and see what it told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.processes import eventually
from tests.support.scripted_daemon import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

END_SECONDS = 45.0
QUIET, WAKE = 0, 2
ESTABLISHED = "01"


@dataclass(frozen=True)
class Told:
    """How a hook ended and what it printed."""

    code: int
    stdout: str
    stderr: str


SILENCE = Told(QUIET, "", "")


class Hook:
    """One run of the command; as a context manager it is ended with the block."""

    def __init__(
        self,
        port: int,
        content: bytes | None,
        *,
        words: Sequence[str] = ("notices",),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it and give it its JSON on stdin; None: stdin stays open."""
        own = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "LANG": "C.UTF-8"}
        own |= {"HIVE_SUBAGENT_URL": f"http://127.0.0.1:{port}/mcp"} | dict(environment or {})
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hive_subagent_daemon.client_main", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=own,
            bufsize=0,
        )
        assert self.process.stdin is not None
        if content is not None:
            left = memoryview(content)
            with suppress(BrokenPipeError):  # it may end without having read everything
                while left:
                    left = left[self.process.stdin.write(left) :]
            self.process.stdin.close()
            self.process.stdin = None

    def told(self, *, within: float = END_SECONDS) -> Told:
        """Wait for its end and return what it told."""
        try:
            stdout, stderr = self.process.communicate(timeout=within)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        return Told(self.process.returncode, stdout.decode(), stderr.decode())

    def waits(self) -> bool:
        """Tell whether it has a connection now and still runs."""
        return self.process.poll() is None and connections(self.process.pid) > 0

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave no process."""
        self.process.kill()
        self.process.communicate()


def hook_input(event: str, session: str, **fields: object) -> bytes:
    """Return what claude 2.1.197 gives a hook on stdin."""
    usual = {"session_id": session, "transcript_path": "/nowhere.jsonl", "cwd": "/", "hook_event_name": event}
    return json.dumps(usual | fields).encode()


def hook(port: int, event: str = "Stop", session: str = "session-1", **fields: object) -> Hook:
    """Run the hook of an event."""
    return Hook(port, hook_input(event, session, **fields))


def waiting_hook(port: int, session: str = "session-1") -> Hook:
    """Run the hook of Stop and return it once it waits."""
    made = hook(port, "Stop", session)
    eventually(made.waits, within=10, what="a waiting hook")
    return made


def connections(pid: int) -> int:
    """Count the sockets of a process that are connected over TCP."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # it was closed meanwhile
            inodes.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[9] in inodes and row[3] == ESTABLISHED for row in rows)
