"""A tiny MCP server behind the daemon's HTTP edge, and requests of both protocol eras to it."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import h11
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler

from hive_subagent_daemon.listeners import Listeners, bind_all
from hive_subagent_daemon.mcp_endpoint import MCP_PATH, McpEndpoint, Paths
from tests.support.edge import ANY_PORT, Client, Edge, Response, serving
from tests.support.mcp_call import PROTOCOL_VERSION, meta

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp.server.context import ServerRequestContext

    from hive_subagent_daemon.config_values import ListenAddress

HANDSHAKE_VERSION = "2025-11-25"
JSON_HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
SUBSCRIPTION = {"notifications": {"toolsListChanged": True}}


class TinyMcp:
    """One tool that echoes, and one that waits until it is let go."""

    def __init__(self) -> None:
        """Build the server."""
        self.entered = anyio.Event()
        self.go = anyio.Event()
        self.left = anyio.Event()
        self.listen = ListenHandler(InMemorySubscriptionBus())
        self.server: Server[Any] = Server(
            "tiny",
            version="1",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_subscriptions_listen=self.listen,
        )

    async def _list_tools(
        self, _context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        schema = {"type": "object"}
        return types.ListToolsResult(
            tools=[types.Tool(name=name, input_schema=schema) for name in ("echo", "wait")]
        )

    async def _call_tool(
        self, _context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        if params.name == "wait":
            self.entered.set()
            try:
                await self.go.wait()
            finally:
                self.left.set()
        text = str((params.arguments or {}).get("text", ""))
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


@dataclass(frozen=True)
class McpEdge:
    """A served tiny MCP server."""

    edge: Edge
    tiny: TinyMcp
    endpoint: McpEndpoint


@contextlib.asynccontextmanager
async def mcp_serving(*addresses: ListenAddress) -> AsyncIterator[McpEdge]:
    """Serve a tiny MCP server as the daemon serves its own."""
    tiny = TinyMcp()
    listeners: Listeners = bind_all(addresses or [ANY_PORT])
    endpoint = McpEndpoint(tiny.server, hosts=listeners.names, listen=tiny.listen)
    paths = Paths({MCP_PATH: endpoint})
    async with (
        endpoint.run(),
        serving(paths, listeners=listeners, close_streams=endpoint.close_streams) as edge,
    ):
        yield McpEdge(edge, tiny, endpoint)


def rpc(method: str, params: dict[str, Any], number: int | None = 1) -> bytes:
    """Return one JSON-RPC request, or with no number a notification."""
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(message if number is None else {**message, "id": number}).encode()


def modern_headers(method: str, name: str = "") -> dict[str, str]:
    """Return the headers of a request of the 2026-07-28 era."""
    headers = {**JSON_HEADERS, "MCP-Protocol-Version": PROTOCOL_VERSION, "Mcp-Method": method}
    return {**headers, "Mcp-Name": name} if name else headers


async def modern(client: Client, method: str, params: dict[str, Any], *, name: str = "") -> Response:
    """Call in the 2026-07-28 era."""
    body = rpc(method, {**params, "_meta": meta()})
    return await client.call("POST", MCP_PATH, modern_headers(method, name), body)


async def modern_echo(client: Client, text: str) -> str:
    """Call the echoing tool in the 2026-07-28 era."""
    params = {"name": "echo", "arguments": {"text": text}}
    return echoed(await modern(client, "tools/call", params, name="echo"))


def echoed(response: Response) -> str:
    """Return the text of a tool result."""
    assert response.status == 200, response.text
    return str(json.loads(response.body)["result"]["content"][0]["text"])


@dataclass(frozen=True)
class Session:
    """A session of the handshake era."""

    client: Client
    session_id: str

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of a request in this session."""
        return {**JSON_HEADERS, "MCP-Protocol-Version": HANDSHAKE_VERSION, "Mcp-Session-Id": self.session_id}

    async def call_tool(self, name: str, text: str = "") -> Response:
        """Call a tool."""
        body = rpc("tools/call", {"name": name, "arguments": {"text": text}}, 7)
        return await self.client.call("POST", MCP_PATH, self.headers, body)


async def handshake(client: Client) -> Session:
    """Open a session as claude 2.1.197 does."""
    params = {
        "protocolVersion": HANDSHAKE_VERSION,
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    opened = await client.call("POST", MCP_PATH, JSON_HEADERS, rpc("initialize", params))
    assert opened.status == 200, opened.text
    assert json.loads(opened.body)["result"]["protocolVersion"] == HANDSHAKE_VERSION
    session = Session(client, opened.headers["mcp-session-id"])
    done = await client.call("POST", MCP_PATH, session.headers, rpc("notifications/initialized", {}, None))
    assert done.status == 202
    return session


def expect_event_stream(head: h11.Response) -> None:
    """Check that a response is an open event stream."""
    kind = dict(head.headers)[b"content-type"]
    assert (head.status_code, kind[:17]) == (200, b"text/event-stream"), head


async def open_get_stream(client: Client, session: Session) -> None:
    """Open the session's own event stream, as claude keeps it all the time."""
    await client.send("GET", MCP_PATH, {**session.headers, "Accept": "text/event-stream"})
    expect_event_stream(await client.head())


async def open_listen_stream(client: Client) -> None:
    """Open `subscriptions/listen` and wait until it is acknowledged."""
    method = "subscriptions/listen"
    await client.send(
        "POST", MCP_PATH, modern_headers(method), rpc(method, {**SUBSCRIPTION, "_meta": meta()})
    )
    expect_event_stream(await client.head())
    acknowledged = await client.event()
    assert isinstance(acknowledged, h11.Data), acknowledged
    assert b"notifications/subscriptions/acknowledged" in bytes(acknowledged.data)
