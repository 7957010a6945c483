"""Daemons that adopt end at random moments while turns run and end in every way: each is told as it ended."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.stub.steps import api_error, exit_with, forever, init, reach, result, stderr, wait_for
from tests.support.processes import eventually, is_alive
from tests.support.scripted_daemon import Setting
from tests.systemd.managers import SYSTEM
from tests.systemd.service_harness import Units

if TYPE_CHECKING:
    from tests.conftest import TellFigure
    from tests.stub.steps import Step
    from tests.systemd.conftest import MakeService
    from tests.systemd.service_harness import Service

SEED = 20260101
NAMES = ("a", "b", "c")
LATEST_SECONDS = 0.1
# While this file is there, systemd's next start of the daemon waits: so long no daemon runs.
HOLD = "hold"
HELD = "ExecStartPre=/bin/sh -c 'while [ -e {folder}/scripts/hold ]; do sleep 0.02; done'"
Told = tuple[str, str | None]
LOST: Told = ("lost", "unknown")


@dataclass(frozen=True)
class Kind:
    """How a turn ends, what its loose end says then, and what it says when nobody can have seen that."""

    steps: tuple[Step, ...]
    seen: Told
    unseen: Told


KINDS = {
    "result": Kind((result("done"),), ("completed", None), ("completed", None)),
    "error result": Kind((*api_error(529, "Overloaded"),), ("failed", "api"), ("failed", "api")),
    "stderr": Kind((stderr("Invalid API key"), exit_with(1)), ("failed", "auth"), ("failed", "auth")),
    "code": Kind((exit_with(3),), ("failed", "no result"), LOST),
    "signal": Kind((forever(),), ("killed", "unknown"), LOST),
}


def tells_exits() -> bool:
    """Tell whether this kernel tells how a process ended that is not our child (6.15)."""
    major, minor = (int(part) for part in os.uname().release.split(".")[:2])
    return (major, minor) >= (6, 15)


@dataclass(frozen=True)
class Running:
    """A turn that runs, and what `status` said of it first."""

    turn: str
    pid: int
    gate: str
    kind: str
    status: dict[str, Any]


def told(end: dict[str, Any]) -> Told:
    """Return what a stored loose end says."""
    verdict = end["outcome"]["verdict"]
    return verdict["kind"], verdict["error_class"] or verdict["cause"]


class Ends:
    """Three subagents whose daemon ends again and again, and what each turn's loose end may say."""

    def __init__(self, service: Service) -> None:
        """Begin with no turn."""
        self.service = service
        self.chance = random.Random(SEED)
        self.running: dict[str, Running] = {}
        self.expected: dict[str, set[Told]] = {}
        self.daemon_ends: Counter[str] = Counter()
        self.ended_alone: Counter[str] = Counter()

    def start_idle_ones(self, number: int) -> None:
        """Let three turns run; each has come to wait for how it is to end."""
        for name in [name for name in NAMES if name not in self.running]:
            mark = f"{name}-{number}"
            kind = self.chance.choice(sorted(KINDS))
            first = [] if kind == "stderr" else [init()]  # what it says later may be of what was overcome
            steps = [*first, reach(f"up-{mark}"), wait_for(f"go-{mark}"), *KINDS[kind].steps]
            begun = self.service.start(name, steps).content
            self.service.reached(f"up-{mark}")
            self.running[name] = Running(
                begun["turn"], begun["pid"], f"go-{mark}", kind, self.service.status_of(name)
            )

    def end_some(self) -> list[Running]:
        """Let about half of what runs end."""
        ending = [name for name in NAMES if self.chance.random() < 0.6]
        ended = [self.running.pop(name) for name in ending]
        for one in ended:
            if one.kind == "signal":
                os.kill(one.pid, signal.SIGKILL)
            self.service.open_gate(one.gate)
        return ended

    def end_daemon(self, how: str) -> None:
        """End the daemon and nothing else; return when it is gone, whether or not the next one comes."""
        pid = self.service.main_pid
        if how == "crash":
            SYSTEM.systemctl("kill", "--kill-whom=main", "--signal=SIGKILL", "--", self.service.unit)
        else:
            SYSTEM.systemctl("restart", "--no-block", "--", self.service.unit)
        eventually(lambda: not is_alive(pid), within=30, what="the daemon's end")

    def survive(self) -> None:
        """End the daemon while turns run, let some end around that, and check what the next one says."""
        how = self.chance.choice(("crash", "restart"))
        alone = self.chance.random() < 0.7
        self.daemon_ends[how] += 1
        pid = self.service.main_pid
        if alone:
            (self.service.scripts / HOLD).touch()
            self.end_daemon(how)
            ended = self.end_some()
            pids = [one.pid for one in ended]
            eventually(lambda: not any(map(is_alive, pids)), within=20, what="the ends of turns")
            for one in ended:
                self.ended_alone[one.kind] += 1
                self.expected[one.turn] = {KINDS[one.kind].unseen}
            assert self.service.main_pid in {0, pid}, "a daemon has run meanwhile"
            (self.service.scripts / HOLD).unlink()
        else:
            for one in self.end_some():
                self.expected[one.turn] = {KINDS[one.kind].seen, KINDS[one.kind].unseen}
            time.sleep(self.chance.uniform(0.0, LATEST_SECONDS))  # waits for nothing: a moment by chance
            self.end_daemon(how)
        self.service.ok("status")  # the socket keeps the call until the next daemon answers it
        assert self.service.main_pid not in {0, pid}
        self.check_what_runs()

    def check_what_runs(self) -> None:
        """What has not ended goes on: the same turn, process and session, and no younger than before."""
        for name in NAMES:
            if name not in self.running:
                self.service.finished(name)
                continue
            one, now = self.running[name], self.service.status_of(name)
            assert is_alive(one.pid)
            same = ("state", "turn", "session_id", "dir")
            assert {key: now[key] for key in same} == {key: one.status[key] for key in same}
            assert now["running_seconds"] >= one.status["running_seconds"]

    def conclude(self) -> str:
        """Let the rest end under the last daemon, count what is on disk, and return the figures."""
        for name, one in self.running.items():
            if one.kind == "signal":
                os.kill(one.pid, signal.SIGKILL)
            self.service.open_gate(one.gate)
            self.service.finished(name)
            kind = KINDS[one.kind]
            self.expected[one.turn] = {kind.seen} if tells_exits() else {kind.seen, kind.unseen}
        stored = [json.loads(path.read_text()) for path in (self.service.state / "loose-ends").iterdir()]
        ends = {end["id"]: told(end) for end in stored}
        assert len(ends) == len(stored)
        assert ends.keys() == self.expected.keys(), "a turn has no loose end, or one that nobody started"
        wrong = {turn: end for turn, end in ends.items() if end not in self.expected[turn]}
        assert not wrong, f"told wrongly: {wrong}"
        alone, said = self.ended_alone, Counter(kind for kind, _ in ends.values())
        return (
            f"adoption under systemd ({self.service.form.name}): {dict(self.daemon_ends)} of the daemon, "
            f"{len(ends)} turns ({dict(said)}), {alone.total()} ended while no daemon ran ({dict(alone)}); "
            "none without its loose end, none told wrongly"
        )


def end_again_and_again(make_service: MakeService, *, times: int) -> Ends:
    """End a daemon so often."""
    service = make_service(Setting(top={"on_restart": "adopt"}))
    service.units = Units(lines=(HELD.format(folder=service.folder),))
    ends = Ends(service.boot())
    for number in range(times):
        ends.start_idle_ones(number)
        ends.survive()
    return ends


@pytest.mark.timeout(300)
def test_restarts_and_crashes_lose_no_turn(make_service: MakeService, figure: TellFigure) -> None:
    """Ten in turn, at moments of a seed."""
    figure(end_again_and_again(make_service, times=10).conclude())


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_many_restarts_and_crashes_lose_no_turn(make_service: MakeService, figure: TellFigure) -> None:
    """Likewise, ten times as often, and in at least thirty turns while no daemon ran, of each kind."""
    ends = end_again_and_again(make_service, times=100)
    figure(ends.conclude())
    assert ends.ended_alone.total() >= 30
    assert ends.ended_alone.keys() == KINDS.keys()
