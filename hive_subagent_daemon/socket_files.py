"""Unix sockets in the file system: made for the owner alone, never stolen from a living daemon."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon.errors import StartUpError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOCKET_MODE: Final = 0o600
# Another daemon holds the lock of the folder only while it binds.
FOLDER_LOCK_SECONDS: Final = 1.0
FOLDER_LOCK_PAUSE_SECONDS: Final = 0.01
# The kernel's sun_path has 108 bytes, one of them for the end.
PATH_BYTES: Final = 107


@dataclass(frozen=True, slots=True)
class SocketFile:
    """The file of a socket that we made, pinned by a descriptor so that its inode number stays its own."""

    path: Path
    pin: int

    def remove(self) -> None:
        """Remove the file unless somebody else has put another one in its place."""
        ours = os.fstat(self.pin)
        with contextlib.suppress(OSError):
            found = self.path.lstat()
            if (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino):
                self.path.unlink()
        os.close(self.pin)


def listen_on_file(path: Path, *, backlog: int) -> tuple[socket.socket, SocketFile]:
    """Make the socket file, mode 0600 from the first moment, and listen; a stale one is replaced.

    StartUpError when a living process listens there, something else lies there, or the folder is no good.
    """
    if len(os.fsencode(path)) > PATH_BYTES:
        message = (
            f"socket path {path} is longer than {PATH_BYTES} bytes, the kernel's limit: use a shorter one."
        )
        raise StartUpError(message)
    if not path.parent.is_dir():
        message = f"cannot listen on {path}: there is no folder {path.parent}; make it first."
        raise StartUpError(message)
    try:
        with _folder_lock(path.parent), contextlib.ExitStack() as undo:
            _remove_stale(path)
            listening = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            # Linux takes the mode of the new file from the socket's own inode: no umask games, no race.
            os.fchmod(listening.fileno(), SOCKET_MODE)
            listening.bind(os.fspath(path))
            pin = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            listening.listen(backlog)
            undo.pop_all()
    except OSError as error:
        message = f"cannot listen on {path}: {error.strerror}; check the folder, or set another `listen`."
        raise StartUpError(message) from error
    return listening, SocketFile(path, pin)


@contextlib.contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Let one daemon at a time look at, remove and make a file; no lock in a folder we may not read."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        yield
        return
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    deadline = time.monotonic() + FOLDER_LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(FOLDER_LOCK_PAUSE_SECONDS)
                continue
            message = (
                f"cannot make a socket in {folder}: another program keeps the folder locked (flock); stop it."
            )
            raise StartUpError(message) from None
        return


def _remove_stale(path: Path) -> None:
    """Remove a socket file on which nobody listens any more; refuse everything else that lies there."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        message = f"cannot listen on {path}: what lies there is no socket; remove it, or set another path."
        raise StartUpError(message)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # Not blocking: a full queue (EAGAIN) is a living listener too.
        probe.setblocking(False)
        refused = probe.connect_ex(os.fspath(path))
    if refused != errno.ECONNREFUSED:
        message = f"cannot listen on {path}: another process listens there; stop it, or set another path."
        raise StartUpError(message)
    path.unlink()
