"""Reading a file that somebody else may have put there: never blocking, regular files only, bounded."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class NotRegularError(OSError):
    """There is something else than a regular file: a folder, a FIFO, a device."""


def read_regular(path: Path, most_bytes: int) -> bytes:
    """Return at most that many bytes from the beginning of a regular file; raises OSError.

    A FIFO without a writer would block a plain open for ever.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            message = "it is not a regular file"
            raise NotRegularError(0, message, str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content: bytes | None = file.read(most_bytes)
        if content is None:  # such a file is in /proc: it would wait for what comes
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), str(path))
        return content
    finally:
        os.close(descriptor)
