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
from hive_subagent_daemon.client import BusyError, UnreachableError, call_tool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hive_subagent_daemon.cli.tables import Json
    from hive_subagent_daemon.client import Endpoint

FIRST_PAUSE_SECONDS: Final = 0.25
LONGEST_PAUSE_SECONDS: Final = 2.0
MANY: Final = 3
"""So many are asked for one by one; of more, all that run are asked for in one call."""
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
        for watched in _followed(endpoint, names):
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


def _followed(endpoint: Endpoint, names: tuple[str, ...]) -> Iterator[Watched]:
    """Yield each subagent once with its outcome, and before that what the rest is doing."""
    watched = [_first_look(endpoint, name) for name in dict.fromkeys(names)]
    pause = FIRST_PAUSE_SECONDS
    answered_at = began = time.monotonic()
    complained = False
    while True:
        yield from (each for each in watched if each.outcome is not None)
        watched = [each for each in watched if each.outcome is None]
        if not watched:
            return
        yield Watched("", doing=_progress(watched, time.monotonic() - began))
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)
        try:
            running = _running(endpoint) if len(watched) > MANY else {}
            watched = [_looked_again(endpoint, each, running.get(each.name)) for each in watched]
        except (UnreachableError, BusyError) as error:
            if time.monotonic() - answered_at > AWAY_SECONDS:
                raise
            if not complained:
                complain(f"{error} Still waiting.")
            complained = True
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


def _running(endpoint: Endpoint) -> dict[str, Json]:
    """Return the running subagents that one answer shows, by name."""
    shown = call_tool(endpoint, "status", {}).structured["subagents"]
    return {subagent["name"]: subagent for subagent in shown if subagent["state"] == "running"}


def _looked_again(endpoint: Endpoint, watched: Watched, seen: Json | None) -> Watched:
    """Look at a subagent again; `seen` is what a look at all of them has shown, if it has."""
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
