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
from hive_subagent_daemon.token_files import TokenError, read_token
from hive_subagent_daemon.tool_calls import ToolCall, envelope, headers_of, tool_call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Self

DEFAULT_PATH = "/mcp"

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
"""Every tool but `wait` answers within five seconds; the rest is for a machine under load."""
WAITING_TOOL, WAIT_SECONDS = "wait", 240.0
"""The one tool that waits for others, and how long it does at most."""
READ_ONLY_TOOLS = ("status", "get_loose_ends", "wait")
"""A call of one of these that got no answer has changed nothing."""

REFUSING_STATUSES = (401, 403, 408, 413, 421, 429, 431, 503)
"""What the guard in front of the tools answers, with a sentence as the body."""
PASSING_STATUSES = (408, 429, 503)
"""Those of them that say nothing against the caller: a moment later the same call may be taken."""
SHOWN_CHARACTERS = 500
EXAMPLE_URL = "http://127.0.0.1:7310/mcp"
URL_VARIABLE = "HIVE_SUBAGENT_URL"
TOKEN_FILE_VARIABLE = "HIVE_SUBAGENT_TOKEN_FILE"
TOKEN_FILE_SETTINGS = f"--token-file or ${TOKEN_FILE_VARIABLE}"


class UnreachableError(SubagentError):
    """No daemon answered; the message says where it was looked for and why that failed."""


class NotConnectedError(UnreachableError):
    """Nobody took the connection, so nothing was sent."""


class NoAnswerError(UnreachableError):
    """A request went out, at least in part, and no answer came: it may have taken effect."""

    def __init__(self, message: str, *, reason: str, timed_out: bool) -> None:
        """Keep why there is no answer."""
        super().__init__(message)
        self.reason = reason
        self.timed_out = timed_out


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
    token_file: Path | None = None

    @classmethod
    def from_url(cls, url: str, token_file: Path | None = None) -> Self:
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
        return cls(host, 80 if port is None else port, path, token_file)

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
    token_file: Path | None = None

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


def answer_seconds(tool: str) -> float:
    """Return how long an answer of this tool is waited for."""
    return ANSWER_SECONDS + (WAIT_SECONDS if tool == WAITING_TOOL else 0.0)


def call_tool(
    endpoint: Endpoint, tool: str, arguments: Mapping[str, Any], *, within_seconds: float | None = None
) -> ToolAnswer:
    """Call one tool and return its answer.

    Raises RefusedError when the daemon refuses or fails, UnreachableError when no daemon answers.
    """
    meta = envelope({"name": "hive-subagent", "version": __version__})
    call = tool_call({"name": tool, "arguments": arguments, "_meta": meta})
    return _answer(endpoint, *exchange(endpoint, call, within_seconds=within_seconds))


def exchange(
    endpoint: Endpoint,
    call: ToolCall,
    *,
    within_seconds: float | None = None,
    opened: Callable[[socket.socket], object] = lambda _: None,
) -> tuple[int, bytes]:
    """Send one call, once, and return status and body of the response.

    `opened` is told the socket before anything is sent. Raises NoAnswerError when the call may have taken
    effect, NotConnectedError when nothing was sent, RefusedError when the token cannot be read.
    """
    within_seconds = answer_seconds(call.tool) if within_seconds is None else within_seconds
    headers = headers_of(call) | authorization(endpoint)
    connection = _connected(endpoint)
    try:
        opened(connection.sock)
        connection.sock.settimeout(within_seconds)
        connection.request("POST", endpoint.path, call.body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException) as error:
        raise _without_answer(endpoint, tool=call.tool, error=error, within_seconds=within_seconds) from None
    finally:
        connection.close()


def authorization(endpoint: Endpoint) -> dict[str, str]:
    """Return the header that carries the endpoint's token, as its file has it now; none without a file."""
    if endpoint.token_file is None:
        return {}
    try:
        token = read_token(endpoint.token_file, named_by=TOKEN_FILE_SETTINGS)
    except TokenError as error:
        raise RefusedError(str(error)) from None
    return {"Authorization": f"Bearer {token.decode()}"}


def no_answer_of_ours(endpoint: Endpoint, status: int, body: bytes) -> SubagentError:
    """Return the error for a response that is no JSON-RPC: a refusal of the guard, or of somebody else."""
    said = " ".join(body[: 4 * SHOWN_CHARACTERS].decode(errors="replace").split())[:SHOWN_CHARACTERS]
    if status in REFUSING_STATUSES:
        hint = f" {_token_hint(endpoint)}" if status == http.HTTPStatus.UNAUTHORIZED else ""
        refusal = BusyError if status in PASSING_STATUSES else RefusedError
        return refusal(f"The daemon refused the call (HTTP {status}): {said}{hint}")
    return UnreachableError(
        f"What answers at {endpoint.shown} is not a hive-subagent daemon (HTTP {status}): {said}"
    )


def _token_hint(endpoint: Endpoint) -> str:
    if endpoint.token_file is None:
        return f"Name that file by {TOKEN_FILE_SETTINGS}."
    return f"The token was read from {endpoint.token_file}."


def _connected(endpoint: Endpoint) -> http.client.HTTPConnection:
    try:
        return endpoint.connected()
    except (OSError, UnicodeError) as error:
        message = f"No daemon at {endpoint.shown} ({_reason(error)}): is it running?"
        raise NotConnectedError(message) from None


def _without_answer(
    endpoint: Endpoint, *, tool: str, error: Exception, within_seconds: float
) -> NoAnswerError:
    """Say what a call without an answer means; systemd takes connections also for a daemon that is down."""
    reason, timed_out = _reason(error), isinstance(error, TimeoutError)
    silent = f"The daemon at {endpoint.shown} gave no answer ({reason})"
    within = f"within {within_seconds:.0f} s" if timed_out else f"({reason})"
    if tool not in READ_ONLY_TOOLS:
        message = f"{silent}: {tool} may or may not have taken effect, see `hive-subagent status`."
    elif not isinstance(error, OSError):
        message = f"{silent}."
    else:
        message = (
            f"No answer from {endpoint.shown} {within}. If systemd holds the address, the daemon may be "
            "failing to start: see `systemctl status` and `journalctl -u` of its service."
        )
    return NoAnswerError(message, reason=reason, timed_out=timed_out)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    strerror = error.strerror if isinstance(error, OSError) else None
    return strerror or str(error) or type(error).__name__


def _answer(endpoint: Endpoint, status: int, body: bytes) -> ToolAnswer:
    """Read a response: an answer, or an error in the words of the daemon."""
    match json_of(body):
        case {"result": {"content": [{"text": str(text)}, *_], "isError": True}}:
            raise RefusedError(text)
        case {"result": {"content": [{"text": str(text)}, *_], "structuredContent": dict(structured)}}:
            return ToolAnswer(text, structured)
        case {"error": {"message": str(text)}}:
            message = f"The daemon refused the call (HTTP {status}): {text}"
            raise RefusedError(message)
    raise no_answer_of_ours(endpoint, status, body)


def json_of(body: bytes) -> object:
    """Return what a body holds; None when it is no JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
