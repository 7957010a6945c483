"""The live table of `status --watch`, on the alternate screen of a terminal."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from hive_subagent_daemon import clock
from hive_subagent_daemon.cli.printing import one_line, shows_colour
from hive_subagent_daemon.cli.screens import cut, show, table_lines
from hive_subagent_daemon.cli.tables import remarks_of, rows_of, short
from hive_subagent_daemon.cli.watch import looks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType

    from hive_subagent_daemon.cli.screens import Line
    from hive_subagent_daemon.cli.watch import Look
    from hive_subagent_daemon.client import Endpoint


def redraw(endpoint: Endpoint, arguments: Mapping[str, Any]) -> None:
    """Show the table until Ctrl-C, then leave the last one in the scrolled text."""
    colour = shows_colour(sys.stdout)
    terminal = Console(markup=False, emoji=False, highlight=False, no_color=not colour)
    seen = looks(endpoint, arguments)
    look = next(seen)  # a daemon that is not there is an error before the screen is taken
    # Whoever is ended in another way than by Ctrl-C gives the screen back too.
    signal.signal(signal.SIGTERM, _leave)
    try:
        # One write for each look: rich's own refreshing would draw the same four times a second.
        with Live(console=terminal, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
            while True:
                columns, lines = terminal.size
                live.update(picture(look, endpoint.shown, columns=columns, lines=lines), refresh=True)
                look = next(seen)
    finally:
        show(rows_of(look.answer, now=clock.now()), remarks_of(look.answer), colour=colour)


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def picture(look: Look, address: str, *, columns: int, lines: int) -> RenderableType:
    """Return what the whole screen shows: a headline, the rows that fit, and what is to be said."""
    rows, remarks = rows_of(look.answer, now=clock.now()), remarks_of(look.answer)
    below = [Text(cut(remark.text, columns), remark.tone) for remark in remarks]
    head, *each_row = table_lines(rows, columns) or [[]]
    room = lines - len(head) - 2 - (len(below) + 1 if below else 0)
    shown = _fitting(each_row, room)
    if len(shown) < len(each_row):
        shown = _fitting(each_row, room - 1 - (not below))
        below.insert(
            0, Text(cut(f"… {len(each_row) - len(shown)} more: this screen is full.", columns), "dim")
        )
    table = [_text(line) for each in [head, *shown] for line in each]
    return Group(*_headlines(look, address, columns), *table, *([Text("")] if below else []), *below)


def _fitting(rows: list[list[Line]], room: int) -> list[list[Line]]:
    """Return the first rows that take no more than so many lines."""
    taken = 0
    for number, row in enumerate(rows):
        taken += len(row)
        if taken > room:
            return rows[:number]
    return rows


def _text(line: Line) -> Text:
    return Text.assemble(*((piece.text, piece.tone) for piece in line))


def _headlines(look: Look, address: str, columns: int) -> list[Text]:
    """Return two lines: the time and what there is; below it, empty as a rule, why there is no answer."""
    counts = Counter(subagent["state"] for subagent in look.answer["subagents"])
    states = ", ".join(f"{counts[state]} {state}" for state in ("running", "idle", "killed") if counts[state])
    time = clock.now().astimezone().strftime("%H:%M:%S")
    head = "  ".join([time, states or "no subagents", one_line(address)])
    away = ""
    if look.trouble is not None:
        away = f"Not answering for {short(look.trouble_seconds)}, trying again. {one_line(look.trouble)}"
    return [Text(cut(head, columns), "bold"), Text(cut(away, columns), "red")]
