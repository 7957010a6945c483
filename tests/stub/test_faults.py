"""System calls of the daemon fail, one at a time and all at once, and no turn is lost for it."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
from typing import TYPE_CHECKING

import pytest

from tests.stub.daemon_forks import Forks
from tests.stub.fault_layer import Fault
from tests.stub.fault_story import Failing, tell
from tests.stub.kill_story import GONE, check, lay_out, quiet, write_recording_claude
from tests.stub.kill_story import tell as tell_until_killed
from tests.support.daemon_harness import Daemon, Setting
from tests.support.mcp_call import HttpError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEED = 20260102
USUAL_ONCE = 24
USUAL_LASTING = 6
USUAL_RECOVERIES = 8
USUAL_LIMIT_SECONDS = 240
LONG_LIMIT_SECONDS = 2400
TRACEBACK = re.compile(r"^[ |+]*(?:Exception Group )?Traceback", re.MULTILINE)


class Faults:
    """Lets daemons meet faults, each in a folder of its own, and gathers what went wrong."""

    def __init__(self, folder: Path, forks: Forks) -> None:
        """Begin with no fault."""
        self.folder = folder
        self.forks = forks
        self.tried = 0
        self.losses: list[str] = []

    def daemon(self) -> Daemon:
        """Return a fresh daemon that is not booted yet, with the story laid out."""
        folder = self.folder / f"{self.tried:04d}"
        folder.mkdir()
        daemon = Daemon(folder, write_recording_claude(folder / "claude"), Setting(limits={"max_running": 8}))
        lay_out(daemon)
        return daemon

    def operations(self) -> list[str]:
        """Return the operations of the whole story, in order."""
        daemon = self.daemon()
        trace = daemon.folder / "trace"
        failing = Failing(daemon, None)
        fork = self.forks.boot(daemon, trace=trace, faults=failing.order())
        tell(failing)
        assert fork.stop() == 0
        found = trace.read_text().splitlines()
        shutil.rmtree(daemon.folder)
        return found

    def operations_of_recovery(self) -> list[str]:
        """Return the operations of the start-up after a crash with a living turn."""
        daemon = self.daemon()
        self.crash(daemon)
        trace = daemon.folder / "trace"
        fork = self.forks.boot(daemon, trace=trace, faults=Failing(daemon, None).order())
        assert fork.stop() == 0
        found = trace.read_text().splitlines()
        shutil.rmtree(daemon.folder)
        return found

    def crash(self, daemon: Daemon) -> list[str]:
        """Kill a daemon with a turn that lives and one that ended unseen; return what it had confirmed."""
        fork = self.forks.boot(daemon, instant="after launch #3")
        confirmed = tell_until_killed(daemon)
        assert fork.is_gone(within=1.0)
        fork.kill()
        quiet(daemon)
        return confirmed.turns

    def withstand(self, fault: Fault) -> None:
        """Tell the story with this fault in it; then check, restart and check again."""
        daemon = self.daemon()
        self.tried += 1
        failing = Failing(daemon, fault)
        try:
            fork = self.forks.boot(daemon, faults=failing.order())
            if fork.is_gone():
                check_refusal_to_boot(daemon, fork.ends())
                failing.heal()
                fork = self.forks.boot(daemon)
            try:
                confirmed = tell(failing)
                assert daemon.processes() == []
            finally:
                failing.heal()
                assert fork.stop() == 0
            found = TRACEBACK.search(daemon.log)
            assert found is None, f"unexpected: {daemon.log[found.start() :][:3000]}"
            fork = self.forks.boot(daemon)
            try:
                check(daemon, confirmed)
            finally:
                assert fork.stop() == 0
                daemon.shut()
        except (AssertionError, *GONE, TimeoutError, HttpError) as error:
            self.losses.append(f"{fault} ({daemon.folder}): {error!r}\n{daemon.log[-1500:]}")
            for pid in daemon.processes():
                os.kill(pid, signal.SIGKILL)
        else:
            shutil.rmtree(daemon.folder)

    def conclude(self, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
        """Print the figures and fail if anything was lost."""
        with capsys.disabled():
            print(f"\n{kind}: {self.tried} tried, {len(self.losses)} with a loss")
        assert not self.losses, "\n\n".join(self.losses)


def check_refusal_to_boot(daemon: Daemon, code: int) -> None:
    """A daemon that cannot start says why in one sentence, and how to go on."""
    assert code > 0
    assert TRACEBACK.search(daemon.log) is None, daemon.log
    assert "cannot be used" in daemon.log


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    """Return what forks daemons."""
    with Forks() as program:
        yield program


@pytest.fixture
def faults(tmp_path: Path, forks: Forks) -> Faults:
    """Return a gatherer of faults for one test."""
    return Faults(tmp_path, forks)


def chosen(operations: list[str], most: int) -> list[str]:
    """Return the same operations each time, of as many kinds as possible."""
    chance = random.Random(SEED)
    kinds: dict[str, list[str]] = {}
    for operation in operations:
        kinds.setdefault(operation.rpartition(" #")[0], []).append(operation)
    firsts = [chance.choice(found) for found in kinds.values()]
    return chance.sample(firsts, min(most, len(firsts)))


@pytest.mark.timeout(USUAL_LIMIT_SECONDS)
def test_a_system_call_that_fails_once_loses_nothing(
    faults: Faults, capsys: pytest.CaptureFixture[str]
) -> None:
    """EIO at one operation of the story, of each kind in turn."""
    for operation in chosen(faults.operations(), USUAL_ONCE):
        faults.withstand(Fault("EIO", operation))
    faults.conclude("system calls that failed once (some)", capsys)


@pytest.mark.long
@pytest.mark.timeout(LONG_LIMIT_SECONDS)
@pytest.mark.parametrize("error", ["EIO", "ENOMEM", "EMFILE"])
def test_no_system_call_that_fails_once_loses_anything(
    error: str, faults: Faults, capsys: pytest.CaptureFixture[str]
) -> None:
    """Likewise at every operation."""
    for operation in faults.operations():
        faults.withstand(Fault(error, operation))
    faults.conclude(f"system calls that failed once with {error} (all)", capsys)
