"""Calls of the daemon's tools over HTTP, on TCP or a Unix socket, with the standard library alone.

It speaks MCP 2026-07-28, which knows no session: each call is one request that carries everything. The
SDK would cost a person half a second at each command.
"""

from __future__ import annotations

import http.client
import json
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hive_subagent_daemon import __version__
from hive_subagent_daemon.errors import RefusedError, SubagentError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Self

PROTOCOL_VERSION = "2026-07-28"
DEFAULT_PATH = "/mcp"

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
"""Every tool answers within five seconds; the rest is for a machine under load."""
READ_ONLY_TOOLS = ("status", "get_loose_ends")
"""A call of one of these that got no answer has changed nothing."""

REFUSING_STATUSES = (401, 403, 408, 413, 421, 429, 431, 503)
"""What the guard in front of the tools answers, with a sentence as the body."""
PASSING_STATUSES = (408, 429, 503)
"""Those of them that say nothing against the caller: a moment later the same call may be taken."""
SHOWN_CHARACTERS = 500
EXAMPLE_URL = "http://127.0.0.1:7310/mcp"


class UnreachableError(SubagentError):
    """No daemon answered; the message says where it was looked for and why that failed."""


class AddressError(SubagentError):
    """An address that cannot be used."""


class BusyError(RefusedError):
    """A daemon that could not take the call now: it is stopping, or has too much to do."""


@dataclass(frozen=True)
class TcpEndpoint:
    """A daemon that listens on TCP."""

    host: str
    port: int
    path: str = DEFAULT_PATH

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Return the endpoint that an http address names; without a path it is the tools' own."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            message = f"{url!r} is not an address ({error}): use one such as {EXAMPLE_URL}."
            raise AddressError(message) from None
        plain = url.isascii() and url.isprintable() and not set(url) & {" ", "@", "?", "#"}
        if parts.scheme != "http" or not host or not plain:
            message = f"{url!r} cannot be used: use an address such as {EXAMPLE_URL}."
            raise AddressError(message)
        path = parts.path if parts.path not in ("", "/") else DEFAULT_PATH
        return cls(host, 80 if port is None else port, path)

    @property
    def shown(self) -> str:
        """The address as a person would write it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.path}"

    def connected(self) -> http.client.HTTPConnection:
        """Return an open connection."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=CONNECT_SECONDS)
        connection.connect()
        return connection


@dataclass(frozen=True)
class UnixEndpoint:
    """A daemon that listens on a Unix socket."""

    socket_path: Path
    path: str = DEFAULT_PATH

    @property
    def shown(self) -> str:
        """Which socket it is."""
        return f"the socket {self.socket_path}"

    def connected(self) -> http.client.HTTPConnection:
        """Return an open connection; the host that it names has no meaning on a Unix socket."""
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.sock.settimeout(CONNECT_SECONDS)
            connection.sock.connect(str(self.socket_path))
        except OSError:
            connection.close()
            raise
        return connection


Endpoint = TcpEndpoint | UnixEndpoint


@dataclass(frozen=True)
class ToolAnswer:
    """What a tool answered: the text for people and the structured content."""

    text: str
    structured: dict[str, Any]


def call_tool(
    endpoint: Endpoint, tool: str, arguments: Mapping[str, Any], *, within_seconds: float | None = None
) -> ToolAnswer:
    """Call one tool and return its answer.

    Raises RefusedError when the daemon refuses or fails, UnreachableError when no daemon answers.
    """
    patience = ANSWER_SECONDS if within_seconds is None else within_seconds
    status, body = _exchange(
        endpoint, tool=tool, body=_request_body(tool, arguments), within_seconds=patience
    )
    return _answer(endpoint, status, body)


def _request_body(tool: str, arguments: Mapping[str, Any]) -> bytes:
    meta = {
        "io.modelcontextprotocol/protocolVersion": PROTOCOL_VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "hive-subagent", "version": __version__},
    }
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    return json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, ensure_ascii=False
    ).encode()


def _connected(endpoint: Endpoint) -> http.client.HTTPConnection:
    try:
        return endpoint.connected()
    except (OSError, UnicodeError) as error:
        message = f"No daemon at {endpoint.shown} ({_reason(error)}): is it running?"
        raise UnreachableError(message) from None


def _exchange(endpoint: Endpoint, *, tool: str, body: bytes, within_seconds: float) -> tuple[int, bytes]:
    """Send one request and return status and body of the response."""
    connection = _connected(endpoint)
    try:
        connection.sock.settimeout(within_seconds)
        connection.request("POST", endpoint.path, body, _headers(tool))
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException) as error:
        raise UnreachableError(_without_answer(endpoint, tool, error)) from None
    finally:
        connection.close()


def _without_answer(endpoint: Endpoint, tool: str, error: Exception) -> str:
    """Say what a call without an answer means; systemd takes connections also for a daemon that is down."""
    silent = f"The daemon at {endpoint.shown} gave no answer ({_reason(error)})"
    if tool not in READ_ONLY_TOOLS:
        return f"{silent}: {tool} may or may not have taken effect, see `hive-subagent status`."
    if not isinstance(error, OSError):
        return f"{silent}."
    within = f"within {ANSWER_SECONDS:.0f} s" if isinstance(error, TimeoutError) else f"({_reason(error)})"
    return (
        f"No answer from {endpoint.shown} {within}. If systemd holds the address, the daemon may be failing "
        "to start: see `systemctl status` and `journalctl -u` of its service."
    )


def _headers(tool: str) -> dict[str, str]:
    return {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": PROTOCOL_VERSION,
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    strerror = error.strerror if isinstance(error, OSError) else None
    return strerror or str(error) or type(error).__name__


def _answer(endpoint: Endpoint, status: int, body: bytes) -> ToolAnswer:
    """Read a response: an answer, or an error in the words of the daemon."""
    match _json(body):
        case {"result": {"content": [{"text": str(text)}, *_], "isError": True}}:
            raise RefusedError(text)
        case {"result": {"content": [{"text": str(text)}, *_], "structuredContent": dict(structured)}}:
            return ToolAnswer(text, structured)
        case {"error": {"message": str(text)}}:
            message = f"The daemon refused the call (HTTP {status}): {text}"
            raise RefusedError(message)
    said = " ".join(body[: 4 * SHOWN_CHARACTERS].decode(errors="replace").split())[:SHOWN_CHARACTERS]
    if status in REFUSING_STATUSES:
        message = f"The daemon refused the call (HTTP {status}): {said}"
        raise BusyError(message) if status in PASSING_STATUSES else RefusedError(message)
    message = f"What answers at {endpoint.shown} is not a hive-subagent daemon (HTTP {status}): {said}"
    raise UnreachableError(message)


def _json(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
