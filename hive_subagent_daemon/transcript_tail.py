"""The end of a conversation, read from claude's session file: bounded, and whatever the bytes are.

The file belongs to claude, and everything in it may come from a page on the web or from an enemy. Shapes as
measured with 2.1.197; unknown records are passed over.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from hive_subagent_daemon.regular_files import NotRegularError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TAIL_BYTES: Final = 256 * 1024
MOST_ENTRIES: Final = 60
# Together at most twice the bytes that are read: a tool's arguments are rendered, not copied.
ENTRY_CHARACTERS: Final = 4_000
TIME_CHARACTERS: Final = 40
NAME_CHARACTERS: Final = 100


class Speaker(StrEnum):
    """Who says something in a conversation."""

    PROMPT = "prompt"
    SUBAGENT = "subagent"
    TOOL_CALL = "tool"
    TOOL_RESULT = "result"
    ERROR = "error"


@dataclass(frozen=True)
class Said:
    """One thing that was said; `tool` names the tool of a call, `at` is the time as claude wrote it."""

    speaker: Speaker
    text: str
    length: int
    tool: str | None = None
    at: str | None = None


@dataclass(frozen=True)
class Tail:
    """The last things said, oldest first; `whole` when nothing came before them."""

    said: tuple[Said, ...]
    whole: bool


def read_tail(path: Path) -> Tail:
    """Return the end of a conversation. Blocks; raises OSError.

    Never follows a symbolic link and never waits (claude, too, looks at regular files only).
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            message = "it is not a regular file"
            raise NotRegularError(0, message, str(path))
        begin = max(0, status.st_size - TAIL_BYTES)
        content = os.pread(descriptor, TAIL_BYTES, begin)
    finally:
        os.close(descriptor)
    if begin:  # most likely in the middle of a line
        content = content.partition(b"\n")[2]
    said = [one for line in content.split(b"\n") for one in said_in(line)]
    return Tail(tuple(said[-MOST_ENTRIES:]), whole=begin == 0 and len(said) <= MOST_ENTRIES)


def said_in(line: bytes) -> Iterator[Said]:
    """Yield what one line of the session file says; nothing for a half line or one that is no JSON."""
    try:
        record = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return
    if not _is_shown(record):
        return
    at = _short(record.get("timestamp"), TIME_CHARACTERS)
    speaker = Speaker.PROMPT if record["type"] == "user" else Speaker.SUBAGENT
    if record.get("isApiErrorMessage"):
        speaker = Speaker.ERROR
    content = record["message"].get("content")
    for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
        if isinstance(block, dict) and (one := _of_block(block, speaker, at)) is not None:
            yield one


def _is_shown(record: object) -> bool:
    """Tell whether a record is part of the conversation itself: no side chain, nothing of claude's own."""
    if not isinstance(record, dict) or record.get("isMeta") or record.get("isSidechain"):
        return False
    return record.get("type") in ("user", "assistant") and isinstance(record.get("message"), dict)


def _of_block(block: dict[str, Any], speaker: Speaker, at: str | None) -> Said | None:
    match block.get("type"):
        case "text":
            text = block.get("text")
            return _said(speaker, text, at=at) if isinstance(text, str) and text.strip() else None
        case "tool_use":
            tool = _short(block.get("name"), NAME_CHARACTERS) or "a tool"
            return _said(Speaker.TOOL_CALL, _arguments(block.get("input")), at=at, tool=tool)
        case "tool_result":
            failed = block.get("is_error") is True
            speaker = Speaker.ERROR if failed else Speaker.TOOL_RESULT
            return _said(speaker, _answer(block.get("content")), at=at)
        case "image" | "document":
            return _said(speaker, f"[{block['type']}]", at=at)
        case _:
            return None  # thinking, which is not meant for others, and what later versions bring


def _said(speaker: Speaker, text: str, *, at: str | None, tool: str | None = None) -> Said:
    return Said(speaker, text[:ENTRY_CHARACTERS], len(text), tool, at)


def _arguments(given: object) -> str:
    """Return the arguments of a tool call, one a line."""
    if not isinstance(given, dict):
        return "" if given is None else _json(given)
    return "\n".join(
        f"{key}: {value if isinstance(value, str) else _json(value)}" for key, value in given.items()
    )


def _answer(content: object) -> str:
    """Return the text of a tool's answer; other blocks by their kind."""
    if isinstance(content, str):
        return content
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    texts = (block.get("text") for block in blocks)
    return "\n".join(
        text if isinstance(text, str) else f"[{_short(block.get('type'), NAME_CHARACTERS) or 'no text'}]"
        for text, block in zip(texts, blocks, strict=True)
    )


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:  # read it could be, just
        return "[too deeply nested to be shown]"


def _short(value: object, characters: int) -> str | None:
    return value[:characters] if isinstance(value, str) else None
