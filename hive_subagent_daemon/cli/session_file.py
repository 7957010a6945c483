"""A session file of claude's: where it is, and its lines as they are written.

Files of hostile content: only regular ones are opened, and a line that is not whole yet is waited for.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon.claude_store import project_slug
from hive_subagent_daemon.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

_SESSION: Final = re.compile(r"[0-9A-Za-z-]{1,64}")
_ARCHIVED: Final = re.compile(r"\.jsonl\.archived(?:\.([0-9]+))?")
_CHUNK_BYTES: Final = 1 << 20


class SessionPlace:
    """Where the file of a session may be, below claude's config directory."""

    def __init__(self, config_dir: Path, *, directory: Path, session_id: str) -> None:
        """Look below `config_dir`, first in the project folder of the subagent's `directory`."""
        if not _SESSION.fullmatch(session_id):
            message = f"{session_id!r} is not the id of a session."
            raise RefusedError(message)
        self.projects: Final = Path(os.path.realpath(directory)) / config_dir / "projects"
        self.expected: Final = (
            self.projects / project_slug(os.path.realpath(directory)) / f"{session_id}.jsonl"
        )
        self._session_id = session_id

    def found(self) -> Path | None:
        """Return the file: in its folder, else in any other (the id is unique), else the last archived one.

        Raises RefusedError when this user may not look there.
        """
        try:
            if self.expected.exists():
                return self.expected
            folders = [self.expected.parent, *self._folders()]
            elsewhere = (folder / self.expected.name for folder in folders)
            return next(filter(Path.exists, elsewhere), None) or self._archived(folders)
        except PermissionError as error:
            message = (
                f"you may not read {error.filename}, where claude keeps the sessions of that daemon: ask as "
                "the user that the daemon runs as, `sudo -u USER hive-subagent log …`."
            )
            raise RefusedError(message) from None

    def _folders(self) -> list[Path]:
        try:
            return sorted(path for path in self.projects.iterdir() if path.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _archived(self, folders: list[Path]) -> Path | None:
        """Return the file of the session that was archived last."""
        numbered = [
            (int(found[1] or 0), path)
            for folder in folders
            for path in folder.glob(f"{self._session_id}.jsonl.archived*")
            if (found := _ARCHIVED.fullmatch(path.name.removeprefix(self._session_id)))
        ]
        return max(numbered)[1] if numbered else None


class LineReader:
    """Reads the whole lines that have come since the last time, also when the file was replaced."""

    def __init__(self, path: Path) -> None:
        """Begin at the beginning."""
        self.path = path
        self._descriptor: int | None = None
        self._rest = b""

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor, self._rest = None, b""

    def lines(self, *, last: bool = False) -> Iterator[bytes]:
        """Yield the lines that are whole by now; with `last` also what stands after the last line end.

        A file that was replaced or cut is read again from its beginning; one that is gone gives nothing.
        """
        self._reopen_if_other()
        if self._descriptor is None:
            return
        while chunk := os.read(self._descriptor, _CHUNK_BYTES):
            *whole, self._rest = (self._rest + chunk).split(b"\n")
            yield from whole
        if last and self._rest:
            yield self._rest
            self._rest = b""

    def _reopen_if_other(self) -> None:
        try:
            now = self.path.stat()
            if self._descriptor is not None:
                opened = os.fstat(self._descriptor)
                is_same = (opened.st_dev, opened.st_ino) == (now.st_dev, now.st_ino)
                if is_same and now.st_size >= os.lseek(self._descriptor, 0, os.SEEK_CUR):
                    return
                self.close()
            self._descriptor = _opened(self.path)
        except FileNotFoundError:
            return  # renamed or removed: what is open is read to its end
        except PermissionError:
            message = f"you may not read {self.path}: ask as the user that the daemon runs as."
            raise RefusedError(message) from None


def _opened(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        message = f"{path} is not a regular file."
        raise RefusedError(message)
    return descriptor
