"""How the stub calls a port on loopback, as a tool of a subagent might; standard library only."""

from __future__ import annotations

import _socket
import json
from typing import Any

TIMEOUT_SECONDS = 10.0
VERSION = "2026-07-28"
# A subagent can read its agent's files, so it may come with the token.
TOKEN = "a-token-of-20-letters"


def answer_of(port: int, path: str) -> str:
    """Send a request to a path of the daemon at this port and return the first line of its answer."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}'
    return exchanged(port, body, [], path=path).partition("\r\n")[0]


def tool_answer(port: int, tool: str, arguments: dict[str, Any]) -> str:
    """Call a tool of the daemon at this port and return the result as JSON."""
    prefix = "io.modelcontextprotocol"
    meta = {f"{prefix}/protocolVersion": VERSION, f"{prefix}/clientCapabilities": {}}
    meta[f"{prefix}/clientInfo"] = {"name": "stub", "version": "1"}
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    headers = [f"MCP-Protocol-Version: {VERSION}", "Mcp-Method: tools/call", f"Mcp-Name: {tool}"]
    answer = exchanged(port, body.encode(), headers).partition("\r\n\r\n")[2]
    return json.dumps(json.loads(answer)["result"])


def exchanged(port: int, body: bytes, headers: list[str], *, path: str = "/mcp") -> str:
    """Send one request and return the whole answer, or why there is none."""
    head = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"Authorization: Bearer {TOKEN}",
        "Connection: close",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    connection = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    connection.settimeout(TIMEOUT_SECONDS)
    try:
        connection.connect(("127.0.0.1", port))
        connection.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    except OSError as error:
        return f"no answer: {error}"
    finally:
        connection.close()
    return answer.decode(errors="replace")
