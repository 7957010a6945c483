"""A random plan of starts, continues, interrupts, errors, restarts and kills, checked against the model."""

from __future__ import annotations

import json
import sys
import time
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from typing_extensions import override

from tests.stub.soak_model import (
    BEHAVIOURS,
    FORCED,
    INTERRUPTED,
    Behaviour,
    Model,
    Turn,
    steps_of,
)
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.support.daemon_harness import Daemon

NAMES = [f"s{number}" for number in range(6)]
MOST_RUNNING = 4
END_SECONDS = 20.0
names = st.sampled_from(NAMES)
behaviours = st.sampled_from(sorted(BEHAVIOURS))
# What a step draws depends on nothing that takes time, or the same seed would not be the same plan.
numbers = st.integers(0, 1000)


def ends_on_disk(daemon: Daemon) -> list[str]:
    """Return the turns that have a loose end on disk, while housekeeping may remove closed ones."""
    found = []
    for path in (daemon.state / "loose-ends").glob("*.json"):
        with suppress(FileNotFoundError):
            found.append(json.loads(path.read_text())["outcome"]["turn"])
    assert len(found) == len(set(found)), f"stored twice: {found}"
    return found


class Soak:
    """One daemon that lives through many plans, what was done with it, and the pace."""

    def __init__(self, daemon: Daemon, *, turns: int, seconds: float) -> None:
        """Plan so many turns over so much time."""
        self.daemon = daemon
        self.wanted = turns
        self.pace_seconds = seconds / turns
        self.began = time.monotonic()
        self.turns = 0
        self.ends: dict[str, int] = {}
        self.restarts = 0
        self.kills = 0
        self.refusals = 0
        self.plans = 0
        self.failures: list[str] = []

    @property
    def is_done(self) -> bool:
        """Whether there were enough turns."""
        return self.turns >= self.wanted

    def keep_pace(self) -> None:
        """Let the time pass that this many turns are to take."""
        time.sleep(max(0.0, self.began + self.turns * self.pace_seconds - time.monotonic()))


class Plan(RuleBasedStateMachine):
    """One plan with names of its own; each step is carried out on the daemon and on the model."""

    soak: ClassVar[Soak]

    def __init__(self) -> None:
        """Begin with a model that knows of nothing."""
        super().__init__()
        self.model = Model()
        self.daemon = self.soak.daemon
        self.soak.plans += 1
        self.prefix = f"p{self.soak.plans}-"

    # Steps

    @rule(name=names, behaviour=behaviours)
    def start(self, name: str, behaviour: str) -> None:
        """Start a subagent afresh, or be refused for a reason that the model knows."""
        self.spawn("start", name, BEHAVIOURS[behaviour], prompt_file=str(self.daemon.work / "recipe.md"))

    @rule(name=names, behaviour=behaviours)
    def continue_(self, name: str, behaviour: str) -> None:
        """Continue a subagent, known or not."""
        self.spawn("continue", name, BEHAVIOURS[behaviour], prompt="go on")

    @rule(name=names, force=st.booleans())
    def interrupt(self, name: str, *, force: bool) -> None:
        """Interrupt what runs under a name, or be refused where nothing does."""
        subagent = self.model.subagent(self.prefix + name)
        turn = subagent.running
        answer = self.daemon.call("interrupt", name=subagent.name, force=force)
        if answer.is_error:
            self.soak.refusals += 1
            assert turn is None or not turn.holds, answer.text
            return
        assert turn is not None, f"nothing ran, but: {answer.text}"
        if turn.holds and turn.behaviour.deaf and not force:
            turn.ends = {INTERRUPTED}  # it goes on, but what it says after the signal does not count
        else:
            self.model.disturbed(turn, FORCED if force else INTERRUPTED)
        if force:
            assert answer.content["remaining_processes"] == []
        if answer.content["ended"]:
            self.settle(turn)

    @rule(which=numbers)
    def let_go(self, which: int) -> None:
        """Let a turn that holds end by itself."""
        if held := self.model.held:
            self.open(held[which % len(held)])

    @rule(name=names)
    def status(self, name: str) -> None:
        """Look at one subagent: its state is the one that the model knows."""
        subagent = self.model.subagent(self.prefix + name)
        shown = self.daemon.status_of(subagent.name)
        if subagent.running is not None:
            if subagent.running.holds:
                assert shown["state"] == "running"
                assert shown["age_seconds"] >= 0
            return
        if subagent.last is None:
            assert shown["state"] == "unknown"
            return
        assert subagent.last.ended is not None
        cut_off = subagent.last.ended[0] in {"killed", "lost"}
        assert shown["state"] == ("killed" if cut_off else "idle")
        assert shown["last_turn"]["turn"] == subagent.last.id

    @rule(which=numbers)
    def close(self, which: int) -> None:
        """Close a loose end, which then stays closed."""
        turns = [turn for turn in self.model.turns if not turn.holds and not turn.closed]
        if not turns:
            return
        turn = turns[which % len(turns)]
        self.settle(turn)
        for _ in range(2):
            assert self.daemon.ok("close_loose_ends", ids=[turn.id]).content["closed"] == [turn.id]
        turn.closed = True

    @rule()
    def settle_all(self) -> None:
        """Wait for the ends of everything that does not hold."""
        for turn in self.model.unended:
            if not turn.holds:
                self.settle(turn)

    @rule(rare=st.integers(0, 5))
    def restart(self, rare: int) -> None:
        """Stop the daemon in order, and boot it again."""
        if rare:
            return
        self.soak.restarts += 1
        self.model.daemon_went(killed=False)
        self.daemon.restart()
        self.settle_all()

    @rule(rare=st.integers(0, 5))
    def kill(self, rare: int) -> None:
        """Kill the daemon, and boot it again."""
        if rare:
            return
        self.soak.kills += 1
        self.model.daemon_went(killed=True)
        self.daemon.kill()
        self.daemon.boot()
        self.settle_all()

    # What always holds

    @invariant()
    def told_is_what_happened(self) -> None:
        """Every open loose end is of a known turn of this plan, once, and not of one that holds."""
        known = {turn.id: turn for turn in self.model.turns}
        shown = [end for name in self.model.subagents for end in self.daemon.loose_ends(name)]
        ids = [end["id"] for end in shown]
        assert len(ids) == len(set(ids)), f"told twice: {ids}"
        for end in shown:
            turn = known[end["turn"]]
            assert not turn.holds, f"{turn.id} holds, but: {end}"
            assert not turn.closed, f"{turn.id} was closed, but is open"
            self.model.told(turn, end)
        assert all(turn.id in ids for turn in known.values() if turn.ended and not turn.closed)

    @override
    def teardown(self) -> None:
        """Let everything end; then each turn has one loose end on disk, and nothing is left of any."""
        for turn in self.model.held:
            self.open(turn)
        if (failure := sys.exc_info()[1]) is not None:
            # hypothesis plays a plan again and may then find another end of it: this is the first one.
            self.soak.failures.append("".join(traceback.format_exception(failure)))
            return
        for turn in self.model.unended:
            self.settle(turn)
        assert self.daemon.processes() == []
        assert self.daemon.turn_folders() == []
        stored = ends_on_disk(self.daemon)
        for turn in self.model.turns:
            assert turn.closed or turn.id in stored  # what was closed goes at the next start
            assert turn.ended is not None
            self.soak.ends[turn.ended[0]] = self.soak.ends.get(turn.ended[0], 0) + 1
        self.daemon.call("close_loose_ends", ids=[turn.id for turn in self.model.turns] or ["none"])

    # Carrying out

    def spawn(self, tool: str, name: str, behaviour: Behaviour, **arguments: object) -> None:
        """Start or continue; where the outcome of the call depends on what is under way, wait for that."""
        subagent = self.model.subagent(self.prefix + name)
        if subagent.running is not None and not subagent.running.holds:
            self.settle(subagent.running)
        number = len(subagent.turns)
        self.daemon.script(subagent.name, steps_of(behaviour, subagent.name, number))
        answer = self.daemon.call(tool, name=subagent.name, **arguments)
        if answer.is_error:
            self.refused(subagent.name, answer.text)
            return
        assert subagent.running is None, "two turns under one name"
        assert len(self.model.held) < MOST_RUNNING, "more turns than are allowed"
        self.soak.turns += 1
        turn = self.model.began(subagent.name, answer.content["turn"], behaviour, resumes=tool == "continue")
        if behaviour.holds:
            self.hold(turn, f"{subagent.name}.{number}")
        self.soak.keep_pace()

    def hold(self, turn: Turn, gate: str) -> None:
        """Wait until a turn that holds has come so far, unless it did not find its session."""
        arrived = self.daemon.scripts / f"{gate}.up"
        eventually(lambda: arrived.exists() or self.ended(turn), within=END_SECONDS, what=f"{gate} at work")
        if not arrived.exists():
            turn.let_go_by = "its session was not found"
            self.settle(turn)
        else:
            subagent = self.model.subagent(turn.name)
            subagent.has_session, subagent.session_in_doubt = True, False

    def refused(self, name: str, text: str) -> None:
        """Check a refusal: something runs under the name, or as many run as may."""
        self.soak.refusals += 1
        subagent = self.model.subagent(name)
        if "max_running" in text:
            assert len(self.model.unended) >= MOST_RUNNING, text
            assert all(turn.name in text for turn in self.model.held), text
        else:
            assert subagent.running is not None, text
            assert "is running for" in text, text

    def open(self, turn: Turn) -> None:
        """Let one turn that holds go on."""
        number = self.model.subagent(turn.name).turns.index(turn)
        self.daemon.open_gate(f"{turn.name}.{number}.go")
        turn.let_go_by = "the plan"

    def ended(self, turn: Turn) -> bool:
        """Tell whether the loose end of a turn is open."""
        return any(end["turn"] == turn.id for end in self.daemon.loose_ends(turn.name))

    def settle(self, turn: Turn) -> None:
        """Wait for the loose end of a turn and check it."""
        end = self.daemon.loose_end(turn.name, turn=turn.id, within=END_SECONDS)
        self.model.told(turn, end)
