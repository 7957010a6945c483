"""`mcp`: the bridge for MCP clients that speak only stdio."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import click

from hive_subagent_daemon.cli.commands import DaemonCommand

if TYPE_CHECKING:
    from hive_subagent_daemon.client import Endpoint


@click.command("mcp", cls=DaemonCommand, short_help="Connect an MCP client on stdin and stdout.")
def mcp(endpoint: Endpoint) -> None:
    """Speak MCP on stdin and stdout, one message a line, for clients that cannot speak HTTP."""
    import_module("hive_subagent_daemon.bridge_main").run(endpoint)
