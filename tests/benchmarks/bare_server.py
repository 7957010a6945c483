"""The least that an MCP server of the same SDK can be: one tool that returns a constant. Prints its port.

It listens on the one socket that systemd has passed to it, or else on a free port.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from starlette.types import Receive, Scope, Send

SCHEMA = {"type": "object"}
FIRST_PASSED = 3  # SD_LISTEN_FDS_START


async def _list(
    _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name="status", input_schema=SCHEMA)])


async def _call(_: ServerRequestContext[Any], __: types.CallToolRequestParams) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text="constant")])


def _listening() -> socket.socket:
    if "LISTEN_FDS" in os.environ:
        return socket.socket(fileno=FIRST_PASSED)
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    return listening


async def main() -> None:
    """Serve until killed."""
    server: Server[Any] = Server(
        "bare", on_list_tools=_list, on_call_tool=_call, get_tool_input_schema=lambda _: SCHEMA
    )
    sessions = StreamableHTTPSessionManager(
        server,
        json_response=True,
        security_settings=TransportSecuritySettings(
            enable_dns_rebinding_protection=True, allowed_hosts=["127.0.0.1:*"], allowed_origins=[]
        ),
    )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await sessions.handle_request(scope, receive, send)

    listening = _listening()
    async with sessions.run():
        print(listening.getsockname()[1])
        sys.stdout.flush()
        config = uvicorn.Config(app, http="h11", lifespan="off", log_config=None, access_log=False)
        await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    anyio.run(main)
