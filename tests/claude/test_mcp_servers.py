"""MCP servers of a turn: those opted in and no others, and what is wrong with them is told."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from tests.claude.outside_claude import OutsideClaude, text_of
from tests.claude.real_daemon import tool_call
from tests.support.daemon_harness import REPOSITORY
from tests.support.fake_subagents import FakeSubagents
from tests.support.served_tools import served_on_tcp
from tests.support.sockets import free_port

if TYPE_CHECKING:
    from tests.claude.real_daemon import MakeDaemon, RealDaemon
    from tests.support.offline_model import OfflineModel

LISTED = "listed"
SHOUTING = {
    "command": sys.executable,
    "args": ["-m", "tests.claude.shouting_server", LISTED],
    "env": {"PYTHONPATH": str(REPOSITORY)},
}
CALL_DAEMON = """
import sys, urllib.error, urllib.request
try: urllib.request.urlopen(urllib.request.Request(sys.argv[1], data=b"{}"))
except urllib.error.HTTPError as error: print(error.code, error.read().decode())
"""


def tools_offered(model: OfflineModel, mark: str) -> set[str]:
    """Return the names of the tools in the last request that holds a mark."""
    return {tool["name"] for tool in model.requests_about(mark)[-1]["tools"]}


@pytest.mark.shows("facts-9-http")
def test_an_opted_in_server_is_connected_and_others_are_not_there(
    make_daemon: MakeDaemon, model: OfflineModel
) -> None:
    with served_on_tcp(FakeSubagents()) as url:
        given = {"type": "http", "url": url, "available_to_subagents": True}
        daemon = make_daemon(servers={"given": given, "kept": {"type": "http", "url": url}}).boot()
        end = daemon.completed("worker", "[[tool: mcp__given__status {}]]")
        assert "launcher" in end["text"]
        assert end["warnings"] == []
        assert "mcp__kept" not in json.dumps(model.requests)


@pytest.mark.shows("facts-9-stdio", "case-H8")
def test_a_server_over_stdio_can_be_used_and_ends_with_the_turn(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(servers={"shouting": {**SHOUTING, "available_to_subagents": True}}).boot()
    wait = f"[[bash: until [ -e {LISTED} ]; do sleep 0.1; done]] [[bash: true]] [[bash: true]]"
    end = daemon.completed("worker", f'{wait} [[tool: mcp__shouting__shout {{"text": "hello"}}]]')
    assert end["text"].endswith("HELLO")
    # Claude does not wait for a slow server before its first round; then that is told.
    assert all("pending" in warning for warning in end["warnings"])
    assert daemon.at_home() == []


@pytest.mark.shows("facts-9-server-down")
def test_an_opted_in_server_that_is_down_is_a_warning(make_daemon: MakeDaemon) -> None:
    down = {"url": f"http://127.0.0.1:{free_port()}/mcp", "available_to_subagents": True}
    daemon = make_daemon(servers={"down": down}).boot()
    daemon.begin("worker", "[[bash: until [ -e go ]; do sleep 0.1; done]]")
    daemon.does("worker", "tool")
    assert "'down'" in daemon.status_of("worker")["mcp_problems"][0]
    (daemon.work / "go").touch()
    [warning] = daemon.loose_end("worker")["warnings"]
    assert "'down'" in warning
    assert "failed" in warning


@pytest.mark.shows("case-H7")
def test_a_turn_sees_no_server_of_its_user_and_of_its_directory(
    daemon: RealDaemon, model: OfflineModel
) -> None:
    entry = {"mcpServers": {"shouting": {"type": "stdio", **SHOUTING}}}
    (daemon.work / ".mcp.json").write_text(json.dumps(entry))
    daemon.config_file.write_text(json.dumps(entry))
    assert daemon.completed("worker", "[[say: done]]")["warnings"] == []
    assert "shouting" not in json.dumps(model.requests)


@pytest.mark.shows("facts-9-401")
def test_a_turn_that_calls_its_own_daemon_is_refused(make_daemon: MakeDaemon) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    loop = {"url": url, "available_to_subagents": True}
    daemon = make_daemon(top={"listen": [f"127.0.0.1:{port}"]}, servers={"loop": loop}).boot()
    (daemon.work / "call.py").write_text(CALL_DAEMON)
    end = daemon.completed("worker", f"[[bash: {sys.executable} call.py {url}]]")
    [warning] = end["warnings"]
    assert "'loop' was not connected" in warning
    assert f"403 Refused: this call comes from inside turn {end['turn']}" in end["text"]


@pytest.mark.shows("facts-9-claude-as-mcp-client")
def test_a_real_claude_works_as_the_parent(daemon: RealDaemon, model: OfflineModel) -> None:
    entry = {"mcpServers": {"subagent": {"type": "http", "url": f"http://127.0.0.1:{daemon.port}/mcp"}}}
    start = {"name": "worker", "prompt_file": "recipe.md", "trigger": "[[say: written by the subagent]]"}
    with OutsideClaude(daemon, model, f"--mcp-config={json.dumps(entry)}") as parent:
        answer = text_of(parent.ask(tool_call("mcp__subagent__start", start)))
        assert daemon.status_of("worker")["turn"] in answer
        daemon.loose_end("worker")
        assert "written by the subagent" in text_of(parent.ask("[[tool: mcp__subagent__get_loose_ends {}]]"))
        refused = text_of(parent.ask(tool_call("mcp__subagent__start", {**start, "name": "../x"})))
        assert "name" in refused
        parent.end()
    assert [one["name"] for one in daemon.ok("status").content["subagents"]] == ["worker"]
