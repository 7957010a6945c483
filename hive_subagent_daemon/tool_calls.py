"""A call of a tool in the words of MCP 2026-07-28, which knows no session: the request carries everything."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

PROTOCOL_VERSION = "2026-07-28"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"


@dataclass(frozen=True)
class ToolCall:
    """One call of a tool as it is sent: the tool's name and the body."""

    tool: str
    body: bytes


def envelope(client: Mapping[str, Any], capabilities: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the `_meta` that a request of this era carries: who calls, and what it is able to do."""
    return {
        VERSION_KEY: PROTOCOL_VERSION,
        "io.modelcontextprotocol/clientCapabilities": capabilities or {},
        "io.modelcontextprotocol/clientInfo": client,
    }


def tool_call(params: Mapping[str, Any]) -> ToolCall:
    """Return the call with these parameters, `_meta` included."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    try:
        body = json.dumps(message, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair has no UTF-8; escaped it reaches the daemon, which has an answer to it.
        body = json.dumps(message).encode()
    return ToolCall(params["name"], body)


def headers_of(call: ToolCall) -> dict[str, str]:
    """Return the headers that belong to a call; they repeat what the body says."""
    return {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": PROTOCOL_VERSION,
        "Mcp-Method": "tools/call",
        "Mcp-Name": _header_value(call.tool),
    }


def _header_value(value: str) -> str:
    """Return a value as the protocol wants it in a header: by itself, or in base64."""
    if value.isascii() and value.isprintable() and value == value.strip() and not value.startswith("=?"):
        return value
    return f"=?base64?{base64.b64encode(value.encode(errors='replace')).decode()}?="
