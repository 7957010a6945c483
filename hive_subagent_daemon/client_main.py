"""The program `hive-subagent`: dispatches before anything slow is imported.

A command of people is built by `cli.entry`. What runs often and by itself, such as a hook, belongs into
EARLY: it gets its words as they are and must not wait for a command line that it does not need.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

EARLY: dict[str, str] = {}
"""First word: module whose `main(words) -> int` takes the words after it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0] in EARLY:
        early: int = import_module(EARLY[words[0]]).main(words[1:])
        return early
    code: int = import_module("hive_subagent_daemon.cli.entry").run(words)
    return code


if __name__ == "__main__":
    sys.exit(main())
