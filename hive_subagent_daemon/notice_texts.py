"""Notices as a parent's model reads them: pure functions of loose ends as JSON.

What a subagent wrote is quoted line by line, without control characters and without the marks by which
claude tells its own reminders from text: it can talk neither to the terminal nor in claude's name.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any, Final

from hive_subagent_daemon import clock
from hive_subagent_daemon.answers import how_it_ended

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Json = Mapping[str, Any]

# Of what a hook prints, claude shows 10,000 characters; above that only the first 2,000 (measured).
TEXT_CHARACTERS: Final = 8_000
DETAILED: Final = 5
LISTED: Final = 20
QUOTED_LINES: Final = 8
QUOTED_CHARACTERS: Final = 600
LINE_CHARACTERS: Final = 200
NAMES_SHOWN: Final = 5
# Tags that claude itself puts around what it tells its model.
_TAG: Final = re.compile(r"<(?=\s*/?\s*(?:system|task|command|local-command|user-prompt)[-_])", re.IGNORECASE)
# Control characters, marks that turn the direction of a line, hidden tags, halves of characters.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS: Final = frozenset("\u00ad\u200c\u200d")

_AFTER: Final = (
    "Use the tools of the MCP server `subagent` (named mcp__subagent__NAME, or with a plugin's prefix): "
    "get_loose_ends(ids=[...]) reads more, continue(name, prompt) follows up, close_loose_ends(ids=[...]) "
    "closes what is dealt with. Each is told here once and stays open until it is closed."
)


def notices_text(loose_ends: Sequence[Json], *, more: int) -> str:
    """Return the one text that tells of these ended turns and of `more` others, bounded."""
    texts = (_composed(loose_ends, more, detailed) for detailed in range(DETAILED, -1, -1))
    return next(text for text in texts if len(text) <= TEXT_CHARACTERS)


def _composed(loose_ends: Sequence[Json], more: int, detailed: int) -> str:
    """Return the text with so many turns in detail, some by their title, and the rest as a number."""
    count = len(loose_ends) + more
    told = loose_ends[:detailed]
    listed = [f"- {_line(one['title'])} (id {one['id']})" for one in loose_ends[detailed:LISTED]]
    untold = count - len(told) - len(listed)
    if untold:
        listed.append(f"- and {untold} more: get_loose_ends shows them.")
    ended = "a subagent's turn has ended" if count == 1 else f"{count} turns of subagents have ended"
    head = f"hive-subagent: {ended}."
    return "\n\n".join([head, *map(_detailed, told), *(["\n".join(listed)] if listed else []), _AFTER])


def counts_text(names: Sequence[str], *, opened: int) -> str:
    """Return one line for a session that begins; empty when nothing runs and nothing is open."""
    facts = []
    if names:
        shown = ", ".join(names[:NAMES_SHOWN]) + (", ..." if len(names) > NAMES_SHOWN else "")
        verb = "subagent is" if len(names) == 1 else "subagents are"
        facts.append(f"{len(names)} {verb} running ({shown}; see `status`)")
    if opened:
        kind = "notice of an ended turn is" if opened == 1 else "notices of ended turns are"
        facts.append(f"{opened} {kind} open (see `get_loose_ends`)")
    return f"hive-subagent: {' and '.join(facts)}, tools of the MCP server `subagent`." if facts else ""


def _detailed(loose_end: Json) -> str:
    """Return one notice: which subagent, how its turn ended, and how its text begins."""
    ended = how_it_ended({**loose_end, "error": None})
    lines = [f"{loose_end['name']}: {_line(ended)}{_facts(loose_end)} (id {loose_end['id']})"]
    if loose_end["outcome"] == "killed":
        lines.append("Killed mid-turn: its work is cut off somewhere, check before you build on it.")
    elif loose_end["outcome"] == "lost":
        lines.append("Its work may be cut off somewhere: check before you build on it.")
    if loose_end["error"]:
        lines.append(f"Error: {_line(loose_end['error'])}")
    lines += [f"Warning: {_line(warning)}" for warning in loose_end["warnings"][:3]]
    if loose_end["text"]:
        lines += _quoted(loose_end["text"], length=loose_end["text_length"] or 0)
    return "\n".join(lines)


def _facts(loose_end: Json) -> str:
    duration, cost = loose_end["duration_seconds"], loose_end["cost_usd"]
    facts = [
        f"after {clock.lasting(duration)}" if duration is not None else "",
        f"{cost:.2f} USD" if cost else "",
    ]
    return "".join(f", {fact}" for fact in facts if fact)


def _quoted(text: str, *, length: int) -> list[str]:
    beginning = text[:QUOTED_CHARACTERS].strip().splitlines()
    shown = [f"> {clean(line)}" for line in beginning[:QUOTED_LINES]]
    if len(text) > QUOTED_CHARACTERS or len(beginning) > QUOTED_LINES:
        shown.append(f"[the beginning of {max(length, len(text)):,} characters]")
    return shown


def _line(text: str) -> str:
    line = clean(" ".join(text.split()))
    return line if len(line) <= LINE_CHARACTERS else f"{line[:LINE_CHARACTERS]}..."


def clean(text: str) -> str:
    """Return one line of text without characters that act instead of being read."""
    spaced = text.replace("\t", "    ")
    seen = [
        letter if letter in _JOINERS or unicodedata.category(letter) not in _UNSEEN else "\ufffd"
        for letter in spaced
    ]
    return _TAG.sub("(", "".join(seen))
