"""Everything that is known of one subagent, as lines for people: pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hive_subagent_daemon import clock
from hive_subagent_daemon.answers import how_it_ended
from hive_subagent_daemon.cli.printing import coloured, one_line, safe
from hive_subagent_daemon.cli.tables import doing_of, dollars, mebibytes, row_of, seconds_since, short

if TYPE_CHECKING:
    from datetime import datetime

    from hive_subagent_daemon.cli.tables import Json


def details_of(subagent: Json, *, now: datetime, colour: bool) -> list[str]:
    """Return everything that is known of one subagent, a line for each fact, its last text at the end."""
    row = row_of(subagent, now)
    last = subagent.get("last_turn") or {}
    facts = [
        ("state", coloured(row.row.state, row.state_tone, colour=colour)),
        *(_running_facts(subagent) if subagent["state"] == "running" else _ended_facts(last, now)),
        ("started by", subagent.get("parent")),
        ("directory", subagent["dir"]),
        ("session", subagent["session_id"]),
        ("model", subagent["model"]),
        ("turn id", subagent["turn"]),
    ]
    lines = [coloured(one_line(subagent["name"]), "bold", colour=colour)]
    lines += [
        f"  {label + ':':<13}{value if label == 'state' else safe(value)}" for label, value in facts if value
    ]
    problems = [*last.get("warnings", ()), *(f"MCP server {p}" for p in subagent.get("mcp_problems") or ())]
    lines += [coloured(f"  Warning: {one_line(problem)}", "yellow", colour=colour) for problem in problems]
    if text := last.get("text"):
        lines += ["", safe(text)]
        if (last.get("text_length") or 0) > len(text):
            lines.append(f"[… {last['text_length']:,} characters in all]")
    return lines


def _running_facts(subagent: Json) -> list[tuple[str, str | None]]:
    limit = subagent.get("memory_limit_bytes")
    memory = subagent.get("memory_bytes")
    of_limit = f" of {mebibytes(limit)}" if limit is not None else ""
    return [
        ("running for", clock.lasting(subagent.get("running_seconds") or 0)),
        ("last output", f"{clock.lasting(subagent.get('age_seconds') or 0)} ago"),
        ("doing", doing_of(subagent)),
        ("memory", mebibytes(memory) + of_limit if memory else None),
        ("may take", _bounds(subagent)),
        ("steerable", _steerable(subagent)),
    ]


def _steerable(subagent: Json) -> str | None:
    """Say whether messages reach a turn, and how many wait to be read."""
    unread = subagent.get("unread_messages") or 0
    waiting = f"messages not read yet: {unread}" if unread else ""
    return ", ".join(filter(None, ("yes" if subagent.get("steerable") else "", waiting))) or None


def _bounds(subagent: Json) -> str | None:
    """Return what a turn may take, where that is bounded."""
    seconds, cost, rounds = (subagent.get(key) for key in ("timeout_seconds", "max_budget_usd", "max_turns"))
    bounds = [
        clock.lasting(seconds) if seconds is not None else "",
        dollars(cost) if cost is not None else "",
        f"{rounds} rounds" if rounds is not None else "",
    ]
    return ", ".join(filter(None, bounds)) or None


def _ended_facts(last: Json, now: datetime) -> list[tuple[str, str | None]]:
    if not last:
        return []
    cost, rounds = last["cost_usd"], last["rounds"]
    ended = last["ended_at"]
    return [
        ("last turn", how_it_ended(last)),
        ("ended", f"{ended} ({short(seconds_since(ended, now))} ago)" if ended else None),
        ("took", clock.lasting(last["duration_seconds"]) if last["duration_seconds"] is not None else None),
        ("rounds", str(rounds) if rounds is not None else None),
        ("cost", f"{dollars(cost)}" if cost is not None else None),
    ]
