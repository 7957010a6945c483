"""What a turn inherits: an environment by policy, private files, and nothing of the daemon's own."""

from __future__ import annotations

import resource
import stat
from typing import TYPE_CHECKING

import pytest

from tests.stub.conftest import write_claude
from tests.stub.facts import about
from tests.stub.steps import dump, held, success
from tests.support.daemon_harness import Daemon, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.stub.conftest import MakeDaemon

FORBIDDEN = {
    "NOTIFY_SOCKET": "/run/none",
    "WATCHDOG_USEC": "30000000",
    "WATCHDOG_PID": "1",
    "LISTEN_FDS": "1",
    "LISTEN_PID": "1",
    "LISTEN_FDNAMES": "mcp",
    "INVOCATION_ID": "0123",
    "JOURNAL_STREAM": "8:1",
    "STATE_DIRECTORY": "/none",
    "RUNTIME_DIRECTORY": "/none",
    "CACHE_DIRECTORY": "/none",
    "LOGS_DIRECTORY": "/none",
    "CONFIGURATION_DIRECTORY": "/none",
    "CREDENTIALS_DIRECTORY": "/none",
    "CLAUDECODE": "1",
    "CLAUDE_CODE_ENTRYPOINT": "cli",
    "CLAUDE_CODE_SESSION_ID": "1-2-3",
    "CLAUDE_CODE_CHILD_SESSION": "1",
    "CLAUDE_CODE_MAX_RETRIES": "7",
    "CLAUDE_EFFORT": "high",
    "CLAUDE_JOB_DIR": "/none",
    "AI_AGENT": "claude",
    "ANTHROPIC_MODEL": "junk",
    "TRACEPARENT": "00-1-2-3",
}
PASSED_ON = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "EDITOR": "vi", "EMPTY": "", "CLAUDE_CONFIG_DIR": ""}
C_LIBRARYS_OWN = 1 << 31 | 1 << 32
IGNORING = ("env", "--ignore-signal=HUP,USR1,PIPE", "--block-signal=USR2,INT")


@pytest.fixture(scope="module")
def loaded_daemon(tmp_path_factory: pytest.TempPathFactory, claude_program: Path) -> Iterator[Daemon]:
    """Run a daemon in an environment full of what must not be passed on."""
    folder = tmp_path_factory.mktemp("loaded")
    secret = folder / "secret"
    secret.write_text("from-a-file\n")
    own = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "99", "TOKEN": {"file": secret}, "EDITOR": "ed"}
    outer = FORBIDDEN | PASSED_ON | {"CLAUDE_CONFIG_DIR": str(folder / "claude-config")}
    setting = Setting(environment=own, outer_environment=outer)
    daemon = Daemon(folder, claude_program, setting).boot()
    yield daemon
    daemon.shut()


def environment(daemon: Daemon, name: str) -> dict[str, str]:
    """Play one turn and return the environment that claude got."""
    daemon.play(name, [dump(f"{name}.dump"), *success()])
    found: dict[str, str] = daemon.seen(f"{name}.dump")["environment"]
    return found


@about("case-F9", "case-D6", "facts-11-scrub")
def test_nothing_of_systemd_and_no_outer_claude_reaches_the_child(loaded_daemon: Daemon, name: str) -> None:
    """Neither nested-launch refusals nor another shell's provider variables."""
    seen = environment(loaded_daemon, name)
    assert {key: seen[key] for key in FORBIDDEN if key in seen} == {}
    assert not [key for key in seen if key.startswith(("LISTEN_", "WATCHDOG_"))]


def test_the_rest_of_the_daemons_environment_does(loaded_daemon: Daemon, name: str) -> None:
    """What a person set for the daemon holds for its turns."""
    seen = environment(loaded_daemon, name)
    assert seen["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:9"
    assert seen["EMPTY"] == ""
    assert seen["HOME"] == str(loaded_daemon.home)
    assert seen["CLAUDE_CONFIG_DIR"].endswith("claude-config")


def test_the_configured_environment_comes_last(loaded_daemon: Daemon, name: str) -> None:
    """It may set a CLAUDE_CODE variable on purpose, override, and read secrets from files."""
    seen = environment(loaded_daemon, name)
    assert seen["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "99"
    assert seen["EDITOR"] == "ed"
    assert seen["TOKEN"] == "from-a-file"
    assert "from-a-file" not in loaded_daemon.log


def test_a_secret_is_read_again_at_each_spawn(loaded_daemon: Daemon, name: str) -> None:
    """And when the file is gone, the call is refused without telling the value."""
    secret = loaded_daemon.folder / "secret"
    secret.write_text("rotated")
    assert environment(loaded_daemon, name)["TOKEN"] == "rotated"
    secret.unlink()
    recipe = str(loaded_daemon.work / "recipe.md")
    assert "TOKEN" in loaded_daemon.refused("start", name=f"{name}-x", prompt_file=recipe)
    secret.write_text("from-a-file\n")


@about("facts-6-config-dir")
def test_sessions_are_archived_in_the_config_directory_of_the_child(loaded_daemon: Daemon, name: str) -> None:
    """Wherever its environment puts that."""
    first = loaded_daemon.play(name, success())
    loaded_daemon.play(name, success())
    projects = loaded_daemon.folder / "claude-config" / "projects"
    assert [path.name for path in projects.rglob("*.archived")].count(
        f"{first['session_id']}.jsonl.archived"
    ) == 1


@about("facts-12-no-address-space-limit")
def test_no_limit_of_the_daemons_own_is_inherited(daemon: Daemon, name: str) -> None:
    """A limit on address space would keep claude from starting."""
    daemon.play(name, [dump(f"{name}.dump"), *success()])
    own = resource.getrlimit(resource.RLIMIT_AS)
    assert tuple(daemon.seen(f"{name}.dump")["address_space"]) == own


@about("case-D7", "facts-11-session-persistence")
def test_a_turn_is_marked_as_ours_with_persistence_on_and_updates_off(
    loaded_daemon: Daemon, name: str
) -> None:
    """Hooks of our own plugin stay silent in it."""
    turn = loaded_daemon.start(name, [dump(f"{name}.dump"), *success()]).content["turn"]
    seen = loaded_daemon.seen(f"{name}.dump")["environment"]
    loaded_daemon.loose_end(name)
    assert seen["HIVE_SUBAGENT_TURN"] == turn
    assert seen["CLAUDE_CODE_FORCE_SESSION_PERSISTENCE"] not in {"", "0"}
    assert seen["DISABLE_AUTOUPDATER"] not in {"", "0"}


@about("facts-5-pipe-not-drained")
def test_the_three_files_are_regular_private_and_the_only_ones(daemon: Daemon, name: str) -> None:
    """Not pipes, and no socket or directory of the daemon leaks."""
    turn = daemon.start(name, [dump(f"{name}.dump"), *held(f"{name}.go")]).content["turn"]
    files = daemon.seen(f"{name}.dump")["files"]
    folder = daemon.turn_folder(turn)
    assert {number: files[number]["target"] for number in "012"} == {
        "0": str(folder / "stdin"),
        "1": str(folder / "stdout"),
        "2": str(folder / "stderr"),
    }
    assert all(stat.S_ISREG(files[number]["mode"]) for number in "012")
    assert all(stat.S_IMODE(files[number]["mode"]) == 0o600 for number in "012")
    leaked = [one["target"] for number, one in files.items() if number not in "012"]
    marks = (str(daemon.state), "socket:", "anon_inode:", "pipe:")
    assert not [target for target in leaked if target.startswith(marks)]
    daemon.open_gate(f"{name}.go")


def test_everything_in_the_state_directory_is_private(daemon: Daemon, name: str) -> None:
    """Folders 0700, files 0600, while a turn runs and afterwards."""
    daemon.start(name, held(f"{name}.go"), success())
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in [daemon.state, *daemon.state.rglob("*")]}
    daemon.open_gate(f"{name}.go")
    daemon.loose_end(name)
    modes |= {path: stat.S_IMODE(path.lstat().st_mode) for path in daemon.state.rglob("*")}
    wrong = {str(path): oct(mode) for path, mode in modes.items() if mode & 0o077}
    assert wrong == {}


def test_the_turn_has_a_session_of_its_own(daemon: Daemon, name: str) -> None:
    """So that the whole group can be signalled, and a terminal's signals do not reach it."""
    pid = daemon.start(name, [dump(f"{name}.dump"), *success()]).content["pid"]
    seen = daemon.seen(f"{name}.dump")
    assert (seen["process_group"], seen["session"]) == (pid, pid)


@pytest.mark.parametrize(("configured", "expected"), [(None, "0022"), ("0027", "0027")])
def test_the_umask_is_the_configured_one_whatever_the_daemons_own(
    make_daemon: MakeDaemon, configured: str | None, expected: str
) -> None:
    """The default is 0022."""
    top = {} if configured is None else {"umask": configured}
    prefix = ("sh", "-c", 'umask 0077; exec "$@"', "sh")
    daemon = make_daemon(Setting(top=top, prefix=prefix)).boot()
    daemon.play("a", [dump("a.dump"), *success()])
    assert daemon.seen("a.dump")["umask"] == expected


@about("facts-3-handlers")
def test_signal_dispositions_and_mask_are_reset(
    make_daemon: MakeDaemon, claude_program: Path, tmp_path: Path
) -> None:
    """Whatever the daemon inherited or set for itself, claude starts with the defaults."""
    wrapper = tmp_path / "claude-wrapper"
    # Builtins only: a shell that waits for a child has every signal blocked.
    lines = [
        "#!/bin/sh",
        f'while read -r line; do echo "$line"; done < /proc/$$/status > {tmp_path}/status.$$',
        f'exec {claude_program} "$@"',
    ]
    wrapper.write_text("\n".join(lines) + "\n")
    wrapper.chmod(0o755)
    daemon = make_daemon(Setting(prefix=IGNORING), claude=wrapper).boot()
    pid = daemon.start("a", success()).content["pid"]
    daemon.loose_end("a")
    status = (tmp_path / f"status.{pid}").read_text().splitlines()
    masks = dict(line.split(":") for line in status if line.startswith(("SigBlk", "SigIgn")))
    assert {name: int(mask, 16) & ~C_LIBRARYS_OWN for name, mask in masks.items()} == {
        "SigBlk": 0,
        "SigIgn": 0,
    }


@about("case-D7")
def test_the_program_is_fixed_and_its_version_is_told(make_daemon: MakeDaemon, own_claude: Path) -> None:
    """A running turn is not touched by an upgrade, and the next one runs the new program."""
    daemon = make_daemon(claude=own_claude).boot()
    daemon.start("a", held("go", "from the old one"), success("from the new one"))
    replacement = write_claude(own_claude.with_name("claude.new"), version="2.1.999")
    replacement.rename(own_claude)
    daemon.open_gate("go")
    assert daemon.loose_end("a")["text"] == "from the old one"
    assert daemon.resume("a")["text"] == "from the new one"
    assert str(daemon.ok("status").content["claude_version"]).startswith("2.1.999")


SERVERS: dict[str, dict[str, object]] = {
    "mcp_servers.docs": {"url": "http://127.0.0.1:9/mcp", "available_to_subagents": True},
    "mcp_servers.tool": {"command": "tool", "args": ["-v"], "available_to_subagents": True},
    "mcp_servers.private": {"url": "http://127.0.0.1:8/mcp"},
}


@about("case-H7", "facts-9-http-without-type")
def test_only_opted_in_servers_are_rendered(make_daemon: MakeDaemon) -> None:
    """To a private file, with `type` filled in."""
    daemon = make_daemon(Setting(tables=SERVERS)).boot()
    daemon.play("a", [dump("a.0"), *success()], [dump("a.1"), *success()])
    daemon.resume("a")
    for number in range(2):
        rendered = daemon.seen(f"a.{number}")["mcp_config"]
        assert rendered["mode"] == "0600"
        servers = rendered["content"]["mcpServers"]
        assert set(servers) == {"docs", "tool"}
        assert (servers["docs"]["type"], servers["tool"]["type"]) == ("http", "stdio")
        assert "available_to_subagents" not in servers["docs"]


@about("case-H7")
def test_no_opted_in_server_means_no_mcp_configuration(make_daemon: MakeDaemon) -> None:
    """Zero servers, not an empty file."""
    table: dict[str, dict[str, object]] = {"mcp_servers.private": {"url": "http://127.0.0.1:8/mcp"}}
    daemon = make_daemon(Setting(tables=table)).boot()
    daemon.play("a", [dump("a.dump"), *success()])
    assert daemon.seen("a.dump")["mcp_config"] is None
