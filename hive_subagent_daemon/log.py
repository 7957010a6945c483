"""Where the log goes: the journal with structured fields when stderr is the journal, else plain stderr."""

from __future__ import annotations

import logging
import os
import sys
from typing import Final

from systemd import journal

_FORMAT: Final = "%(levelname)s: %(message)s"
_IDENTIFIER: Final = "hive-subagent-daemon"


def set_up(level: str, *, agent: str) -> None:
    """Send the package's log to the right place at this level; other libraries' only from warnings on.

    In the journal every line has the agent's name, so that the daemons of several agents are told apart.
    """
    root = logging.getLogger()
    root.handlers[:] = [_journal(agent) if _stderr_is_journal() else _plain()]
    root.setLevel(logging.WARNING)
    logging.getLogger("hive_subagent_daemon").setLevel(level.upper())


def _journal(agent: str) -> logging.Handler:
    handler: logging.Handler = journal.JournalHandler(SYSLOG_IDENTIFIER=_IDENTIFIER, SUBAGENT_AGENT=agent)
    return handler


def _plain() -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT))
    return handler


def _stderr_is_journal() -> bool:
    """Compare stderr with the device and inode in JOURNAL_STREAM (systemd.exec(5))."""
    try:
        status = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
