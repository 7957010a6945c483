"""The sessions that running claude processes hold, from claude's own registry `sessions/<pid>.json`.

claude removes its entry at a normal exit; after a SIGKILL it stays until a later claude starts, so an entry
counts only while the process that wrote it lives.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon import procfs

if TYPE_CHECKING:
    from pathlib import Path

_ENTRY_BYTES: Final = 262_144  # claude itself reads no more of one entry
_CLOCK_SLACK_SECONDS: Final = 2.0


@dataclass(frozen=True)
class LiveSession:
    """A session that a running claude process has open."""

    pid: int
    session_id: str
    cwd: str | None
    name: str | None


def read(folder: Path) -> list[LiveSession]:
    """Return the live sessions of a registry folder by pid; entries that are damaged or stale are skipped."""
    try:
        with os.scandir(folder) as entries:
            pids = [_pid(entry) for entry in entries]
    except OSError:
        return []
    found = [_live_session(folder / f"{pid}.json", pid) for pid in sorted(pid for pid in pids if pid)]
    return [session for session in found if session is not None]


def _pid(entry: os.DirEntry[str]) -> int | None:
    pid, _, suffix = entry.name.partition(".")
    is_entry = suffix == "json" and pid.isascii() and pid.isdigit() and len(pid) <= 10
    return int(pid) if is_entry and entry.is_file(follow_symlinks=False) else None


def _live_session(path: Path, pid: int) -> LiveSession | None:
    try:
        with path.open("rb") as file:
            entry = json.loads(file.read(_ENTRY_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    session_id = entry.get("sessionId") if isinstance(entry, dict) else None
    if not isinstance(session_id, str) or not _lives(pid, entry):
        return None
    return LiveSession(pid, session_id, _text(entry.get("cwd")), _text(entry.get("name")))


def _lives(pid: int, entry: dict[str, object]) -> bool:
    """Tell whether the process that wrote the entry still runs.

    `procStart` is field 22 of /proc/PID/stat (clock ticks since boot) as decimal text. An entry without it is
    taken to be of this process when the process was there before the entry: a live session that is archived
    loses its history, so doubt counts as life.
    """
    process = procfs.process(pid)
    if process is None or process.dead:
        return False
    start = entry.get("procStart")
    if start is not None:
        return str(start) == str(process.start)
    written = entry.get("startedAt")
    if not isinstance(written, int):
        return True
    return _start_time(process) <= written / 1000 + _CLOCK_SLACK_SECONDS


def _start_time(process: procfs.Process) -> float:
    booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return booted_at + process.start / os.sysconf("SC_CLK_TCK")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
