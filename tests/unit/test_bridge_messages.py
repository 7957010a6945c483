"""What the bridge makes of a line, in both eras of the protocol."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon.bridge_lines import TooLong
from hive_subagent_daemon.bridge_messages import (
    Called,
    Cancelled,
    Conversation,
    Reply,
    answer_of,
    refusal_of,
)
from hive_subagent_daemon.tool_listing import ToolListing
from tests.support.mcp_call import meta

CLIENT = {"name": "a client", "version": "7"}
PREFIX = "io.modelcontextprotocol"
LISTING = ToolListing()
WORDS = st.sampled_from(["", "x", "status", "é", "\ud800", "\n", "2026-07-28", "name"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)
PARAMS = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("name", "arguments", "clientInfo", "capabilities", "requestId"), VALUES)
    | {"_meta": VALUES | st.just(meta()), "protocolVersion": VALUES},
)
METHODS = ("initialize", "tools/list", "tools/call", "ping", "server/discover", "notifications/cancelled")
JSON_LINES = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "method": st.sampled_from(METHODS) | VALUES},
    optional={"id": VALUES, "params": PARAMS | VALUES},
).map(lambda message: json.dumps(message).encode())


@pytest.fixture
def conversation() -> Conversation:
    """Return a conversation in which nothing was said."""
    return Conversation(ToolListing())


def request(method: str, params: object = None, request_id: object = 1) -> bytes:
    """Return the line of a request."""
    message = {"jsonrpc": "2.0", "id": request_id, "method": method}
    return json.dumps(message if params is None else message | {"params": params}).encode()


def reply_to(conversation: Conversation, line: bytes | TooLong) -> dict[str, Any]:
    """Return the message that a line is answered with."""
    asked = conversation.understood(line)
    assert isinstance(asked, Reply)
    return asked.message


def call_in(conversation: Conversation, params: dict[str, Any]) -> tuple[Called, dict[str, Any]]:
    """Return the call of a tool and the parameters that are sent."""
    asked = conversation.understood(request("tools/call", params, "x"))
    assert isinstance(asked, Called)
    sent: dict[str, Any] = json.loads(asked.call.body)["params"]
    return asked, sent


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
def test_a_known_version_is_agreed_to(conversation: Conversation, version: str) -> None:
    line = request("initialize", {"protocolVersion": version})
    assert reply_to(conversation, line)["result"]["protocolVersion"] == version


@pytest.mark.parametrize("version", ["2026-07-28", "2099-01-01", None, 7, []])
def test_any_other_gets_the_newest_that_has_a_handshake(conversation: Conversation, version: object) -> None:
    line = request("initialize", {"protocolVersion": version, "_meta": meta()})
    assert reply_to(conversation, line)["result"]["protocolVersion"] == "2025-11-25"


def test_a_call_after_a_handshake_gets_the_envelope_of_the_client(conversation: Conversation) -> None:
    hello = {"protocolVersion": "2025-11-25", "clientInfo": CLIENT, "capabilities": {"roots": {}}}
    conversation.understood(request("initialize", hello))
    own = {"progressToken": 4, "claudecode/toolUseId": "t"}
    called, sent = call_in(conversation, {"name": "status", "arguments": {"name": "a"}, "_meta": own})
    assert (called.id, called.call.tool, called.modern) == ("x", "status", False)
    assert sent["arguments"] == {"name": "a"}
    assert sent["_meta"] == own | {
        f"{PREFIX}/protocolVersion": "2026-07-28",
        f"{PREFIX}/clientInfo": CLIENT,
        f"{PREFIX}/clientCapabilities": {"roots": {}},
    }


def test_a_call_that_has_an_envelope_keeps_it(conversation: Conversation) -> None:
    called, sent = call_in(conversation, {"name": "status", "_meta": meta()})
    assert called.modern
    assert sent == {"name": "status", "_meta": meta()}


@pytest.mark.parametrize("modern", [False, True])
def test_what_is_not_served_is_an_unknown_method(conversation: Conversation, modern: bool) -> None:
    params = {"_meta": meta()} if modern else {}
    for method in ("prompts/list", "resources/list", "subscriptions/listen", "logging/setLevel", ""):
        error = reply_to(conversation, request(method, params))["error"]
        assert error == {"code": -32601, "message": "Method not found", "data": method}


def test_each_era_has_a_method_that_the_other_has_not(conversation: Conversation) -> None:
    assert reply_to(conversation, request("ping"))["result"] == {}
    assert reply_to(conversation, request("ping", {"_meta": meta()}))["error"]["code"] == -32601
    assert "result" in reply_to(conversation, request("server/discover", {"_meta": meta()}))
    assert reply_to(conversation, request("server/discover"))["error"]["code"] == -32601


def test_a_version_to_come_is_told_which_ones_there_are(conversation: Conversation) -> None:
    later = meta() | {f"{PREFIX}/protocolVersion": "2027-01-01"}
    for method in ("tools/list", "tools/call", "server/discover"):
        error = reply_to(conversation, request(method, {"name": "status", "_meta": later}))["error"]
        assert error["code"] == -32022
        assert error["data"] == {"supported": ["2026-07-28"], "requested": "2027-01-01"}


@pytest.mark.parametrize("params", [None, [], "x", 7, {"_meta": 7}, {"_meta": None}])
@pytest.mark.parametrize("method", ["initialize", "tools/list", "tools/call"])
def test_params_that_are_no_object_are_refused(
    conversation: Conversation, method: str, params: object
) -> None:
    line = json.dumps({"jsonrpc": "2.0", "id": 5, "method": method, "params": params}).encode()
    message = reply_to(conversation, line)
    assert (message["id"], message["error"]["code"]) == (5, -32602)


@pytest.mark.parametrize("params", [{}, {"name": None}, {"name": 7}, {"name": ["status"]}])
def test_a_call_without_a_tool_is_refused(conversation: Conversation, params: dict[str, object]) -> None:
    assert reply_to(conversation, request("tools/call", params))["error"]["code"] == -32602


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"x", -32700),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping"', -32700),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}', -32700),
        (b"[" * 100_000, -32700),
        (b'{"a":' * 100_000, -32700),
        (b"1" * 10_000, -32700),
        (b"[]", -32600),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', -32600),
        (b"7", -32600),
        (b"null", -32600),
        (b"{}", -32600),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', -32600),
        (b'{"id": 1, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 7}', -32600),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_line_that_is_no_message_is_an_error_to_nobody(
    conversation: Conversation, line: bytes, code: int
) -> None:
    message = reply_to(conversation, line)
    assert message["id"] is None
    assert message["error"]["code"] == code


def test_every_depth_of_nesting_gets_an_answer(conversation: Conversation) -> None:
    """Some can be read but not written again."""
    for depth in (*range(800, 1000), 5000):
        deep = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"status","arguments":%b%b}}'
        asked = conversation.understood(deep % (b"[" * depth, b"]" * depth))
        assert isinstance(asked, Called | Reply)


def test_a_line_that_was_too_long_is_told(conversation: Conversation) -> None:
    assert "33554432 bytes" in reply_to(conversation, TooLong())["error"]["message"]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b" \r",
        b'{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        b'{"jsonrpc": "2.0", "method": "notifications/cancelled"}',
        b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": null}}',
        b'{"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "start"}}',
        b'{"jsonrpc": "2.0", "id": 1, "result": {}}',
        b'{"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}}',
    ],
)
def test_what_needs_no_answer_gets_none(conversation: Conversation, line: bytes) -> None:
    assert conversation.understood(line) is None


@pytest.mark.parametrize("request_id", [0, 7, -1, "", "x", "7"])
def test_a_cancellation_names_its_request(conversation: Conversation, request_id: str | int) -> None:
    params = {"requestId": request_id, "reason": "the user"}
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
    assert conversation.understood(json.dumps(message).encode()) == Cancelled(request_id)


def test_an_answer_goes_back_in_the_era_and_with_the_id_of_the_client(conversation: Conversation) -> None:
    server = {f"{PREFIX}/serverInfo": {"name": "subagent"}}
    answer = {"result": {"content": [], "resultType": "complete", "_meta": server}}
    before, _ = call_in(conversation, {"name": "status"})
    assert answer_of(before, answer) == {"jsonrpc": "2.0", "id": "x", "result": {"content": []}}
    later, _ = call_in(conversation, {"name": "status", "_meta": meta()})
    assert answer_of(later, answer) == {"jsonrpc": "2.0", "id": "x"} | answer
    assert answer_of(before, {"error": {"code": 7}}) == {"jsonrpc": "2.0", "id": "x", "error": {"code": 7}}


def test_a_refusal_is_an_answer_that_a_model_can_read(conversation: Conversation) -> None:
    called, _ = call_in(conversation, {"name": "status"})
    content = [{"type": "text", "text": "No."}]
    assert refusal_of(called, "No.")["result"] == {"content": content, "isError": True}


def test_characters_that_are_no_utf_8_reach_the_daemon_escaped(conversation: Conversation) -> None:
    line = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":"\\ud800"}}'
    asked = conversation.understood(line)
    assert isinstance(asked, Called)
    assert json.loads(asked.call.body)["params"]["arguments"] == "\ud800"


@given(st.binary() | JSON_LINES)
def test_every_line_is_understood_somehow(line: bytes) -> None:
    asked = Conversation(LISTING).understood(line)
    if isinstance(asked, Reply):
        assert b"\n" not in json.dumps(asked.message).encode()
