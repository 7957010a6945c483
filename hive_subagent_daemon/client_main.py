"""The command `hive-subagent`: hands over to the module of the command that is meant.

A hook must be quick and a bridge lives as long as its parent, so both get their words before the command line
of people is imported.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from hive_subagent_daemon import notices_main

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if notices_main.is_meant(words):
        return notices_main.main(words)
    try:
        return _run(words)
    except KeyboardInterrupt:  # while something is imported
        return INTERRUPTED


def _run(words: list[str]) -> int:
    if words[:1] == ["mcp"]:
        bridged: int = import_module("hive_subagent_daemon.bridge_main").main(words[1:])
        return bridged
    code: int = import_module("hive_subagent_daemon.cli.entry").run(words)
    return code


if __name__ == "__main__":
    sys.exit(main())
