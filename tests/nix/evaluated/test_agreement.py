"""The core and the daemon agree: on names, on settings, on what units say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from hive_subagent_daemon.config_schema import KEYS
from hive_subagent_daemon.config_values import TcpAddress
from hive_subagent_daemon.daemon_main import main
from hive_subagent_daemon.unit_files import Account, UnitFiles, Wanted, system_units, user_units
from hive_subagent_daemon.unit_names import default_slice
from tests.nix.evaluation import core, needs_nix
from tests.nix.samples import FROM_OPTIONS, URL, nested
from tests.unit.config_loading import load

pytestmark = needs_nix

CONFIGURATION = """core.configurationOf {
  inherit agent name uid;
  claude = "/bin/sh";
  credentialsDirectory = "/run/credentials/x";
}"""
AGENT: dict[str, Any] = {
    "name": "coder",
    "user": "alice",
    "uid": 1001,
    "manager": "system",
    "address": "127.0.0.1",
    "port": 20515,
    "command": ["/opt/bin/daemon", "--config", "/etc/coder.toml"],
    "path": "/bin:/a b%",
    "credentials": {},
    "startAtBoot": True,
    "slice": default_slice("coder"),
    "sliceConfig": {},
    "programs": {"kill": "kill", "true": "true", "systemctl": "systemctl"},
}
# What the two have to say differently, with the reason.
TOLD_APART = {
    "ExecStart",  # the program's own place
    "Documentation",
}


def test_the_slice_of_an_agent_has_the_daemon_s_own_default_name() -> None:
    dashed = ["-" * count + "a" * (63 - count) for count in range(64)]
    names = ["coder", "a-b", "-p", "a.b_c", *dashed]
    assert core("map core.defaultSlice names", names=names) == [default_slice(name) for name in names]


def test_every_key_of_the_daemon_can_be_set() -> None:
    kinds = core("builtins.mapAttrs (_: builtins.attrNames) core.settingsKinds")
    known = {f"{section}.{key}" if section else key for section, keys in kinds.items() for key in keys}
    assert known == {key.name for key in KEYS}


@pytest.mark.parametrize("name", sorted(FROM_OPTIONS))
def test_a_setting_that_an_option_makes_is_refused(name: str) -> None:
    [fault] = core('core.settingsFaults "settings" settings', settings=nested(tuple(name.split(".")), "x"))
    assert fault.startswith(f"settings.{name}: is set by ")


def test_the_daemon_reads_the_configuration_that_is_written_for_it(tmp_path: Path) -> None:
    agent = {
        "user": "alice",
        "listenAddress": "127.0.0.1",
        "port": 20515,
        "workDir": str(tmp_path),
        "environment": {"LANG": "C.UTF-8"},
        "secretEnvironment": {"KEY": "/run/secrets/key"},
        "settings": {"umask": "0027", "limits": {"max_running": 2}},
        "mcpServers": {"docs": {"url": URL, "availableToSubagents": True}, "private": {"command": "/bin/x"}},
        "limits": {
            **dict.fromkeys(("MemoryHigh", "MemorySwapMax", "CPUWeight", "OOMPolicy")),
            "slice": "agents.slice",
            "MemoryMax": "2G",
            "TasksMax": 100,
        },
    }
    rendered = core(CONFIGURATION, agent=agent, name="coder", uid=1001)
    config = load(tmp_path, tomli_w.dumps(rendered))
    assert [address.text for address in config.listen] == ["127.0.0.1:20515"]
    assert [server.name for server in config.mcp_servers if server.available_to_subagents] == ["docs"]
    assert (config.umask, config.limits.max_running, config.scopes.slice) == (0o27, 2, "agents.slice")
    assert (config.scopes.memory_max, config.scopes.tasks_max) == (2 * 1024**3, 100)


def test_the_daemon_checks_a_configuration_where_its_work_dir_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sandbox in which the system is built has no home folders; the modules run just this command."""
    file = tmp_path / "config.toml"
    file.write_text('work_dir = "/nowhere/at/all"\n')
    assert main(["--config", str(file), "--work-dir", "/", "--check"]) == 0
    file.write_text('work_dir = "/nowhere/at/all"\ncolour = "red"\n')
    assert main(["--config", str(file), "--work-dir", "/", "--check"]) == 2
    assert "colour: unknown key" in capsys.readouterr().err


@pytest.mark.parametrize(("manager", "uid"), [("system", 1001), ("system", 0), ("user", 1001)])
def test_units_say_what_the_daemon_s_own_unit_files_say(manager: str, uid: int) -> None:
    agent = AGENT | {"manager": manager, "uid": uid, "user": "alice" if uid else "root"}
    made = core(f"core.unitFiles (core.unitsOf [ agent ]).{manager}", agent=agent)
    wanted = Wanted(
        account=Account(agent["user"], uid),
        program=Path("/opt/bin/daemon"),
        listen=(TcpAddress("127.0.0.1", 20515),),
        path=agent["path"],
        agent="coder",
    )
    files: UnitFiles = user_units(wanted) if manager == "user" else system_units(wanted)
    for file in files.files:
        ours, theirs = read_unit(made[file.name]), read_unit(file.text)
        if manager == "user":
            assert ours.pop(("Unit", "ConditionUser")) == {"alice"}
        assert ours == theirs, file.name


def read_unit(text: str) -> dict[tuple[str, str], set[str]]:
    """Return each setting of a unit file by its section and key, dependencies and variables word by word."""
    settings: dict[tuple[str, str], set[str]] = {}
    section = ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            words = value.split() if section == "Unit" and key in ("Requires", "After") else [value]
            plain = {re.sub(r'^"(.*)"$', r"\1", word) for word in words}
            if key not in TOLD_APART:
                settings.setdefault((section, key), set()).update(map(normal, plain))
    return settings


def normal(value: str) -> str:
    """Return one spelling of a truth."""
    return {"true": "yes", "false": "no"}.get(value, value)
