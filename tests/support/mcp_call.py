"""The smallest MCP client: one tool call is one HTTP request of the 2026-07-28 era; standard library only."""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass
from typing import Any

PROTOCOL_VERSION = "2026-07-28"
CALL_LIMIT_SECONDS = 30.0


class HttpError(Exception):
    """The daemon answered with something else than 200."""

    def __init__(self, status: int, body: str) -> None:
        """Keep the status and the text of the answer."""
        super().__init__(f"HTTP {status}: {body[:500]}")
        self.status = status
        self.body = body


@dataclass(frozen=True)
class Answer:
    """What a tool answered."""

    content: dict[str, Any]
    text: str
    is_error: bool
    seconds: float


def meta() -> dict[str, Any]:
    """Return the envelope that each request of this era carries."""
    prefix = "io.modelcontextprotocol"
    client = {"name": "stub-tests", "version": "1"}
    versions = {f"{prefix}/protocolVersion": PROTOCOL_VERSION, f"{prefix}/clientInfo": client}
    return versions | {f"{prefix}/clientCapabilities": {}}


def request(port: int, method: str, params: dict[str, Any], *, name: str = "") -> dict[str, Any]:
    """Send one JSON-RPC request and return its result; a JSON-RPC error is a ValueError."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": meta()}}
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    headers |= {"MCP-Protocol-Version": PROTOCOL_VERSION, "Mcp-Method": method}
    headers |= {"Mcp-Name": name} if name else {}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=CALL_LIMIT_SECONDS)
    try:
        connection.request("POST", "/mcp", json.dumps(body, ensure_ascii=False).encode(), headers)
        response = connection.getresponse()
        content = response.read().decode()
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        raise HttpError(response.status, content)
    message: dict[str, Any] = json.loads(content)
    if "error" in message:
        raise ValueError(message["error"])
    reply: dict[str, Any] = message["result"]
    return reply


def call_tool(port: int, tool: str, arguments: dict[str, Any]) -> Answer:
    """Call one tool of the daemon at this port."""
    started = time.monotonic()
    reply = request(port, "tools/call", {"name": tool, "arguments": arguments}, name=tool)
    text = "\n".join(part.get("text", "") for part in reply.get("content", []))
    seconds = time.monotonic() - started
    content = reply.get("structuredContent") or {}
    return Answer(content, text, bool(reply.get("isError")), seconds)
