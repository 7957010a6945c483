"""The stdio bridge between a real claude and the daemon: a parent, and a subagent that may not."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.claude.outside_claude import OutsideClaude, text_of
from tests.claude.real_daemon import tool_call
from tests.support.daemon_harness import REPOSITORY
from tests.support.daemon_stand_in import stand_in_for_a_daemon
from tests.support.processes import eventually
from tests.support.sockets import free_port

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.claude.real_daemon import MakeDaemon, RealDaemon
    from tests.support.offline_model import OfflineModel

STATUS = "[[tool: mcp__subagent__status {}]]"
GET = "[[tool: mcp__subagent__get_loose_ends {}]]"


def bridge_entry(port: int) -> dict[str, Any]:
    """Return the entry of a client's configuration that starts the bridge."""
    words = ["-m", "hive_subagent_daemon.client_main", "mcp", "--url", f"http://127.0.0.1:{port}/mcp"]
    return {"command": sys.executable, "args": words, "env": {"PYTHONPATH": str(REPOSITORY)}}


def start(name: str, said: str) -> str:
    """Return the directive for the start of a subagent that says something."""
    return tool_call(
        "mcp__subagent__start", {"name": name, "prompt_file": "recipe.md", "trigger": f"[[say: {said}]]"}
    )


def server_states(events: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return what claude says of its MCP servers at the beginning of a round."""
    told = next(event["mcp_servers"] for event in events if event.get("subtype") == "init")
    return [(server["name"], server["status"]) for server in told]


@pytest.mark.shows("facts-9-stdio")
def test_a_parent_on_stdio_starts_and_asks_over_a_restart_of_the_daemon(
    make_daemon: MakeDaemon, model: OfflineModel
) -> None:
    port = free_port()
    daemon = make_daemon(top={"listen": [f"127.0.0.1:{port}"]}).boot()
    config = json.dumps({"mcpServers": {"subagent": bridge_entry(port)}})
    with OutsideClaude(daemon, model, f"--mcp-config={config}") as parent:
        began = parent.ask(start("worker", "written by the subagent"))
        assert server_states(began) == [("subagent", "connected")]
        assert daemon.status_of("worker")["turn"] in text_of(began)
        daemon.loose_end("worker")
        daemon.restart()
        assert '"state":"idle"' in text_of(parent.ask(STATUS)).replace(" ", "")
        assert "written by the subagent" in text_of(parent.ask(GET))
        assert "'../x'" in text_of(parent.ask(start("../x", "never")))
        parent.end()
    assert [one["name"] for one in daemon.ok("status").content["subagents"]] == ["worker"]
    assert daemon.at_home() == []


@pytest.mark.shows("facts-9-server-down")
def test_a_parent_on_stdio_has_its_tools_before_there_is_a_daemon(
    make_daemon: MakeDaemon, model: OfflineModel
) -> None:
    port = free_port()
    daemon = make_daemon(top={"listen": [f"127.0.0.1:{port}"]})
    config = json.dumps({"mcpServers": {"subagent": bridge_entry(port)}})
    with OutsideClaude(daemon, model, f"--mcp-config={config}") as parent:
        assert f"No daemon at http://127.0.0.1:{port}/mcp (Connection refused)" in text_of(parent.ask(STATUS))
        daemon.boot()
        assert "launcher" in text_of(parent.ask(STATUS))
        parent.end()


@pytest.mark.shows("facts-9-killed-during-a-call")
def test_a_parent_on_stdio_does_not_hang_when_the_daemon_dies_during_a_call(
    make_daemon: MakeDaemon, model: OfflineModel
) -> None:
    """Over HTTP claude waited for more than a minute."""
    with stand_in_for_a_daemon(b"") as dying:
        config = json.dumps({"mcpServers": {"subagent": bridge_entry(dying.port)}})
        with OutsideClaude(make_daemon(), model, f"--mcp-config={config}") as parent:
            began = time.monotonic()
            told = text_of(parent.ask(start("worker", "never")))
            assert "start may or may not have taken effect. Call status to see" in told
            assert time.monotonic() - began < 15
    assert len(dying.requests) == 1


def test_a_parent_that_is_killed_leaves_no_bridge(daemon: RealDaemon, model: OfflineModel) -> None:
    config = json.dumps({"mcpServers": {"subagent": bridge_entry(daemon.port)}})
    with OutsideClaude(daemon, model, f"--mcp-config={config}") as parent:
        assert "launcher" in text_of(parent.ask(STATUS))
        assert len(daemon.at_home()) == 2
        parent.process.kill()
        eventually(lambda: not daemon.at_home(), what="the bridge ending")


def test_a_subagent_is_refused_through_the_bridge_as_without_it(make_daemon: MakeDaemon) -> None:
    port = free_port()
    loop = {"loop": bridge_entry(port) | {"available_to_subagents": True}}
    daemon = make_daemon(top={"listen": [f"127.0.0.1:{port}"]}, servers=loop).boot()
    wait = "[[bash: true]] [[bash: true]]"
    end = daemon.completed("worker", f"{wait} [[tool: mcp__loop__status {{}}]]")
    assert f"Refused: this call comes from inside turn {end['turn']}" in end["text"]
