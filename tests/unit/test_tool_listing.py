"""What the bridge says of the tools is what the server says, in both eras."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp.client import Client
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

from hive_subagent_daemon import __version__
from hive_subagent_daemon.bridge_messages import HANDSHAKE_VERSIONS, Conversation, Reply
from hive_subagent_daemon.client import READ_ONLY_TOOLS
from hive_subagent_daemon.mcp_service import build_server
from hive_subagent_daemon.tool_listing import ToolListing
from tests.support.fake_subagents import FakeSubagents
from tests.support.tool_listing import FILE, told_by_the_server

HOW = "tool_listing.json is not what the server says: run `python -m tests.support.tool_listing`"


def test_the_file_holds_what_the_server_says() -> None:
    assert json.loads(FILE.read_text()) == told_by_the_server(), HOW


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_both_eras_are_told_what_the_server_tells_them(era: str) -> None:
    listing = ToolListing()
    server = build_server(FakeSubagents(), version=__version__, max_prompt_bytes=1000)
    async with Client(server, mode=era) as client:
        listed = (await client.list_tools()).model_dump(by_alias=True, mode="json", exclude_none=True)
        assert listed["tools"] == listing.tools["tools"], HOW
        assert client.instructions == listing.discovered["instructions"], HOW
        told = listing.initialized("2025-11-25")
        assert client.server_info is not None
        server_info = client.server_info.model_dump(by_alias=True, mode="json", exclude_none=True)
        assert server_info == told["serverInfo"]
        capabilities = client.server_capabilities.model_dump(by_alias=True, mode="json", exclude_none=True)
        assert capabilities == told["capabilities"]


def test_every_version_that_the_server_speaks_after_a_handshake_is_spoken() -> None:
    assert set(HANDSHAKE_VERSIONS) == set(HANDSHAKE_PROTOCOL_VERSIONS)
    assert HANDSHAKE_VERSIONS[0] == LATEST_HANDSHAKE_VERSION


def test_the_handshake_era_gets_nothing_of_the_later_one() -> None:
    asked = Conversation(ToolListing()).understood(b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}')
    assert isinstance(asked, Reply)
    assert set(asked.message["result"]) == {"tools"}
    assert set(ToolListing().initialized(HANDSHAKE_VERSIONS[0])) == {
        *("protocolVersion", "serverInfo", "capabilities", "instructions")
    }


def test_the_tools_that_may_be_called_twice_are_those_that_only_read() -> None:
    tools: list[dict[str, Any]] = ToolListing().tools["tools"]
    assert [tool["name"] for tool in tools if tool["annotations"]["readOnlyHint"]] == list(READ_ONLY_TOOLS)
