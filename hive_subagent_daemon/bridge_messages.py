"""What a line of the client asks for: answered here, to be called at the daemon, or nothing. Pure.

Both eras of MCP come over stdio: requests that carry the 2026-07-28 envelope, and those after a handshake.
Everything is answered here but calls of tools; those of the handshake era get the envelope.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hive_subagent_daemon.bridge_lines import MAX_LINE_BYTES, TooLong
from hive_subagent_daemon.tool_calls import PROTOCOL_VERSION, VERSION_KEY, ToolCall, envelope, tool_call
from hive_subagent_daemon.tool_listing import ToolListing, of_handshake_era

if TYPE_CHECKING:
    from collections.abc import Mapping

Message = dict[str, Any]
RequestId = str | int

HANDSHAKE_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
UNSUPPORTED_VERSION: Final = -32022


@dataclass(frozen=True)
class Reply:
    """A message to the client."""

    message: Message


@dataclass(frozen=True)
class Called:
    """A call of a tool, for the daemon to answer."""

    id: RequestId
    call: ToolCall
    modern: bool


@dataclass(frozen=True)
class Cancelled:
    """The client does not want the answers to this id any more."""

    id: RequestId


Asked = Reply | Called | Cancelled | None


class Conversation:
    """Understands one client; it remembers who that is, from the handshake."""

    def __init__(self, listing: ToolListing) -> None:
        """Nothing was said yet."""
        self._listing: Final = listing
        self._client: Mapping[str, Any] = {"name": "unknown", "version": ""}
        self._capabilities: Mapping[str, Any] = {}

    def understood(self, line: bytes | TooLong) -> Asked:
        """Return what a line asks for; a line that is no message gets an error, whatever is in it."""
        if isinstance(line, TooLong):
            return _fault(
                INVALID_REQUEST, f"A line may have at most {MAX_LINE_BYTES} bytes; this one is dropped."
            )
        if not line.strip():
            return None
        try:
            return self._asked(json.loads(line.decode()))
        except (ValueError, RecursionError) as error:
            return _fault(PARSE_ERROR, f"This line is no JSON in UTF-8 ({type(error).__name__}).")

    def _asked(self, message: object) -> Asked:
        match message:
            case {"jsonrpc": "2.0", "method": str(method), "id": str() | int() as identity, **more}:
                if not isinstance(identity, bool):
                    return self._request(method, identity, more.get("params", {}))
            case {"jsonrpc": "2.0", "method": str(method), **more} if "id" not in more:
                return _notification(method, more.get("params"))
            case {"jsonrpc": "2.0", "result": _} | {"jsonrpc": "2.0", "error": _}:
                return None
        sentence = (
            "A line is one JSON-RPC 2.0 message (no batch); the id of a request is a string or an integer."
        )
        return _fault(INVALID_REQUEST, sentence)

    def _request(self, method: str, request_id: RequestId, params: object) -> Asked:
        if not isinstance(params, dict):
            return error_reply(request_id, INVALID_PARAMS, "The params of a request are an object.")
        meta = params.get("_meta", {})
        if not isinstance(meta, dict):
            return error_reply(request_id, INVALID_PARAMS, "_meta is an object.")
        modern = VERSION_KEY in meta and method != "initialize"
        if modern and meta[VERSION_KEY] != PROTOCOL_VERSION:
            versions = {"supported": [PROTOCOL_VERSION], "requested": str(meta[VERSION_KEY])[:100]}
            return error_reply(request_id, UNSUPPORTED_VERSION, "Unsupported protocol version", versions)
        if method == "tools/call":
            return self._called(request_id, params, modern=modern)
        answer = self._modern(method) if modern else self._after_handshake(method, params)
        if answer is None:
            return error_reply(request_id, METHOD_NOT_FOUND, "Method not found", method[:100])
        return Reply({"jsonrpc": "2.0", "id": request_id, "result": answer})

    def _called(self, request_id: RequestId, params: Message, *, modern: bool) -> Called | Reply:
        if not isinstance(params.get("name"), str):
            return error_reply(request_id, INVALID_PARAMS, "tools/call needs the name of a tool.")
        if not modern:
            meta = params.get("_meta", {}) | envelope(self._client, self._capabilities)
            params = {**params, "_meta": meta}
        return Called(request_id, tool_call(params), modern)

    def _modern(self, method: str) -> Message | None:
        match method:
            case "server/discover":
                return self._listing.discovered
            case "tools/list":
                return self._listing.tools
        return None

    def _after_handshake(self, method: str, params: Message) -> Message | None:
        match method:
            case "initialize":
                return self._initialized(params)
            case "ping":
                return {}
            case "tools/list":
                return of_handshake_era(self._listing.tools)
        return None

    def _initialized(self, params: Message) -> Message:
        match params:
            case {"clientInfo": {"name": str(), "version": str()}}:
                self._client = params["clientInfo"]
        match params:
            case {"capabilities": dict(capabilities)}:
                self._capabilities = capabilities
        wanted = params.get("protocolVersion")
        return self._listing.initialized(wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[0])


def answer_of(called: Called, answer: Mapping[str, Any]) -> Message:
    """Return the message that brings the daemon's answer, a result or an error, in the era of the client."""
    if not called.modern and "result" in answer:
        answer = {"result": of_handshake_era(answer["result"])}
    return {"jsonrpc": "2.0", "id": called.id, **answer}


def refusal_of(called: Called, sentence: str) -> Message:
    """Return the message that tells the model, as the tool's own answer, why there is no other."""
    result: Message = {"content": [{"type": "text", "text": sentence}], "isError": True}
    return answer_of(called, {"result": result | {"resultType": "complete"}})


def error_reply(request_id: RequestId | None, code: int, message: str, more: object = None) -> Reply:
    """Return an error of the protocol."""
    error = {"code": code, "message": message} | ({} if more is None else {"data": more})
    return Reply({"jsonrpc": "2.0", "id": request_id, "error": error})


def _fault(code: int, message: str) -> Reply:
    return error_reply(None, code, message)


def _notification(method: str, params: object) -> Cancelled | None:
    match method, params:
        case "notifications/cancelled", {"requestId": str() | int() as request_id}:
            return Cancelled(request_id)
    return None
