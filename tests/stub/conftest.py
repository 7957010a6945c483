"""Fixtures of the stub tier: the scripted claude as a program, and daemons that run it."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.stub.stub_sessions import VERSION
from tests.support.daemon_harness import REPOSITORY, Daemon, Setting

MakeDaemon = Callable[..., Daemon]
TRACEBACK = re.compile(r"^[ |+]*(?:Exception Group )?Traceback", re.MULTILINE)
_names = itertools.count(1)


def write_claude(path: Path, *, version: str = VERSION) -> Path:
    """Write the program that plays claude: a fast start of Python with the stub's code."""
    interpreter = Path(sys.executable).resolve()
    lines = [
        f"#!{interpreter} -IS",
        "import sys",
        f"sys.path.insert(0, {str(REPOSITORY)!r})",
        "from tests.stub import claude_stub",
        f"claude_stub.VERSION = {version!r}",
        "claude_stub.main()",
    ]
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o755)
    return path


def assert_without_fault(log: str) -> None:
    """Fail when the daemon met an error that it did not expect."""
    found = TRACEBACK.search(log)
    assert found is None, f"an unexpected error:\n{log[found.start() :][:5000]}"


@pytest.fixture(scope="session")
def claude_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of the scripted claude."""
    return write_claude(tmp_path_factory.mktemp("bin") / "claude")


@pytest.fixture(scope="module")
def module_daemon(tmp_path_factory: pytest.TempPathFactory, claude_program: Path) -> Iterator[Daemon]:
    """Run one daemon for the tests of a module."""
    daemon = Daemon(tmp_path_factory.mktemp("daemon"), claude_program).boot()
    yield daemon
    daemon.shut()


@pytest.fixture
def daemon(module_daemon: Daemon) -> Iterator[Daemon]:
    """Lend the module's daemon to a test; afterwards it lives, has seen no fault and runs no turn."""
    if module_daemon.process is None or module_daemon.process.poll() is not None:
        module_daemon.boot()
    offset = len(module_daemon.log)
    yield module_daemon
    assert module_daemon.process is not None
    assert module_daemon.process.poll() is None, f"the daemon died:\n{module_daemon.log[-5000:]}"
    module_daemon.end_all_turns()
    assert_without_fault(module_daemon.log[offset:])


@pytest.fixture
def make_daemon(tmp_path: Path, claude_program: Path) -> Iterator[MakeDaemon]:
    """Return a maker of daemons of the test's own; all of them are stopped afterwards."""
    made: list[Daemon] = []

    def make(setting: Setting | None = None, *, claude: Path = claude_program) -> Daemon:
        made.append(Daemon(tmp_path / f"d{len(made)}", claude, setting))
        return made[-1]

    yield make
    for one in made:
        one.shut()
    for one in made:
        assert_without_fault(one.log)


@pytest.fixture
def own_daemon(make_daemon: MakeDaemon) -> Daemon:
    """Run a usual daemon that belongs to one test alone."""
    return make_daemon().boot()


@pytest.fixture(autouse=True)
def stands_for(request: pytest.FixtureRequest) -> str:
    """Return the facts and cases that a test names with `about`; they are part of its id."""
    return str(getattr(request, "param", ""))


@pytest.fixture
def name() -> str:
    """Return a subagent name that no other test uses."""
    return f"agent-{next(_names)}"


@pytest.fixture
def own_claude(tmp_path: Path) -> Path:
    """Return a scripted claude that the test may spoil."""
    return write_claude(tmp_path / "claude")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 96 MiB that the test may fill; skip where mounting is not allowed."""
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    words = [mount, "-t", "tmpfs", "-o", "size=96m,mode=0700", "stub-disk", str(folder)]
    if subprocess.run(words, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system is not allowed here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
