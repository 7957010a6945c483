"""A status answer as rows and lines for people: pure, without a terminal."""

from __future__ import annotations

import re
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from hive_subagent_daemon.answers import how_it_ended
from hive_subagent_daemon.cli.printing import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    Json = Mapping[str, Any]

HEADINGS: Final = ("NAME", "STATE", "AGE", "TURN", "MEMORY", "COST", "DOING")
FIXED: Final = range(1, 6)
"""The columns between the name and what it is doing; none of them is ever cut."""
GAP: Final = 2
_STALL: Final = re.compile(r"([a-z0-9-]{1,63}) has been silent for ")
_COUNTED: Final = re.compile(r"and \d+ more")
_DROPPED_FIRST: Final = (5, 4, 3)  # cost, memory, turn time: the first to go where it is narrow
_NAME_WIDTH, _DOING_WIDTH = 20, 16
_LEAST_NAME, _LEAST_DOING = 12, 8


@dataclass(frozen=True)
class Row:
    """One subagent: the cells in the order of HEADINGS."""

    name: str
    state: str
    age: str
    turn: str
    memory: str
    cost: str
    doing: str

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells from left to right."""
        cells: tuple[str, ...] = astuple(self)
        return cells


@dataclass(frozen=True)
class ToneRow:
    """A row with the tones of its state and of what it is doing."""

    row: Row
    state_tone: str
    doing_tone: str = ""


@dataclass(frozen=True)
class Remark:
    """A line below the table."""

    text: str
    tone: str = ""


@dataclass(frozen=True)
class Layout:
    """Which columns fit, by their numbers, and how wide each is."""

    columns: tuple[int, ...]
    widths: tuple[int, ...]


def rows_of(answer: Json, *, now: datetime) -> list[ToneRow]:
    """Return one row for each subagent."""
    return [row_of(subagent, now) for subagent in answer["subagents"]]


def remarks_of(answer: Json) -> list[Remark]:
    """Return what is to be said below the table: what is not shown, and what is wrong with the daemon."""
    remarks = [] if answer["subagents"] else [Remark("No subagents yet.", "dim")]
    if answer["more"]:
        remarks.append(Remark(f"… and {answer['more']} more.", "dim"))
    if answer["undelivered"]:
        remarks.append(Remark(f"Undelivered: {answer['undelivered']} loose ends wait for a sink.", "yellow"))
    remarks += [Remark(f"Warning: {one_line(warning)}", "yellow") for warning in _news(answer)]
    if answer["launcher"] == "process group" and not any("process group" in w for w in answer["warnings"]):
        remarks.append(Remark("Launcher: process group (no scopes).", "dim"))
    return remarks


def _news(answer: Json) -> list[str]:
    """Return the warnings without those of stalled turns that the table marks."""
    stalled = {one["name"] for one in answer["subagents"] if one.get("stalled")}
    return without_stalls(answer["warnings"], of=stalled) if stalled else list(answer["warnings"])


def without_stalls(warnings: Sequence[str], *, of: Set[str] | None = None) -> list[str]:
    """Return the warnings without those of stalled turns, of all or of some subagents."""
    kept = [
        warning
        for warning in warnings
        if (found := _STALL.match(warning)) is None or (of is not None and found[1] not in of)
    ]
    if kept and len(kept) < len(warnings) and _COUNTED.fullmatch(kept[-1]):
        kept.pop()  # the daemon names the stalled last, so what it only counts is of the same kind
    return kept


def plain_lines(rows: Sequence[ToneRow]) -> list[str]:
    """Return a table of whole cells, as wide as it needs to be: for a pipe or a file."""
    if not rows:
        return []
    table = [HEADINGS, *(each.row.cells for each in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        (" " * GAP).join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in table
    ]


def layout(rows: Sequence[ToneRow], width: int) -> Layout:
    """Return the columns that fit into a width: the last is cut, the name is folded, the rest is whole."""
    table = [HEADINGS, *(each.row.cells for each in rows)]
    needed: list[int] = [max(map(len, column)) for column in zip(*table, strict=True)]
    columns = [0, *FIXED, 6]
    name = min(needed[0], _NAME_WIDTH)

    def left() -> int:
        fixed: int = sum(needed[column] + GAP for column in columns if column in FIXED)
        return width - fixed - GAP

    for dropped in _DROPPED_FIRST:
        if left() < name + _DOING_WIDTH:
            columns.remove(dropped)
    if left() < min(name, _LEAST_NAME) + _LEAST_DOING:  # too narrow for a table: name and state alone
        columns = [0, 1]
        return Layout((0, 1), (max(1, width - needed[1] - GAP), needed[1]))
    name = min(needed[0], max(_LEAST_NAME, left() - _DOING_WIDTH))
    widths = [name, *(needed[column] for column in columns if column in FIXED), left() - name]
    return Layout(tuple(columns), tuple(widths))


def row_of(subagent: Json, now: datetime) -> ToneRow:
    """Return the row of one subagent."""
    name, state = one_line(subagent["name"]), subagent["state"]
    if state == "running":
        stalled = subagent.get("stalled")
        row = Row(
            name,
            state,
            short(subagent.get("age_seconds")),
            short(subagent.get("running_seconds")),
            _memory(subagent.get("memory_bytes"), subagent.get("memory_limit_bytes")),
            _cost(subagent.get("cost_usd")),
            doing_of(subagent),
        )
        return ToneRow(row, "yellow" if stalled else "green", "yellow" if stalled else "")
    last = subagent.get("last_turn")
    if last is None:
        return ToneRow(Row(name, state, "-", "-", "-", "-", "nothing is known of it"), "dim", "dim")
    bad = last["outcome"] != "completed"
    row = Row(
        name,
        state,
        short(seconds_since(last["ended_at"], now)) if last["ended_at"] else "-",
        short(last["duration_seconds"]),
        "-",
        _cost(last["cost_usd"]),
        _marked(_ended_in_short(last), len(last["warnings"])),
    )
    return ToneRow(
        row, "red" if state == "killed" else "", "red" if bad else "yellow" if last["warnings"] else ""
    )


def _ended_in_short(last: Json) -> str:
    """Say how a turn ended beside its state, what tells most first: cells are cut at their end."""
    if last["outcome"] != "killed":
        return one_line(how_it_ended(last)).removeprefix("lost: ")
    cause, signal = last["cause"] or "unknown", last["signal"]
    words = [f"signal {signal}", "cause unknown"] if cause == "unknown" and signal else [cause, signal]
    return one_line(", ".join(filter(None, words)))


def doing_of(subagent: Json) -> str:
    """Say in a few words what a running subagent is doing, what is wrong with it first."""
    words = [_activity(subagent.get("activity"))]
    if subagent.get("stalled"):
        words.insert(0, "STALLED")
    return _marked(", ".join(words), len(subagent.get("mcp_problems") or ()))


def _activity(activity: Json | None) -> str:
    if not activity:
        return "-"
    since = activity.get("since_seconds")
    lasted = f" {short(since)}" if since is not None else ""
    if activity["kind"] == "retry":
        tries = f"{activity.get('attempt') or '?'}/{activity.get('max_attempts') or '?'}"
        return f"API retry {tries}" + (f" ({one_line(activity['error'])})" if activity.get("error") else "")
    if activity["kind"] == "tool":
        return f"{one_line(activity.get('tool') or 'a tool')}{lasted}"
    return ("no output yet" if activity["kind"] == "starting" else "model") + lasted


def _marked(text: str, warnings: int) -> str:
    return f"{text} [{warnings} warning{'' if warnings == 1 else 's'}]" if warnings else text


def seconds_since(moment: str, now: datetime) -> float:
    """Return how long ago an ISO time was; 0 for one in the future."""
    return max(0.0, (now - datetime.fromisoformat(moment)).total_seconds())


def short(seconds: float | None) -> str:
    """Return a length of time in at most six characters, such as 3s, 2m05s, 1h02m, 3d04h."""
    if seconds is None:
        return "-"
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    minutes, hours = whole // 60, whole // 3600
    if minutes < 60:
        return f"{minutes}m{whole % 60:02}s"
    return f"{hours}h{minutes % 60:02}m" if hours < 24 else f"{hours // 24}d{hours % 24:02}h"


def mebibytes(size: int) -> str:
    """Return a size in MiB or GiB."""
    return f"{size / 2**30:.1f}G" if size >= 1000 * 2**20 else f"{size / 2**20:.0f}M"


def _memory(size: int | None, limit: int | None) -> str:
    if size is None:
        return "-"
    return mebibytes(size) if limit is None else f"{mebibytes(size)}/{mebibytes(limit)}"


def _cost(cost: float | None) -> str:
    return "-" if cost is None else dollars(cost)


def dollars(cost: float) -> str:
    """Return a cost in US dollars; one that would round to nothing with four digits."""
    return f"${cost:.{2 if cost >= 0.01 or cost == 0 else 4}f}"
