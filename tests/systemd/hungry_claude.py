"""The scripted claude with an appetite: it, or a process that it runs, takes more and more memory."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.stub.claude_stub import Stub, write_whole
from tests.support.scripted_daemon import REPOSITORY

Step = dict[str, Any]
PIECE_BYTES = 4 * 1024 * 1024


def eat(*, size_bytes: int) -> Step:
    """Take this much memory and keep it."""
    return {"do": "eat", "bytes": size_bytes}


def feed(record: str, *, size_bytes: int) -> Step:
    """Let a child, whose pid lands in `record`, take this much memory; go on when it has ended."""
    return {"do": "feed", "record": record, "bytes": size_bytes}


def multiply(record: str) -> Step:
    """Make processes of its own until none can be had; how many there were lands in `record`."""
    return {"do": "multiply", "record": record}


def take(size_bytes: int) -> list[bytearray]:
    """Take memory and write to every page of it."""
    return [bytearray(b"x" * PIECE_BYTES) for _ in range(size_bytes // PIECE_BYTES)]


class HungryStub(Stub):
    """What the scripted claude does, and two steps more."""

    def do_eat(self, step: Step) -> None:
        """Take memory."""
        self.eaten = take(step["bytes"])

    def do_feed(self, step: Step) -> None:
        """Let a child take memory and wait for its end."""
        child = os.fork()
        if child == 0:
            write_whole(self.scripts / step["record"], str(os.getpid()))
            take(step["bytes"])
            os._exit(0)
        os.waitpid(child, 0)

    def do_multiply(self, step: Step) -> None:
        """Fork until that fails; what is born stays."""
        born = 0
        try:
            while os.fork() != 0:
                born += 1
        except BlockingIOError:
            write_whole(self.scripts / step["record"], str(born))
        else:
            signal.pause()


def write_claude(path: Path) -> Path:
    """Write the program that plays claude, for every user: a fast start of Python with the code above."""
    lines = [
        f"#!{Path(sys.executable).resolve()} -IS",
        "import sys",
        f"sys.path.insert(0, {str(REPOSITORY)!r})",
        "from tests.stub import claude_stub",
        "from tests.systemd.hungry_claude import HungryStub",
        "claude_stub.Stub = HungryStub",
        "claude_stub.main()",
    ]
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o755)
    return path
