"""Daemons that adopt, ended at chosen and at random moments: no turn is lost, told wrongly or told twice."""

from __future__ import annotations

import random
import signal
from typing import TYPE_CHECKING

import pytest

from tests.stub.crashes import ALWAYS, AT_THE_END, SEED, USUAL, Crashes, sample
from tests.stub.daemon_forks import Forks
from tests.stub.kill_story import NAME, stored_ends
from tests.stub.steps import exit_with, init, result, sleep, wait_for
from tests.support.daemon_harness import Setting
from tests.support.processes import environment_of, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import TellFigure
    from tests.stub.daemon_forks import Fork
    from tests.stub.steps import Step
    from tests.support.daemon_harness import Daemon

ADOPTING = Setting(top={"on_restart": "adopt"}, limits=USUAL.limits)
NAMES = 6
USUAL_ENDS = 10
LONG_ENDS = 100
LONGEST_LIFE_SECONDS = 0.4


@pytest.fixture
def forks() -> Iterator[Forks]:
    """Fork daemons while the test lasts."""
    with Forks() as program:
        yield program


@pytest.fixture
def crashes(tmp_path: Path, forks: Forks) -> Crashes:
    """Let daemons that adopt crash."""
    return Crashes(tmp_path, forks, setting=ADOPTING, settle=end_what_was_adopted)


def end_what_was_adopted(daemon: Daemon) -> None:
    """Whatever lives is in the registry under its name, and can be interrupted."""
    if daemon.processes():
        found = daemon.status_of(NAME)
        assert found["state"] == "running", f"a process that nothing answers for: {found}"
        daemon.ok("interrupt", name=NAME)
        daemon.finished(NAME)


@pytest.mark.timeout(240)
def test_a_kill_at_a_tenth_of_the_instants_loses_nothing(crashes: Crashes, figure: TellFigure) -> None:
    """One loose end per turn, nothing that lives without a name, no stuck name, no session lost."""
    for instant in [*sample(crashes.trace(), always=ALWAYS), AT_THE_END]:
        crashes.survive(instant)
    crashes.conclude("kill points of a daemon that adopts (a tenth)", figure)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_kill_at_any_instant_loses_nothing(crashes: Crashes, figure: TellFigure) -> None:
    """Likewise, everywhere."""
    for instant in [*crashes.trace(), AT_THE_END]:
        crashes.survive(instant)
    crashes.conclude("kill points of a daemon that adopts (all)", figure)


@pytest.mark.timeout(120)
def test_a_turn_is_adopted_as_often_as_daemons_crash(crashes: Crashes, figure: TellFigure) -> None:
    """The third daemon follows what the first one has spawned."""
    crashes.survive("after launch #3", AT_THE_END, AT_THE_END)
    crashes.survive("recorded #3", AT_THE_END)
    crashes.survive("at the gate #3", AT_THE_END)
    crashes.conclude("adopted again and again", figure)


class Ends:
    """Six subagents whose daemon ends again and again, and what is expected of each turn."""

    def __init__(self, daemon: Daemon, chance: random.Random) -> None:
        """Begin with no turn; the gates are those of turns that wait."""
        self.daemon = daemon
        self.chance = chance
        self.expected: dict[str, str] = {}
        self.gates: dict[str, str] = {}
        self.ended_alone = 0

    def start_idle_ones(self, number: int) -> None:
        """Start whatever does not run, each with a turn drawn from the random numbers."""
        subagents = self.daemon.ok("status").content["subagents"]
        running = {one["name"] for one in subagents if one["state"] == "running"}
        for name in sorted({f"s{n}" for n in range(NAMES)} - running):
            gate = f"go-{name}-{number}"
            steps, outcome, waits = self.draw(gate)
            turn = self.daemon.start(name, steps).content["turn"]
            self.expected[turn] = outcome
            if waits:
                self.gates[turn] = gate

    def draw(self, gate: str) -> tuple[list[Step], str, bool]:
        """Return a turn that ends soon or waits, with a result or a mere code; how it must be told."""
        waits = self.chance.random() < 0.7
        until = wait_for(gate) if waits else sleep(self.chance.uniform(0.0, 0.3))
        if self.chance.random() < 0.2:
            return [init(), until, exit_with(3)], "failed", waits
        return [init(), until, result("done")], "completed", waits

    def let_some_end(self) -> None:
        """Open the gates of about half of what waits, and wait until those turns have ended."""
        before = self.alive()
        opened = [turn for turn in self.gates if self.chance.random() < 0.6]
        for turn in opened:
            self.daemon.open_gate(self.gates.pop(turn))
        eventually(lambda: not set(opened) & self.alive(), within=20, what="turns ending alone")
        self.ended_alone += len(before - self.alive())

    def alive(self) -> set[str]:
        """Return the turns that have a living process."""
        marks = {environment_of(pid).get("HIVE_SUBAGENT_TURN") for pid in self.daemon.processes()}
        return {turn for turn in self.expected if turn in marks}

    def check(self) -> None:
        """Each turn runs or has its one loose end, with the outcome that it must have."""
        subagents = self.daemon.ok("status").content["subagents"]
        running = {one["turn"]: one for one in subagents if one["state"] == "running"}
        ends = stored_ends(self.daemon)
        lost = self.expected.keys() - running.keys() - ends.keys()
        assert not lost, f"neither running nor told: {lost}"
        unheld = self.alive() - running.keys() - ends.keys()
        assert not unheld, f"alive, but not in the registry: {unheld}"
        for turn, end in ends.items():
            kind = end["outcome"]["verdict"]["kind"]
            # A code alone is told to whom watches; with nobody there it is lost, never a success.
            possible = {"failed", "lost"} if self.expected[turn] == "failed" else {"completed"}
            assert kind in possible, f"{turn}: {end['outcome']['verdict']}"


def end_daemon(fork: Fork, chance: random.Random) -> None:
    """Kill the daemon, or end it as a restart does, at a random moment."""
    fork.is_gone(within=chance.uniform(0.0, LONGEST_LIFE_SECONDS))
    if chance.random() < 0.5:
        fork.kill()
    else:
        assert fork.stop() == 0


def end_again_and_again(crashes: Crashes, *, times: int) -> Ends:
    """End the daemon of six subagents so often, and check after each start."""
    with crashes.daemon() as (daemon, _):
        ends = Ends(daemon, random.Random(SEED))
        for number in range(times):
            fork = crashes.forks.boot(daemon)
            ends.check()
            ends.start_idle_ones(number)
            end_daemon(fork, ends.chance)
            ends.let_some_end()
        fork = crashes.forks.boot(daemon)
        for gate in ends.gates.values():
            daemon.open_gate(gate)
        eventually(lambda: ends.expected.keys() == stored_ends(daemon).keys(), within=30)
        ends.check()
        assert fork.stop(signal.SIGINT) == 0
        daemon.shut()
    return ends


def told(ends: Ends, times: int) -> str:
    """Return the figures of a run; at least a third of the turns ended while no daemon ran."""
    turns, alone = len(ends.expected), ends.ended_alone
    assert alone * 3 >= turns
    return f"adoption: the daemon ended {times} times over {turns} turns, {alone} of which ended alone"


@pytest.mark.timeout(240)
def test_ends_at_random_moments_lose_no_turn(crashes: Crashes, figure: TellFigure) -> None:
    """Kills and restarts in turn, over turns that run, end and end alone."""
    figure(told(end_again_and_again(crashes, times=USUAL_ENDS), USUAL_ENDS))


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_many_ends_at_random_moments_lose_no_turn(crashes: Crashes, figure: TellFigure) -> None:
    """Likewise, ten times as often."""
    figure(told(end_again_and_again(crashes, times=LONG_ENDS), LONG_ENDS))
