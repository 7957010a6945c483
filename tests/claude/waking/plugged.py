"""A daemon whose HOME has our plugin installed, for the parents and for the subagents alike."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from hive_subagent_daemon import procfs
from tests.claude.real_daemon import PATH, RealDaemon, claude_environment, setting_for, tool_call
from tests.support.daemon_harness import REPOSITORY
from tests.support.processes import environment_of, eventually
from tests.support.sockets import free_port

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.offline_model import OfflineModel

PLUGIN = "hive-subagent"
INSTALL_SECONDS = 60.0
GONE_SECONDS = 20.0
API_KEY = "offline-key-0123456789abcdef"
# What claude asks a person when it is started for the first time has been answered here.
FIRST_START = {
    "hasCompletedOnboarding": True,
    "theme": "dark",
    "customApiKeyResponses": {"approved": [API_KEY[-20:]], "rejected": []},
    "bypassPermissionsModeAccepted": True,
}
FIRST_SETTINGS = {"skipDangerousModePermissionPrompt": True}
COMMAND_MODULE = b"hive_subagent_daemon.client_main"
COMMAND = """#!/bin/sh
echo "turn=$HIVE_SUBAGENT_TURN $*" >>{log}
PYTHONPATH={repository} exec {python} -P -m hive_subagent_daemon.client_main "$@"
"""


RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "done"}
STAND_IN = """#!/bin/sh
for word; do
    case $word in
        --version) echo '9.9.9 (stand-in)'; exit ;;
        --name=*) name=${{word#--name=}} ;;
    esac
done
until [ -e {gates}/"$name" ]; do sleep 0.1; done
echo '{result}'
"""


def tool(name: str, plugin: str = PLUGIN) -> str:
    """Return the name under which claude knows a tool of the plugin's MCP server."""
    return f"mcp__plugin_{plugin}_subagent__{name}"


def starting(name: str, trigger: str) -> str:
    """Return the directive by which a parent starts a subagent with this first prompt."""
    return tool_call(tool("start"), {"name": name, "prompt_file": "recipe.md", "trigger": trigger})


def continuing(name: str, prompt: str) -> str:
    """Return the directive by which a parent gives a subagent another turn."""
    return tool_call(tool("continue"), {"name": name, "prompt": prompt})


CLOSING = f'[[tool: {tool("close_loose_ends")} {{"ids": "$told"}}]]'
"""The directive by which a parent closes all that it was told of."""


class PluggedDaemon(RealDaemon):
    """A daemon at a fixed address, with the command `hive-subagent` and a HOME that has the plugin."""

    def __init__(self, folder: Path, claude: Path, model: OfflineModel) -> None:
        """Lay out the folders; nothing runs yet, and the plugin is not installed yet."""
        self.model = model
        self.address = f"127.0.0.1:{free_port()}"
        self.binaries = folder / "bin"
        self.search_path = f"{self.binaries}:{PATH}"
        self.commands_log = folder / "commands.log"
        # Subagents have all that their hooks would need to do what they must not do.
        child = {"HIVE_SUBAGENT_URL": self.url}
        setting = setting_for(
            folder,
            model,
            top={"listen": [self.address]},
            environment=child,
            outer={"PATH": self.search_path},
        )
        super().__init__(folder, claude, setting)
        self._lay_out_command()
        trusted = {str(self.work): {"hasTrustDialogAccepted": True}}
        self.config_file.write_text(json.dumps({**FIRST_START, "projects": trusted}))
        (self.home / ".claude").mkdir()
        (self.home / ".claude" / "settings.json").write_text(json.dumps(FIRST_SETTINGS))

    @property
    def url(self) -> str:
        """Where the tools are."""
        return f"http://{self.address}/mcp"

    def environment_of_parent(self) -> dict[str, str]:
        """Return the environment of a claude that is a parent."""
        own = {"PATH": self.search_path, "LANG": "C.UTF-8", "DISABLE_AUTOUPDATER": "1"}
        own |= {"IS_SANDBOX": "1"} if os.geteuid() == 0 else {}
        own |= claude_environment(self.home, self.model) | {"ANTHROPIC_API_KEY": API_KEY}
        return own | {"HIVE_SUBAGENT_URL": self.url}

    def install_plugin(self, plugin: str = PLUGIN) -> PluggedDaemon:
        """Install a plugin of this repository for the user."""
        self.claude_says("plugin", "marketplace", "add", str(REPOSITORY))
        self.claude_says("plugin", "install", f"{plugin}@hive-subagent")
        return self

    def take_plugins_from(self, home: Path) -> None:
        """Have what another HOME has installed: installing it each time would take longer than most tests."""
        shutil.copytree(home / ".claude", self.home / ".claude", dirs_exist_ok=True)
        for listing in (self.home / ".claude" / "plugins").glob("*.json"):
            listing.write_text(listing.read_text().replace(str(home), str(self.home)))

    def run_stand_ins(self, names: Sequence[str]) -> None:
        """Start subagents that are no claudes: each does nothing until it is let end, and costs little."""
        stand_in = self.folder / "stand-in"
        stand_in.write_text(STAND_IN.format(gates=shlex.quote(str(self.scripts)), result=json.dumps(RESULT)))
        stand_in.chmod(0o755)
        limits = {**self.setting.limits, "max_running": 200}
        self.setting = dataclasses.replace(
            self.setting, top={**self.setting.top, "claude": stand_in}, limits=limits
        )
        self.restart()
        for name in names:
            self.start(name)

    def let_end(self, *names: str) -> None:
        """Let these stand-ins end."""
        for name in names:
            self.open_gate(name)

    def claude_says(self, *words: str) -> str:
        """Run a command of claude that needs no model, and return what it prints."""
        ran = subprocess.run(
            [self.claude, *words],
            env=self.environment_of_parent(),
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
        assert ran.returncode == 0, f"claude {shlex.join(words)}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def waiting_hooks(self) -> list[int]:
        """Return the commands of hooks that run: those that wait, and the quick ones, which are soon gone."""
        return [pid for pid in self.at_home() if COMMAND_MODULE in procfs.command_line(pid)]

    def hooks_wait(self, number: int = 1) -> None:
        """Wait until so many hooks wait for a notice, and the daemon has heard of all of them."""

        def wait() -> bool:
            waiting = self.waiting_hooks()
            return len(waiting) == number and all(map(_has_connection, waiting))

        eventually(wait, within=30, what=f"{number} hooks waiting")
        self.ok("status")  # is answered after what they have asked

    def of_parents(self) -> list[int]:
        """Return all processes of parents: they themselves, their hooks, what else they have started."""
        return [pid for pid in self.at_home() if "HIVE_SUBAGENT_TURN" not in environment_of(pid)]

    def nothing_of_parents_is_left(self) -> None:
        """Wait until every parent has ended, and its hooks with it."""
        eventually(lambda: not self.of_parents(), within=GONE_SECONDS, what="nothing left of parents")

    @override
    def shut(self) -> None:
        try:
            self.nothing_of_parents_is_left()
        finally:
            super().shut()

    def no_hook_waits(self, *, within: float = 10.0) -> None:
        """Wait until no hook runs any more."""
        eventually(lambda: not self.waiting_hooks(), within=within, what="the end of all hooks")

    def commands(self) -> list[str]:
        """Return how the command was called so far, each call with the turn that it was called in."""
        return self.commands_log.read_text().splitlines() if self.commands_log.exists() else []

    def open_loose_ends(self) -> int:
        """Return how many are open, of all subagents."""
        answer = self.ok("get_loose_ends").content
        return len(answer["loose_ends"]) + int(answer["remaining"])

    def _lay_out_command(self) -> None:
        self.binaries.mkdir()
        command = self.binaries / "hive-subagent"
        words = {"log": self.commands_log, "repository": REPOSITORY, "python": sys.executable}
        command.write_text(COMMAND.format(**{key: shlex.quote(str(word)) for key, word in words.items()}))
        command.chmod(0o755)


def _has_connection(pid: int) -> bool:
    """Tell whether a command has a socket beside the three that it talks to claude by."""
    try:
        opened = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return sum("socket:" in one for one in opened) > len(("stdin", "stdout", "stderr"))
