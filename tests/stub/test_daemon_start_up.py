"""Starting the daemon: what it refuses, what it says, and what SIGHUP changes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.stub.facts import about
from tests.stub.steps import endless, held, success
from tests.support.daemon_harness import REPOSITORY, Setting, toml
from tests.support.processes import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stub.conftest import MakeDaemon
    from tests.support.daemon_harness import Daemon

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has to be allowed")


def fails_to_start(daemon: Daemon) -> str:
    """Start a daemon that must refuse, and return what it said."""
    code = daemon.spawn().wait(15)
    daemon.process = None
    assert code != 0
    assert "Traceback" not in daemon.log
    return daemon.log


@about("decision-16", "facts-7-root")
@as_root
def test_root_without_allow_root_is_refused(make_daemon: MakeDaemon) -> None:
    """It names the key."""
    assert "allow_root" in fails_to_start(make_daemon(Setting(top={"allow_root": False})))


@about("case-H6", "facts-7-root")
@as_root
def test_allow_root_sets_the_sandbox_mark_for_the_child(own_daemon: Daemon) -> None:
    """Claude refuses root without it; the stub does as well."""
    assert own_daemon.play("a", success())["outcome"] == "completed"


WRONG = [
    pytest.param({"colour": "blue"}, ("colour",), id="unknown-key"),
    pytest.param({"on_restart": "maybe"}, ("on_restart", "stop"), id="unknown-value"),
    pytest.param(
        {"idle_exit_seconds": 5}, ("idle_exit_seconds", "not available in this version"), id="idle-exit"
    ),
    pytest.param({"auth": {"allow_uids": [-1]}}, ("allow_uids", "numeric uids"), id="no-uid"),
    pytest.param({"work_dir": 7}, ("work_dir",), id="wrong-type"),
    pytest.param({"listen": ["0.0.0.0:0"]}, ("0.0.0.0",), id="not-loopback"),
    pytest.param({"umask": "999"}, ("umask",), id="umask"),
    pytest.param({"scopes": {"manager": "docker"}}, ("manager", "user"), id="no-such-manager"),
    pytest.param({"scopes": {"memory_max": "lots"}}, ("memory_max", "512M"), id="no-amount"),
    pytest.param({"limits": {"max_running": 0}}, ("max_running",), id="zero-turns"),
    pytest.param(
        {"limits": {"max_prompt_bytes": 20_000_000}}, ("max_prompt_bytes",), id="above-claudes-limit"
    ),
    pytest.param(
        {"mcp_servers.x": {"available_to_subagents": True}}, ("url", "command"), id="a-server-of-neither"
    ),
    pytest.param({"environment": {"A": {"fil": "/x"}}}, ("environment", "A"), id="an-environment-value"),
]


@pytest.mark.parametrize(("settings", "words"), WRONG)
def test_a_wrong_configuration_is_refused_and_named(
    tmp_path: Path, settings: dict[str, Any], words: tuple[str, ...]
) -> None:
    """Key, file and allowed values are told, by `--check` too."""
    path = tmp_path / "config.toml"
    path.write_text(toml({"state_dir": tmp_path / "state", "allow_root": True} | settings))
    done = daemon_command("--config", str(path), "--check")
    assert done.returncode != 0
    assert str(path) in done.stderr
    assert all(word in done.stderr for word in words), done.stderr
    assert "Traceback" not in done.stderr


def daemon_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the daemon's command to its end."""
    words = [sys.executable, "-m", "hive_subagent_daemon.daemon_main", *arguments]
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=20, check=False)


def test_check_prints_the_effective_configuration(make_daemon: MakeDaemon) -> None:
    """Flags win over the file, the file over defaults; nothing is started or made."""
    daemon = make_daemon()
    done = daemon_command("--config", str(daemon.write_config()), "--check", "--agent", "other")
    assert done.returncode == 0, done.stderr
    assert "other" in done.stdout
    assert str(daemon.work) in done.stdout
    assert not daemon.state.exists()


def test_an_address_that_is_taken_is_a_clear_refusal(make_daemon: MakeDaemon) -> None:
    """It names the address."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = fails_to_start(make_daemon(Setting(top={"listen": [f"127.0.0.1:{port}"]})))
    assert str(port) in said


def test_a_work_dir_that_is_missing_is_named(make_daemon: MakeDaemon) -> None:
    """At start-up already: no turn could run there."""
    assert "/no/such/folder" in fails_to_start(make_daemon(Setting(top={"work_dir": "/no/such/folder"})))


@about("decision-20")
def test_sighup_reads_the_limits_again(make_daemon: MakeDaemon) -> None:
    """An invalid file is reported and the old values stay; running turns go on."""
    daemon = make_daemon(Setting(limits={"max_running": 1})).boot()
    assert daemon.process is not None
    daemon.start("a", held("go"))
    recipe = str(daemon.work / "recipe.md")
    assert "max_running" in daemon.refused("start", name="b", prompt_file=recipe)
    config = daemon.folder / "config.toml"
    good = config.read_text()
    config.write_text(good.replace('"max_running" = 1', '"max_running" = "many"'))
    offset = len(daemon.log)
    daemon.process.send_signal(signal.SIGHUP)
    eventually(lambda: "max_running" in daemon.log[offset:], what="a report of the wrong value")
    assert "max_running" in daemon.refused("start", name="b", prompt_file=recipe)
    config.write_text(good.replace('"max_running" = 1', '"max_running" = 2'))
    daemon.script("b", endless())
    daemon.process.send_signal(signal.SIGHUP)
    eventually(lambda: not daemon.call("start", name="b", prompt_file=recipe).is_error)
    assert daemon.status_of("a")["state"] == "running"
    daemon.open_gate("go")
    assert daemon.loose_end("a")["outcome"] == "completed"


def test_no_prompt_and_no_environment_is_logged(make_daemon: MakeDaemon) -> None:
    """Not even at the most talkative level."""
    setting = Setting(top={"log_level": "debug"}, environment={"API_KEY": "sk-very-secret"})
    daemon = make_daemon(setting).boot()
    (daemon.work / "recipe.md").write_text("confidential recipe")
    daemon.play("a", success("confidential answer"), success(), trigger="confidential trigger")
    daemon.resume("a", "confidential prompt")
    assert "confidential" not in daemon.log
    assert "sk-very-secret" not in daemon.log
