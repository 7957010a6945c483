"""The command for hooks: when it is meant, how little it imports, and that it never fails loudly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import syslog
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon import client_main, notices_main
from hive_subagent_daemon.notices_client import Ended, Refused, Unreachable, from_url
from tests.support.scripted_daemon import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hive_subagent_daemon.notices_client import Address, Told

SLOW = {"mcp", "anyio", "asyncio", "pydantic", "click", "rich", "argparse", "http.client", "dataclasses"}
STOP = json.dumps({"session_id": "s", "hook_event_name": "Stop"}).encode()


def run(code: str, content: bytes = STOP) -> subprocess.CompletedProcess[bytes]:
    """Run Python that has the command at hand, with something on stdin."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)}
    words = [sys.executable, "-c", code]
    return subprocess.run(words, input=content, capture_output=True, env=environment, check=False, timeout=30)


@pytest.mark.parametrize(
    "words",
    [
        ["notices"],
        ["notices", "--url", "http://h/mcp"],
        ["--url", "http://h/mcp", "notices"],
        ["--url=http://h/mcp", "notices"],
        ["--socket", "notices", "notices"],
        ["--bogus", "notices"],
        ["notices", "status"],
    ],
)
def test_the_command_is_meant_wherever_its_options_stand(words: list[str]) -> None:
    assert notices_main.is_meant(words)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["status"],
        ["status", "notices"],
        ["start", "notices", "prompt.md"],
        ["--url", "notices", "status"],
        ["--socket=notices", "status"],
        ["--help"],
    ],
)
def test_another_command_is_not_mistaken_for_it(words: list[str]) -> None:
    assert not notices_main.is_meant(words)


def test_every_entry_hands_over(monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[Sequence[str]] = []

    def main(words: Sequence[str]) -> int:
        came.append(words)
        return 2

    monkeypatch.setattr(notices_main, "main", main)
    assert client_main.main(["--url", "x", "notices"]) == 2
    monkeypatch.setattr(sys, "argv", ["hive-subagent", "notices", "more"])
    assert client_main.main() == 2
    assert came == [["--url", "x", "notices"], ["notices", "more"]]


def test_people_get_their_commands_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["hive-subagent", "--version"])
    assert client_main.main() == 0
    assert capsys.readouterr().out.strip()


def test_a_hook_imports_nothing_slow() -> None:
    done = run("import sys, hive_subagent_daemon.client_main; print(*sys.modules)")
    assert not SLOW & {*done.stdout.decode().split()}, done.stderr


def test_what_nobody_thought_of_is_silence_too() -> None:
    code = (
        "import sys; from hive_subagent_daemon import notices_main as n\n"
        "n.wait = lambda *_: 1 / 0\n"
        "sys.exit(n.main(['notices']))"
    )
    done = run(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize(
    ("told", "code", "noted"),
    [
        ({"reason": "notices", "text": "alpha: completed"}, 2, False),
        ({"reason": "notices", "text": ""}, 0, False),
        ({"reason": "notices"}, 0, False),
        ({"reason": "notices", "text": ["x"]}, 0, False),
        ({"reason": "nothing", "text": "x"}, 0, False),
        ({"reason": "released"}, 0, False),
        ({"reason": "something new", "text": "x"}, 0, False),
        ({}, 0, False),
        (Refused(403), 0, False),
        (Ended(), 0, False),
        (Unreachable(), 0, False),
        (Unreachable(heard=True), 0, True),
    ],
)
def test_only_a_notice_wakes_and_only_a_lost_daemon_is_noted(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    told: Told,
    code: int,
    *,
    noted: bool,
) -> None:
    lines: list[str] = []
    asked: list[tuple[Address, str]] = []

    def answered(address: Address, query: str, _ancestors: object) -> Told:
        asked.append((address, query))
        return told

    monkeypatch.setattr(notices_main, "ask_until_told", answered)
    monkeypatch.setattr(syslog, "syslog", lambda _priority, line: lines.append(line))
    address = from_url("http://127.0.0.1:1/mcp")
    assert address is not None
    assert notices_main.wait(address, "s-1") == code
    assert capfd.readouterr().err == ("alpha: completed\n" if code else "")
    assert bool(lines) == noted
    assert all("ten minutes" in line for line in lines)
    assert asked[0][1].startswith("session=s-1&show=next&waiter=")
