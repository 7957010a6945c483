"""The MCP server over a fake service, in both eras of the protocol."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.mcp_service import build_server
from hive_subagent_daemon.tool_texts import INSTRUCTIONS
from hive_subagent_daemon.tools import TOOLS
from hive_subagent_daemon.values import USUAL_TERMS, Bounds, Terms
from tests.support.fake_subagents import FakeSubagents
from tests.support.sample_answers import ANSWERS, RUNNING, STATUS
from tests.unit.test_arguments import ARGUMENTS, VALID

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

ERAS = ["legacy", "2026-07-28"]
LIMIT = 1000
NONE = {"terms": USUAL_TERMS}
ORDER = ["start", "continue", "interrupt", "status", "get_loose_ends", "close_loose_ends", "wait", "steer"]


def server_over(subagents: FakeSubagents) -> Server[Any]:
    """Build the server that is tested."""
    return build_server(subagents, version="1.2.3", max_prompt_bytes=LIMIT)


async def call(
    subagents: FakeSubagents, tool: str, arguments: dict[str, Any], *, era: str
) -> types.CallToolResult:
    """Call one tool in memory; the client of the SDK checks the answer against the output schema."""
    with anyio.fail_after(20):
        async with Client(server_over(subagents), mode=era) as client:
            result = await client.call_tool(tool, arguments)
    assert isinstance(result, types.CallToolResult)
    return result


async def call_directly(
    subagents: FakeSubagents, tool: str, arguments: dict[str, Any]
) -> types.CallToolResult:
    """Call one tool without a client, which a cancellation or many examples would only slow down."""
    entry = server_over(subagents).get_request_handler("tools/call")
    assert entry is not None
    context: Any = SimpleNamespace(request=None)
    result = await entry.handler(context, types.CallToolRequestParams(name=tool, arguments=arguments))
    assert isinstance(result, types.CallToolResult)
    return result


def text_of(result: types.CallToolResult) -> str:
    """Return the one text of a result."""
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("tool", ORDER)
async def test_an_answer_is_structured_and_has_a_text(tool: str, era: str) -> None:
    result = await call(FakeSubagents(), tool, VALID[tool], era=era)
    assert not result.is_error
    assert result.structured_content == ANSWERS[tool]
    assert 5 < len(text_of(result)) < 2000


@pytest.mark.parametrize(
    ("tool", "arguments", "received"),
    [
        (
            "start",
            {"name": "-p", "prompt_file": "p"},
            {
                "name": "-p",
                "prompt_file": "p",
                "model": None,
                "trigger": None,
                "dir": None,
                "terms": USUAL_TERMS,
            },
        ),
        (
            "start",
            {"name": "a", "prompt_file": "p", "model": "", "trigger": "/go", "dir": "d"},
            {"name": "a", "prompt_file": "p", "model": "", "trigger": "/go", "dir": "d"} | NONE,
        ),
        (
            "continue",
            {"name": "a", "prompt": "x", "timeout_seconds": 9, "max_budget_usd": 0.5, "max_turns": 3},
            {"name": "a", "prompt": "x", "model": None, "dir": None, "terms": Terms(Bounds(9, 0.5, 3))},
        ),
        (
            "start",
            {"name": "a", "prompt_file": "p", "model": "", "trigger": "/go", "dir": "d", "steerable": True},
            {"name": "a", "prompt_file": "p", "model": "", "trigger": "/go", "dir": "d"}
            | {"terms": Terms(steerable=True)},
        ),
        ("steer", {"name": "a", "text": "/stop"}, {"name": "a", "text": "/stop"}),
        ("interrupt", {"name": "a"}, {"name": "a", "force": False}),
        ("interrupt", {"name": "a", "force": True}, {"name": "a", "force": True}),
        ("status", {}, {"name": None}),
        ("status", {"name": "a"}, {"name": "a"}),
        ("get_loose_ends", {}, {"name": None, "ids": None, "limit": 10}),
        ("get_loose_ends", {"name": "a", "ids": ["x"], "limit": 1}, {"name": "a", "ids": ["x"], "limit": 1}),
        ("close_loose_ends", {"ids": ["x", "y"]}, {"ids": ["x", "y"]}),
        ("wait", {}, {"names": None, "timeout_seconds": 240}),
        ("wait", {"names": ["a"], "timeout_seconds": 0}, {"names": ["a"], "timeout_seconds": 0}),
    ],
)
async def test_the_service_gets_what_was_given_and_the_defaults(
    tool: str, arguments: dict[str, Any], received: dict[str, Any]
) -> None:
    subagents = FakeSubagents()
    await call(subagents, tool, arguments, era="2026-07-28")
    assert subagents.calls == [(tool, received)]


@pytest.mark.parametrize("era", ERAS)
async def test_a_bad_argument_is_an_error_of_the_tool_and_never_reaches_the_service(era: str) -> None:
    subagents = FakeSubagents()
    result = await call(subagents, "continue", {"name": "a", "prompt": "x" * (LIMIT + 1)}, era=era)
    assert result.is_error
    assert result.structured_content is None
    assert text_of(result).startswith("argument 'prompt' has 1001 bytes, more than the limit of 1000")
    assert subagents.calls == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_refusal_of_the_service_is_an_error_of_the_tool_in_its_words(era: str) -> None:
    subagents = FakeSubagents()
    subagents.answers["start"] = RefusedError("'a' runs since 3 s: interrupt it first (in /x\udcff).")
    result = await call(subagents, "start", VALID["start"], era=era)
    assert result.is_error
    assert text_of(result) == "'a' runs since 3 s: interrupt it first (in /x\ufffd)."


@pytest.mark.parametrize("era", ERAS)
async def test_an_unexpected_failure_is_logged_and_its_text_is_kept_from_the_parent(
    era: str, caplog: pytest.LogCaptureFixture
) -> None:
    subagents = FakeSubagents()
    subagents.answers["start"] = RuntimeError("secret")
    with caplog.at_level(logging.ERROR, logger="hive_subagent_daemon.mcp_service"):
        result = await call(subagents, "start", VALID["start"], era=era)
    assert result.is_error
    assert "secret" not in text_of(result)
    assert text_of(result).startswith("Internal error in start")
    (record,) = caplog.records
    assert record.getMessage() == "tool start failed"
    assert record.exc_info is not None
    assert "secret" in caplog.text


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", ["nope", "Start", "", "x" * 9000])
async def test_an_unknown_tool_is_an_error_of_the_protocol(name: str, era: str) -> None:
    async with Client(server_over(FakeSubagents()), mode=era) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool(name, {})
    assert caught.value.error.code == types.INVALID_PARAMS
    assert "this server has start, continue, interrupt," in caught.value.error.message
    assert len(caught.value.error.message) < 250


@pytest.mark.parametrize("era", ERAS)
async def test_text_that_is_not_unicode_and_numbers_that_are_none_do_not_lose_an_answer(era: str) -> None:
    subagents = FakeSubagents()
    running = RUNNING | {"dir": "/x\udcff", "mcp_problems": ("a\ud800",), "memory_bytes": float("nan")}
    subagents.answers["status"] = STATUS | {"subagents": [running]}
    result = await call(subagents, "status", {}, era=era)
    shown = result.structured_content["subagents"][0]
    assert (shown["dir"], shown["mcp_problems"], shown["memory_bytes"]) == ("/x\ufffd", ["a\ufffd"], None)


@pytest.mark.parametrize("era", ERAS)
async def test_the_tools_are_listed_in_one_order_with_all_that_a_client_asks_for(era: str) -> None:
    async with Client(server_over(FakeSubagents()), mode=era) as client:
        listed = await client.list_tools()
    assert [tool.name for tool in listed.tools] == ORDER
    for tool in listed.tools:
        assert tool.title
        assert 100 < len(tool.description or "") < 2000
        assert tool.input_schema["additionalProperties"] is False
        assert tool.output_schema is not None
        assert tool.annotations is not None
        assert None not in tool.annotations.model_dump().values()
    if era != "legacy":
        assert (listed.ttl_ms, listed.cache_scope) == (300_000, "private")


def test_the_annotations_tell_reading_from_changing_and_from_cutting_off_work() -> None:
    told = {binding.tool.name: binding.tool.annotations or types.ToolAnnotations() for binding in TOOLS}
    reads = {name for name, annotations in told.items() if annotations.read_only_hint}
    destroys = {name for name, annotations in told.items() if annotations.destructive_hint}
    repeatable = {name for name, annotations in told.items() if annotations.idempotent_hint}
    opens = {name for name, annotations in told.items() if annotations.open_world_hint}
    assert reads == {"status", "get_loose_ends", "wait"}
    assert destroys == {"start", "continue", "interrupt", "steer"}
    assert repeatable == {"status", "get_loose_ends", "close_loose_ends", "wait"}
    assert opens == {"start", "continue", "steer"}


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_the_server_says_its_name_version_and_how_to_work_with_it(era: str) -> None:
    async with Client(server_over(FakeSubagents()), mode=era) as client:
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("subagent", "1.2.3")
        assert client.instructions == INSTRUCTIONS
    assert len(INSTRUCTIONS) < 2000
    assert all(tool in INSTRUCTIONS for tool in ORDER)


def test_the_schema_of_a_tool_is_found_by_its_name_without_listing() -> None:
    lookup = server_over(FakeSubagents()).get_tool_input_schema
    assert lookup is not None
    assert lookup("start") == TOOLS[0].tool.input_schema
    assert lookup("nope") is None


@given(tool=st.sampled_from(ORDER), changed=ARGUMENTS)
def test_no_arguments_break_the_server_or_reach_the_service_unchecked(
    tool: str, changed: dict[str, Any]
) -> None:
    subagents = FakeSubagents()
    result = anyio.run(call_directly, subagents, tool, VALID[tool] | changed)
    assert result.is_error == (subagents.calls == [])
    assert not text_of(result).startswith("Internal error")


async def test_a_cancelled_call_stays_cancelled() -> None:
    subagents = FakeSubagents()
    subagents.answers["status"] = anyio.get_cancelled_exc_class()()
    with pytest.raises(anyio.get_cancelled_exc_class()):
        await call_directly(subagents, "status", {})
