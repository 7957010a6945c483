"""The command `hive-subagent mcp`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from hive_subagent_daemon.bridge import Bridge

if TYPE_CHECKING:
    from hive_subagent_daemon.client import Endpoint

STDIN, STDOUT = 0, 1


def run(endpoint: Endpoint) -> None:
    """Serve the client on stdin and stdout until it leaves."""
    if os.isatty(STDIN):
        print("This speaks MCP, one JSON-RPC message a line, for programs; Ctrl-D ends it.", file=sys.stderr)
    for descriptor in (STDIN, STDOUT):
        # A parent that shares its own non-blocking ends with us would make our reads and writes fail.
        os.set_blocking(descriptor, True)
    Bridge(endpoint, stdin=STDIN, stdout=STDOUT).run()
