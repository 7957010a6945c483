"""All that is known of an ended turn, gathered before anything is decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hive_subagent_daemon.skim import Seen
    from hive_subagent_daemon.values import Exit, Oom, SentSignal


@dataclass(frozen=True)
class Evidence:
    """All that is known of an ended turn.

    `ran` is False only when it is certain that the program was never executed. `sent` are our own signals in
    the order sent; `stopped_after_result` says that we ended the process because its result was out.
    `looked_in` says where claude looked for a session. `expected_servers` were given by --mcp-config;
    `unreadable` says what of its output could not be read.
    """

    exit: Exit
    seen: Seen
    stderr: str
    ran: bool = True
    sent: tuple[SentSignal, ...] = ()
    stopped_after_result: bool = False
    oom: Oom | None = None
    killed_leftovers: tuple[str, ...] = ()
    killed_strays: tuple[str, ...] = ()
    still_alive: tuple[str, ...] = ()
    expected_servers: tuple[str, ...] = ()
    looked_in: str = ""
    unreadable: str | None = None
