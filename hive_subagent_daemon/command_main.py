"""The command `hive-subagent`: hands over to the module of the command that is meant.

What hooks run on every turn of claude must not wait for the import of what people use.
"""

from __future__ import annotations

import sys
from importlib import import_module

from hive_subagent_daemon import notices_main


def main() -> int:
    """Run one command and return its exit code."""
    words = sys.argv[1:]
    if notices_main.is_meant(words):
        return notices_main.main(words)
    code: int = import_module("hive_subagent_daemon.client_main").main(words)
    return code


if __name__ == "__main__":
    sys.exit(main())
