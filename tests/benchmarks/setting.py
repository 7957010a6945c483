"""The daemon under measurement, and the bare server beside it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.daemon_harness import REPOSITORY, Daemon, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

STUB = REPOSITORY / "tests" / "stub" / "claude_stub.sh"
WRITING_STUB = Path(__file__).with_name("writing_stub.py")
TMPFS = Path("/dev/shm")


@contextmanager
def daemon(*, environment: Mapping[str, str], max_running: int = 8, stub: Path = STUB) -> Iterator[Daemon]:
    """Run a daemon with its state on tmpfs and the stub as claude."""
    with tempfile.TemporaryDirectory(dir=TMPFS, prefix="hive-bench-") as folder:
        setting = Setting(limits={"max_running": max_running}, environment=environment)
        running = Daemon(Path(folder), stub, setting).boot()
        try:
            yield running
        finally:
            running.shut()


@contextmanager
def bare_server() -> Iterator[tuple[int, int]]:
    """Run the bare server; yields its pid and port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.bare_server"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield process.pid, port
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def pid_of(running: Daemon) -> int:
    """Return the process id of the daemon."""
    assert running.process is not None
    return running.process.pid
