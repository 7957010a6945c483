"""`hive-subagent notices` wakes nobody by mistake: whatever is wrong, it is silent and its code is 0."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.stub.steps import held, success
from tests.support.daemon_harness import Setting
from tests.support.hooks import SILENCE, WAKE, Hook, connections, hook, hook_input, waiting_hook
from tests.support.processes import eventually, is_alive
from tests.support.scripted_daemon import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stub.conftest import MakeDaemon
    from tests.support.daemon_harness import Daemon

STOP = hook_input("Stop", "session-1")


@pytest.fixture(scope="module")
def open_daemon(module_daemon: Daemon) -> Daemon:
    """Use a daemon with an open loose end, so that a hook that asks for it would wake its parent."""
    module_daemon.play("alpha", success("not for everybody"))
    return module_daemon


def claims(daemon: Daemon) -> list[str]:
    """Return the sessions that something was claimed for."""
    return [path.stem for path in (daemon.state / "notices").iterdir()]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"Stop"',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        STOP[:-1],
        b'{"hook_event_name": "Stop"}',
        b'{"hook_event_name": "Stop", "session_id": null}',
        b'{"hook_event_name": "Stop", "session_id": 7}',
        b'{"hook_event_name": "Stop", "session_id": ["x"]}',
        b'{"session_id": "quiet"}',
        b'{"session_id": "quiet", "hook_event_name": null}',
        hook_input("SubagentStop", "quiet"),
        hook_input("PreToolUse", "quiet"),
        hook_input("stop", "quiet"),
        hook_input("Stop", ""),
        hook_input("Stop", "../../x"),
        hook_input("Stop", "/etc/passwd"),
        hook_input("Stop", ".."),
        hook_input("Stop", "-p"),
        hook_input("Stop", "a b"),
        hook_input("Stop", "a&show=open"),
        hook_input("Stop", "a\r\nX-Y: z"),
        hook_input("Stop", "a\0b"),
        hook_input("Stop", "ä" * 20),
        hook_input("Stop", "\ud800"),
        hook_input("Stop", "x" * 10_000),
    ],
)
def test_input_that_means_nothing_is_silence(open_daemon: Daemon, content: bytes) -> None:
    before = claims(open_daemon)
    assert Hook(open_daemon.port, content).told() == SILENCE
    assert claims(open_daemon) == before


def test_endless_input_is_silence(open_daemon: Daemon) -> None:
    huge = b'{"session_id": "endless", "hook_event_name": "Stop", "x": "' + b"x" * 70_000_000
    assert Hook(open_daemon.port, huge).told() == SILENCE
    assert "endless" not in claims(open_daemon)


@pytest.mark.parametrize("event", ["Stop", "UserPromptSubmit"])
def test_a_long_prompt_and_broken_characters_beside_the_session_do_not_matter(
    open_daemon: Daemon, event: str
) -> None:
    fields = hook_input(event, f"long-{event}", prompt="x" * 10_000_000)[:-1]
    told = Hook(open_daemon.port, fields + b', "y": "\xff\xfe"}').told()
    assert "not for everybody" in (told.stderr if event == "Stop" else told.stdout)
    assert told.code == (WAKE if event == "Stop" else 0)


@pytest.mark.parametrize(
    "words",
    [
        ("notices", "--bogus"),
        ("--bogus", "notices"),
        ("notices", "more"),
        ("notices", "--url"),
        ("notices", "--socket"),
        ("notices", "--url", "https://127.0.0.1:1/mcp"),
        ("notices", "--url="),
        ("notices", "--url", "not an address"),
        ("notices", "--url=http://127.0.0.1:1/mcp"),
        ("notices", "--json"),
        ("notices", "--token-file"),
        ("notices", "--socket", "/s", "--url", "http://127.0.0.1:1/mcp"),
        ("notices", "-v"),
    ],
)
def test_options_that_cannot_be_meant_are_silence(open_daemon: Daemon, words: tuple[str, ...]) -> None:
    session = "options"
    environment = {"HIVE_SUBAGENT_URL": "http://127.0.0.1:1/mcp"} if "--url=" in words else {}
    told = Hook(open_daemon.port, hook_input("Stop", session), words=words, environment=environment).told()
    assert told == SILENCE
    assert session not in claims(open_daemon)


@pytest.mark.parametrize("url", ["https://127.0.0.1:1/mcp", "nonsense", "http://127.0.0.1:1/mcp"])
def test_an_address_in_the_environment_that_is_wrong_is_silence(open_daemon: Daemon, url: str) -> None:
    assert Hook(open_daemon.port, STOP, environment={"HIVE_SUBAGENT_URL": url}).told() == SILENCE


@pytest.mark.parametrize("path", ["/mcp/nowhere", "/healthz"])
def test_an_answer_of_something_else_is_silence(open_daemon: Daemon, path: str) -> None:
    url = f"http://127.0.0.1:{open_daemon.port}{path}"
    assert Hook(open_daemon.port, STOP, words=("notices", "--url", url)).told() == SILENCE


def test_help_is_for_people(open_daemon: Daemon) -> None:
    told = Hook(open_daemon.port, b"", words=("notices", "--help")).told()
    assert (told.code, told.stderr) == (0, "")
    assert "--socket PATH" in told.stdout


def test_inside_a_turn_it_ends_before_it_has_read_anything(open_daemon: Daemon) -> None:
    inside = Hook(open_daemon.port, None, environment={"HIVE_SUBAGENT_TURN": "20260131_120000_000_abcd"})
    assert inside.process.wait(10) == 0
    assert inside.told() == SILENCE


@pytest.fixture
def waiting(own_daemon: Daemon) -> Iterator[Hook]:
    """Use a hook that waits for a turn that does not end."""
    own_daemon.start("alpha", held("go"))
    with waiting_hook(own_daemon.port) as made:
        yield made


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_a_wait_silently(waiting: Hook, number: signal.Signals) -> None:
    waiting.process.send_signal(number)
    assert waiting.told() == SILENCE


# Runs a hook by a shell, as claude does, with its own ends of the pipes.
CLAUDE = """
import subprocess, sys
hook = subprocess.Popen(
    ["/bin/sh", "-c", {command!r} + "; exit $?"], start_new_session=True,
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
)
hook.stdin.write({content!r})
hook.stdin.close()
hook.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_with_its_parent_a_waiting_hook_ends_and_leaves_no_process(
    own_daemon: Daemon, number: signal.Signals
) -> None:
    own_daemon.start("alpha", held("go"))
    url = f"http://127.0.0.1:{own_daemon.port}/mcp"
    command = f"{sys.executable} -m hive_subagent_daemon.client_main notices --url={url}"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)}
    script = CLAUDE.format(command=command, content=STOP)
    with subprocess.Popen([sys.executable, "-c", script], env=environment) as claude:
        running = eventually(lambda: waiting_with(url), within=10, what="a waiting hook")
        claude.send_signal(number)
    eventually(lambda: not any(map(is_alive, running)), within=3, what="no process left")
    own_daemon.open_gate("go")
    own_daemon.loose_end("alpha")
    assert hook(own_daemon.port).told().code == WAKE, "nothing was claimed for a parent that is gone"


def waiting_with(url: str) -> list[int]:
    """Return the hook that was given this address, as soon as it waits."""
    commands = [path for path in Path("/proc").glob("[0-9]*/cmdline") if url in path.read_text()]
    pids = [int(path.parent.name) for path in commands if "notices\0" in path.read_text()]
    return pids if any(connections(pid) for pid in pids) else []


def test_a_hook_whose_text_nobody_can_read_does_not_wake_or_claim(open_daemon: Daemon) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)}
    environment["HIVE_SUBAGENT_URL"] = f"http://127.0.0.1:{open_daemon.port}/mcp"
    words = [sys.executable, "-m", "hive_subagent_daemon.client_main", "notices"]
    for stderr in (writing, None):
        ended = subprocess.run(
            words if stderr else ["/bin/sh", "-c", f"{' '.join(words)} 2>&-"],
            input=hook_input("Stop", "unheard"),
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment,
            check=False,
        )
        assert (ended.returncode, ended.stdout) == (0, b"")
    os.close(writing)
    assert "unheard" not in claims(open_daemon)


def fill(path: Path) -> None:
    """Write a file until nothing more fits on the disk."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def test_on_a_full_disk_nobody_is_woken_before_the_claim_is_stored(
    make_daemon: MakeDaemon, small_disk: Path
) -> None:
    daemon = make_daemon(Setting(top={"state_dir": small_disk / "state"})).boot()
    daemon.play("alpha", success("kept"))
    daemon.start("beta", held("go"))
    filler = small_disk / "filler"
    (small_disk / "state" / "ballast").unlink()
    fill(filler)
    with waiting_hook(daemon.port) as waiting:
        eventually(lambda: "held back" in daemon.log, what="the daemon's word about it")
        assert hook(daemon.port, "UserPromptSubmit", "other").told() == SILENCE
        assert waiting.process.poll() is None
        assert claims(daemon) == []
        filler.unlink()
        told = waiting.told()
    assert told.code == WAKE
    assert "> kept" in told.stderr
    assert claims(daemon) == ["session-1"]
    daemon.open_gate("go")
    daemon.loose_end("beta")
