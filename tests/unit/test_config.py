"""Configuration: where it comes from, what wins, and how everything wrong is reported."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from hive_subagent_daemon import config as config_module
from hive_subagent_daemon.config import (
    Config,
    FileValue,
    Flags,
    Limits,
    OnRestart,
    Retention,
    ScopeChoice,
    Scopes,
    TcpAddress,
    effective,
    find_config_file,
    load_config,
)
from hive_subagent_daemon.config_schema import KEYS
from hive_subagent_daemon.config_values import UNLIMITED, OomPolicy, Percent
from hive_subagent_daemon.errors import ConfigError
from tests.unit.config_loading import load, refusal

ALL_FLAGS = Flags(
    listen=("[::1]:0", "unix:/run/a.sock"),
    claude="/opt/claude",
    work_dir="/",
    state_dir="/var/lib/a",
    agent="bob",
    on_restart="stop",
    scopes="off",
    log_level="debug",
)


@pytest.fixture
def system_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the system-wide file into the test's folder."""
    file = tmp_path / "etc/config.toml"
    file.parent.mkdir()
    monkeypatch.setattr(config_module, "SYSTEM_FILE", file)
    return file


def usual(folder: Path, environ: dict[str, str] | None = None) -> Config:
    """Load without `--config`."""
    return load_config(
        config_file=None,
        flags=Flags(),
        environ=environ or {},
        cwd=folder,
        user_name="alice",
        home=folder / "home",
    )


def own_file(folder: Path, toml: str) -> Path:
    """Write the user's own file."""
    file = folder / "home/.config/hive-subagent/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(toml)
    return file


def test_an_empty_file_gives_the_defaults_of_the_contract(tmp_path: Path) -> None:
    assert load(tmp_path) == Config(
        agent="alice",
        claude="claude",
        work_dir=tmp_path,
        state_dir=tmp_path / "home/.local/state/hive-subagent/alice",
        listen=(TcpAddress("127.0.0.1", 7310),),
        on_restart=OnRestart.STOP,
        allow_root=False,
        umask=0o022,
        log_level="info",
        retention=Retention(closed_days=7, idle_days=90),
        environment={},
        scopes=Scopes(manager=ScopeChoice.AUTO, oom_policy=OomPolicy.CONTINUE),
        limits=Limits(8, 30.0, 360.0, 10_000_000),
        mcp_servers=(),
    )


@pytest.mark.usefixtures("system_file")
def test_without_any_file_the_defaults_are_those_of_an_empty_file(tmp_path: Path) -> None:
    assert usual(tmp_path) == load(tmp_path)


EVERY_KEY = """
agent = "bob"
claude = "claude-next"
work_dir = "/"
state_dir = "/var/lib/bob"
listen = ["localhost:1"]
on_restart = "stop"
allow_root = true
umask = "0077"
log_level = "warning"
[retention]
closed_days = 1
idle_days = 2
[environment]
A = "b"
[scopes]
manager = "system"
slice = "agents.slice"
memory_max = 1
memory_high = "40%"
memory_swap_max = "infinity"
tasks_max = 5
cpu_weight = 6
oom_policy = "stop"
[limits]
max_running = 3
exit_grace_seconds = 4
stall_after_seconds = 5.5
max_prompt_bytes = 6
"""


def test_every_key_of_the_file_reaches_the_configuration(tmp_path: Path) -> None:
    assert load(tmp_path, EVERY_KEY) == Config(
        agent="bob",
        claude="claude-next",
        work_dir=Path("/"),
        state_dir=Path("/var/lib/bob"),
        listen=(TcpAddress("localhost", 1),),
        on_restart=OnRestart.STOP,
        allow_root=True,
        umask=0o077,
        log_level="warning",
        retention=Retention(closed_days=1, idle_days=2),
        environment={"A": "b"},
        scopes=Scopes(ScopeChoice.SYSTEM, "agents.slice", 1, Percent(40), UNLIMITED, 5, 6, OomPolicy.STOP),
        limits=Limits(3, 4.0, 5.5, 6),
        mcp_servers=(),
    )


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    toml = """
        agent = "file"
        claude = "file"
        work_dir = "/nonexistent-but-overridden"
        state_dir = "/file"
        listen = ["127.0.0.1:1"]
        log_level = "error"
        scopes.manager = "auto"
    """
    loaded = load(tmp_path, toml, flags=ALL_FLAGS)
    assert [address.text for address in loaded.listen] == ["[::1]:0", "unix:/run/a.sock"]
    assert (loaded.agent, loaded.claude, loaded.log_level) == ("bob", "/opt/claude", "debug")
    assert (loaded.work_dir, loaded.state_dir) == (Path("/"), Path("/var/lib/a"))
    assert (loaded.scopes, loaded.on_restart) == (Scopes(ScopeChoice.OFF), OnRestart.STOP)


def test_the_users_own_file_comes_before_the_system_wide_one(tmp_path: Path, system_file: Path) -> None:
    system_file.write_text('agent = "system"')
    assert usual(tmp_path).agent == "system"
    own_file(tmp_path, 'agent = "own"')
    assert usual(tmp_path).agent == "own"


@pytest.mark.usefixtures("system_file")
def test_the_users_own_file_is_looked_for_in_xdg_config_home(tmp_path: Path) -> None:
    file = tmp_path / "xdg/hive-subagent/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('agent = "xdg"')
    own_file(tmp_path, 'agent = "dot config"')
    assert usual(tmp_path, {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}).agent == "xdg"


@pytest.mark.parametrize("ignored", ["", "relative/dir"])
@pytest.mark.usefixtures("system_file")
def test_an_xdg_variable_that_is_not_absolute_is_ignored(tmp_path: Path, ignored: str) -> None:
    own_file(tmp_path, "")
    loaded = usual(tmp_path, {"XDG_CONFIG_HOME": ignored, "XDG_STATE_HOME": ignored})
    assert loaded.state_dir == tmp_path / "home/.local/state/hive-subagent/alice"


@pytest.mark.usefixtures("system_file")
def test_home_of_the_environment_wins_over_the_password_database(tmp_path: Path) -> None:
    found = find_config_file(None, environ={"HOME": str(tmp_path)}, home=Path("/nonexistent"))
    assert found is None
    file = tmp_path / ".config/hive-subagent/config.toml"
    file.parent.mkdir(parents=True)
    file.touch()
    assert find_config_file(None, environ={"HOME": str(tmp_path)}, home=Path("/nonexistent")) == file


def test_a_dangling_link_is_an_error_and_not_passed_over(tmp_path: Path, system_file: Path) -> None:
    system_file.symlink_to("gone.toml")
    with pytest.raises(ConfigError, match="No such file or directory") as caught:
        usual(tmp_path)
    assert str(system_file) in str(caught.value)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"STATE_DIRECTORY": "/var/lib/a"}, "/var/lib/a"),
        ({"STATE_DIRECTORY": "/var/lib/a:/var/lib/b", "XDG_STATE_HOME": "/x"}, "/var/lib/a"),
        ({"STATE_DIRECTORY": "", "XDG_STATE_HOME": "/x"}, "/x/hive-subagent/alice"),
        ({"XDG_STATE_HOME": "/x"}, "/x/hive-subagent/alice"),
        ({"HOME": "/h"}, "/h/.local/state/hive-subagent/alice"),
    ],
)
def test_the_state_directory_has_its_default_from_the_environment(
    tmp_path: Path, environ: dict[str, str], expected: str
) -> None:
    assert load(tmp_path, environ=environ).state_dir == Path(expected)


def test_the_default_state_directory_carries_the_agents_name(tmp_path: Path) -> None:
    loaded = load(tmp_path, 'agent = "-b"', environ={"XDG_STATE_HOME": "/x"})
    assert loaded.state_dir == Path("/x/hive-subagent/-b")


def test_a_relative_configuration_file_is_taken_from_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "here.toml").write_text('agent = "here"')
    loaded = load_config(
        config_file=Path("here.toml"), flags=Flags(), environ={}, cwd=tmp_path, user_name="a", home=tmp_path
    )
    assert loaded.agent == "here"


@pytest.mark.parametrize(
    ("toml", "reason", "line"),
    [
        ("a = 1\nb == 2", "not valid TOML: ", "(at line 2, column 4)"),
        ("[a]\n\n[a]", "not valid TOML: ", "(at line 3, "),
        (b'agent = "x"\numask = "\xff"', "not UTF-8 ", "(at line 2)"),
    ],
)
def test_a_file_that_is_not_toml_names_the_line(
    tmp_path: Path, toml: str | bytes, reason: str, line: str
) -> None:
    message = refusal(tmp_path, toml)
    assert message.startswith(f"DIR/config.toml: {reason}")
    assert line in message


@pytest.mark.parametrize(
    "toml",
    ["a = " + "[" * 20_000, "a = " + "9" * 5_000, "#" * 1_048_577],
    ids=["deeply nested", "thousands of digits", "too large"],
)
def test_a_hostile_file_is_a_configuration_error(tmp_path: Path, toml: str) -> None:
    assert refusal(tmp_path, toml).startswith("DIR/config.toml: ")


def test_a_missing_file_and_a_directory_are_refused_by_name(tmp_path: Path) -> None:
    for file, reason in [("none.toml", "No such file or directory"), (".", "must be a regular file")]:
        with pytest.raises(ConfigError, match=reason) as caught:
            load_config(
                config_file=tmp_path / file,
                flags=Flags(),
                environ={},
                cwd=tmp_path,
                user_name="a",
                home=tmp_path,
            )
        assert str(tmp_path / file) in str(caught.value)


def test_a_working_directory_that_is_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the working directory: must be a path, in UTF-8"):
        load_config(
            config_file=None, flags=Flags(), environ={}, cwd=Path("/\udcff"), user_name="a", home=tmp_path
        )


NOT_SET = {"slice", "memory_max", "memory_high", "memory_swap_max", "tasks_max", "cpu_weight"}


def test_the_effective_configuration_shows_every_key_that_has_a_value(tmp_path: Path) -> None:
    """A key without a default that is not set is left out: TOML has no word for nothing."""
    assert {key.place for key in KEYS if key.default is None} == {
        ("auth", "token_file"),
        *(("scopes", name) for name in NOT_SET),
        *(("limits", name) for name in ("timeout_seconds", "max_budget_usd", "max_turns")),
    }
    loaded = load(tmp_path)
    shown = tomllib.loads(effective(loaded))
    assert shown["scopes"] == {"manager": "auto", "oom_policy": "continue"}
    for key in KEYS:
        value: Any = shown
        for name in key.place if key.default is not None else ():
            value = value[name]
    assert load(tmp_path, effective(loaded)) == loaded


def test_the_effective_configuration_shows_amounts_as_they_are_written(tmp_path: Path) -> None:
    toml = """
        [scopes]
        slice = "a-b.slice"
        memory_max = "2G"
        memory_high = "40%"
        memory_swap_max = 0
        tasks_max = "infinity"
        cpu_weight = 50
        oom_policy = "kill"
    """
    loaded = load(tmp_path, toml)
    assert tomllib.loads(effective(loaded))["scopes"] == {
        "manager": "auto",
        "slice": "a-b.slice",
        "memory_max": 2 * 1024**3,
        "memory_high": "40%",
        "memory_swap_max": 0,
        "tasks_max": "infinity",
        "cpu_weight": 50,
        "oom_policy": "kill",
    }
    assert load(tmp_path, effective(loaded)) == loaded


def test_the_effective_configuration_shows_file_values_by_their_path(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    loaded = load(tmp_path, 'environment.TOKEN = { file = "~/../token" }')
    assert loaded.environment == {"TOKEN": FileValue(tmp_path / "home/../token")}
    assert tomllib.loads(effective(loaded))["environment"] == {
        "TOKEN": {"file": f"{tmp_path}/home/../token"},
    }


def test_values_that_may_be_secret_are_in_no_repr(tmp_path: Path) -> None:
    toml = """
        environment.TOKEN = "s3cret"
        [mcp_servers.a]
        url = "https://host/?key=s3cret"
    """
    assert "s3cret" not in repr(load(tmp_path, toml))


def test_the_table_of_keys_is_that_of_the_contract() -> None:
    names = {key.name for key in KEYS}
    assert names == {
        *("agent", "claude", "work_dir", "state_dir", "listen", "on_restart", "allow_root", "umask"),
        *("idle_exit_seconds", "log_level", "retention.closed_days", "retention.idle_days", "environment"),
        *("scopes.manager", "scopes.slice", "scopes.memory_max", "scopes.memory_high"),
        *("scopes.memory_swap_max", "scopes.tasks_max", "scopes.cpu_weight", "scopes.oom_policy"),
        *("limits.max_running", "limits.exit_grace_seconds", "limits.stall_after_seconds"),
        *("limits.max_prompt_bytes", "limits.timeout_seconds", "limits.max_budget_usd"),
        *("limits.max_turns", "limits.max_depth", "auth.token_file", "auth.allow_uids"),
        *("loose_ends.sinks", "mcp_servers"),
    }
    assert len(names) == len(KEYS)


def test_each_flag_stands_for_one_key() -> None:
    assert {key.flag: key.name for key in KEYS if key.flag} == {
        "--listen": "listen",
        "--claude": "claude",
        "--work-dir": "work_dir",
        "--state-dir": "state_dir",
        "--agent": "agent",
        "--on-restart": "on_restart",
        "--scopes": "scopes.manager",
        "--log-level": "log_level",
    }
