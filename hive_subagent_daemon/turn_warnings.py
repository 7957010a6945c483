"""What a parent should know about a turn beside its outcome."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon.values import Exited, Signalled

if TYPE_CHECKING:
    from hive_subagent_daemon.evidence import Evidence
    from hive_subagent_daemon.skim import Seen
    from hive_subagent_daemon.values import Oom

_NAMES_SHOWN: Final = 5
_WARNINGS_KEPT: Final = 50
_WARNING_CHARACTERS: Final = 1_000


def of_ended(evidence: Evidence) -> tuple[str, ...]:
    """Return the warnings on an ended turn."""
    by_itself = not evidence.sent
    warnings = [
        *mcp_problems(evidence.seen, evidence.expected_servers),
        *_unfinished(evidence, by_itself=by_itself),
        *_left_over(evidence, by_itself=by_itself),
    ]
    if evidence.nested:
        warnings.append(f"Subagents that it has started run on: {_some(evidence.nested)}.")
    if evidence.unread:
        what = "A message that was" if evidence.unread == 1 else f"{evidence.unread} messages that were"
        warnings.append(f"{what} handed to it while it ran had not been read when it ended: say it again.")
    if evidence.seen.broken_lines:
        warnings.append(f"{evidence.seen.broken_lines} lines of claude's output were not readable.")
    if evidence.unreadable is not None:
        warnings.append(f"A part of claude's output could not be read: {evidence.unreadable}.")
    if evidence.strayed:
        warnings.append("claude had left its scope: limits and memory figures did not hold for it.")
    if (oom := evidence.oom) is not None and oom.kills:
        who = "systemd-oomd" if evidence.by_oomd else "The kernel"
        count = "a process" if oom.kills == 1 else f"{oom.kills} processes"
        warnings.append(f"{who} killed {count} of this turn for lack of memory ({memory_shown(oom)}).")
    return tuple(warning[:_WARNING_CHARACTERS] for warning in warnings[:_WARNINGS_KEPT])


def memory_shown(oom: Oom) -> str:
    """Return the peak and the limit of a turn's memory in words."""
    return f"peak {_mebibytes(oom.peak_bytes)}, limit {_mebibytes(oom.limit_bytes)}"


def _mebibytes(count: int | None) -> str:
    return "unknown" if count is None else f"{count / 1024**2:.0f} MiB"


def mcp_problems(seen: Seen, expected: tuple[str, ...]) -> list[str]:
    """Compare the MCP servers that were given with those that claude reports, both ways."""
    if seen.init is None:
        return []
    reported = seen.init.mcp_servers
    problems = [
        f"MCP server {name!r} was given but claude does not list it."
        for name in expected
        if name not in reported
    ]
    for name, state in reported.items():
        if name not in expected:
            problems.append(f"MCP server {name!r} is there although it was not given.")
        elif state != "connected":
            problems.append(f"MCP server {name!r} was not connected when the turn began: {state}.")
    return problems


def _unfinished(evidence: Evidence, *, by_itself: bool) -> list[str]:
    """Return what a turn left undone; of one that we signalled, only what its result did not wait for."""
    seen = evidence.seen
    warnings = []
    if (seen.pending and by_itself) or seen.cut_off:
        work = _some(tuple(sorted((*seen.pending.values(), *seen.cut_off.values()))))
        warnings.append(f"The turn ended while background work of its own was unfinished: {work}.")
    if not by_itself:
        return warnings
    if seen.result is not None and seen.round_open:
        warnings.append("A further round had begun after the last result and did not finish.")
    if (ending := _odd_ending(evidence)) is not None:
        warnings.append(f"After its result claude {ending}.")
    return warnings


def _left_over(evidence: Evidence, *, by_itself: bool) -> list[str]:
    """Return what was left of the turn's processes."""
    warnings = []
    if evidence.stopped_after_result:
        warnings.append("claude did not exit after its result: the daemon ended it after the grace period.")
    elif evidence.killed_leftovers and by_itself and not _died_for_memory(evidence):
        warnings.append(f"Processes left running were killed: {_some(evidence.killed_leftovers)}.")
    if evidence.killed_strays and by_itself:
        strays = _some(evidence.killed_strays)
        warnings.append(f"Processes were killed that no turn could be told to own: {strays}.")
    if evidence.still_alive:
        warnings.append(f"Could not be killed and may still run: {_some(evidence.still_alive)}.")
    return warnings


def _died_for_memory(evidence: Evidence) -> bool:
    """Whether claude ended by a kill for lack of memory: what else dies with it was not left running."""
    new = evidence.oom is not None and evidence.oom.kills > evidence.oom_before
    return new and isinstance(evidence.exit, Signalled)


def _odd_ending(evidence: Evidence) -> str | None:
    """Return how the process ended when that does not fit its result."""
    result = evidence.seen.result
    if evidence.stopped_after_result or result is None:
        return None
    match evidence.exit:
        case Signalled(number):
            return f"was ended by {signal_name(number)}"
        case Exited(code) if code != 0 and result.is_error is False:
            return f"exited with code {code}"
        case _:
            return None


def signal_name(number: int) -> str:
    """Return the name of a signal; real-time signals have a number only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"
