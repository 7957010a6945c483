"""The one module for durable operations: what these methods return from is on the disk.

Every write, rename and removal that must survive a crash goes through `Storage`, so that a test can count
the operations and kill the daemon before and after each.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import logging
import os
import secrets
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon.errors import StartUpError

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger(__name__)

GONE_PREFIX: Final = ".gone."
FREE_BYTES_TO_START: Final = 64 * 1024 * 1024
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_RENAME_NOREPLACE: Final = 1
_AT_FDCWD: Final = -100
_PUNCH_HOLE_KEEP_SIZE: Final = 0x02 | 0x01  # fallocate(2)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class Storage:
    """Durable operations below one state directory, and the ballast that keeps them possible on a full disk.

    All methods block; callers on the event loop use a worker thread. Errors are OSError.
    """

    def __init__(self, root: Path, *, ballast_bytes: int) -> None:
        """Use `root`, which must exist; the ballast is made by `restore_ballast`."""
        self.root = root
        self._ballast = root / "ballast"
        self._ballast_bytes = ballast_bytes

    def write(self, path: Path, content: bytes) -> None:
        """Replace the file as a whole: after a crash it has either the old or the new content (mode 0600)."""
        try:
            self._write(path, content)
        except OSError as error:
            if error.errno not in _FULL or not self._drop_ballast():
                raise
            self._write(path, content)

    def _write(self, path: Path, content: bytes) -> None:
        partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
        try:
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            self._put(partial, path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)

    def _put(self, partial: Path, path: Path) -> None:
        try:
            partial.rename(path)
        except IsADirectoryError:
            # Nobody of us makes one there: it must not keep the end of a turn from being stored for ever.
            _log.error("the folder %s is in the way of a file: set aside as %s", path, self.set_aside(path))
            partial.rename(path)

    def make_folder(self, path: Path) -> None:
        """Make a folder (mode 0700); an existing one is an error."""
        path.mkdir(mode=0o700)
        _sync_folder(path.parent)

    def rename(self, source: Path, target: Path) -> None:
        """Rename durably and never over an existing target (FileExistsError)."""
        _rename_without_replacing(source, target)
        _sync_folder(target.parent)
        if source.parent != target.parent:
            _sync_folder(source.parent)

    def remove(self, path: Path) -> None:
        """Remove a file if it is there."""
        path.unlink(missing_ok=True)
        _sync_folder(path.parent)

    def remove_folder(self, path: Path) -> None:
        """Remove a folder with all that is in it, if it is there.

        It gets another name first: a crash in the middle must not leave a part of it under its own.
        """
        gone = path.with_name(f"{GONE_PREFIX}{path.name}")
        if path.exists():
            path.rename(gone)
            _sync_folder(path.parent)
        if gone.exists():
            shutil.rmtree(gone)

    def set_aside(self, path: Path) -> Path:
        """Move something unreadable out of the way and return where it is now."""
        folder = self.root / "set-aside"
        folder.mkdir(mode=0o700, exist_ok=True)
        target = folder / f"{path.name}.{secrets.token_hex(4)}"
        self.rename(path, target)
        return target

    def check_writable(self) -> None:
        """Raise OSError when a durable write is not possible now."""
        probe = self.root / f".probe.{secrets.token_hex(4)}"
        self.write(probe, b"\0" * 4096)
        probe.unlink()

    def free_bytes(self) -> int:
        """Return how much an ordinary user may still write to the state directory's file system."""
        statistics = os.statvfs(self.root)
        return statistics.f_bavail * statistics.f_frsize

    def restore_ballast(self) -> None:
        """Make the ballast file when it is missing and the disk has room beyond what `start` needs."""
        partial = self._ballast.with_name(".ballast.partial")
        try:
            if self._ballast.exists() or self.free_bytes() < FREE_BYTES_TO_START + self._ballast_bytes:
                return
            with partial.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, self._ballast_bytes)
            partial.rename(self._ballast)
        except OSError as error:
            _log.warning("the ballast file could not be made: %s", error)
            with suppress(OSError):
                partial.unlink(missing_ok=True)

    def _drop_ballast(self) -> bool:
        """Free the ballast; answer whether there was one."""
        try:
            self._ballast.unlink()
        except FileNotFoundError:
            return False
        _log.warning(
            "the disk of %s is full: the ballast was freed to store what must not be lost", self.root
        )
        return True


def give_back(descriptor: int, *, upto_bytes: int) -> None:
    """Return the start of a file to the file system; its size stays (fallocate(2), punch hole).

    A file system that cannot do it keeps the blocks. Not durable on purpose: nothing depends on it.
    """
    if _libc.fallocate(descriptor, _PUNCH_HOLE_KEEP_SIZE, 0, upto_bytes) != 0:
        _log.debug("output could not be given back: %s", os.strerror(ctypes.get_errno()))


def open_state_dir(path: Path) -> int:
    """Make the state directory where it is missing, lock it, and return the lock's descriptor.

    Raises StartUpError when it cannot be written or when another daemon holds it.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in ("names", "prompts", "turns", "loose-ends", "notices", "slices", "set-aside"):
            (path / folder).mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = (
            f"the state directory {path} cannot be used: {error}. "
            "Make it writable for this user, or set state_dir."
        )
        raise StartUpError(message) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        message = (
            f"the state directory {path} is in use by another daemon (pid {holder or 'unknown'}). "
            "Stop that one, or give this one a state_dir of its own."
        )
        raise StartUpError(message) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot sync a folder
            raise
    finally:
        os.close(descriptor)


def _rename_without_replacing(source: Path, target: Path) -> None:
    arguments = (_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE)
    if _libc.renameat2(*arguments) == 0:
        return
    number = ctypes.get_errno()
    if number not in (errno.ENOSYS, errno.EINVAL):
        raise OSError(number, os.strerror(number), str(source), None, str(target))
    os.link(source, target)  # a file system without RENAME_NOREPLACE
    try:
        source.unlink()
    except OSError:
        target.unlink()
        raise
