"""claude's stream-json events as tests need them, and a plain reader to compare the skimming one with."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from hive_subagent_daemon.events import (
    Assistant,
    BackgroundBegan,
    BackgroundEnded,
    Init,
    Result,
    ToolResults,
    parse,
)

Event = dict[str, Any]
SESSION = "0f0e0d0c-0b0a-4908-8706-050403020100"


def line(event: Event, *, spaced: bool = False) -> bytes:
    """Return an event as one line of output, with blanks behind commas and colons or without."""
    separators = (", ", ": ") if spaced else (",", ":")
    return (
        json.dumps(event, separators=separators, ensure_ascii=spaced).encode("utf-8", "surrogatepass") + b"\n"
    )


def lines(*events: Event) -> bytes:
    """Return events as compact lines."""
    return b"".join(line(event) for event in events)


def init(**fields: object) -> Event:
    """Return the first event of a round."""
    return {
        "type": "system",
        "subtype": "init",
        "session_id": SESSION,
        "model": "m",
        "mcp_servers": [],
    } | fields


def result(text: str = "done", **fields: object) -> Event:
    """Return a successful result, or with further fields another."""
    known = {"type": "result", "subtype": "success", "is_error": False, "result": text, "num_turns": 1}
    return known | {"session_id": SESSION, "total_cost_usd": 0.25} | fields


def assistant(text: str = "", **fields: object) -> Event:
    """Return a message of the model."""
    content = [{"type": "text", "text": text}]
    return {"type": "assistant", "message": {"role": "assistant", "content": content}} | fields


def tool_use(name: str = "Bash", tool_id: str = "toolu_1") -> Event:
    """Return a message in which the model asks for a tool."""
    content = [{"type": "tool_use", "id": tool_id, "name": name, "input": {"command": "true"}}]
    return {"type": "assistant", "message": {"role": "assistant", "content": content}}


def tool_result(tool_id: str = "toolu_1", text: str = "ok") -> Event:
    """Return the answer to a tool call."""
    content = [{"type": "tool_result", "tool_use_id": tool_id, "content": text}]
    return {"type": "user", "message": {"role": "user", "content": content}}


def system(subtype: str, **fields: object) -> Event:
    """Return a system event."""
    return {"type": "system", "subtype": subtype} | fields


def retry(attempt: int = 1, **fields: object) -> Event:
    """Return an API retry as measured."""
    measured = {"max_retries": 10, "retry_delay_ms": 37607.6, "error_status": 529, "error": "overloaded"}
    return system("api_retry", attempt=attempt) | measured | fields


def filler(size: int) -> Event:
    """Return an event that nobody knows, of about this size."""
    return {"type": "stream_event", "padding": "y" * size}


class PlainReader:
    """Reads every line, one after the other and in full: the plainest way to what skimming must find."""

    def __init__(self, stream: bytes) -> None:
        """Read a whole stream of complete lines."""
        self.init: Init | None = None
        self.result: Result | None = None
        self.result_end = 0
        self.pending: dict[str, str] = {}
        self.tools: dict[str, str] = {}
        self.last_text = ""
        self.round_open = True
        offset = 0
        for one in stream.splitlines(keepends=True):
            offset += len(one)
            self._read(one, offset)

    def _read(self, one: bytes, end: int) -> None:
        match parse(one):
            case Init() as event:
                self.init, self.round_open, self.tools = event, True, {}
            case Result() as event:
                self.result, self.result_end = event, end
                self.round_open, self.tools = False, {}
            case BackgroundBegan(task, description):
                self.pending[task] = description
            case BackgroundEnded(task):
                self.pending.pop(task, None)
            case Assistant(text, tools, error):
                self.round_open = True
                self.tools.update(tools)
                self.last_text = text if text and error is None else self.last_text
            case ToolResults(ids):
                self.round_open = True
                self.tools = {key: name for key, name in self.tools.items() if key not in (ids or ())}


_ids = st.sampled_from(["a", "b", "c"])
_texts = st.text(st.characters(codec="utf-8"), max_size=30)

marked_events = st.one_of(
    st.builds(lambda name: init(model=name), _texts),
    st.builds(lambda text, bad: result(text, is_error=bad), _texts, st.booleans()),
    st.builds(lambda task, text: system("task_started", task_id=task, description=text), _ids, _texts),
    st.builds(lambda task: system("task_notification", task_id=task, status="completed"), _ids),
    st.builds(
        lambda task, state: system("task_updated", task_id=task, patch={"status": state}),
        _ids,
        st.sampled_from(["running", "killed", "completed"]),
    ),
    st.builds(lambda: system("status", status="compacting")),
)
round_events = st.one_of(
    st.builds(assistant, _texts),
    st.builds(tool_use, st.sampled_from(["Bash", "Read"]), _ids),
    st.builds(tool_result, _ids, _texts),
    st.builds(lambda text: tool_result("a", json.dumps(result(text))), _texts),
)
noise_lines = st.sampled_from([b"\n", b"plain words\n", b"[1]\n", b"null\n", b'"result"\n', b' "system" \n'])


def stream_lines(*, padding: int) -> st.SearchStrategy[list[bytes]]:
    """Generate the lines of an output, spaced or compact, padded with unknown events and noise."""
    fillers = st.builds(filler, st.integers(0, padding))
    events = st.one_of(marked_events, round_events, fillers)
    one = st.one_of(
        st.builds(lambda event, spaced: line(event, spaced=spaced), events, st.booleans()), noise_lines
    )
    return st.lists(one, max_size=40)


def blocks(parts: list[bytes], cuts: list[int]) -> list[tuple[int, bytes]]:
    """Join lines into blocks that end at these positions; each with its offset in the stream."""
    edges = sorted({0, len(parts), *(cut % (len(parts) + 1) for cut in cuts)})
    joined = [b"".join(parts[start:end]) for start, end in pairwise(edges)]
    found, offset = [], 0
    for block in joined:
        found.append((offset, block))
        offset += len(block)
    return found
