"""What the contract says of subagents, as a model that a random plan is checked against.

The model knows each turn that was confirmed: how it behaves, what was done to it, and so which ends may be
told of it. It knows nothing of the daemon's own workings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.stub.outcome_cases import NO_CONTEXT, NO_MODEL, REFUSED_429
from tests.stub.steps import (
    Step,
    api_error,
    assistant,
    die_by,
    exit_with,
    flood,
    forever,
    init,
    on_signal,
    raw,
    reach,
    result,
    spawn,
    success,
    wait_for,
)

# How a turn ended, and why: the cause of a kill, or the class of an error.
End = tuple[str, str | None]
COMPLETED: End = ("completed", None)
INTERRUPTED: End = ("killed", "interrupt")
FORCED: End = ("killed", "forced interrupt")
STOPPED: End = ("killed", "daemon stopped")
UNKNOWN: End = ("killed", "unknown")
LOST: End = ("lost", "unknown")
NO_SESSION: End = ("failed", "session not found")


@dataclass(frozen=True)
class Behaviour:
    """What claude does in a turn, and how that ends when nobody disturbs it.

    One that `holds` runs until it is let go; one that is `deaf` does not end by an interrupt; one with its
    `result_first` is judged by that, whatever ends it.
    """

    steps: tuple[Step, ...]
    end: End
    holds: bool = False
    deaf: bool = False
    result_first: bool = False


def _failing(error_class: str, *steps: Step) -> Behaviour:
    return Behaviour((init(), *steps), ("failed", error_class))


QUICK = {
    "success": Behaviour(tuple(success("fine")), COMPLETED),
    "leaves a child": Behaviour((init(), spawn("{name}.left", own_session=True), result()), COMPLETED),
    "floods": Behaviour((init(), flood(3_000_000), result()), COMPLETED),
    "noise": Behaviour((init(), raw(b"\xff\x00 noise\n{broken\n\n"), result()), COMPLETED),
    "stays after its result": Behaviour((*success(), forever()), COMPLETED, result_first=True),
    "limit": _failing("limit", *api_error(429, REFUSED_429)),
    "auth": _failing("auth", *api_error(401, "Invalid API key", error="authentication_failed")),
    "overloaded": _failing("api", *api_error(529, "API Error: Overloaded")),
    "context": _failing("context", *api_error(400, NO_CONTEXT, terminal_reason="prompt_too_long")),
    "budget": _failing("budget", *api_error(400, "Credit balance is too low", error="billing_error")),
    "model": _failing("model", *api_error(404, NO_MODEL, error="model_not_found")),
    "no result": _failing("no result", assistant("that is all")),
    "exits with 3": _failing("no result", exit_with(3)),
    "crashes": Behaviour((init(), die_by("SIGSEGV")), UNKNOWN),
    "is terminated": Behaviour((init(), die_by("SIGTERM")), UNKNOWN),
}
HELD = {
    "works": Behaviour((init(), assistant("so far", stop_reason=None)), COMPLETED, holds=True),
    "deaf": Behaviour((init(), on_signal("SIGINT")), COMPLETED, holds=True, deaf=True),
    "with a child": Behaviour((init(), spawn("{name}.child", own_session=True)), COMPLETED, holds=True),
}
BEHAVIOURS = QUICK | HELD


class Turn:
    """A turn that was confirmed, and which ends may be told of it."""

    def __init__(self, turn_id: str, name: str, behaviour: Behaviour, ends: set[End]) -> None:
        """Nothing was done to it yet."""
        self.id = turn_id
        self.name = name
        self.behaviour = behaviour
        self.ends = ends
        self.ended: End | None = None
        self.closed = False
        self.let_go_by: str | None = None

    @property
    def holds(self) -> bool:
        """Whether it certainly still runs."""
        return self.behaviour.holds and self.ended is None and self.let_go_by is None


class Subagent:
    """What is known of one name: its turns, oldest first, and whether claude has a session of it."""

    def __init__(self, name: str) -> None:
        """Nothing is known of it."""
        self.name = name
        self.turns: list[Turn] = []
        self.has_session = False
        self.session_in_doubt = False

    @property
    def last(self) -> Turn | None:
        """The newest turn."""
        return self.turns[-1] if self.turns else None

    @property
    def running(self) -> Turn | None:
        """The turn that may still run."""
        return self.last if self.last is not None and self.last.ended is None else None


class Model:
    """All subagents of one plan."""

    def __init__(self) -> None:
        """Know of nothing."""
        self.subagents: dict[str, Subagent] = {}

    def subagent(self, name: str) -> Subagent:
        """Return what is known of a name."""
        return self.subagents.setdefault(name, Subagent(name))

    @property
    def turns(self) -> list[Turn]:
        """Every turn, in no order."""
        return [turn for subagent in self.subagents.values() for turn in subagent.turns]

    @property
    def unended(self) -> list[Turn]:
        """The turns whose end was not told yet."""
        return [turn for turn in self.turns if turn.ended is None]

    @property
    def held(self) -> list[Turn]:
        """The turns that certainly run."""
        return [turn for turn in self.turns if turn.holds]

    def began(self, name: str, turn_id: str, behaviour: Behaviour, *, resumes: bool) -> Turn:
        """Take note of a confirmed turn."""
        subagent = self.subagent(name)
        ends = {behaviour.end}
        if resumes and subagent.session_in_doubt:
            ends = {NO_SESSION, behaviour.end}
        elif resumes and not subagent.has_session:
            ends = {NO_SESSION}
        if not resumes:
            subagent.has_session, subagent.session_in_doubt = True, False
        turn = Turn(turn_id, name, behaviour, ends)
        subagent.turns.append(turn)
        return turn

    def disturbed(self, turn: Turn, end: End) -> None:
        """Take note that something was done to a turn which may end it so."""
        if turn.holds:
            turn.ends = {end}
            turn.let_go_by = "what ended it"
        else:
            turn.ends |= {end}
            # What had not come to its first event has no session to go on with.
            self.subagent(turn.name).session_in_doubt = True

    def daemon_went(self, *, killed: bool) -> None:
        """Take note that the daemon stopped, or was killed: what runs is ended, how it ended may be lost."""
        for turn in self.unended:
            held = turn.holds
            self.disturbed(turn, STOPPED)
            if not held and killed:
                turn.ends.add(LOST)

    def told(self, turn: Turn, loose_end: dict[str, Any]) -> None:
        """Check the end of a turn as it was told, and take note of it."""
        reason = loose_end["cause"] if loose_end["outcome"] != "failed" else loose_end["error_class"]
        end = (loose_end["outcome"], reason)
        told = f"{end} ({loose_end['error']})"
        assert end in turn.ends, f"{turn.id} of {turn.name} ended as {told}, not as one of {turn.ends}"
        assert loose_end["name"] == turn.name
        assert loose_end["id"] == loose_end["turn"] == turn.id
        assert turn.ended in (None, end), f"told twice, and differently: {turn.ended}, {end}"
        turn.ended = end


def steps_of(behaviour: Behaviour, name: str, number: int) -> list[Step]:
    """Return the script of a turn; one that holds waits for a gate of its own."""
    steps = [
        {
            key: value.format(name=f"{name}.{number}") if key == "record" else value
            for key, value in step.items()
        }
        for step in behaviour.steps
    ]
    if behaviour.holds:
        steps += [reach(f"{name}.{number}.up"), wait_for(f"{name}.{number}.go"), result("let go")]
    return steps
