"""Claude's own records of a session as entries for people: pure, and indulgent with what it does not know."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    Record = dict[str, Any]

# After a crash in the middle of a write claude appends the next record to the torn line.
_RECORD_START: Final = re.compile(rb'\{"(?:parentUuid|type|isSidechain|uuid)"')
_MOST_STARTS: Final = 20
_NOTIFIED: Final = re.compile(r"<summary>(.*?)</summary>", re.DOTALL)
# Of a tool's arguments the one that says most, in this order.
_TELLING: Final = ("command", "file_path", "path", "pattern", "url", "query", "description", "prompt", "name")


class Kind(Enum):
    """What an entry is."""

    PROMPT = "prompt"
    TEXT = "text"
    TOOL = "tool"
    RESULT = "result"
    ERROR = "error"
    NOTE = "note"


@dataclass(frozen=True)
class Entry:
    """Something that was said or done in a session."""

    kind: Kind
    text: str
    moment: datetime | None


def records_in(line: bytes) -> Record | None:
    """Return the record on a line of the file, the last whole one of a torn line; None for noise."""
    record = _parsed(line)
    if record is not None:
        return record
    starts = [found.start() for found in _RECORD_START.finditer(line, 1)][-_MOST_STARTS:]
    return next(filter(None, (_parsed(line[start:]) for start in starts)), None)


def _parsed(line: bytes) -> Record | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def moment_of(record: Record) -> datetime | None:
    """Return when a record was written, where it says so."""
    try:
        moment = datetime.fromisoformat(str(record.get("timestamp")))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def is_prompt(record: Record) -> bool:
    """Tell whether this record begins something new: a prompt, not the answer of a tool."""
    return any(entry.kind is Kind.PROMPT for entry in entries_of(record))


def entries_of(record: Record) -> Iterator[Entry]:
    """Yield what a record says; nothing for claude's book-keeping and for the helpers of a subagent."""
    if record.get("isSidechain") or record.get("isMeta"):
        return
    moment = moment_of(record)
    if record.get("type") == "system":
        yield from _system(record, moment)
    elif record.get("type") in ("user", "assistant"):
        message = record.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks if isinstance(blocks, list) else []:
            if isinstance(block, dict):
                yield from _block(record, block, moment)


def _system(record: Record, moment: datetime | None) -> Iterator[Entry]:
    if record.get("subtype") == "compact_boundary":
        yield Entry(Kind.NOTE, "the conversation so far was compacted", moment)
    elif record.get("subtype") == "api_error":
        tries = f"{record.get('retryAttempt', '?')} of {record.get('maxRetries', '?')}"
        yield Entry(Kind.ERROR, f"API error, try {tries}", moment)


def _block(record: Record, block: Record, moment: datetime | None) -> Iterator[Entry]:
    kind = block.get("type")
    if kind == "text" and (text := str(block.get("text") or "").strip()):
        yield _said(record, text, moment)
    elif kind == "tool_use":
        yield Entry(Kind.TOOL, f"{block.get('name')}  {_arguments(block.get('input'))}".rstrip(), moment)
    elif kind == "tool_result":
        wrong = block.get("is_error") is True
        text = _result(block.get("content")).strip() or "(no output)"
        yield Entry(Kind.ERROR if wrong else Kind.RESULT, text, moment)


def _said(record: Record, text: str, moment: datetime | None) -> Entry:
    if record["type"] == "assistant":
        return Entry(Kind.ERROR if record.get("isApiErrorMessage") else Kind.TEXT, text, moment)
    if text.startswith("<task-notification>"):
        found = _NOTIFIED.search(text)
        return Entry(Kind.NOTE, found[1].strip() if found else "work in the background has ended", moment)
    if record.get("isCompactSummary"):
        return Entry(Kind.NOTE, "a summary of the conversation so far", moment)
    if text.startswith("[Request interrupted"):
        return Entry(Kind.ERROR, text, moment)
    return Entry(Kind.PROMPT, text, moment)


def _arguments(arguments: object) -> str:
    """Return the argument of a tool that says most; all of them when none is known."""
    if not isinstance(arguments, dict):
        return ""
    telling = next((arguments[key] for key in _TELLING if isinstance(arguments.get(key), str)), None)
    return telling if telling is not None else json.dumps(arguments, ensure_ascii=False) if arguments else ""


def _result(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [
        str(part.get("text") or "") if part.get("type") == "text" else f"[{part.get('type')}]"
        for part in parts
        if isinstance(part, dict)
    ]
    return "\n".join(texts)
