"""`loose-ends`: the notices of ended turns, read and closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hive_subagent_daemon.answers import loose_ends_shown
from hive_subagent_daemon.cli.commands import DaemonCommand, LooseEndId
from hive_subagent_daemon.cli.printing import put_json, say
from hive_subagent_daemon.client import ToolAnswer, call_tool
from hive_subagent_daemon.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hive_subagent_daemon.client import Endpoint

MOST_AT_ONCE = 100
"""Most loose ends that one call of a tool takes."""
WHOLE_TEXT_CHARACTERS = 20_000
"""So much of a text the daemon hands out to who asks by id."""


@click.command("loose-ends", cls=DaemonCommand, short_help="Show or close the notices of ended turns.")
@click.argument("ids", nargs=-1, type=LooseEndId(), metavar="[ID]...")
@click.option("--close", is_flag=True, help="Close the ones named by ID.")
@click.option("--close-all", is_flag=True, help="Show all that are open, and close them.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def loose_ends(
    endpoint: Endpoint, *, ids: tuple[str, ...], close: bool, close_all: bool, as_json: bool
) -> None:
    """Show the open loose ends, oldest first; those named by ID with their whole text, also closed ones."""
    if close_all:
        if close or ids:
            message = "--close-all takes no ID and no --close: it closes all that are open."
            raise click.UsageError(message)
        _close_all(endpoint, as_json=as_json)
        return
    if close and not ids:
        message = "--close needs at least one ID: `hive-subagent loose-ends` shows them."
        raise click.UsageError(message)
    answer = _asked(endpoint, ids, close=close)
    if as_json:
        put_json(answer.structured)
    elif ids and not close:
        say(loose_ends_shown(answer.structured, text_characters=WHOLE_TEXT_CHARACTERS))
    else:
        say(answer.text)
    unknown = answer.structured["unknown"] if close else _missing(ids, answer)
    if unknown:
        message = f"no loose end has the id {', '.join(unknown)}."
        raise RefusedError(message)


def _asked(endpoint: Endpoint, ids: tuple[str, ...], *, close: bool) -> ToolAnswer:
    if close:
        return call_tool(endpoint, "close_loose_ends", {"ids": list(ids)})
    wanted: dict[str, Any] = {"ids": list(ids)} if ids else {"limit": MOST_AT_ONCE}
    return call_tool(endpoint, "get_loose_ends", wanted)


def _missing(ids: tuple[str, ...], answer: ToolAnswer) -> list[str]:
    """Return the ids that were asked for and are nowhere; what did not fit is only counted."""
    shown = {loose_end["id"] for loose_end in answer.structured["loose_ends"]}
    return [] if answer.structured["remaining"] else [one for one in ids if one not in shown]


def _close_all(endpoint: Endpoint, *, as_json: bool) -> None:
    """Close what is open now, and print it even if that stops half way: nothing may be closed unseen."""
    closed: list[dict[str, Any]] = []
    try:
        for answer in _open_at_present(endpoint):
            if not as_json:
                say(answer.text + "\n")
            shown = answer.structured["loose_ends"]
            call_tool(endpoint, "close_loose_ends", {"ids": [loose_end["id"] for loose_end in shown]})
            closed += shown
    finally:
        if as_json:
            put_json({"closed": closed})
        else:
            say(f"Closed {len(closed)} loose end{'' if len(closed) == 1 else 's'}.")


def _open_at_present(endpoint: Endpoint) -> Iterator[ToolAnswer]:
    """Yield the open loose ends in portions, each of which is to be closed before the next is asked for.

    They come oldest first, so those that come up meanwhile are the last, and stay open.
    """
    answer = call_tool(endpoint, "get_loose_ends", {"limit": MOST_AT_ONCE})
    left = len(answer.structured["loose_ends"]) + answer.structured["remaining"]
    while shown := len(answer.structured["loose_ends"]):
        yield answer
        left -= shown
        if left <= 0:
            return
        answer = call_tool(endpoint, "get_loose_ends", {"limit": min(MOST_AT_ONCE, left)})
