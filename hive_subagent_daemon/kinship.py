"""Which subagents belong to which: pure functions of who has started whom."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hive_subagent_daemon.turns import Turn
    from hive_subagent_daemon.values import Parentage


def as_tree(parents: Mapping[str, str | None]) -> list[str]:
    """Return the names in the order of the alphabet, each followed by those that it has started."""
    ordered: dict[str, None] = {}

    def add(name: str) -> None:
        if name not in ordered:
            ordered[name] = None
            for nested in sorted(name_ for name_, parent in parents.items() if parent == name):
                add(nested)

    for name in sorted(parents, key=lambda name: (parents[name] in parents, name)):
        add(name)
    return list(ordered)


def above(turn: Turn, started_by: Mapping[str, str]) -> Iterator[str]:
    """Yield the turns that a turn descends from, the nearest first, ended ones included.

    `started_by` tells of turns, by their ids, which turn has started each.
    """
    turn_id = turn.record.parentage.turn
    while turn_id is not None:
        yield turn_id
        turn_id = started_by.get(turn_id)


def handed_down(parentage: Parentage) -> dict[str, str]:
    """Return which turn has started which, as the record of a turn tells of those above it."""
    return dict(pairwise(parentage.above))


def nested_in(turn_id: str, running: Iterable[Turn], started_by: Mapping[str, str]) -> list[Turn]:
    """Return those of the running turns that a turn has started, and those that these have."""
    return [turn for turn in running if turn_id in above(turn, started_by)]


def still_needed(running: Iterable[Turn], started_by: Mapping[str, str]) -> dict[str, str]:
    """Return what has to be known of who has started whom: what is above the running turns."""
    ids = {turn_id for turn in running for turn_id in (turn.record.turn, *above(turn, started_by))}
    return {turn_id: starter for turn_id, starter in started_by.items() if turn_id in ids}
