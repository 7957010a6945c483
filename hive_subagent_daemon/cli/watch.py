"""Asking a daemon again and again, over its restarts, and telling what has changed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hive_subagent_daemon import clock
from hive_subagent_daemon.answers import how_it_ended
from hive_subagent_daemon.cli.printing import one_line, put, put_json
from hive_subagent_daemon.cli.tables import doing_of
from hive_subagent_daemon.client import BusyError, UnreachableError, call_tool

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hive_subagent_daemon.cli.tables import Json
    from hive_subagent_daemon.client import Endpoint

PAUSE_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Look:
    """One look at a daemon: its newest answer, and why there was none just now."""

    answer: Json
    trouble: str | None = None
    trouble_seconds: float = 0.0


def looks(endpoint: Endpoint, arguments: Mapping[str, Any]) -> Iterator[Look]:
    """Yield a look each second, for ever; once there was an answer, a daemon that is away is waited for."""
    answer = call_tool(endpoint, "status", arguments).structured
    answered_at = time.monotonic()
    yield Look(answer)
    while True:
        time.sleep(PAUSE_SECONDS)
        try:
            answer = call_tool(endpoint, "status", arguments).structured
        except (UnreachableError, BusyError) as error:
            yield Look(answer, str(error), time.monotonic() - answered_at)
        else:
            answered_at = time.monotonic()
            yield Look(answer)


def report_changes(endpoint: Endpoint, arguments: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a line for each change of a state: for a pipe, or a terminal that cannot be drawn over."""
    before: dict[str, str] = {}
    away = False
    for look in looks(endpoint, arguments):
        if look.trouble is not None:
            if not away and not as_json:
                put(f"{_time()}  {one_line(look.trouble)}")
            away = True
            continue
        if away and not as_json:
            put(f"{_time()}  The daemon answers again.")
        away = False
        now = {subagent["name"]: told(subagent) for subagent in look.answer["subagents"]}
        if as_json:
            if now != before:
                put_json(look.answer, lines=True)
        else:
            for name, text in now.items():
                if before.get(name) != text:
                    put(f"{_time()}  {one_line(name)}: {text}")
        before = now


def told(subagent: Json) -> str:
    """Say what a subagent is, without anything that changes by itself."""
    if subagent["state"] == "running":
        kind = (subagent.get("activity") or {}) | {"since_seconds": None}
        return f"running, {doing_of({**subagent, 'activity': kind if subagent.get('activity') else None})}"
    last = subagent.get("last_turn")
    return f"{subagent['state']}, {one_line(how_it_ended(last))}" if last else str(subagent["state"])


def _time() -> str:
    return clock.now().astimezone().strftime("%H:%M:%S")
