"""Failing system calls for the storage, and other processes that use it."""

from __future__ import annotations

import ctypes
import os
import select
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

LIMIT_SECONDS = 20.0
WRITER = """
import sys
from pathlib import Path
from hive_subagent_daemon.storage import Storage
path = Path(sys.argv[1])
storage = Storage(path.parent, ballast_bytes=0)
while True:
    for letter in b"ab":
        storage.write(path, bytes([letter]) * 300_000)
        print("written", flush=True)
"""
OTHER_HOLDER = """
import sys
from pathlib import Path
from hive_subagent_daemon.storage import open_state_dir
open_state_dir(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


class Crash(BaseException):
    """Stands for the death of the process: no handler of the package may catch it."""


class Faults:
    """Records the system calls of a write and lets a chosen one fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Stand between the storage and the system; nothing fails yet."""
        self.calls: list[str] = []
        self._failing: tuple[str, BaseException, Path | None] | None = None
        fsync, fdopen, rename, open_ = os.fsync, os.fdopen, Path.rename, os.open

        def opening(path: str | Path, flags: int, mode: int = 0o777) -> int:
            self._called("open folder" if flags & os.O_DIRECTORY == os.O_DIRECTORY else "open")
            return open_(path, flags, mode)

        def syncing(descriptor: int) -> None:
            self._called("fsync folder" if _is_folder(descriptor) else "fsync")
            fsync(descriptor)

        def opening_file(descriptor: int, mode: str) -> object:
            return _Writing(fdopen(descriptor, mode), lambda: self._called("write"))

        def renaming(source: Path, target: Path) -> Path:
            self._called("rename")
            return rename(source, target)

        monkeypatch.setattr(os, "open", opening)
        monkeypatch.setattr(os, "fsync", syncing)
        monkeypatch.setattr(os, "fdopen", opening_file)
        monkeypatch.setattr(Path, "rename", renaming)

    def set(self, call: str, error: BaseException, *, while_exists: Path | None = None) -> None:
        """Let this call fail from now on, or as long as a file exists."""
        self._failing = (call, error, while_exists)

    def _called(self, call: str) -> None:
        self.calls.append(call)
        if self._failing is not None:
            failing, error, path = self._failing
            if failing == call and (path is None or path.exists()):
                raise error


class _Writing:
    """A file whose writing is noticed."""

    def __init__(self, file: IO[bytes], called: Callable[[], None]) -> None:
        self._file = file
        self._called = called

    def __enter__(self) -> _Writing:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, content: bytes) -> int:
        self._called()
        return self._file.write(content)

    def flush(self) -> None:
        self._file.flush()


def _is_folder(descriptor: int) -> bool:
    return Path(f"/proc/self/fd/{descriptor}").is_dir()


def ending(number: int) -> SimpleNamespace:
    """Return a C library whose calls all fail with this error number."""

    def failing(*_: object) -> int:
        ctypes.set_errno(number)
        return -1

    return SimpleNamespace(renameat2=failing, fallocate=failing)


class OtherPython:
    """Another Python process that tells by lines how far it is."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Keep the process."""
        self.pid = process.pid
        self._process = process

    def wait_for_line(self) -> bytes:
        """Return its next line; fail when the limit passes or it ends."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], LIMIT_SECONDS)
        assert ready, "the other process said nothing"
        line = self._process.stdout.readline()
        assert line, "the other process ended"
        return line


@contextmanager
def other_python(program: str, *arguments: str) -> Iterator[OtherPython]:
    """Run a program in another Python process; kill it when the block ends."""
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])},
        bufsize=0,
    ) as process:
        try:
            yield OtherPython(process)
        finally:
            process.kill()
