"""Claude's own session store, found the way claude finds it; this module only reads it.

Everything follows from the environment and the working directory of the *child*. Measured with claude
2.1.150, 2.1.197 and 2.1.332 unless a line says otherwise. All calls block; callers on the event loop use a
worker thread, and any number of threads may call at once.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import stat
import struct
import threading
import unicodedata
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from typing_extensions import override

from hive_subagent_daemon import live_sessions
from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.transcript_titles import normalized, read_ends, titles_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hive_subagent_daemon.live_sessions import LiveSession

SLUG_CHARACTERS: Final = 200
REMEMBERED_FOLDERS: Final = 64

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_KEPT: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
_TRANSCRIPT: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\.jsonl", re.ASCII | re.IGNORECASE
)
# Since 2.1.234 (its changelog says), only beside CLAUDE_CONFIG_DIR, and no name that Windows reserves.
_CHOSEN_FOLDER: Final = re.compile(
    r"(?!(?:con|prn|aux|nul|com[1-9]|lpt[1-9])\Z)[A-Za-z0-9_-]{1,64}", re.ASCII | re.IGNORECASE
)
_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR)

# What is remembered of one transcript: (inode, size, modified), titles.
_Known: TypeAlias = tuple[tuple[int, int, int], tuple[str, ...]]


class ClaudeStore:
    """Where claude keeps its sessions, and which of them have a title, remembered between calls."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Take the child's environment; only HOME and the variables that move the store are looked at."""
        self.config_dir: Final = _config_dir(environment)
        chosen = environment.get("CLAUDE_CODE_PROJECT_DIR_NAME", "")
        usable = environment.get("CLAUDE_CONFIG_DIR") and _CHOSEN_FOLDER.fullmatch(chosen)
        self._chosen_folder: Final = chosen if usable else None
        self._folders: OrderedDict[Path, _TitledFolder] = OrderedDict()
        self._lock = threading.Lock()

    @override
    def __repr__(self) -> str:
        """Show where it looks and how many project folders it remembers."""
        return f"<{type(self).__name__} {self.config_dir}, {len(self._folders)} folders remembered>"

    def config_dir_in(self, directory: Path) -> Path:
        """Return the config directory of a claude in `directory`: a relative one lies below that."""
        return Path(os.path.realpath(directory)) / self.config_dir

    def project_folder(self, directory: Path) -> Path:
        """Return the folder that holds the transcripts of sessions run in `directory`; it need not exist."""
        projects = self.config_dir_in(directory) / "projects"
        # A release before 2.1.234 ignores the chosen name, so that folder is used only when it is there.
        if self._chosen_folder is not None and os.path.lexists(projects / self._chosen_folder):
            return projects / self._chosen_folder
        return projects / project_slug(os.path.realpath(directory))

    def titled(self, name: str, directory: Path) -> list[Path]:
        """Return every transcript in the project folder of `directory` whose title is the name, sorted.

        Raises RefusedError when that folder may not be read.
        """
        return self._folder(directory).titled(normalized(name))

    def transcript(self, session_id: str, directory: Path) -> Path | None:
        """Return where a session run in `directory` would be on the disk; None for what is no id."""
        name = f"{session_id}.jsonl"  # told by claude's output: it must not lead anywhere else
        return self.project_folder(directory) / name if _TRANSCRIPT.fullmatch(name) else None

    def warm(self, directory: Path) -> None:
        """Read the titles for `directory` now, so that the next `titled` is quick; never fails."""
        try:
            self._folder(directory).titled("")
        except RefusedError:
            return  # the start that meets it says so

    def live_sessions(self, directory: Path | None = None) -> list[LiveSession]:
        """Return what running claudes hold; `directory` matters only for a relative config directory."""
        return live_sessions.read(self.config_dir_in(directory or Path()) / "sessions")

    def _folder(self, directory: Path) -> _TitledFolder:
        path = self.project_folder(directory)
        with self._lock:
            folder = self._folders.setdefault(path, _TitledFolder(path))
            self._folders.move_to_end(path)
            if len(self._folders) > REMEMBERED_FOLDERS:
                self._folders.popitem(last=False)
            return folder


class _TitledFolder:
    """One project folder and the titles in it; a transcript is read again only after it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, _Known] = {}
        self._lock = threading.Lock()

    def titled(self, title: str) -> list[Path]:
        """Return the transcripts with a normalized title."""
        with self._lock:
            self._refresh()
            return sorted(self._path / name for name, (_, titles) in self._known.items() if title in titles)

    def _refresh(self) -> None:
        try:
            # Names looked up in an open folder: half the time of whole paths, with 500 transcripts.
            folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._known = self._looked_at(folder)
            finally:
                os.close(folder)
        except OSError as error:
            self._known = {}
            if error.errno not in _ABSENT:
                message = (
                    f"claude's project folder {self._path} cannot be read ({error.strerror}): "
                    "make it readable for the user that the daemon runs as."
                )
                raise RefusedError(message) from error

    def _looked_at(self, folder: int) -> dict[str, _Known]:
        known: dict[str, _Known] = {}
        for name in os.listdir(folder):
            before = self._known.get(name)
            if before is None and not _TRANSCRIPT.fullmatch(name):
                continue
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                # Taken before the content is read: what is appended meanwhile shows as a change next time.
                version = (status.st_ino, status.st_size, status.st_mtime_ns)
                if before is not None and before[0] == version:
                    known[name] = before
                elif stat.S_ISREG(status.st_mode):  # claude follows no symbolic links here
                    known[name] = version, titles_in(read_ends(name, folder=folder))
            except OSError:
                continue  # gone by now, or not readable, also not for claude
        return known


def project_slug(path: str) -> str:
    """Return the name of the project folder for a resolved path.

    Each UTF-16 unit outside [A-Za-z0-9] becomes a dash, without any Unicode normalization. A name of more
    than 200 units is cut there and gets a hash of the whole path. (In a path that is not UTF-8 claude does
    not run at all.)
    """
    encoded = path.encode("utf-16-le", "surrogatepass")
    units = struct.unpack(f"<{len(encoded) // 2}H", encoded)
    slug = "".join(chr(unit) if unit in _KEPT else "-" for unit in units)
    if len(slug) <= SLUG_CHARACTERS:
        return slug
    return f"{slug[:SLUG_CHARACTERS]}-{_path_hash(units)}"


def _path_hash(units: Iterable[int]) -> str:
    """Return the 31-multiplier hash of the units: 32 bits with sign, its absolute value in base 36."""
    total = 0
    for unit in units:
        total = (total * 31 + unit) & 0xFFFFFFFF
    value = total if total < 1 << 31 else (1 << 32) - total
    digits = ""
    while value:
        value, digit = divmod(value, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


def _config_dir(environment: Mapping[str, str]) -> Path:
    """Return claude's config directory, relative to the child's directory when CLAUDE_CONFIG_DIR is.

    An empty CLAUDE_CONFIG_DIR is the child's directory itself, `~` is not expanded, an empty or missing HOME
    is the home of the passwd entry, and the path is normalized to NFC (the slug is not).
    """
    chosen = environment.get("CLAUDE_CONFIG_DIR")
    if chosen is None:
        chosen = str(Path(environment.get("HOME") or _home_by_passwd()) / ".claude")
    return Path(unicodedata.normalize("NFC", chosen))


def _home_by_passwd() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/"  # without an entry claude does not start at all
