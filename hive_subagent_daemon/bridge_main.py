"""The command `hive-subagent mcp`, without what the commands for people need.

Each parent keeps one running as long as it lives: what is not imported is memory saved in each.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from typing import TYPE_CHECKING

from hive_subagent_daemon.bridge import Bridge
from hive_subagent_daemon.client import EXAMPLE_URL, TOKEN_FILE_VARIABLE, URL_VARIABLE, AddressError
from hive_subagent_daemon.client_options import chosen_endpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hive_subagent_daemon.client import Endpoint

SUMMARY = "connect an MCP client that speaks only stdio to the daemon"
STDIN, STDOUT = 0, 1
DONE, BAD_USAGE, INTERRUPTED = 0, 2, 130


def main(words: Sequence[str]) -> int:
    """Serve the client on stdin and stdout as the words after `mcp` say, and return the exit code."""
    arguments = _parser().parse_args(words)
    try:
        endpoint = chosen_endpoint(
            url=arguments.url,
            socket_path=arguments.socket,
            token_file=arguments.token_file,
            environ=os.environ,
        )
        run(endpoint)
    except AddressError as error:
        print(f"hive-subagent mcp: {error}", file=sys.stderr)
        return BAD_USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    return DONE


def run(endpoint: Endpoint) -> None:
    """Serve the client on stdin and stdout until it leaves."""
    if os.isatty(STDIN):
        print("This speaks MCP, one JSON-RPC message a line, for programs; Ctrl-D ends it.", file=sys.stderr)
    with contextlib.suppress(OSError):  # one that is closed shows as the end
        for descriptor in (STDIN, STDOUT):
            # A parent that shares its own non-blocking ends with us would make our reads and writes fail.
            os.set_blocking(descriptor, True)
    Bridge(endpoint, stdin=STDIN, stdout=STDOUT).run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hive-subagent mcp",
        description=f"{SUMMARY[0].upper()}{SUMMARY[1:]}. It lives as long as its stdin is open, and outlives "
        "restarts of the daemon.",
        allow_abbrev=False,
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--url", help=f"address of the daemon (default: ${URL_VARIABLE}, else {EXAMPLE_URL})")
    where.add_argument("--socket", metavar="PATH", help="Unix socket of the daemon")
    parser.add_argument(
        "--token-file",
        metavar="PATH",
        help=f"file with the daemon's token (default: ${TOKEN_FILE_VARIABLE}, else no token)",
    )
    return parser
