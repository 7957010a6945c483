"""A tiny MCP server over stdio, for a turn's own use; its argument is a file that tells that it is in use."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import anyio
from mcp.server.mcpserver import MCPServer
from typing_extensions import override

if TYPE_CHECKING:
    from mcp_types import Tool


class ShoutingServer(MCPServer):
    """One tool that answers in capitals."""

    @override
    async def list_tools(self) -> list[Tool]:
        """List it, and tell that a client has come this far."""
        await anyio.Path(sys.argv[1]).touch()
        return await super().list_tools()


server = ShoutingServer("shouting")


@server.tool(structured_output=False)
def shout(text: str) -> str:
    """Return the text in capitals."""
    return text.upper()


if __name__ == "__main__":
    anyio.run(server.run_stdio_async)
