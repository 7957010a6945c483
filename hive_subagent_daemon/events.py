"""claude's stream-json output: one line to one typed event, without I/O.

Shapes as measured on claude 2.1.197; unknown types and fields are tolerated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

# Not only for type checkers: what was seen is stored and read again by these annotations.
Words: TypeAlias = Mapping[str, str]

ABORTED: Final = ("aborted_streaming", "aborted_tools")
_WORD_CHARACTERS: Final = 200
_LARGEST: Final = 2**53  # also keeps infinities and NaN out
_TASK_CUT_OFF: Final = ("stopped", "killed", "cancelled")
_TASK_ENDED: Final = (*_TASK_CUT_OFF, "completed", "failed", "error")


@dataclass(frozen=True)
class Init:
    """The first event of a round: what claude works with. `mcp_servers`: name to state of the connection."""

    session_id: str | None
    model: str | None
    version: str | None
    mcp_servers: Words


@dataclass(frozen=True)
class Result:
    """claude's own final event of a round. `is_error` is None when claude did not say."""

    is_error: bool | None
    subtype: str
    text: str
    api_status: int | None
    terminal_reason: str | None
    stop_reason: str | None
    errors: tuple[str, ...]
    rounds: int | None
    cost_usd: float | None
    session_id: str | None

    @property
    def aborted(self) -> bool:
        """Whether claude says that it was interrupted."""
        return self.terminal_reason in ABORTED


@dataclass(frozen=True)
class Retry:
    """claude waits before it asks the API again."""

    attempt: int | None
    max_attempts: int | None
    error: str | None


@dataclass(frozen=True)
class BackgroundBegan:
    """Work of claude's own that may go on after a result."""

    id: str
    description: str


@dataclass(frozen=True)
class BackgroundEnded:
    """The end of such work; `finished` is False when claude cut it off."""

    id: str
    finished: bool


@dataclass(frozen=True)
class LimitTold:
    """claude tells that a usage limit was hit, and when it ends (seconds since the epoch)."""

    resets_at: int


@dataclass(frozen=True)
class Assistant:
    """Output of the model: its text, and the tool calls it asked for (id to tool name).

    `error` is set on the synthetic message in which claude itself reports an API error.
    """

    text: str
    tools: Words
    error: str | None = None


@dataclass(frozen=True)
class ToolResults:
    """Answers to tool calls; None when the line was too long to be read for its ids."""

    ids: frozenset[str] | None


@dataclass(frozen=True)
class MessageTaken:
    """claude has taken a message from its stdin; the id is the one that came with the message."""

    id: str


@dataclass(frozen=True)
class Other:
    """An event that nothing here depends on."""


@dataclass(frozen=True)
class Noise:
    """A line that is not an event: blank, plain text or broken JSON."""

    broken: bool


Event = (
    Init
    | Result
    | Retry
    | BackgroundBegan
    | BackgroundEnded
    | LimitTold
    | Assistant
    | ToolResults
    | MessageTaken
    | Other
    | Noise
)


def parse(line: bytes) -> Event:
    """Return the event in one line; never raises, whatever the bytes are."""
    stripped = line.strip()
    if not stripped.startswith(b"{"):
        return Noise(broken=False)
    try:
        event = json.loads(stripped.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return Noise(broken=True)
    match event.get("type"):
        case "system":
            return _system(event)
        case "result":
            return _result(event)
        case "rate_limit_event":
            return _limit(event)
        case "assistant":
            return _assistant(event)
        case "user" if event.get("isReplay") is True:
            return MessageTaken(_word(event, "uuid") or "")
        case "user":
            return ToolResults(frozenset(_block_ids(event, "tool_result", "tool_use_id")))
        case _:
            return Other()


def _system(event: Mapping[str, Any]) -> Event:
    match event.get("subtype"):
        case "init":
            return _init(event)
        case "api_retry":
            return _retry(event)
        case "task_started":
            task = _text(event, "task_id") or ""
            return BackgroundBegan(task, _word(event, "description") or _word(event, "task_type") or task)
        case "task_notification":
            return _background_ended(event)
        case "task_updated" if _task_status(event) in _TASK_ENDED:
            return _background_ended(event)
        case _:
            return Other()


def _init(event: Mapping[str, Any]) -> Init:
    servers = _dicts(event.get("mcp_servers"))
    return Init(
        session_id=_word(event, "session_id"),
        model=_word(event, "model"),
        version=_word(event, "claude_code_version"),
        mcp_servers={
            name: _text(server, "status") or "unknown"
            for server in servers
            if (name := _text(server, "name"))
        },
    )


def _retry(event: Mapping[str, Any]) -> Retry:
    status = _integer(event, "error_status")
    error = " ".join(part for part in (str(status or ""), _text(event, "error")) if part)
    return Retry(_integer(event, "attempt"), _integer(event, "max_retries"), error or None)


def _background_ended(event: Mapping[str, Any]) -> BackgroundEnded:
    return BackgroundEnded(_text(event, "task_id") or "", finished=_task_status(event) not in _TASK_CUT_OFF)


def _limit(event: Mapping[str, Any]) -> Event:
    told = event.get("rate_limit_info")
    resets_at = _integer(told, "resetsAt") if isinstance(told, dict) else None
    if resets_at is None or not isinstance(told, dict) or told.get("status") != "rejected":
        return Other()
    return LimitTold(resets_at)


def _task_status(event: Mapping[str, Any]) -> str | None:
    patch = event.get("patch")
    return _text(patch, "status") if isinstance(patch, dict) else _text(event, "status")


def _result(event: Mapping[str, Any]) -> Result:
    is_error = event.get("is_error")
    errors = event.get("errors")
    return Result(
        is_error=is_error if isinstance(is_error, bool) else None,
        subtype=_text(event, "subtype") or "",
        text=_text(event, "result") or "",
        api_status=_integer(event, "api_error_status"),
        terminal_reason=_text(event, "terminal_reason"),
        stop_reason=_text(event, "stop_reason"),
        errors=tuple(_storable(str(error)) for error in errors) if isinstance(errors, list) else (),
        rounds=_integer(event, "num_turns"),
        cost_usd=_number(event, "total_cost_usd"),
        session_id=_word(event, "session_id"),
    )


def _assistant(event: Mapping[str, Any]) -> Assistant:
    blocks = _blocks(event)
    texts = [_text(block, "text") or "" for block in blocks if block.get("type") == "text"]
    tools = {
        block["id"]: _word(block, "name") or "tool"
        for block in blocks
        if block.get("type") == "tool_use" and isinstance(block.get("id"), str)
    }
    if event.get("parent_tool_use_id") is not None:
        return Assistant("", tools)  # of a helper of claude's own: neither the subagent's words nor its end
    return Assistant("\n".join(texts), tools, _text(event, "error"))


def _block_ids(event: Mapping[str, Any], kind: str, key: str) -> list[str]:
    return [
        block[key]
        for block in _blocks(event)
        if block.get("type") == kind and isinstance(block.get(key), str)
    ]


def _blocks(event: Mapping[str, Any]) -> list[dict[str, Any]]:
    message = event.get("message")
    return _dicts(message.get("content")) if isinstance(message, dict) else []


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(event: Mapping[str, Any], key: str) -> str | None:
    value = event.get(key)
    return _storable(value) if isinstance(value, str) else None


def _word(event: Mapping[str, Any], key: str) -> str | None:
    """Return a short text: what is longer than any name is cut."""
    text = _text(event, key)
    return text if text is None else text[:_WORD_CHARACTERS]


def _integer(event: Mapping[str, Any], key: str) -> int | None:
    value = event.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST else None


def _number(event: Mapping[str, Any], key: str) -> float | None:
    value = event.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST:
        return float(value)
    return None


def _storable(text: str) -> str:
    """Replace lone surrogates, which JSON escapes can hold and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")
