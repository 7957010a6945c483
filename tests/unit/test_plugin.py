"""The plugin's files agree with the package: names of tools and arguments, version, the copy over stdio."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from hive_subagent_daemon import __version__
from hive_subagent_daemon.answer_schemas import LOOSE_ENDS_ANSWER, STATUS_ANSWER
from hive_subagent_daemon.tools import TOOLS

REPOSITORY = Path(__file__).resolve().parents[2]
PLUGIN, STDIO = REPOSITORY / "plugin", REPOSITORY / "plugin-stdio"
SKILL = "skills/claude-subagents/SKILL.md"
HOOKS = "hooks/hooks.json"
CALL = re.compile(r"`([a-z_]+)\(([^)`]*)\)`")
WAKES_SECONDS = 86400


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def hooks() -> dict[str, dict[str, Any]]:
    """Return the one hook of each event."""
    found: dict[str, list[dict[str, list[dict[str, Any]]]]] = read(PLUGIN / HOOKS)["hooks"]
    return {event: hook for event, [group] in found.items() for hook in group["hooks"]}


def arguments() -> dict[str, set[str]]:
    """Return the arguments of each tool."""
    return {binding.tool.name: set(binding.tool.input_schema["properties"]) for binding in TOOLS}


def test_the_skill_names_tools_and_arguments_that_exist() -> None:
    known = arguments()
    calls = CALL.findall((PLUGIN / SKILL).read_text().replace("\n", " "))
    assert {name for name, _ in calls} >= {
        "start",
        "continue",
        "interrupt",
        "get_loose_ends",
        "close_loose_ends",
    }
    for name, given in calls:
        named = {part.strip(" ?").partition("=")[0] for part in given.split(",") if part.strip()}
        assert named <= known[name], f"{name}({given})"


def test_the_skill_tells_of_every_tool_every_outcome_and_every_kind_of_error() -> None:
    text = (PLUGIN / SKILL).read_text()
    shape = LOOSE_ENDS_ANSWER["properties"]["loose_ends"]["items"]["properties"]
    assert all(f"`{name}`" in text for name in arguments())
    assert all(f"`{outcome}`" in text for outcome in shape["outcome"]["enum"])
    assert {"cost_usd", "error_class", "error", "cause"} <= shape.keys()
    running = STATUS_ANSWER["properties"]["subagents"]["items"]["properties"]
    assert {"age_seconds", "stalled"} <= running.keys()


def test_the_skill_is_short_enough_to_be_read_each_time() -> None:
    assert len((PLUGIN / SKILL).read_text()) < 6000


def test_the_plugins_have_the_version_of_the_package() -> None:
    for folder in (PLUGIN, STDIO):
        assert read(folder / ".claude-plugin/plugin.json")["version"] == __version__


def test_the_marketplace_lists_the_plugins_by_their_names() -> None:
    listed = read(REPOSITORY / ".claude-plugin/marketplace.json")["plugins"]
    for entry in listed:
        manifest = read(REPOSITORY / entry["source"] / ".claude-plugin/plugin.json")
        assert manifest["name"] == entry["name"]
    assert len(listed) == 2


@pytest.mark.parametrize("name", [HOOKS, SKILL])
def test_the_plugin_over_stdio_differs_in_its_server_alone(name: str) -> None:
    assert (STDIO / name).read_bytes() == (PLUGIN / name).read_bytes()


def test_the_wheel_has_all_files_of_the_plugins() -> None:
    wheel = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    plugins = {name: f"share/hive-subagent/{name}" for name in (".claude-plugin", "plugin", "plugin-stdio")}
    assert wheel["shared-data"].items() >= plugins.items()


def test_only_the_stop_hook_wakes_and_it_may_wait_for_a_day() -> None:
    assert {event for event, hook in hooks().items() if hook.get("asyncRewake")} == {"Stop"}
    assert hooks()["Stop"]["timeout"] == WAKES_SECONDS
    assert {"Stop", "UserPromptSubmit", "SessionStart"} == hooks().keys()


def run(event: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the hook of an event as claude does."""
    return subprocess.run(
        ["/bin/sh", "-c", hooks()[event]["command"]],
        input=json.dumps({"hook_event_name": event, "session_id": "s"}),
        env=environment,
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )


@pytest.fixture
def binaries(tmp_path: Path) -> Path:
    """Return a folder with a command that shows how it was called, and wakes."""
    command = tmp_path / "hive-subagent"
    command.write_text('#!/bin/sh\necho "$* $(/bin/cat)" >&2\nexit 2\n')
    command.chmod(0o755)
    return tmp_path


EVENTS = pytest.mark.parametrize("event", sorted(hooks()))


@EVENTS
def test_a_hook_hands_its_input_to_the_command_and_its_code_back(binaries: Path, event: str) -> None:
    ran = run(event, PATH=str(binaries))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f'notices {{"hook_event_name": "{event}"')


@EVENTS
def test_a_hook_is_silent_in_a_turn_of_ours(binaries: Path, event: str) -> None:
    ran = run(event, PATH=str(binaries), HIVE_SUBAGENT_TURN="20261130_101502_118_9f3a")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@EVENTS
def test_a_hook_is_silent_where_the_command_is_not_installed(tmp_path: Path, event: str) -> None:
    ran = run(event, PATH=f"{tmp_path}{os.pathsep}/nonexistent")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
