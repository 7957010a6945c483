"""All that is known of an ended turn, gathered before anything is decided."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hive_subagent_daemon.values import NO_BOUNDS, Bounds, Oom

if TYPE_CHECKING:
    from hive_subagent_daemon.cgroups import OomCounters
    from hive_subagent_daemon.skim import Seen
    from hive_subagent_daemon.values import Exit, SentSignal


@dataclass(frozen=True)
class Evidence:
    """All that is known of an ended turn.

    `ran` is False only when it is certain that the program was never executed. `sent` are our own signals in
    the order sent; `stopped_after_result` says that we ended the process because its result was out.
    `oom_before` of the kernel's kills for lack of memory were long before the end; `oom_stops` says that
    systemd ends the turn after one (OOMPolicy=stop), `by_oomd` that it was systemd-oomd. `strayed`: claude
    had left its scope. `looked_in` says where claude looked for a session. `expected_servers` were given by
    --mcp-config; `unreadable` says what of its output could not be read. `bounds` held for the turn. `nested`
    are subagents that it has started and that run on. `unread` messages were handed to a steerable turn and
    not taken by claude.
    """

    exit: Exit
    seen: Seen
    stderr: str
    ran: bool = True
    sent: tuple[SentSignal, ...] = ()
    stopped_after_result: bool = False
    oom: Oom | None = None
    oom_before: int = 0
    oom_stops: bool = False
    by_oomd: bool = False
    strayed: bool = False
    killed_leftovers: tuple[str, ...] = ()
    killed_strays: tuple[str, ...] = ()
    still_alive: tuple[str, ...] = ()
    expected_servers: tuple[str, ...] = ()
    looked_in: str = ""
    unreadable: str | None = None
    bounds: Bounds = NO_BOUNDS
    nested: tuple[str, ...] = ()
    unread: int = 0
    steerable: bool = False


def with_counters(evidence: Evidence, counters: OomCounters | None, *, limit_bytes: int | None) -> Evidence:
    """Add what the counters of a turn's slice say; `limit_bytes` is the limit that held."""
    if counters is None or not counters.kills:
        return evidence
    oom = Oom(counters.kills, counters.peak_bytes, limit_bytes)
    return replace(evidence, oom=oom, oom_stops=counters.stops, by_oomd=counters.by_oomd)
