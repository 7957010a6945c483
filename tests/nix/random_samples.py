"""Agents whose settings and servers have no known shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.nix.samples import ENTRIES, SERVER_NAMES, VALUES

if TYPE_CHECKING:
    from random import Random

KEYS = sorted(
    {key for entry in ENTRIES for key in entry}
    | {"availableToSubagents", "enable", "file", "sinks", "token_file", "allow_uids", "max_depth", "manager"}
)
SECTIONS = ["auth", "environment", "limits", "loose_ends", "retention", "scopes", "state_dir", "umask"]


def random_value(choose: Random, depth: int) -> object:
    """Return something that TOML can hold, of any shape."""
    kind = choose.random() if depth else 0.0
    if kind < 0.5:
        return choose.choice([each for each in VALUES if not isinstance(each, list | dict)])
    if kind < 0.7:
        return [random_value(choose, depth - 1) for _ in range(choose.randint(0, 3))]
    return {key: random_value(choose, depth - 1) for key in choose.sample(KEYS, choose.randint(0, 4))}


def random_agent(choose: Random) -> dict[str, Any]:
    """Return changes of an agent whose settings and servers have no known shape."""
    settings = {name: random_value(choose, 4) for name in choose.sample(SECTIONS, 4)}
    names = choose.sample(["subagent", *SERVER_NAMES], 2)
    entries = [{key: random_value(choose, 2) for key in choose.sample(KEYS, 4)} for _ in names]
    return {"settings": settings, "mcpServers": dict(zip(names, entries, strict=True))}
