"""The table of `status` as lines that fit a terminal: names folded, what is being done cut, in colours.

Drawn by hand: rich's console and its tables take as long to import as the rest of the command. Of rich only
the widths of characters are needed here.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len, set_cell_size

from hive_subagent_daemon.cli.printing import coloured, put, wrapped
from hive_subagent_daemon.cli.tables import GAP, HEADINGS, Remark, ToneRow, layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hive_subagent_daemon.cli.tables import Layout

_RIGHT: Final = (2, 3, 4, 5)
_STATE, _DOING = 1, 6


@dataclass(frozen=True)
class Piece:
    """A stretch of a line in one tone."""

    text: str
    tone: str = ""


Line = tuple[Piece, ...]


def table_lines(rows: Sequence[ToneRow], width: int) -> list[list[Line]]:
    """Return the lines of the headings and of each row; a row has several where its name is folded."""
    if not rows:
        return []
    fits = layout(rows, width)
    head = _row_lines(HEADINGS, fits, dict.fromkeys(range(len(HEADINGS)), "bold"))
    tones = ({_STATE: each.state_tone, _DOING: each.doing_tone} for each in rows)
    return [head, *(_row_lines(each.row.cells, fits, tone) for each, tone in zip(rows, tones, strict=True))]


def _row_lines(cells: Sequence[str], fits: Layout, tones: dict[int, str]) -> list[Line]:
    name_width = fits.widths[0]
    name, *folded = [cells[0][at : at + name_width] for at in range(0, len(cells[0]), name_width)] or [""]
    pieces = [Piece(name.ljust(name_width), tones.get(0, ""))]
    for column, width in zip(fits.columns[1:], fits.widths[1:], strict=True):
        last = column == fits.columns[-1]
        text = cut(cells[column], width) if last else cells[column]
        padded = text.rjust(width) if column in _RIGHT else text if last else text.ljust(width)
        pieces += [Piece(" " * GAP), Piece(padded, tones.get(column, ""))]
    return [tuple(pieces), *((Piece(part),) for part in folded)]


def cut(text: str, width: int) -> str:
    """Return a text that takes at most so many columns of a terminal, with an ellipsis where it was cut."""
    if cell_len(text) <= width:
        return text
    return f"{set_cell_size(text, width - 1).rstrip()}…"


def show(rows: Sequence[ToneRow], remarks: Sequence[Remark], *, colour: bool) -> None:
    """Print the table and what is to be said below it."""
    width = shutil.get_terminal_size().columns
    lines = [line for each in table_lines(rows, width) for line in each]
    printed = ["".join(coloured(piece.text, piece.tone, colour=colour) for piece in line) for line in lines]
    below = [coloured(wrapped(remark.text), remark.tone, colour=colour) for remark in remarks]
    put("\n".join([*printed, *([""] if printed and below else []), *below]))
