"""The closed set of answers that the offline model gives, and their form on the wire. Pure functions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

CHUNK_CHARACTERS = 20_000
ERROR_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


@dataclass(frozen=True)
class TextReply:
    """A text that ends the round."""

    text: str
    stop_reason: str = "end_turn"


@dataclass(frozen=True)
class ToolReply:
    """A call of one tool, which claude answers with another request."""

    tool: str
    arguments: Json


@dataclass(frozen=True)
class ErrorReply:
    """An API error, with the seconds of a `retry-after` header where given."""

    status: int
    message: str
    retry_after: str | None = None


@dataclass(frozen=True)
class BrokenReply:
    """A stream that begins with a text and then stops (`stays_open`) or is cut off.

    Without a text not even the header of the answer is sent.
    """

    text: str | None
    stays_open: bool


Reply = TextReply | ToolReply | ErrorReply | BrokenReply


def error_json(reply: ErrorReply) -> Json:
    """Return the body of an API error."""
    kind = ERROR_KINDS.get(reply.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": reply.message}, "request_id": "req_offline"}


def _usage(output_tokens: int) -> Json:
    return {
        "input_tokens": 100,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output_tokens,
    }


def message_json(reply: TextReply | ToolReply, *, model: str, number: int) -> Json:
    """Return a whole message, as for a request that does not stream."""
    if isinstance(reply, ToolReply):
        block: Json = {
            "type": "tool_use",
            "id": f"toolu_offline_{number:06}",
            "name": reply.tool,
            "input": reply.arguments,
        }
        stop_reason = "tool_use"
    else:
        block = {"type": "text", "text": reply.text}
        stop_reason = reply.stop_reason
    return {
        "id": f"msg_offline_{number:06}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [block],
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": _usage(50),
    }


def _event(content: Json) -> bytes:
    return f"event: {content['type']}\ndata: {json.dumps(content)}\n\n".encode()


def _opening(message: Json) -> Iterator[bytes]:
    """Yield the events up to the start of the only content block, which is empty there."""
    start = {**message, "content": [], "stop_reason": None, "usage": _usage(1)}
    yield _event({"type": "message_start", "message": start})
    block = message["content"][0]
    empty = {**block, "input": {}} if block["type"] == "tool_use" else {**block, "text": ""}
    yield _event({"type": "content_block_start", "index": 0, "content_block": empty})


def _deltas(block: Json) -> Iterator[bytes]:
    """Yield the content of a block in pieces."""
    is_tool = block["type"] == "tool_use"
    whole = json.dumps(block["input"]) if is_tool else block["text"]
    kind, key = ("input_json_delta", "partial_json") if is_tool else ("text_delta", "text")
    for start in range(0, len(whole), CHUNK_CHARACTERS):
        delta = {"type": kind, key: whole[start : start + CHUNK_CHARACTERS]}
        yield _event({"type": "content_block_delta", "index": 0, "delta": delta})


def stream_events(reply: TextReply | ToolReply, *, model: str, number: int) -> Iterator[bytes]:
    """Yield the server-sent events of a whole answer."""
    message = message_json(reply, model=model, number=number)
    yield from _opening(message)
    yield from _deltas(message["content"][0])
    yield _event({"type": "content_block_stop", "index": 0})
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": delta, "usage": message["usage"]})
    yield _event({"type": "message_stop"})


def broken_stream_events(text: str, *, model: str, number: int) -> Iterator[bytes]:
    """Yield the events of an answer that stops after its text, before the block is closed."""
    message = message_json(TextReply(text), model=model, number=number)
    yield from _opening(message)
    yield from _deltas(message["content"][0])
