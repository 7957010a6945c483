"""`doctor`: what it looks at, what it says to do, and the code that tells whether all is well."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hive_subagent_daemon import cgroups, managers
from hive_subagent_daemon.cli import checks
from hive_subagent_daemon.cli.checks import Verdict, login
from hive_subagent_daemon.client_main import main
from hive_subagent_daemon.errors import RefusedError
from tests.support.fake_subagents import FakeSubagents
from tests.support.sample_answers import IDLE, RUNNING, STATUS
from tests.support.scripted_daemon import toml
from tests.support.served_tools import served_on_tcp

if TYPE_CHECKING:
    from collections.abc import Iterator

LOGGED_IN = '{"loggedIn": true, "authMethod": "api_key", "apiKeySource": "ANTHROPIC_API_KEY"}'
LOGGED_OUT = '{"loggedIn": false, "authMethod": "none"}'


@dataclass(frozen=True)
class Surroundings:
    """A machine for one test: its folder, the service that answers, and the configuration."""

    folder: Path
    subagents: FakeSubagents

    def configure(self, **settings: object) -> None:
        """Write the configuration where the daemon looks for it."""
        usual: dict[str, Any] = {
            "allow_root": True,
            "work_dir": str(self.folder),
            "state_dir": str(self.folder / "state"),
            "claude": str(self.folder / "claude"),
            "scopes": {"manager": "off"},
        }
        path = self.folder / "config/hive-subagent/config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(toml(usual | settings))

    def install(self, auth: str = LOGGED_IN, *, version: str = "2.1.197 (Claude Code)") -> None:
        """Write a claude that knows its version and its login."""
        program = self.folder / "claude"
        program.write_text(
            f"#!/bin/sh\ncase $1 in\n--version) echo '{version}' ;;\nauth) echo '{auth}'; exit 1 ;;\nesac\n"
        )
        program.chmod(0o755)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Surroundings]:
    """Serve a daemon that is well, on a machine that is well."""
    subagents = FakeSubagents()
    subagents.answers["status"] = STATUS | {"launcher": "user scope"}
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(cgroups, "is_unified", lambda: True)
    monkeypatch.setattr(cgroups, "controllers", lambda _: frozenset({"memory", "pids"}))
    with served_on_tcp(subagents) as url:
        monkeypatch.setenv("HIVE_SUBAGENT_URL", url)
        made = Surroundings(tmp_path, subagents)
        made.configure()
        made.install()
        yield made


def report(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, str]]:
    """Return what was found of each check, and its fix."""
    found: dict[str, tuple[str, str]] = {}
    what = ""
    for line in capsys.readouterr().out.splitlines():
        if line.startswith(" "):
            found[what] = (found[what][0], line.strip().removeprefix("fix: "))
        else:
            what = line[6:20].strip()
            found[what] = (f"{line[:5].strip()} {line[21:]}", "")
    return found


def test_all_is_well_on_a_machine_that_is_well(
    here: Surroundings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor"]) == 0
    found = report(capsys)
    assert found["configuration"][0] == f"ok {here.folder}/config/hive-subagent/config.toml"
    assert found["claude"][0] == f"ok {here.folder}/claude, 2.1.197 (Claude Code)"
    assert found["login"][0].startswith("ok there is one (ANTHROPIC_API_KEY)")
    assert found["daemon"][0].endswith("claude 2.1.197")
    assert found["turns"][0] == "ok run in scopes (user scope)"
    assert {"cgroup", "state dir", "work dir", "clock"} <= found.keys()


def test_another_configuration_may_be_named(here: Surroundings, capsys: pytest.CaptureFixture[str]) -> None:
    other = here.folder / "other.toml"
    other.write_text("nonsense = 1\n")
    assert main(["doctor", "--config", str(other)]) == 1
    said, fix = report(capsys)["configuration"]
    assert said.startswith(f"FAIL {other}: nonsense: unknown key")
    assert "--check" in fix


FAULTS = [
    pytest.param({"claude": "/nonexistent/claude"}, "claude", "does not exist", id="no-claude"),
    pytest.param({"claude": "/bin/true"}, "claude", "does not tell its version", id="no-version"),
    pytest.param({"state_dir": "/dev/null/x"}, "state dir", "cannot be written", id="state-dir"),
]


@pytest.mark.parametrize(("settings", "check", "said"), FAULTS)
def test_a_fault_of_the_machine_is_code_1_and_has_a_fix(
    here: Surroundings,
    capsys: pytest.CaptureFixture[str],
    settings: dict[str, Any],
    check: str,
    said: str,
) -> None:
    here.configure(**settings)
    assert main(["doctor"]) == 1
    found, fix = report(capsys)[check]
    assert found.startswith("FAIL")
    assert said in found
    assert fix


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (LOGGED_IN, Verdict.GOOD),
        (LOGGED_OUT, Verdict.BAD),
        (json.dumps({"loggedIn": True, "loginExpiresAt": "2020-01-01T00:00:00Z"}), Verdict.BAD),
        (json.dumps({"loggedIn": True, "loginExpiresAt": "2999-01-01T00:00:00Z"}), Verdict.GOOD),
        ("error: unknown command 'auth'", Verdict.NOTE),
        ("[]", Verdict.NOTE),
        (None, Verdict.NOTE),
    ],
)
def test_the_login_is_judged_by_what_claude_tells_without_asking_anybody(
    answer: str | None, verdict: Verdict
) -> None:
    found = login(answer)
    assert found.verdict is verdict
    assert (found.fix == "") is (verdict is Verdict.GOOD)


def test_a_claude_that_hangs_is_given_up(here: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    (here.folder / "claude").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(checks, "CLAUDE_SECONDS", 0.1)
    assert main(["doctor"]) == 1


def test_without_a_manager_auto_is_a_note_and_user_a_failure(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(managers, "COMING_UP_SECONDS", 0.0)
    monkeypatch.setattr(cgroups, "is_unified", lambda: False)
    here.configure(scopes={"manager": "auto"})
    assert main(["doctor"]) == 0
    assert report(capsys)["systemd"][0].startswith("note no manager makes scopes")
    here.configure(scopes={"manager": "user"})
    assert main(["doctor"]) == 1
    said, fix = report(capsys)["systemd"]
    assert said.startswith("FAIL")
    assert "cgroup v2 is not mounted" in fix


def test_lingering_matters_to_the_users_own_manager_alone(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cgroups, "is_unified", lambda: False)
    monkeypatch.setattr(checks, "_LINGER", here.folder)
    monkeypatch.setattr(
        checks.Machine,
        "here",
        lambda: checks.Machine(managers.User(4711, "alice"), here.folder, {}, Path.cwd()),
    )
    config = str(here.folder / "config/hive-subagent/config.toml")
    here.configure(scopes={"manager": "auto"})
    assert main(["doctor", "--config", config]) == 0
    assert report(capsys)["linger"][1] == "loginctl enable-linger alice"
    (here.folder / "alice").touch()
    main(["doctor", "--config", config])
    assert report(capsys)["linger"][0].startswith("ok")
    here.configure()
    main(["doctor", "--config", config])
    assert "linger" not in report(capsys)


def test_root_without_leave_is_told(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here.configure(allow_root=False)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert main(["doctor"]) == 1
    assert "allow_root" in report(capsys)["user"][1]


def test_a_daemon_that_is_not_there_is_code_3(here: Surroundings, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--socket", str(here.folder / "none")]) == 3
    said, fix = report(capsys)["daemon"]
    assert said.startswith("FAIL No daemon at the socket")
    assert "systemctl" in fix


def test_a_daemon_that_refuses_is_code_1(here: Surroundings, capsys: pytest.CaptureFixture[str]) -> None:
    here.subagents.answers["status"] = RefusedError("You are uid 7, which may not call.")
    assert main(["doctor"]) == 1
    assert "You are uid 7" in report(capsys)["access"][0]


@pytest.mark.parametrize(
    ("answer", "check", "said"),
    [
        ({"undelivered": 3}, "sinks", "FAIL 3 loose ends wait for a sink"),
        ({"warnings": ["the disk is full\x1b["]}, "warning", "note the disk is full\\x1b["),
        ({"launcher": "process group"}, "turns", "note run as process groups, without memory limits"),
        (
            {"subagents": [IDLE | {"turn": "29990101_000000_000_aaaa"}]},
            "clock",
            "FAIL the last turn",
        ),
        ({"subagents": [RUNNING | {"memory_limit_bytes": 2**31}]}, "limit", "ok reviewer: 2.0G of memory"),
    ],
)
def test_what_the_daemon_knows_is_told(
    here: Surroundings, capsys: pytest.CaptureFixture[str], answer: dict[str, Any], check: str, said: str
) -> None:
    here.subagents.answers["status"] = STATUS | {"launcher": "user scope"} | answer
    assert main(["doctor"]) == ("FAIL" in said)
    assert report(capsys)[check][0].startswith(said)


def test_a_configured_limit_that_a_turn_lacks_is_a_failure(
    here: Surroundings, capsys: pytest.CaptureFixture[str]
) -> None:
    here.subagents.answers["status"] = STATUS | {"launcher": "user scope"}
    here.configure(scopes={"manager": "off", "memory_max": "2G"})
    assert main(["doctor"]) == 1
    assert "reviewer runs without the configured memory_max (" in report(capsys)["limit"][0]
