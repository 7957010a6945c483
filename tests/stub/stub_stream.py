"""How the stub takes messages line by line on stdin, as claude does with `--input-format stream-json`."""

from __future__ import annotations

import json
import os
from typing import Any

from tests.stub.stub_sessions import refuse

MARKER = "[Request interrupted by user]"


class Lines:
    """The lines of stdin, read no further than asked for."""

    def __init__(self) -> None:
        """Have read nothing."""
        self._rest = b""

    def next(self) -> dict[str, Any] | None:
        """Wait for the next line; None at the end of stdin."""
        while b"\n" not in self._rest:
            piece = os.read(0, 1 << 20)
            if not piece:
                return self._parsed(self._rest) if self._rest else None
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return self._parsed(line)

    def _parsed(self, line: bytes) -> dict[str, Any]:
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError:
            refuse(f"Error parsing streaming input line: {line[:20].decode(errors='replace')}")
        return event


def text_of(event: dict[str, Any]) -> str:
    """Return the text of a user message."""
    text: str = event["message"]["content"]
    return text


def replayed(event: dict[str, Any]) -> dict[str, Any]:
    """Return what is printed when a message is taken."""
    shown = {key: event[key] for key in ("type", "message", "uuid")}
    return shown | {"parent_tool_use_id": None, "isReplay": True}


def answered(event: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request."""
    response = {"subtype": "success", "request_id": event["request_id"]}
    return {"type": "control_response", "response": response}


def aborted() -> list[dict[str, Any]]:
    """Return what claude prints when a request has interrupted it."""
    text = {"role": "user", "content": [{"type": "text", "text": MARKER}]}
    ended = {"subtype": "error_during_execution", "is_error": True, "terminal_reason": "aborted_streaming"}
    return [{"type": "user", "message": text}, {"type": "result", "num_turns": 2, "errors": []} | ended]


def answer_to(text: str) -> list[dict[str, Any]]:
    """Return a round that answers a message of its own."""
    said = {"role": "assistant", "content": [{"type": "text", "text": f"heard {text}"}]}
    ended = {"subtype": "success", "is_error": False, "num_turns": 1, "total_cost_usd": 0.02}
    return [
        {"type": "assistant", "message": said},
        {"type": "result", "result": f"heard {text}", "terminal_reason": "completed"} | ended,
    ]
