"""A hook's command notices the end of whom it works for, whatever stands between."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import eventually, is_alive
from tests.support.scripted_daemon import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Plays claude: it runs a hook by a shell, as claude does, and tells its own pid and waits.
CLAUDE = """
import subprocess, sys, time
hook = subprocess.Popen({command!r}, shell=True, start_new_session=True, stderr={stderr})
print(hook.pid, flush=True)
time.sleep(600)
"""
# The hook: it tells its pid, waits, and writes down why it went.
HOOK = """
import os, pathlib
from hive_subagent_daemon.ancestors import Ancestors
ancestors = Ancestors()
pathlib.Path({pid!r}).write_text(str(os.getpid()))
went = ancestors.wait(seconds={seconds})
pathlib.Path({went!r}).write_text(str(went))
"""


class Family:
    """A stand-in of claude, the shell between, and the hook."""

    def __init__(self, folder: Path) -> None:
        """Nothing runs yet."""
        self._pid = folder / "pid"
        self._went = folder / "went"
        self._script = folder / "hook.py"
        self.claude: subprocess.Popen[str]

    def start(
        self, command: str = "{hook}; true", *, seconds: float = 60, stderr: str = "subprocess.DEVNULL"
    ) -> None:
        """Start claude with a hook that is run by this command of the shell."""
        self._script.write_text(HOOK.format(pid=str(self._pid), went=str(self._went), seconds=seconds))
        hook = command.format(hook=f"{sys.executable} {self._script}")
        self.claude = subprocess.Popen(
            [sys.executable, "-c", CLAUDE.format(command=hook, stderr=stderr)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )

    @property
    def shell(self) -> int:
        """Return the pid of the shell between, or of what it has become."""
        assert self.claude.stdout is not None
        return int(self.claude.stdout.readline())

    @property
    def hook(self) -> int:
        """Return the pid of the hook once it watches."""
        return int(eventually(lambda: self._pid.exists() and self._pid.read_text(), within=10))

    def went(self) -> str:
        """Return what the hook's wait gave, once it is over."""
        return str(eventually(lambda: self._went.exists() and self._went.read_text(), what="the hook's end"))

    def end(self) -> None:
        """Leave nothing."""
        self.claude.kill()
        self.claude.wait()
        if self.claude.stdout is not None:
            self.claude.stdout.close()
        if self._pid.exists() and is_alive(int(self._pid.read_text())):
            os.kill(int(self._pid.read_text()), signal.SIGKILL)


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    """Use a family that is ended afterwards."""
    made = Family(tmp_path)
    yield made
    made.end()


@pytest.mark.parametrize(
    "command", ["{hook}; true", "exec {hook}", "/bin/sh -c '{hook}; true'; true"], ids=["sh", "exec", "sh-sh"]
)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_hook_goes_when_claude_is_killed(family: Family, command: str, number: signal.Signals) -> None:
    family.start(command)
    hook = family.hook
    family.claude.send_signal(number)
    assert family.went() == "False"
    eventually(lambda: not is_alive(hook))


def test_a_hook_goes_when_its_shell_is_killed(family: Family) -> None:
    family.start()
    shell = family.shell
    assert family.hook != shell
    os.kill(shell, signal.SIGKILL)
    assert family.went() == "False"


def test_a_hook_stays_while_claude_lives(family: Family) -> None:
    family.start(seconds=0.3)
    assert family.went() == "True"


def test_a_hook_without_a_stderr_goes_at_once(family: Family) -> None:
    family.start("{hook} 2>&-; true", seconds=60)
    assert family.went() == "False"


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_a_hook_goes_when_nobody_reads_its_stderr_any_more(tmp_path: Path, kind: str) -> None:
    """Also where its parent is not claude: a program that was handed the hook's ends."""
    if kind == "pipe":
        reading, writing = os.pipe()
    else:
        pair = [end.detach() for end in socket.socketpair()]
        reading, writing = pair
    script = HOOK.format(pid=str(tmp_path / "pid"), went=str(tmp_path / "went"), seconds=60)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen([sys.executable, "-c", script], stderr=writing, env=environment) as hook:
        os.close(writing)
        eventually((tmp_path / "pid").exists, within=10)
        assert hook.poll() is None
        os.close(reading)
        hook.wait(5)
    assert (tmp_path / "went").read_text() == "False"


def test_a_readable_descriptor_ends_the_wait(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    script = (
        "import sys; from hive_subagent_daemon.ancestors import Ancestors; "
        f"sys.exit(7 if Ancestors().wait(beside={reading}, seconds=60) else 0)"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    words = [sys.executable, "-c", script]
    with subprocess.Popen(words, pass_fds=[reading], env=environment, cwd=tmp_path) as waiting:
        os.write(writing, b"x")
        assert waiting.wait(10) == 7
    os.close(reading)
    os.close(writing)
