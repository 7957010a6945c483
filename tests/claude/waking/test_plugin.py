"""The plugin in the real claude: valid, installed or from its folder, silent where it has to be."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon import tools
from tests.claude.waking.parents import ListeningParent
from tests.claude.waking.plugged import PLUGIN, PluggedDaemon, starting, tool
from tests.support.daemon_harness import REPOSITORY
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.support.offline_model import OfflineModel

STDIO = "hive-subagent-stdio"
SKILL = "claude-subagents"
TOOLS = {binding.tool.name for binding in tools.TOOLS}


def loaded(daemon: PluggedDaemon, *flags: str) -> tuple[set[str], set[str]]:
    """Return the names of skills and tools with which a session begins."""
    with ListeningParent(daemon, *flags, prompt="[[say: hello]]") as parent:
        init = parent.init()
        parent.result()
        assert parent.leave() == 0
    return set(init["skills"]), set(init["tools"])


@pytest.mark.parametrize("folder", ["plugin", "plugin-stdio", "."])
def test_claude_finds_nothing_to_complain_about(unplugged: PluggedDaemon, folder: str) -> None:
    unplugged.claude_says("plugin", "validate", "--strict", str(REPOSITORY / folder))


def test_an_installed_plugin_brings_the_skill_and_all_tools(unplugged: PluggedDaemon) -> None:
    skills, offered = loaded(unplugged.install_plugin())
    assert f"{PLUGIN}:{SKILL}" in skills
    assert {tool(name) for name in TOOLS} <= offered


def test_a_plugin_named_by_its_folder_brings_the_same(unplugged: PluggedDaemon) -> None:
    skills, offered = loaded(unplugged, "--plugin-dir", str(REPOSITORY / "plugin"))
    assert f"{PLUGIN}:{SKILL}" in skills
    assert {tool(name) for name in TOOLS} <= offered


def test_the_plugin_over_stdio_reaches_the_daemon_by_its_command(unplugged: PluggedDaemon) -> None:
    unplugged.install_plugin(STDIO)
    status = tool("status", STDIO)
    # A program that has to start is connected a little after the first round began.
    ready = f"[[bash: until [ -e go ]; do sleep 0.1; done]] [[tool: {status} {{}}]]"
    with ListeningParent(unplugged, prompt=ready) as parent:
        assert f"{STDIO}:{SKILL}" in parent.init()["skills"]
        eventually(
            lambda: any("mcp" in line.split() for line in unplugged.commands()), within=30, what="the bridge"
        )
        (unplugged.work / "go").touch()
        assert "process group" in parent.result()["result"]
        assert parent.leave() == 0


def test_a_session_that_begins_is_told_in_one_line_what_runs_and_what_is_open(
    plugged: PluggedDaemon, model: OfflineModel
) -> None:
    plugged.completed("early", "[[say: done early]]")
    plugged.begin("late", "[[hold: late]] [[say: done late]]")
    with ListeningParent(plugged, prompt="[[say: hello]]") as parent:
        parent.result()
        told = json.dumps(parent.requests()[0])
        assert "hive-subagent: 1 subagent is running (late" in told
        assert "1 notice" in told
        parent.process.kill()
    model.release("late")
    plugged.loose_end("late")


def test_hooks_are_silent_inside_a_turn_though_there_is_something_to_tell(
    plugged: PluggedDaemon, model: OfflineModel
) -> None:
    plugged.completed("early", "[[say: done early]]")
    plugged.completed("worker", "[[bash: true]] [[say: done]]")
    with ListeningParent(plugged, prompt=f"{starting('child', '[[say: done too]]')} [[say: ok]]") as parent:
        parent.woken()
    for mark in ("[[bash: true]]", "[[say: done too]]"):
        [first, *_] = [body for body in model.requests if mark in json.dumps(body["messages"][:2])]
        assert "hive-subagent: " not in json.dumps(first["messages"]), mark
    assert plugged.commands() != []
    assert all(line.startswith("turn= ") for line in plugged.commands()), plugged.commands()


def test_a_session_works_as_without_the_plugin_when_the_daemon_is_away(plugged: PluggedDaemon) -> None:
    plugged.stop()
    with ListeningParent(plugged, prompt="[[say: hello]]") as parent:
        assert parent.result()["result"] == "hello"
        assert "hive-subagent: " not in json.dumps(parent.requests())
        plugged.no_hook_waits()
        began = time.monotonic()
        assert parent.leave() == 0
        assert time.monotonic() - began < 10


def test_a_session_works_as_without_the_plugin_when_the_command_is_not_installed(
    plugged: PluggedDaemon,
) -> None:
    (plugged.binaries / "hive-subagent").unlink()
    with ListeningParent(plugged, prompt="[[say: hello]]") as parent:
        assert parent.result()["result"] == "hello"
        responses = [event for event in parent.events if event.get("subtype") == "hook_response"]
        assert responses
        assert {event["outcome"] for event in responses} == {"success"}
        assert {event["output"] for event in responses} == {""}
