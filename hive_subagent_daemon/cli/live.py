"""The live table of `status --watch`, on the alternate screen of a terminal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.text import Text

from hive_subagent_daemon import clock
from hive_subagent_daemon.cli.printing import one_line
from hive_subagent_daemon.cli.screens import console, screen, table
from hive_subagent_daemon.cli.tables import remarks_of, rows_of, short
from hive_subagent_daemon.cli.watch import looks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console, RenderableType

    from hive_subagent_daemon.cli.watch import Look
    from hive_subagent_daemon.client import Endpoint


def redraw(endpoint: Endpoint, arguments: Mapping[str, Any]) -> None:
    """Show the table until Ctrl-C, then leave the last one in the scrolled text."""
    terminal = console()
    seen = looks(endpoint, arguments)
    look = next(seen)  # a daemon that is not there is an error before the screen is taken
    try:
        # One write for each look: rich's own refreshing would draw the same four times a second.
        with Live(console=terminal, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
            while True:
                live.update(picture(look, terminal, endpoint.shown), refresh=True)
                look = next(seen)
    finally:
        rows, remarks = rows_of(look.answer, now=clock.now()), remarks_of(look.answer)
        terminal.print(screen(rows, remarks, terminal.width))


def picture(look: Look, terminal: Console, address: str) -> RenderableType:
    """Return what the whole screen shows: a headline, the rows that fit, and what is to be said."""
    width, height = terminal.size
    rows, remarks = rows_of(look.answer, now=clock.now()), remarks_of(look.answer)
    below = [Text(remark.text, remark.tone, overflow="ellipsis", no_wrap=True) for remark in remarks]
    shown, hidden = rows, 0
    while shown:
        drawn = terminal.render_lines(table(shown, width), pad=False)
        if len(drawn) + len(below) + 3 + bool(hidden) <= height:
            break
        # Rows may be folded, so the excess in lines is at most the excess in rows.
        excess = len(drawn) + len(below) + 4 - height
        shown = shown[: max(0, len(shown) - max(1, excess // 2))]
        hidden = len(rows) - len(shown)
    if hidden:
        below.insert(0, Text(f"… {hidden} more below: this screen is full.", "dim"))
    drawn_table = [table(shown, width)] if shown else []
    return Group(*_headlines(look, address), *drawn_table, *([Text("")] if below else []), *below)


def _headlines(look: Look, address: str) -> list[Text]:
    """Return two lines: the time and what there is; below it, empty as a rule, why there is no answer."""
    counts = Counter(subagent["state"] for subagent in look.answer["subagents"])
    states = ", ".join(f"{counts[state]} {state}" for state in ("running", "idle", "killed") if counts[state])
    time = clock.now().astimezone().strftime("%H:%M:%S")
    head = "  ".join([time, states or "no subagents", one_line(address)])
    away = ""
    if look.trouble is not None:
        away = f"Not answering for {short(look.trouble_seconds)}, trying again. {one_line(look.trouble)}"
    return [
        Text(head, "bold", overflow="ellipsis", no_wrap=True),
        Text(away, "red", overflow="ellipsis", no_wrap=True),
    ]
