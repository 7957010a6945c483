"""Every key of the configuration as Markdown, from the table that the loader reads."""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING

from hive_subagent_daemon.config_schema import KEYS, Computed, Key
from tests.docs.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterable

HEAD = ("key", "meaning", "allowed", "default", "flag")


def rendered() -> str:
    """Return a section for each table of the file."""
    return "\n".join(_section(name, keys) for name, keys in groupby(sorted(KEYS, key=_table), key=_table))


def _table(key: Key) -> str:
    # Keys without a table come first in a file, and here.
    return ".".join(key.place[:-1])


def _section(name: str, keys: Iterable[Key]) -> str:
    title = f"### `[{name}]`" if name else "### Above all tables, and whole tables"
    return f"{title}\n\n{table(HEAD, map(_cells, keys))}"


def _cells(key: Key) -> tuple[str, ...]:
    flag = f"`{key.flag}`" if key.flag else ""
    return f"`{_shown_name(key)}`", key.meaning, key.kind.allowed, _default(key.default), flag


def _shown_name(key: Key) -> str:
    """Return the key as it stands in a file: a table in brackets."""
    return f"[{key.place[-1]}]" if key.default == {} else key.place[-1]


def _default(value: object) -> str:
    match value:
        case None:
            return "not set"
        case Computed(words):
            return words.replace("<", r"\<")
        case float():
            return f"`{value:g}`"
        case [] | {}:
            return "none"
    return f"`{json.dumps(value)}`"
