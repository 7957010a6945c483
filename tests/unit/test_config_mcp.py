"""Configuration: the MCP servers of turns, checked so that claude drops none of them silently."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hive_subagent_daemon.config import McpServer
from tests.unit.config_loading import load, refusal

if TYPE_CHECKING:
    from pathlib import Path


def entry(folder: Path, toml: str) -> dict[str, Any]:
    """Return the entry of the one server, as claude will read it."""
    (server,) = load(folder, f"[mcp_servers.s]\n{toml}").mcp_servers
    rendered = json.loads(json.dumps(server.entry))
    assert isinstance(rendered, dict)
    return rendered


@pytest.mark.parametrize(
    ("toml", "type_"),
    [
        ('url = "http://h/"', "http"),
        ('url = "https://h/"\ntype = "http"', "http"),
        ('url = "https://h/"\ntype = "streamable-http"', "http"),
        ('url = "https://h/"\ntype = "sse"', "sse"),
        ('url = "wss://h/"\ntype = "ws"', "ws"),
        ('url = "${BASE:-x}/mcp"', "http"),
        ('command = "c"', "stdio"),
        ('command = "c"\ntype = "stdio"', "stdio"),
    ],
)
def test_the_type_of_a_server_is_filled_in(tmp_path: Path, toml: str, type_: str) -> None:
    assert entry(tmp_path, toml)["type"] == type_


def test_servers_keep_their_keys_and_say_who_may_use_them(tmp_path: Path) -> None:
    toml = """
        [mcp_servers.remote]
        url = "https://host/mcp"
        headers = { Authorization = "Bearer ${TOKEN}" }
        headersHelper = "/bin/helper"
        timeout = 5000
        alwaysLoad = true
        available_to_subagents = true
        [mcp_servers.local-1]
        command = "server"
        args = ["-v", ""]
        env = { A = "" }
        later = { deep = [1, 2.5, "x", { y = false }] }
    """
    assert load(tmp_path, toml).mcp_servers == (
        McpServer(
            "remote",
            {
                "type": "http",
                "url": "https://host/mcp",
                "headers": {"Authorization": "Bearer ${TOKEN}"},
                "headersHelper": "/bin/helper",
                "timeout": 5000,
                "alwaysLoad": True,
            },
            available_to_subagents=True,
        ),
        McpServer(
            "local-1",
            {
                "type": "stdio",
                "command": "server",
                "args": ["-v", ""],
                "env": {"A": ""},
                "later": {"deep": [1, 2.5, "x", {"y": False}]},
            },
            available_to_subagents=False,
        ),
    )


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("", ": needs exactly one of url and command, not none"),
        ('type = "http"', ": needs exactly one of url and command, not none"),
        ('url = "http://h"\ncommand = "c"', ": needs exactly one of url and command, not both"),
        (
            'url = "http://h"\ntype = "stdio"',
            '.type: must be "http" or "streamable-http" or "sse" or "ws" with url, not "stdio"',
        ),
        ('command = "c"\ntype = "http"', '.type: must be "stdio" with command, not "http"'),
        ('command = "c"\ntype = "sdk"', '.type: must be "stdio" with command, not "sdk"'),
        ("url = 1", ".url: must be a string with something in it, not a number"),
        ('url = ""', '.url: must be a string with something in it, not ""'),
        ('url = "host/mcp"', ".url: must begin with http:// or https://"),
        ('url = "http://h"\ntype = "ws"', ".url: must begin with ws:// or wss://"),
        ('command = ""', '.command: must be a string with something in it, not ""'),
        ('command = ["c"]', ".command: must be a string with something in it, not an array"),
        ('command = "c"\nargs = "-v"', '.args: must be a list of strings, not "-v"'),
        ('command = "c"\nargs = ["-v", 1]', ".args.1: must be a string, not a number"),
        ('command = "c"\nenv = { A = 1 }', ".env.A: must be a string, not a number"),
        (
            'command = "c"\nenv = { "A=" = "" }',
            ".env.\"A=\": the name must be a variable name, not empty and without '='",
        ),
        ('command = "c"\nenv = []', ".env: must be a table; each value a string, not an array"),
        ('command = "c"\nheaders = {}', ".headers: does not go together with command"),
        ('command = "c"\nheadersHelper = "h"', ".headersHelper: does not go together with command"),
        ('url = "http://h"\nargs = []', ".args: does not go together with url"),
        ('url = "http://h"\nenv = {}', ".env: does not go together with url"),
        ('url = "http://h"\nheaders = { A = 1 }', ".headers.A: must be a string, not a number"),
        ('url = "http://h"\nheaders = { A = "x\\ny" }', ".headers.A: must be a string of one line"),
        (
            'url = "http://h"\nheaders = { "A B" = "" }',
            '.headers."A B": the name must be the name of an HTTP header',
        ),
        ('url = "http://h"\ntimeout = 0', ".timeout: must be a whole number from 1 to 2147483647, not 0"),
        ('url = "http://h"\ntimeout = 1.5', ".timeout: must be a whole number from 1 to 2147483647, not 1.5"),
        ('url = "http://h"\nalwaysLoad = "x"', '.alwaysLoad: must be true or false, not "x"'),
        (
            'url = "http://h"\navailable_to_subagents = 1',
            ".available_to_subagents: must be true or false, not 1",
        ),
        (
            'url = "http://h"\navailableToSubagents = true',
            ".availableToSubagents: must be spelt available_to_subagents",
        ),
        ('url = "http://h"\nHeaders = {}', ".Headers: must be spelt headers"),
        (
            'url = "http://h"\nnew = 2020-01-01',
            ".new: must be something that JSON can hold, not a date or time",
        ),
        ('url = "http://h"\nnew = [nan]', ".new: must be something that JSON can hold, not nan"),
        (
            f'url = "http://h"\nnew = {2**64}',
            ".new: must be something that JSON can hold, not a number beyond 64 bits",
        ),
        (f'url = "http://h"\nnew{".a" * 50} = 1', ".new: is nested more than 20 levels deep"),
    ],
)
def test_an_entry_that_claude_would_drop_is_refused(tmp_path: Path, toml: str, message: str) -> None:
    assert refusal(tmp_path, f"[mcp_servers.s]\n{toml}") == f"DIR/config.toml: mcp_servers.s{message}"


def test_everything_wrong_in_the_servers_is_reported_at_once(tmp_path: Path) -> None:
    toml = """
        mcp_servers.a = 1
        mcp_servers.b = { command = "c", headers = {}, type = "http" }
        mcp_servers."c d" = { command = "c" }
    """
    assert refusal(tmp_path, toml).splitlines() == [
        "DIR/config.toml: mcp_servers.a: must be a table with url or command, not 1",
        "DIR/config.toml: mcp_servers.b.headers: does not go together with command",
        'DIR/config.toml: mcp_servers.b.type: must be "stdio" with command, not "http"',
        "DIR/config.toml: mcp_servers.\"c d\": the name must be letters, digits, '_' and '-'",
    ]


def test_a_url_is_not_repeated_in_a_message_since_it_may_hold_a_key(tmp_path: Path) -> None:
    assert "s3cret" not in refusal(tmp_path, 'mcp_servers.a.url = "ftp://host/?key=s3cret"')


def test_the_daemon_itself_is_only_available_to_subagents_where_that_is_said(tmp_path: Path) -> None:
    toml = '[mcp_servers.subagent]\nurl = "http://127.0.0.1:7310/mcp"\n'
    (server,) = load(tmp_path, toml).mcp_servers
    assert (server.name, server.available_to_subagents) == ("subagent", False)
    assert not load(tmp_path, toml).nests
    assert load(tmp_path, f"{toml}available_to_subagents = true").nests
