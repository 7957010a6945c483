"""`mcp` and `notices`, the commands for programs, as people find them: in the help and by completion.

Both are dispatched before this is imported, `mcp` unless options stand before it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

import click

from hive_subagent_daemon.cli.commands import DaemonCommand

if TYPE_CHECKING:
    from hive_subagent_daemon.client import Endpoint


@click.command("mcp", cls=DaemonCommand, short_help="Connect an MCP client that speaks only stdio.")
def mcp(endpoint: Endpoint) -> None:
    """Connect an MCP client that speaks only stdio to the daemon.

    It speaks MCP on stdin and stdout, one message a line, lives as long as its stdin is open, and outlives
    restarts of the daemon.
    """
    import_module("hive_subagent_daemon.bridge_main").run(endpoint)


@click.command(
    "notices",
    cls=DaemonCommand,
    short_help="Tell claude's hooks of ended turns.",
)
def notices(endpoint: Endpoint) -> None:
    """Tell a parent of ended turns: for hooks of claude, whose JSON it reads on stdin.

    After Stop it waits for the end of a subagent's turn and exits with 2 and a text on stderr, which wakes
    the parent; at UserPromptSubmit and SessionStart it prints what there is to tell. Everything else, errors
    included, is silence and the exit code 0.
    """
    del endpoint  # it finds its daemon itself, by the same options
    code: int = import_module("hive_subagent_daemon.notices_main").main(sys.argv[1:])
    raise click.exceptions.Exit(code)
