"""Agents that the core renders, installed on the machine's systemd; tests call them like a parent."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from tests.nix.evaluation import HERE, evaluate
from tests.support.scripted_daemon import REPOSITORY, ScriptedDaemon
from tests.systemd.managers import SYSTEM, Manager, output_of

if TYPE_CHECKING:
    from tests.systemd.managers import Form

FOLDERS = {"system": Path("/run/systemd/system"), "user": Path("/run/systemd/user")}
PROGRAMS = {"true": "/bin/true", "systemctl": "/bin/systemctl"}
NIX_FILE = HERE / "installed_agents.nix"


class InstalledAgent(ScriptedDaemon):
    """One agent: its options in Nix, the rendered units and configuration, and its folders."""

    def __init__(self, name: str, folder: Path, claude: Path, form: Form) -> None:
        """Lay out the folders and give them to the agent's user; nothing is rendered yet."""
        super().__init__(folder, claude)
        self.name = name
        self.form = form
        self.unit = f"hive-subagent-{name}"
        self.home = Path(pwd.getpwnam(form.user).pw_dir)
        self.config = folder / "config.toml"
        self.options: dict[str, Any] = {}
        self.rendered: dict[str, Any] = {}
        # A small system has no kill but that of its shell.
        self.kill = folder / "kill"
        self.kill.write_text('#!/bin/sh\nkill "$@"\n')
        self.kill.chmod(0o755)
        for inner in (folder, *folder.rglob("*")):
            os.chown(inner, form.uid, form.uid)

    def given(self) -> dict[str, Any]:
        """Return what a user would write, and what the layer knows of user and packages."""
        program = ["/usr/bin/env", f"PYTHONPATH={REPOSITORY}", sys.executable, "-m"]
        return {
            "user": self.form.user,
            "uid": self.form.uid,
            "home": str(self.home),
            "workDir": str(self.work),
            "claude": str(self.claude),
            "command": [*program, "hive_subagent_daemon.daemon_main", "--config", str(self.config)],
            "packages": ["/usr"],
            "programs": {**PROGRAMS, "kill": str(self.kill)},
            **self.options,
            "environment": {"STUB_SCRIPTS": str(self.scripts), **self.options.get("environment", {})},
        }


def render(*agents: InstalledAgent) -> None:
    """Evaluate the agents, all at once."""
    found = evaluate(NIX_FILE, agents={agent.name: agent.given() for agent in agents})
    for agent in agents:
        agent.rendered = found[agent.name]
        assert agent.rendered["faults"] == []
        [address] = agent.rendered["configuration"]["listen"]
        agent.port = int(address.rpartition(":")[2])


def install(*agents: InstalledAgent) -> None:
    """Write configurations and units, and let every manager read them."""
    for agent in agents:
        agent.config.write_text(tomli_w.dumps(agent.rendered["configuration"]))
        for manager, folder in FOLDERS.items():
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in agent.rendered["units"][manager].items():
                (folder / name).write_text(text)
    for manager_of in (SYSTEM, *{agent.form.manager for agent in agents}):
        manager_of.systemctl("daemon-reload")


def units_of(agent: InstalledAgent, manager: str, kind: str) -> list[str]:
    """Return the names of the rendered units of one kind."""
    return [name for name in agent.rendered["units"][manager] if name.endswith(f".{kind}")]


def remove(agent: InstalledAgent, managers: list[Manager]) -> None:
    """Stop and remove what was installed."""
    stops = [(SYSTEM, "system"), *((manager, "user") for manager in managers if manager.uid)]
    for manager, where in stops:
        names = [*agent.rendered["units"][where]]
        if names:
            manager.systemctl("stop", "--", *names)
    for where, folder in FOLDERS.items():
        for name in agent.rendered["units"][where]:
            (folder / name).unlink(missing_ok=True)
    for manager in managers:
        manager.systemctl("daemon-reload")
    shutil.rmtree(f"/var/lib/hive-subagent/{agent.name}", ignore_errors=True)


def journal_of(agent: InstalledAgent) -> str:
    """Return what systemd and the daemon have said."""
    output_of("journalctl", "--sync")
    return output_of("journalctl", "--no-pager", "--output=cat", f"--unit={agent.unit}.service")
