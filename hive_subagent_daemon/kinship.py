"""Which subagents belong to which: pure functions of who has started whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hive_subagent_daemon.turns import Turn


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


def nested_in(turn_id: str, running: Iterable[Turn]) -> list[Turn]:
    """Return those of the running turns that a turn has started, and those that these have."""
    left = list(running)
    found: list[Turn] = []
    wanted = {turn_id}
    while wanted:
        more = [turn for turn in left if turn.record.parentage.turn in wanted]
        left = [turn for turn in left if turn.record.parentage.turn not in wanted]
        found += more
        wanted = {turn.record.turn for turn in more}
    return found
