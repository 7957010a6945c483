"""System calls of the daemon fail, one at a time and all at once, and no turn is lost for it."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.stub.daemon_forks import Forks
from tests.stub.fault_layer import Fault
from tests.stub.fault_story import Failing, tell
from tests.stub.kill_story import GONE, NAME, check, lay_out, quiet, write_recording_claude
from tests.stub.kill_story import tell as tell_until_killed
from tests.stub.steps import init, reach, result, success, wait_for
from tests.support.daemon_harness import Daemon, Setting
from tests.support.mcp_call import HttpError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import TellFigure
    from tests.stub.daemon_forks import Fork
    from tests.stub.kill_story import Confirmed

SEED = 20260102
USUAL_ONCE = 22
USUAL_LASTING = 10
USUAL_RECOVERIES = 8
USUAL_LIMIT_SECONDS = 240
LONG_LIMIT_SECONDS = 2400
CRASH = "after launch #3"  # one turn lives, two have ended
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

    def fault(self, operation: str, error: str, *, lasting: bool) -> Fault:
        """Return a fault for the next daemon; a lasting one has its file in that daemon's folder."""
        while_there = self.folder / f"{self.tried:04d}" / "failing"
        return Fault(error, operation, str(while_there) if lasting else None)

    def operations(self) -> list[str]:
        """Return the operations of the whole story, in order."""
        daemon = self.daemon()
        failing = Failing(daemon, None)
        fork = self.forks.boot(daemon, trace=daemon.folder / "trace", faults=failing.order())
        tell(failing)
        return traced(daemon, fork)

    def operations_of_recovery(self) -> list[str]:
        """Return the operations of the start-up after a crash, in order."""
        daemon = self.daemon()
        self.crash(daemon)
        fork = self.forks.boot(daemon, trace=daemon.folder / "trace", faults=Failing(daemon, None).order())
        return traced(daemon, fork)

    def crash(self, daemon: Daemon) -> Confirmed:
        """Kill a daemon in the middle of the story, its last turn alive."""
        fork = self.forks.boot(daemon, instant=CRASH)
        confirmed = tell_until_killed(daemon)
        assert fork.is_gone(within=1.0)
        fork.kill()
        quiet(daemon)
        return confirmed

    def withstand(self, fault: Fault) -> None:
        """Tell the story with this fault in it; then check, restart and check again."""
        with self.gathering(fault) as daemon:
            failing = Failing(daemon, fault)
            fork = self.booted(failing)
            try:
                confirmed = tell(failing)
                assert daemon.processes() == []
            finally:
                failing.heal()
                assert fork.stop() == 0
            self.check_after(daemon, confirmed)

    def withstand_in_recovery(self, fault: Fault) -> None:
        """Crash, recover with this fault in the start-up, restart and check."""
        with self.gathering(fault) as daemon:
            confirmed = self.crash(daemon)
            failing = Failing(daemon, fault)
            fork = self.booted(failing)
            failing.heal()
            assert fork.stop() == 0
            self.check_after(daemon, confirmed)

    def booted(self, failing: Failing) -> Fork:
        """Boot with the fault; if the daemon cannot start for it, it says so, and then it can."""
        fork = self.forks.boot(failing.daemon, faults=failing.order())
        if not fork.is_gone():
            return fork
        assert fork.ends() > 0
        assert "cannot be used" in failing.daemon.log
        failing.heal()
        return self.forks.boot(failing.daemon)

    def check_after(self, daemon: Daemon, confirmed: Confirmed) -> None:
        """Boot without a fault, and check that nothing is lost or left."""
        found = TRACEBACK.search(daemon.log)
        assert found is None, f"unexpected: {daemon.log[found.start() :][:3000]}"
        fork = self.forks.boot(daemon)
        try:
            check(daemon, confirmed)
        finally:
            assert fork.stop() == 0
            daemon.shut()

    @contextmanager
    def gathering(self, fault: Fault) -> Iterator[Daemon]:
        """Lend a daemon, and keep what goes wrong with it."""
        daemon = self.daemon()
        self.tried += 1
        lasts = daemon.folder / "failing"
        try:
            yield daemon
        except (AssertionError, *GONE, TimeoutError, HttpError) as error:
            self.losses.append(f"{fault} ({daemon.folder}): {error!r}\n{daemon.log[-1500:]}")
            lasts.unlink(missing_ok=True)
            for pid in daemon.processes():
                os.kill(pid, signal.SIGKILL)
        else:
            shutil.rmtree(daemon.folder)

    def conclude(self, kind: str, figure: TellFigure) -> None:
        """Tell the figures and fail if anything was lost."""
        figure(f"{kind}: {self.tried} tried, {len(self.losses)} with a loss")
        assert not self.losses, "\n\n".join(self.losses)


def traced(daemon: Daemon, fork: Fork) -> list[str]:
    """Stop a daemon that was traced and return what it did, in order."""
    assert fork.stop() == 0
    found = (daemon.folder / "trace").read_text().splitlines()
    shutil.rmtree(daemon.folder)
    return found


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
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for-a-while"])
def test_system_calls_that_fail_lose_nothing(faults: Faults, figure: TellFigure, *, lasting: bool) -> None:
    """EIO at one operation of the story, or at all from there on, for some of each kind."""
    some = chosen(faults.operations(), USUAL_LASTING if lasting else USUAL_ONCE)
    for operation in some:
        faults.withstand(faults.fault(operation, "EIO", lasting=lasting))
    faults.conclude(f"system calls that failed {'for a while' if lasting else 'once'} (some)", figure)


@pytest.mark.long
@pytest.mark.timeout(LONG_LIMIT_SECONDS)
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for-a-while"])
@pytest.mark.parametrize("error", ["EIO", "ENOMEM", "EMFILE", "ENOSPC"])
def test_no_system_call_that_fails_loses_anything(
    error: str, faults: Faults, figure: TellFigure, *, lasting: bool
) -> None:
    """Likewise at every operation."""
    for operation in faults.operations():
        faults.withstand(faults.fault(operation, error, lasting=lasting))
    kind = f"failed {'for a while' if lasting else 'once'} with {error}"
    faults.conclude(f"system calls that {kind} (all)", figure)


@pytest.mark.timeout(USUAL_LIMIT_SECONDS)
def test_a_start_up_whose_system_calls_fail_loses_nothing(faults: Faults, figure: TellFigure) -> None:
    """It settles what was left, or says why it cannot, and the next one does."""
    some = chosen(faults.operations_of_recovery(), USUAL_RECOVERIES)
    for number, operation in enumerate(some):
        faults.withstand_in_recovery(faults.fault(operation, "EIO", lasting=number % 2 == 0))
    faults.conclude("system calls of a start-up that failed (some)", figure)


@pytest.mark.long
@pytest.mark.timeout(LONG_LIMIT_SECONDS)
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for-a-while"])
def test_no_failing_system_call_of_a_start_up_loses_anything(
    faults: Faults, figure: TellFigure, *, lasting: bool
) -> None:
    """Likewise at every operation of the start-up."""
    for operation in faults.operations_of_recovery():
        faults.withstand_in_recovery(faults.fault(operation, "EIO", lasting=lasting))
    faults.conclude(f"system calls of a start-up that failed, lasting: {lasting} (all)", figure)


@pytest.mark.parametrize("jump_seconds", [-86_400.0 * 400, -7200.0, 7200.0, 86_400.0 * 400])
def test_a_wall_clock_that_jumps_loses_nothing(faults: Faults, jump_seconds: float) -> None:
    """Ids go on sorting by time, ages are never negative, nothing is purged or reported twice."""
    daemon = faults.daemon()
    failing = Failing(daemon, None)
    fork = faults.forks.boot(daemon, faults=failing.order())
    one = daemon.play(NAME, success("one"), [init(), reach("up"), wait_for("go"), result("two")])
    turn = daemon.ok("continue", name=NAME, prompt="go on").content["turn"]
    daemon.reached("up")
    failing.clock.write_text(str(jump_seconds))
    running = daemon.status_of(NAME)
    assert 0 <= running["age_seconds"] < 60
    assert 0 <= running["running_seconds"] < 60
    daemon.open_gate("go")
    two = daemon.loose_end(NAME, turn=turn)
    assert one["turn"] < two["turn"]
    assert 0 <= two["duration_seconds"] < 60
    for _ in range(2):
        assert fork.stop() == 0
        fork = faults.forks.boot(daemon, faults=failing.order())
        failing.clock.unlink(missing_ok=True)  # the second start meets the way back
        three = daemon.play(NAME, success("three"))
        assert three["turn"] > two["turn"]
        assert [end["id"] for end in daemon.loose_ends(NAME)][:2] == [one["id"], two["id"]]
    assert daemon.ok("close_loose_ends", ids=[one["id"]]).content["closed"] == [one["id"]]
    assert fork.stop() == 0
    daemon.shut()
