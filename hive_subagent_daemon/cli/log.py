"""`log`: the conversation of a turn, from claude's own session file."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hive_subagent_daemon import clock
from hive_subagent_daemon.answers import how_it_ended
from hive_subagent_daemon.cli.commands import DaemonCommand, SubagentName
from hive_subagent_daemon.cli.printing import coloured, complain, one_line, put, safe, shows_colour
from hive_subagent_daemon.cli.session_file import LineReader, SessionPlace
from hive_subagent_daemon.cli.transcript import Entry, Kind, entries_of, is_prompt, moment_of, records_in
from hive_subagent_daemon.client import BusyError, UnreachableError, call_tool
from hive_subagent_daemon.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hive_subagent_daemon.cli.tables import Json
    from hive_subagent_daemon.cli.transcript import Record
    from hive_subagent_daemon.client import Endpoint

PAUSE_SECONDS: Final = 0.5
ASK_SECONDS: Final = 2.0
_SHOWN_LINES: Final = {Kind.RESULT: 8, Kind.ERROR: 20, Kind.TOOL: 4, Kind.PROMPT: 20}
_SHOWN_CHARACTERS: Final = 2_000
_MARKS: Final = {
    Kind.PROMPT: ">",
    Kind.TEXT: " ",
    Kind.TOOL: "*",
    Kind.RESULT: "|",
    Kind.ERROR: "!",
    Kind.NOTE: "-",
}
_TONES: Final = {
    Kind.PROMPT: "cyan",
    Kind.TEXT: "",
    Kind.TOOL: "bold",
    Kind.RESULT: "dim",
    Kind.ERROR: "red",
    Kind.NOTE: "dim",
}


@dataclass(frozen=True)
class Shown:
    """How entries are printed: whole or cut, coloured or not."""

    full: bool
    colour: bool


@click.command("log", cls=DaemonCommand, short_help="Show the conversation of a turn.")
@click.argument("name", type=SubagentName())
@click.option("-f", "--follow", is_flag=True, help="Go on until the turn has ended.")
@click.option("--all", "everything", is_flag=True, help="The whole session, not only its newest turn.")
@click.option("--full", is_flag=True, help="Cut nothing.")
def log(endpoint: Endpoint, *, name: str, follow: bool, everything: bool, full: bool) -> None:
    """Show the conversation of the running or last turn of subagent NAME, as claude has written it down.

    Lines marked > are prompts, * tools and | what they answered, ! errors; without a mark it is the
    subagent's own text.
    """
    answer = call_tool(endpoint, "status", {"name": name}).structured
    subagent = answer["subagents"][0]
    if subagent["session_id"] is None or subagent["dir"] is None:
        message = f"no session of {name!r} is known: `hive-subagent status` shows which subagents there are."
        raise RefusedError(message)
    if "claude_config_dir" not in answer:
        message = "the daemon is older than this command and does not tell where sessions are: restart it."
        raise RefusedError(message)
    directory, session_id = Path(subagent["dir"]), subagent["session_id"]
    place = SessionPlace(Path(answer["claude_config_dir"]), directory=directory, session_id=session_id)
    shown = Shown(full, shows_colour(sys.stdout))
    since = None if everything else _begun(subagent)
    conversation = _Conversation(place, since, shown)
    follow = follow and subagent["state"] == "running"
    if not conversation.print_new(last=not follow) and not follow:
        _nothing(conversation, subagent)
    if follow:
        subagent = _follow(endpoint, conversation, subagent)
    if subagent["state"] != "running":
        put(coloured(f"-- {_ending(subagent)}", "dim", colour=shown.colour))


class _Conversation:
    """The entries of a session that were not printed yet."""

    def __init__(self, place: SessionPlace, since: datetime | None, shown: Shown) -> None:
        self.place = place
        self.reader: LineReader | None = None
        self._since = since
        self._shown = shown
        self._printed: set[str] = set()

    def print_new(self, *, last: bool) -> bool:
        """Print what has come since the last time; tell whether there was anything."""
        reader = self.reader
        if reader is None:
            path = self.place.found()
            if path is None:
                return False
            reader = LineReader(path)
        lines = reader.lines(last=last)
        records: Iterable[Record] = filter(None, map(records_in, lines))
        if self.reader is None:
            records = _of_turn(records, self._since)
        self.reader = reader
        entries = [entry for record in records if self._is_new(record) for entry in entries_of(record)]
        for entry in entries:
            put(rendered(entry, self._shown))
        return bool(entries)

    def _is_new(self, record: Record) -> bool:
        """Tell whether this record was not printed: a file that was replaced repeats what stood in it."""
        moment = moment_of(record)
        if self._since is not None and moment is not None and moment < self._since:
            return False
        identity = record.get("uuid")
        if not isinstance(identity, str):
            return True
        known = identity in self._printed
        self._printed.add(identity)
        return not known


def _of_turn(records: Iterable[Record], since: datetime | None) -> list[Record]:
    """Return the records of a turn by their times, keeping no others; without times, from the last prompt."""
    kept: list[Record] = []
    timed = since is None
    for record in records:
        moment = moment_of(record)
        timed |= moment is not None
        if since is None or moment is None or moment >= since:
            kept.append(record)
    if timed:
        return kept
    prompts = [index for index, record in enumerate(kept) if is_prompt(record)]
    return kept[prompts[-1] :] if prompts else kept


def _begun(subagent: Json) -> datetime:
    """Return when the running or last turn began, by the clock that claude stamps its records with."""
    last = subagent.get("last_turn")
    if last is not None and last["started_at"]:
        return datetime.fromisoformat(last["started_at"]).astimezone(UTC)
    lasted = clock.now() - timedelta(seconds=subagent.get("running_seconds") or 0)
    # To the millisecond, but ahead of the clock when that was set back.
    return min(lasted, clock.turn_time(subagent["turn"]) + _milliseconds(subagent["turn"]))


def _milliseconds(turn: str) -> timedelta:
    return timedelta(milliseconds=int(turn[16:19])) if clock.is_turn_id(turn) else timedelta()


def _follow(endpoint: Endpoint, conversation: _Conversation, subagent: Json) -> Json:
    """Print what is written until the turn has ended; a daemon that is away does not stop the reading."""
    asked_at = time.monotonic()
    complained = False
    while True:
        time.sleep(PAUSE_SECONDS)
        conversation.print_new(last=False)
        if time.monotonic() - asked_at < ASK_SECONDS:
            continue
        asked_at = time.monotonic()
        try:
            now: Json = call_tool(endpoint, "status", {"name": subagent["name"]}).structured["subagents"][0]
        except (UnreachableError, BusyError) as error:
            if not complained:
                complain(f"{error} Still reading.")
            complained = True
            continue
        complained = False
        if now["state"] != "running" or now["turn"] != subagent["turn"]:
            conversation.print_new(last=True)
            return now


def _nothing(conversation: _Conversation, subagent: Json) -> None:
    """Say on stderr that there is nothing to show yet, or refuse when the session should be there."""
    place = conversation.place
    if subagent["state"] == "running" or conversation.reader is not None:
        path = place.expected if conversation.reader is None else conversation.reader.path
        yet = " yet" if subagent["state"] == "running" else ""
        complain(f"claude has written nothing of this turn{yet}: {path}")
        return
    message = (
        f"the session of {subagent['name']!r} was looked for as {place.expected}, in the other folders of "
        f"{place.projects}, and among the archived ones, and is not there."
    )
    raise RefusedError(message)


def _ending(subagent: Json) -> str:
    last = subagent.get("last_turn")
    if last is None:
        return str(subagent["state"])
    took = f", {clock.lasting(last['duration_seconds'])}" if last["duration_seconds"] is not None else ""
    return f"{one_line(how_it_ended(last))}{took}"


def rendered(entry: Entry, shown: Shown) -> str:
    """Return an entry as lines: the time and a mark, then the text, cut unless all is wanted."""
    lines = safe(entry.text.replace("\r\n", "\n")).split("\n")
    most = len(lines) if shown.full else _SHOWN_LINES.get(entry.kind, len(lines))
    cut = len(lines) - most
    lines = lines[:most]
    if not shown.full and entry.kind is not Kind.TEXT:
        lines = [line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]}…" for line in lines]
    if cut > 0:
        lines.append(f"… {cut} more line{'' if cut == 1 else 's'} (--full shows all)")
    time_shown = entry.moment.astimezone().strftime("%H:%M:%S") if entry.moment else " " * 8
    mark = _MARKS[entry.kind]
    heads = [f"{time_shown} {mark} ", *[f"{'':9}{mark if mark == '|' else ' '} "] * (len(lines) - 1)]
    tone = _TONES[entry.kind]
    return "\n".join(
        (head + coloured(line, tone if line else "", colour=shown.colour)).rstrip()
        for head, line in zip(heads, lines, strict=True)
    )
