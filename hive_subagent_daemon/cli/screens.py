"""Tables in a terminal, with rich: imported only where people look at one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from hive_subagent_daemon.cli.tables import FIXED, GAP, HEADINGS, Remark, ToneRow, layout

if TYPE_CHECKING:
    from collections.abc import Sequence

_RIGHT = (2, 3, 4, 5)


def console() -> Console:
    """Return the terminal that stdout is, which takes every text as it is."""
    return Console(markup=False, emoji=False, highlight=False, soft_wrap=False)


def table(rows: Sequence[ToneRow], width: int) -> Table:
    """Return the rows as a table that fits the width."""
    fits = layout(rows, width)
    made = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for column, column_width in zip(fits.columns, fits.widths, strict=True):
        whole = column in (0, *FIXED)
        made.add_column(
            HEADINGS[column],
            width=column_width,
            no_wrap=column != 0,
            overflow="fold" if whole else "ellipsis",
            justify="right" if column in _RIGHT else "left",
        )
    for each in rows:
        tones = {1: each.state_tone, 6: each.doing_tone}
        made.add_row(*(Text(each.row.cells[column], tones.get(column, "")) for column in fits.columns))
    return made


def screen(rows: Sequence[ToneRow], remarks: Sequence[Remark], width: int) -> RenderableType:
    """Return the table and what is to be said below it."""
    below = [Text(remark.text, remark.tone) for remark in remarks]
    return Group(table(rows, width), *([Text("")] if below else []), *below) if rows else Group(*below)


def show(rows: Sequence[ToneRow], remarks: Sequence[Remark]) -> None:
    """Print the table once."""
    terminal = console()
    terminal.print(screen(rows, remarks, terminal.width))
