"""The command `hive-subagent`, after hooks have had their turn in `command_main`.

A bridge lives as long as its parent, so it gets its words before the command line of people is imported.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["mcp"]:
        bridged: int = import_module("hive_subagent_daemon.bridge_main").main(words[1:])
        return bridged
    code: int = import_module("hive_subagent_daemon.cli.entry").run(words)
    return code


if __name__ == "__main__":
    sys.exit(main())
