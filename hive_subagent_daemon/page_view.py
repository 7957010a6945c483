"""What the page shows, as values made of short texts: pure. Texts of others are made harmless here.

The page's templates only place these values; escaping is theirs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hive_subagent_daemon import answers, clock
from hive_subagent_daemon.harmless import cut, harmless

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from hive_subagent_daemon.transcript_tail import Said, Tail
    from hive_subagent_daemon.values import LooseEnd

    Answer = Mapping[str, Any]

NONE: Final = "-"
LINE_CHARACTERS: Final = 300
NOTICE_CHARACTERS: Final = 600
_TIME: Final = re.compile(r"(?P<date>\d{4}-\d\d-\d\d)T(?P<time>\d\d:\d\d:\d\d)(?:\.\d{1,9})?Z\Z", re.ASCII)


@dataclass(frozen=True)
class Field:
    """A label and its text; `alarming` where somebody should look."""

    label: str
    text: str
    alarming: bool = False


@dataclass(frozen=True)
class Subagent:
    """One subagent as a row, and all that is known of it as `facts`."""

    name: str
    state: str
    stalled: bool
    well: bool
    turn: str
    doing: str
    lasting: str
    last_output: str
    memory: str
    cost: str
    facts: tuple[Field, ...] = ()
    text: str = ""

    @property
    def mark(self) -> str:
        """The state in one word."""
        return "stalled" if self.stalled else self.state

    @property
    def look(self) -> str:
        """How the state looks: one whose turn failed is idle, but not well."""
        return self.mark if self.well or self.state != "idle" else "failed"


@dataclass(frozen=True)
class Notice:
    """One loose end."""

    id: str
    name: str
    title: str
    outcome: str
    ended_at: str
    ended: str
    facts: str
    text: str
    closed: bool
    undelivered: str
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """One thing said in a conversation."""

    speaker: str
    heading: str
    text: str
    at: str


@dataclass(frozen=True)
class Conversation:
    """The end of a conversation, or why there is none to be shown."""

    entries: tuple[Entry, ...]
    whole: bool
    trouble: str = ""


@dataclass(frozen=True)
class Frame:
    """What every page has around its content; `refresh_seconds` 0 for a page that stays as it is."""

    agent: str
    version: str
    at: str
    refresh_seconds: int
    path: str


@dataclass(frozen=True)
class Overview:
    """The page of all subagents."""

    frame: Frame
    running: int
    subagents: tuple[Subagent, ...]
    more: int
    notices: tuple[Notice, ...]
    more_notices: int
    open: int
    undelivered: int
    warnings: tuple[str, ...]
    facts: tuple[Field, ...]


@dataclass(frozen=True)
class Detail:
    """The page of one subagent."""

    frame: Frame
    subagent: Subagent
    notices: tuple[Notice, ...]
    more_notices: int
    conversation: Conversation
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Nobody:
    """The page of a name that nothing is known of."""

    frame: Frame
    name: str


def subagent_of(status: Answer, *, now: datetime) -> Subagent:
    """Return what is shown of one entry of `status`."""
    if status["state"] == "running":
        return _running(status)
    last = status.get("last_turn")
    cost = last and last["cost_usd"]
    return Subagent(
        name=status["name"],
        state=status["state"],
        stalled=False,
        well=last is not None and last["outcome"] == "completed",
        turn=status["turn"] or "",
        doing=_line(answers.how_it_ended(last)) if last else NONE,
        lasting=f"ended {_ago(last['ended_at'], now)}" if last else NONE,
        last_output=NONE,
        memory=NONE,
        cost=answers.costing(cost) if cost is not None else NONE,
        facts=tuple(_facts(status)),
        text=_final_text(last) if last else "",
    )


def _final_text(last: Answer) -> str:
    text = last["text"] or last["error"] or ""
    return harmless(text) + _more(last["text_length"], text)


def _more(length: int, shown: str) -> str:
    return f"… [{length:,} characters in all]" if length > len(shown) else ""


def _running(status: Answer) -> Subagent:
    stalled = bool(status["stalled"])
    activity, used = status["activity"], status["memory_bytes"]
    return Subagent(
        name=status["name"],
        state="running",
        stalled=stalled,
        well=not stalled,
        turn=status["turn"],
        doing=_line(answers.doing(activity)) if activity else NONE,
        lasting=f"for {clock.lasting(status['running_seconds'])}",
        last_output=f"{clock.lasting(status['age_seconds'])} ago",
        memory=answers.memory(used, status["memory_limit_bytes"]) if used is not None else NONE,
        cost=NONE,
        facts=tuple(_facts(status)),
    )


def _facts(status: Answer) -> Iterable[Field]:
    last = status.get("last_turn") or {}
    problems = status.get("mcp_problems") or []
    labelled = {
        "Directory": status["dir"],
        "Session": status["session_id"],
        "Turn": status["turn"],
        "Model": status["model"],
        "Steerable": "yes" if status.get("steerable") else None,
        "Rounds": last.get("rounds"),
        "Took": clock.lasting(last["duration_seconds"]) if last else None,
        "Ended": moment(last["ended_at"]) if last else None,
    }
    for label, value in labelled.items():
        if value is not None:
            yield Field(label, _line(str(value)))
    for problem in problems:
        yield Field("MCP server", _line(problem), alarming=True)
    for warning in last.get("warnings", ()):
        yield Field("Warning", _line(warning), alarming=True)


def notice_of(loose_end: LooseEnd, *, now: datetime) -> Notice:
    """Return what is shown of one loose end."""
    outcome, verdict = loose_end.outcome, loose_end.outcome.verdict
    facts = [f"took {clock.lasting(outcome.duration_seconds)}"]
    if verdict.rounds is not None:
        facts.append(f"{verdict.rounds} round{'' if verdict.rounds == 1 else 's'}")
    if verdict.cost_usd is not None:
        facts.append(answers.costing(verdict.cost_usd))
    if outcome.model:
        facts.append(_line(outcome.model))
    return Notice(
        id=loose_end.id,
        name=outcome.name,
        title=_line(loose_end.title),
        outcome=verdict.kind.value,
        ended_at=outcome.ended_at,
        ended=f"ended {_ago(outcome.ended_at, now)}",
        facts=", ".join(facts),
        text=harmless(cut(verdict.text or verdict.error or "", NOTICE_CHARACTERS)),
        closed=loose_end.closed_at is not None,
        undelivered=_undelivered(loose_end),
        warnings=tuple(_line(warning) for warning in verdict.warnings[:10]),
    )


def _undelivered(loose_end: LooseEnd) -> str:
    count = len(loose_end.undelivered)
    if not count:
        return ""
    aside = sum(one.stepped_aside for one in loose_end.undelivered)
    refused = f", {aside} of them refused it" if aside else ""
    return f"not delivered to {count} sink{'' if count == 1 else 's'}{refused}"


def conversation_of(tail: Tail) -> Conversation:
    """Return what is shown of a conversation."""
    return Conversation(tuple(_entry(said) for said in tail.said), tail.whole)


def _entry(said: Said) -> Entry:
    heading = f"{said.speaker.value} {_line(said.tool)}" if said.tool else said.speaker.value
    text = harmless(said.text) + _more(said.length, said.text)
    return Entry(said.speaker.value, heading, text, moment(said.at or ""))


def lines(texts: Sequence[str]) -> tuple[str, ...]:
    """Return texts of one line each."""
    return tuple(_line(text) for text in texts)


def _line(text: str) -> str:
    return harmless(" ".join(cut(text, LINE_CHARACTERS).split()))


def moment(text: str) -> str:
    """Return a time as people read it; a text that is none as it stands."""
    found = _TIME.match(text)
    return f"{found['date']} {found['time']} UTC" if found else _line(text)


def _ago(moment: str, now: datetime) -> str:
    return f"{clock.lasting((now - clock.from_text(moment)).total_seconds())} ago"
