"""The short text for people that goes with each structured answer: pure functions of that answer.

A model sees the structured content instead, so nothing may stand here that is not there. These
functions take every answer that fits answer_schemas.py and never fail on one: by then, a subagent
may have been started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hive_subagent_daemon import clock
from hive_subagent_daemon.values import MOST_DEPTH

if TYPE_CHECKING:
    from collections.abc import Mapping

    Answer = Mapping[str, Any]

SHOWN_TEXT_CHARACTERS = 500
SHOWN_ERROR_CHARACTERS = 200


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


def memory(size: int, limit: int | None) -> str:
    """Say how much memory is used, and of how much."""
    return _mebibytes(size) if limit is None else f"{size / 2**20:,.0f} of {_mebibytes(limit)}"


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_ERROR_CHARACTERS else f"{line[:SHOWN_ERROR_CHARACTERS]}…"


def how_it_ended(outcome: Answer) -> str:
    """Say in one line how a turn ended."""
    verdict, error = outcome["outcome"], outcome["error"]
    if verdict == "killed":
        cause = outcome["cause"] or "unknown"
        return f"killed by {outcome['signal'] or 'a signal'}, cause {cause}{_out_of_memory(outcome['oom'])}"
    if verdict == "lost":
        return "lost: how it ended is not known"
    kind = f" ({outcome['error_class']})" if outcome["error_class"] else ""
    until = f", limited until {outcome['limited_until']}" if outcome["limited_until"] else ""
    return f"{verdict}{kind}{until}{': ' + _one_line(error) if error else ''}"


def _out_of_memory(oom: Answer | None) -> str:
    if oom is None:
        return ""
    facts = [
        f"{oom['kills']} killed by the kernel" if oom["kills"] is not None else "",
        f"peak {_mebibytes(oom['peak_bytes'])}" if oom["peak_bytes"] is not None else "",
        f"limit {_mebibytes(oom['limit_bytes'])}" if oom["limit_bytes"] is not None else "",
    ]
    return f" ({', '.join(fact for fact in facts if fact)})" if any(facts) else ""


def started(answer: Answer) -> str:
    """Tell that a subagent runs, and where its end will show."""
    where = f"in {answer['dir']}" + (f", scope {answer['scope']}" if answer["scope"] else "")
    return (
        f"Started '{answer['name']}' (turn {answer['turn']}, pid {answer['pid']}) {where}. "
        "get_loose_ends will tell how the turn ended."
        + "".join(f" Warning: {warning}" for warning in answer.get("warnings", []))
    )


def continued(answer: Answer) -> str:
    """Tell that a subagent runs again, and warn when its previous turn was cut off."""
    text = started(answer).replace("Started", "Continued", 1)
    previous = answer.get("previous_turn")
    if previous is None:
        return text
    ended = how_it_ended(previous)
    return f"{text} Its previous turn was cut off ({ended}): do not build on that work unchecked."


def interrupted(answer: Answer) -> str:
    """Tell what the signal did, and what still runs."""
    sent = f"Sent {answer['signal']} to '{answer['name']}'"
    if answer["signal"] in (None, "none"):
        sent = f"No signal was needed for '{answer['name']}'"
    if not answer["ended"]:
        text = f"{sent}: it is still shutting down, get_loose_ends will tell when it has ended."
    elif answer["outcome"] is None:
        text = f"{sent}: the turn has ended."
    else:
        text = f"{sent}: the turn has ended, {how_it_ended(answer['outcome'])}."
    for field, meaning in (("stopped_processes", "Stopped"), ("remaining_processes", "Could not be stopped")):
        if answer.get(field):
            text += f" {meaning}: {', '.join(answer[field])}."
    return text


def steered(answer: Answer) -> str:
    """Tell that a message is on its way, and when it is read."""
    unread = answer["unread_messages"]
    waiting = f" {unread} messages of yours are not read yet." if unread > 1 else ""
    return (
        f"Sent to '{answer['name']}' (turn {answer['turn']}): it reads that after its current step, "
        f"or its loose end warns.{waiting}"
    )


def status_shown(answer: Answer) -> str:
    """Show one line per subagent, what is wrong with the daemon, and when its turns have no scopes."""
    lines = [_in_the_tree(subagent) for subagent in answer["subagents"]] or ["No subagents yet."]
    if answer["more"]:
        lines.append(f"… and {answer['more']} more.")
    if answer["undelivered"]:
        lines.append(f"{answer['undelivered']} loose ends are not delivered to their sinks yet.")
    lines += [f"Warning: {warning}" for warning in answer["warnings"]]
    if answer["launcher"] == "process group":
        lines.append("Launcher: process group (no scopes).")
    return "\n".join(lines)


def waited(answer: Answer) -> str:
    """Tell which of the subagents have ended, and what the others do."""
    lines = [_subagent_line(subagent) for subagent in answer["subagents"]]
    if not lines:
        return "Nothing runs: there is nothing to wait for."
    first = f"Ended: {', '.join(answer['ended'])}." if answer["ended"] else "None has ended yet."
    more = [f"… and {answer['more']} more."] if answer["more"] else []
    return "\n".join([first, *lines, *more])


def _in_the_tree(subagent: Answer) -> str:
    """Show a running subagent below the one that started it, one of a damaged record no deeper than any."""
    below = min(subagent.get("depth") or 1, MOST_DEPTH) - 1 if subagent["state"] == "running" else 0
    return f"{'  ' * below}{'└ ' if below else ''}{_subagent_line(subagent)}"


def _subagent_line(subagent: Answer) -> str:
    if subagent["state"] == "running":
        return f"{subagent['name']}: {_running(subagent)}"
    last = subagent.get("last_turn")
    if last is None:
        return f"{subagent['name']}: {subagent['state']}"
    return f"{subagent['name']}: {subagent['state']}, last turn {how_it_ended(last)}"


def _running(subagent: Answer) -> str:
    facts = [f"running for {clock.lasting(subagent.get('running_seconds') or 0)}"]
    if subagent.get("age_seconds") is not None and not _is_starting(subagent):
        facts.append(f"last output {clock.lasting(subagent['age_seconds'])} ago")
    if subagent.get("activity"):
        facts.append(doing(subagent["activity"]))
    if subagent.get("memory_bytes"):
        facts.append(memory(subagent["memory_bytes"], subagent.get("memory_limit_bytes")))
    if subagent.get("steerable"):
        facts.append("steerable")
    if subagent.get("unread_messages"):
        facts.append(f"messages not read yet: {subagent['unread_messages']}")
    if subagent.get("mcp_problems"):
        facts.append(f"MCP servers: {', '.join(subagent['mcp_problems'])}")
    return ", ".join(facts) + (" (STALLED)" if subagent.get("stalled") else "")


def _is_starting(subagent: Answer) -> bool:
    return (subagent.get("activity") or {}).get("kind") == "starting"


def doing(activity: Answer) -> str:
    """Say what claude is doing, and for how long."""
    since = activity.get("since_seconds")
    lasted = f" for {clock.lasting(since)}" if since is not None else ""
    if activity["kind"] == "retry":
        tries = f" {activity.get('attempt') or '?'} of {activity.get('max_attempts') or '?'}"
        return f"API retry{tries}" + (f" ({_one_line(activity['error'])})" if activity.get("error") else "")
    if activity["kind"] == "tool":
        return f"in {activity.get('tool') or 'a tool'}{lasted}"
    return ("no output yet" if activity["kind"] == "starting" else "waiting for the model") + lasted


def loose_ends_shown(answer: Answer, *, text_characters: int = SHOWN_TEXT_CHARACTERS) -> str:
    """Show each loose end with the beginning of its text."""
    each = [_loose_end(loose_end, text_characters) for loose_end in answer["loose_ends"]]
    shown = each or ["No open loose ends."]
    if answer["remaining"]:
        shown.append(f"{answer['remaining']} more are open.")
    return "\n\n".join(shown)


def _loose_end(loose_end: Answer, text_characters: int) -> str:
    lines = [f"{loose_end['id']}  {loose_end['name']}: {how_it_ended({**loose_end, 'error': None})}"]
    if details := _details(loose_end):
        lines.append(details)
    if loose_end["error"] and loose_end["outcome"] != "lost":
        lines.append(loose_end["error"])
    lines += [f"Warning: {warning}" for warning in loose_end["warnings"]]
    if text := loose_end["text"]:
        lines.append(text[:text_characters])
        length = max(loose_end["text_length"] or 0, len(text))
        if length > text_characters:
            lines.append(f"[… {length:,} characters in all]")
    return "\n".join(lines)


def _details(loose_end: Answer) -> str:
    duration, rounds, cost = (loose_end[field] for field in ("duration_seconds", "rounds", "cost_usd"))
    facts = [
        f"{clock.lasting(duration)}" if duration is not None else "",
        f"{rounds} round{'' if rounds == 1 else 's'}" if rounds is not None else "",
        costing(cost) if cost is not None else "",
        loose_end["model"] or "",
        f"ended {loose_end['ended_at']}" if loose_end["ended_at"] else "",
    ]
    return ", ".join(fact for fact in facts if fact)


def costing(usd: float) -> str:
    """Say what a turn has cost."""
    return f"{usd:.{2 if usd >= 0.01 or usd == 0 else 4}f} USD"


def closed(answer: Answer) -> str:
    """Tell which loose ends are closed now."""
    text = f"Closed: {', '.join(answer['closed'])}." if answer["closed"] else "Nothing closed."
    return f"{text} Unknown: {', '.join(answer['unknown'])}." if answer["unknown"] else text
