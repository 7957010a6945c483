"""The end of a conversation: bounded, and nothing in a session file can break it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon.transcript_tail import (
    ENTRY_CHARACTERS,
    MOST_ENTRIES,
    TAIL_BYTES,
    Said,
    Speaker,
    Tail,
    read_tail,
    said_in,
)

if TYPE_CHECKING:
    from pathlib import Path

WHEN = "2026-11-30T22:14:43.044Z"


def line(kind: str, content: object, **more: object) -> bytes:
    """Return one line of a session file."""
    record = {"type": kind, "message": {"role": kind, "content": content}, "timestamp": WHEN} | more
    return json.dumps(record).encode() + b"\n"


def write(folder: Path, *lines: bytes) -> Path:
    """Write a session file."""
    path = folder / "session.jsonl"
    path.write_bytes(b"".join(lines))
    return path


def texts(tail: Tail) -> list[str]:
    """Return what was said."""
    return [said.text for said in tail.said]


def test_prompt_answer_tool_and_result_are_told_in_order(tmp_path: Path) -> None:
    call = {"type": "tool_use", "name": "Bash", "input": {"command": "ls", "timeout": 5}}
    path = write(
        tmp_path,
        b'{"type":"custom-title","customTitle":"x"}\n',
        line("user", "Do it."),
        line(
            "assistant", [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I look."}, call]
        ),
        line(
            "user", [{"type": "tool_result", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}]
        ),
        line("user", [{"type": "tool_result", "content": "no such file", "is_error": True}]),
        line("assistant", [{"type": "text", "text": "API Error: 529"}], isApiErrorMessage=True),
    )
    assert read_tail(path) == Tail(
        (
            Said(Speaker.PROMPT, "Do it.", 6, None, WHEN),
            Said(Speaker.SUBAGENT, "I look.", 7, None, WHEN),
            Said(Speaker.TOOL_CALL, "command: ls\ntimeout: 5", 22, "Bash", WHEN),
            Said(Speaker.TOOL_RESULT, "a\n[image]", 9, None, WHEN),
            Said(Speaker.ERROR, "no such file", 12, None, WHEN),
            Said(Speaker.ERROR, "API Error: 529", 14, None, WHEN),
        ),
        whole=True,
    )


def test_side_chains_and_what_claude_tells_itself_are_left_out() -> None:
    assert not list(said_in(line("user", "x", isMeta=True)))
    assert not list(said_in(line("user", "x", isSidechain=True)))
    assert not list(said_in(line("attachment", "x")))


def test_of_a_long_file_the_end_is_read_from_a_whole_line_on(tmp_path: Path) -> None:
    path = write(tmp_path, *(line("user", f"{number} " + "x" * 5000) for number in range(200)))
    tail = read_tail(path)
    assert not tail.whole
    assert texts(tail)[-1].startswith("199 ")
    assert 30 < len(tail.said) <= TAIL_BYTES // 5000
    assert all(len(said.text) == ENTRY_CHARACTERS and said.length > 5000 for said in tail.said)


def test_of_many_things_said_the_last_ones_are_shown(tmp_path: Path) -> None:
    tail = read_tail(write(tmp_path, *(line("user", str(number)) for number in range(MOST_ENTRIES + 1))))
    assert texts(tail) == [str(number) for number in range(1, MOST_ENTRIES + 1)]
    assert not tail.whole


def test_a_last_line_longer_than_the_tail_leaves_nothing_and_breaks_nothing(tmp_path: Path) -> None:
    assert read_tail(write(tmp_path, line("user", "x" * TAIL_BYTES))) == Tail((), whole=False)


def test_half_lines_are_passed_over_until_they_are_whole(tmp_path: Path) -> None:
    torn = line("user", "second")[:-20]
    path = write(tmp_path, line("user", "first"), torn)
    assert texts(read_tail(path)) == ["first"]
    path = write(tmp_path, torn, b"\n", line("user", "first")[:-1])
    assert texts(read_tail(path)) == ["first"]


def test_wrong_utf8_is_shown_as_such() -> None:
    [said] = said_in(b'{"type":"user","message":{"content":"a\xff\xc3"}}')
    assert said.text == "a\ufffd\ufffd"


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"\0" * 1000,
        b"1" * 10_000,
        b'{"type":"user"}',
        b'{"type":"user","message":[]}',
        b'{"type":["user"],"message":{}}',
        b'{"type":"user","message":{"content":{"type":"text"}}}',
        b'{"type":"user","message":{"content":[1,null,{"type":"text","text":5},{"type":"text"}]}}',
        b'{"type":"assistant","message":{"content":[{"type":"text","text":"  "}]}}',
    ],
)
def test_what_is_no_message_says_nothing(content: bytes) -> None:
    assert not list(said_in(content))


def test_odd_blocks_are_told_without_their_content() -> None:
    blocks = [
        {"type": "tool_use", "name": 5, "input": [1]},
        {"type": "tool_result", "content": 7},
        {"type": "tool_result", "content": [{"type": 1}, "x"]},
    ]
    said = [(one.text, one.tool) for one in said_in(line("assistant", blocks))]
    assert said == [("[1]", "a tool"), ("", None), ("[no text]", None)]


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
_blocks = st.dictionaries(
    st.sampled_from(["type", "text", "name", "input", "content", "is_error"]),
    st.sampled_from(["text", "tool_use", "tool_result", "image"]) | _json,
)


@given(st.lists(_blocks, max_size=4) | _json, st.sampled_from(["user", "assistant"]), _json)
def test_any_record_gives_bounded_texts(content: object, kind: str, when: object) -> None:
    for said in said_in(line(kind, content, timestamp=when)):
        assert len(said.text) <= ENTRY_CHARACTERS
        assert said.at is None or len(said.at) <= 40


@pytest.mark.parametrize("kind", ["symlink", "fifo", "folder", "gone"])
def test_what_is_no_regular_file_is_an_error_and_never_waits(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "session.jsonl"
    match kind:
        case "symlink":
            (tmp_path / "other").write_bytes(line("user", "secret"))
            path.symlink_to("other")
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
    with pytest.raises(OSError, match=str(path)):
        read_tail(path)
