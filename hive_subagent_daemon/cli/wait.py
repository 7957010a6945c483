"""`wait`: until turns have ended, and how they did."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from hive_subagent_daemon import clock
from hive_subagent_daemon.answers import how_it_ended
from hive_subagent_daemon.cli.commands import DaemonCommand, SubagentName
from hive_subagent_daemon.cli.printing import can_redraw, coloured, complain, one_line, put, shows_colour
from hive_subagent_daemon.cli.tables import doing_of, dollars, short
from hive_subagent_daemon.client import ANSWER_SECONDS, BusyError, UnreachableError, call_tool
from hive_subagent_daemon.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hive_subagent_daemon.cli.tables import Json
    from hive_subagent_daemon.client import Endpoint

PAUSE_SECONDS: Final = 1.0
"""Between two tries of a daemon that is away."""
LOOK_SECONDS: Final = 1.0
SILENT_SECONDS: Final = 120.0
"""How long one call waits: with a progress line to be drawn, and without."""
AWAY_SECONDS: Final = 60.0
"""How long a daemon that has answered before may be away: a restart takes much less."""


@dataclass(frozen=True)
class Watched:
    """A subagent that is waited for: its turn, what it does now, and how it ended."""

    name: str
    turn: str | None = None
    doing: str = ""
    outcome: Json | None = None


@click.command("wait", cls=DaemonCommand, short_help="Wait for turns to end.")
@click.argument("names", nargs=-1, required=True, type=SubagentName(running=True), metavar="NAME...")
def wait(endpoint: Endpoint, *, names: tuple[str, ...]) -> None:
    """Wait until the running turns of all these subagents have ended, and print how each did.

    For one that does not run, its last turn counts. Exits with 0 when all completed, 1 otherwise, 3 when the
    daemon is not reachable; a restart of the daemon is waited for.
    """
    outcomes = []
    progress: Any = None
    if can_redraw(sys.stderr):
        progress = import_module("hive_subagent_daemon.cli.progress").ProgressLine()
    try:
        seconds = SILENT_SECONDS if progress is None else LOOK_SECONDS
        for watched in _followed(endpoint, names, look_seconds=seconds):
            if watched.outcome is not None:
                if progress is not None:
                    progress.clear()
                outcomes.append(watched.outcome["outcome"])
                put(_ending(watched.name, watched.outcome))
            elif progress is not None:
                progress.show(watched.doing)
    finally:
        if progress is not None:
            progress.clear()
    if any(outcome != "completed" for outcome in outcomes):
        raise click.exceptions.Exit(1)


def _followed(endpoint: Endpoint, names: tuple[str, ...], *, look_seconds: float) -> Iterator[Watched]:
    """Yield each subagent once with its outcome, and before that what the rest is doing."""
    watched = [_first_look(endpoint, name) for name in dict.fromkeys(names)]
    answered_at = began = time.monotonic()
    complained = False
    while True:
        yield from (each for each in watched if each.outcome is not None)
        watched = [each for each in watched if each.outcome is None]
        if not watched:
            return
        yield Watched("", doing=_progress(watched, time.monotonic() - began))
        try:
            watched = _looked_again(endpoint, watched, look_seconds)
        except (UnreachableError, BusyError) as error:
            if time.monotonic() - answered_at > look_seconds + AWAY_SECONDS:
                raise
            if not complained:
                complain(f"{error} Still waiting.")
            complained = True
            time.sleep(PAUSE_SECONDS)
        else:
            answered_at = time.monotonic()
            complained = False


def _first_look(endpoint: Endpoint, name: str) -> Watched:
    subagent = _subagent(endpoint, name)
    if subagent["state"] == "running":
        return Watched(name, subagent["turn"], doing_of(subagent))
    # Of an unknown name nothing can be awaited; the contract of `wait` has no other code for it.
    outcome = subagent.get("last_turn") or {"outcome": "unknown"}
    return Watched(name, subagent["turn"], outcome=outcome)


def _looked_again(endpoint: Endpoint, watched: list[Watched], seconds: float) -> list[Watched]:
    """Wait until one of them has ended, or for so many seconds, and return all as they are then."""
    arguments = {"names": [each.name for each in watched], "timeout_seconds": seconds}
    try:
        answer = call_tool(endpoint, "wait", arguments, within_seconds=seconds + ANSWER_SECONDS).structured
    except BusyError:
        raise
    except RefusedError:
        # It stops, or is older than this command: what becomes of them, its status tells, if need be later.
        time.sleep(PAUSE_SECONDS)
        answer = {"subagents": []}
    seen = {subagent["name"]: subagent for subagent in answer["subagents"]}
    return [_as_seen(endpoint, each, seen.get(each.name)) for each in watched]


def _as_seen(endpoint: Endpoint, watched: Watched, seen: Json | None) -> Watched:
    """Return a subagent as it is now; one for which there was no room in the answer is asked for."""
    subagent = seen if seen is not None else _subagent(endpoint, watched.name)
    if subagent["state"] == "running" and subagent["turn"] == watched.turn:
        return replace(watched, doing=doing_of(subagent))
    last = subagent.get("last_turn")
    if last is not None and last["turn"] == watched.turn:
        return replace(watched, outcome=last)
    # Somebody has given it another turn already: of the one before, the loose end tells, closed or not.
    found = call_tool(endpoint, "get_loose_ends", {"ids": [watched.turn]}).structured["loose_ends"]
    return replace(watched, outcome=found[0] if found else {"outcome": "unknown"})


def _subagent(endpoint: Endpoint, name: str) -> Json:
    subagent: Json = call_tool(endpoint, "status", {"name": name}).structured["subagents"][0]
    return subagent


def _progress(watched: list[Watched], seconds: float) -> str:
    each = ", ".join(f"{one_line(one.name)} ({one.doing})" for one in watched)
    return f"{short(seconds)} waiting for {len(watched)}: {each}"


def _ending(name: str, outcome: Json) -> str:
    """Say in one line how a turn ended and what it took."""
    if outcome["outcome"] == "unknown":
        return f"{one_line(name)}: nothing is known of a turn under this name"
    took, rounds, cost = (outcome[field] for field in ("duration_seconds", "rounds", "cost_usd"))
    facts = [
        clock.lasting(took) if took is not None else "",
        f"{rounds} round{'' if rounds == 1 else 's'}" if rounds is not None else "",
        dollars(cost) if cost is not None else "",
        f"{len(outcome['warnings'])} warnings" if outcome["warnings"] else "",
    ]
    tone = "green" if outcome["outcome"] == "completed" else "red"
    ended = coloured(one_line(how_it_ended(outcome)), tone, colour=shows_colour(sys.stdout))
    return ", ".join([f"{one_line(name)}: {ended}", *filter(None, facts)])
