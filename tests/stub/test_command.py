"""The command of people against a real daemon: in a terminal, in a pipe, over a restart of the daemon."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon.cli.completion import SHELLS
from tests.stub.steps import (
    api_error,
    endless,
    forever,
    held,
    init,
    success,
    tool_use,
)
from tests.support.daemon_harness import REPOSITORY, Daemon, Setting
from tests.support.processes import eventually
from tests.support.terminal import Terminal, terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.stub.conftest import MakeDaemon

LONG = "a-very-long-name-of-a-subagent-that-somebody-has-chosen-for-fun"
SIGINT_CODE = 130


def environment(daemon: Daemon, folder: Path) -> dict[str, str]:
    """Return the environment of somebody who calls this daemon, with the command on the PATH."""
    folder.mkdir(exist_ok=True)
    program = folder / "hive-subagent"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m hive_subagent_daemon.client_main "$@"\n')
    program.chmod(0o755)
    return {
        "PATH": f"{folder}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": str(REPOSITORY),
        "HIVE_SUBAGENT_URL": f"http://127.0.0.1:{daemon.port}/mcp",
        "HOME": str(folder),
    }


@pytest.fixture
def at(daemon: Daemon, tmp_path: Path) -> dict[str, str]:
    """Return the environment of a caller of the module's daemon."""
    return environment(daemon, tmp_path / "bin")


@pytest.fixture
def screen(at: dict[str, str], tmp_path: Path) -> Iterator[Terminal]:
    """Open a terminal of 80 columns and 24 lines."""
    with terminal(tmp_path, at) as made:
        yield made


def called(at: dict[str, str], *words: str, code: int = 0) -> str:
    """Run the command in a pipe, which must end with this code, and return what it prints."""
    ended = subprocess.run(
        ["hive-subagent", *words], env=at, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == code, ended.stderr
    return ended.stdout


def test_the_table_fits_80_columns_and_is_coloured(daemon: Daemon, screen: Terminal) -> None:
    daemon.start("busy", [init(), tool_use("Bash"), forever()])
    eventually(lambda: daemon.status_of("busy")["activity"]["kind"] == "tool")
    daemon.start(LONG, endless())
    daemon.play("done", success("\x1b]0;owned\x07"))
    daemon.play("limited", api_error(429, "You have hit your limit · resets 5pm", error="rate_limit"))
    screen.run(["hive-subagent", "status"])
    shown = screen.shows(r"^code 0$")
    assert [line.split() for line in shown.splitlines() if line.startswith("NAME")] == [
        ["NAME", "STATE", "AGE", "TURN", "MEMORY", "COST", "DOING"]
    ]
    lines = shown.splitlines()
    [busy] = [line for line in lines if line.startswith("busy ")]
    assert busy.split()[1] == "running"
    assert "Bash" in busy
    first = next(index for index, line in enumerate(lines) if line.startswith(LONG[:16]))
    assert "".join(line.split()[0] for line in lines[first : first + 4]).startswith(LONG), "folded, not cut"
    coloured = screen.text(escapes=True)
    assert "\x1b[32mrunning" in coloured
    assert "\x1b[31mfailed" in coloured


@pytest.mark.parametrize("setting", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}], ids=str)
def test_without_colour_nothing_is_coloured_and_everything_is_said(
    daemon: Daemon, screen: Terminal, setting: dict[str, str]
) -> None:
    daemon.start("busy", endless())
    screen.run(["hive-subagent", "status"], **setting)
    screen.shows(r"^busy +running ")
    screen.shows(r"^code 0$")
    assert not [code for code in range(30, 38) if f"\x1b[{code}m" in screen.text(escapes=True)]


def test_a_live_table_follows_and_outlives_the_daemon_and_ctrl_c_ends_it_quietly(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    daemon = make_daemon().boot()
    daemon.start("busy", held("go"))
    at = environment(daemon, tmp_path / "bin")
    with terminal(tmp_path, at) as screen:
        screen.run(["hive-subagent", "status", "--watch"])
        screen.shows(r"1 running .*\n\nNAME +STATE[^$]*^busy +running ")
        daemon.open_gate("go")
        screen.shows(r"1 idle .*\n\nNAME[^$]*^busy +idle .* completed$")
        daemon.stop()
        screen.shows(r"^Not answering for \ds, trying again\. No daemon at ")
        screen.resize(columns=40, lines=12)
        assert max(map(len, screen.shows(r"^busy +idle ").splitlines())) <= 40
        daemon.setting = Setting(top={"listen": [f"127.0.0.1:{daemon.port}"]})
        daemon.boot()
        screen.shows(r"1 idle .*\n\nNAME")
        screen.keys("C-c")
        left = screen.shows(rf"^code {SIGINT_CODE}$")
        assert "busy" in left, "the last table stays"
        assert "Traceback" not in left
        assert "Aborted" not in left


def test_a_live_table_that_is_ended_from_outside_gives_the_screen_back(
    daemon: Daemon, screen: Terminal, tmp_path: Path
) -> None:
    daemon.start("busy", endless())
    screen.keys("-l", f"hive-subagent status --watch & echo $! > {tmp_path}/pid; wait $!; echo code $?")
    screen.keys("Enter")
    screen.shows(r"1 running.*\n\nNAME")
    assert screen.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag}") == "1 0\n"
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)
    assert "busy" in screen.shows(r"^code 143$")
    assert screen.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag}") == "0 1\n"


def test_a_live_table_of_more_than_fits_keeps_to_its_screen(daemon: Daemon, screen: Terminal) -> None:
    for number in range(26):
        daemon.start(f"busy-{number}", [init(), tool_use("Bash"), forever()])
    screen.run(["hive-subagent", "status", "--watch"])
    shown = screen.shows(r"^… \d+ more: this screen")
    assert "26 running" in shown.splitlines()[0]
    assert len(shown.rstrip("\n").splitlines()) <= 24
    screen.keys("C-c")
    screen.shows(rf"^code {SIGINT_CODE}$")


def test_watching_in_a_pipe_is_a_line_for_each_change(daemon: Daemon, at: dict[str, str]) -> None:
    daemon.start("piped", held("piped.go"))
    words = ["hive-subagent", "status", "piped", "--watch"]
    with subprocess.Popen(words, env=at, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        first = watching.stdout.readline()
        assert "piped: running" in first
        assert "\x1b" not in first
        daemon.open_gate("piped.go")
        while "idle" not in (line := watching.stdout.readline()):
            assert "piped: running" in line
        assert line.endswith("piped: idle, completed\n")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(10) == SIGINT_CODE


def test_waiting_shows_a_line_that_goes_and_then_how_it_ended(daemon: Daemon, screen: Terminal) -> None:
    daemon.start("one", held("one.go"))
    daemon.start("two", endless())
    screen.run(["hive-subagent", "wait", "one", "two"])
    screen.shows(r"^\d+s waiting for 2: one \(model")
    daemon.open_gate("one.go")
    screen.shows(r"^one: completed, .*\n\d+s waiting for 1: two \(model")
    daemon.ok("interrupt", name="two")
    ended = screen.shows(r"^code 1$")
    assert "two: killed by SIGINT, cause interrupt" in ended
    assert "waiting" not in ended


def test_waiting_in_a_pipe_says_only_how_it_ended(daemon: Daemon, at: dict[str, str]) -> None:
    daemon.play("one", success())
    assert called(at, "wait", "one").startswith("one: completed, ")


def test_waiting_outlives_a_restart_of_the_daemon(make_daemon: MakeDaemon, tmp_path: Path) -> None:
    daemon = make_daemon().boot()
    daemon.start("one", endless())
    with terminal(tmp_path, environment(daemon, tmp_path / "bin")) as screen:
        screen.run(["hive-subagent", "wait", "one"])
        screen.shows(r"^\d+s waiting for 1: one ")
        daemon.stop()
        screen.shows(r"Still waiting\.$")
        daemon.setting = Setting(top={"listen": [f"127.0.0.1:{daemon.port}"]})
        daemon.boot()
        ended = screen.shows(r"^code 1$")
    assert "one: killed by SIGINT, cause daemon stopped" in ended
    assert ended.count("Still waiting.") == 1


def test_the_log_of_a_turn_is_read_where_the_daemons_claude_keeps_it(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    config_dir = tmp_path / "elsewhere"
    daemon = make_daemon(Setting(environment={"CLAUDE_CONFIG_DIR": str(config_dir)})).boot()
    daemon.start("one", held("go"), trigger="Do \x1b[2Jit.")
    at = environment(daemon, tmp_path / "bin")
    words = ["hive-subagent", "log", "one", "-f"]
    with subprocess.Popen(words, env=at, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert following.stdout.readline().endswith("> Do \\x1b[2Jit.\n")
        daemon.open_gate("go")
        assert following.communicate(timeout=20)[0].startswith("-- completed, ")
    assert following.returncode == 0
    shutil.rmtree(config_dir / "projects")
    called(at, "log", "one", code=1)


def test_a_name_with_a_dash_is_shown_after_two_dashes(daemon: Daemon, at: dict[str, str]) -> None:
    daemon.start("-p", endless())
    assert "-p\n  state:       running" in called(at, "status", "--", "-p")
    listed = json.loads(called(at, "status", "--json", "--", "-p"))["subagents"]
    assert [one["name"] for one in listed] == ["-p"]


def test_doctor_finds_the_daemon_and_its_claude(daemon: Daemon, at: dict[str, str]) -> None:
    ended = subprocess.run(
        ["hive-subagent", "doctor", "--config", str(daemon.folder / "config.toml")],
        env=at | daemon.environment() | {"PATH": at["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "ok    daemon " in ended.stdout, ended.stderr
    assert f"ok    claude         {daemon.claude}, 2.1.197" in ended.stdout
    assert ended.returncode in (0, 1)


COMPLETED = {
    "bash": (
        "source {script}; COMP_WORDS=(hive-subagent {words}); COMP_CWORD={at};"
        ' _hive_subagent_completion hive-subagent; printf "%s\\n" "${{COMPREPLY[@]}}"'
    ),
    "fish": "source {script}; complete -C 'hive-subagent {words}' | cut -f 1",
}


@pytest.mark.parametrize("shell", COMPLETED)
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("sta", ["start", "status"]),
        ("interrupt bee", ["bee-1", "bee-2"]),
        ("wait bee-1 bee", ["bee-2"]),
        ("log lo", ["lo-fi"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_shells_complete_commands_and_names(
    daemon: Daemon, at: dict[str, str], tmp_path: Path, shell: str, words: str, expected: list[str]
) -> None:
    program = shutil.which(shell) or pytest.skip(f"needs {shell} (a Debian package)")
    daemon.start("bee-1", endless())
    daemon.start("bee-2", endless())
    daemon.play("lo-fi", success())
    script = tmp_path / "script"
    script.write_text(called(at, "completion", shell))
    line = COMPLETED[shell].format(script=script, words=words, at=len(words.split()))
    ended = subprocess.run(
        [program, "-c", line], env=at, capture_output=True, text=True, timeout=60, check=True
    )
    assert (sorted(ended.stdout.split()), ended.stderr) == (expected, "")


def test_zsh_completes_names(daemon: Daemon, at: dict[str, str], tmp_path: Path) -> None:
    daemon.start("zebra-1", endless())
    (tmp_path / "script").write_text(called(at, "completion", "zsh"))
    with terminal(tmp_path, at, shell="zsh -f") as screen:
        screen.keys("-l", f"autoload -U compinit; compinit -u -d {tmp_path}/dump; source {tmp_path}/script")
        screen.keys("Enter")
        screen.keys("-l", "clear")
        screen.keys("Enter")
        screen.keys("-l", "hive-subagent interrupt zeb")
        screen.keys("Tab")
        screen.shows(r"hive-subagent interrupt zebra-1$")


@pytest.mark.parametrize("shell", SHELLS)
def test_without_a_daemon_nothing_is_completed_and_nothing_is_said(at: dict[str, str], shell: str) -> None:
    asking = {
        "HIVE_SUBAGENT_URL": "http://127.0.0.1:1/mcp",
        "_HIVE_SUBAGENT_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": "hive-subagent log ",
        "COMP_CWORD": "2",
    }
    ended = subprocess.run(["hive-subagent"], env=at | asking, capture_output=True, timeout=30, check=False)
    assert (ended.stdout.strip(), ended.stderr) == (b"", b"")
