"""The closed sets and values that the parts of the daemon exchange."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

# The highest bounds: beyond them a number is a mistake, and timers and claude's arguments take all below.
MOST_SECONDS: Final = 365 * 24 * 3600
MOST_USD: Final = 1_000_000
MOST_ROUNDS: Final = 1_000_000
MOST_DEPTH: Final = 10


class State(StrEnum):
    """Where a subagent is."""

    RUNNING = "running"
    IDLE = "idle"
    KILLED = "killed"
    UNKNOWN = "unknown"


class OutcomeKind(StrEnum):
    """Our verdict on a turn, in one word."""

    COMPLETED = "completed"
    FAILED = "failed"
    KILLED = "killed"
    COULD_NOT_START = "could not start"
    LOST = "lost"

    @property
    def cut_off(self) -> bool:
        """Whether work may have been cut off in the middle."""
        return self in (OutcomeKind.KILLED, OutcomeKind.LOST)

    @property
    def ran(self) -> bool:
        """Whether claude was executed at all."""
        return self is not OutcomeKind.COULD_NOT_START


class Cause(StrEnum):
    """What killed a turn."""

    OOM = "oom"
    INTERRUPT = "interrupt"
    FORCED_INTERRUPT = "forced interrupt"
    DAEMON_STOPPED = "daemon stopped"
    TIMEOUT = "timeout"
    UNKNOWN = "unknown"


class ErrorClass(StrEnum):
    """What kind of failure ended a failed turn."""

    AUTH = "auth"
    LIMIT = "limit"
    API = "api"
    CONTEXT = "context"
    BUDGET = "budget"
    TURNS = "turns"
    REFUSAL = "refusal"
    SESSION_NOT_FOUND = "session not found"
    MODEL = "model"
    SETUP = "setup"
    NO_RESULT = "no result"
    OTHER = "other"


@dataclass(frozen=True)
class Exited:
    """A process that ended by itself with an exit code."""

    code: int


@dataclass(frozen=True)
class Signalled:
    """A process that was ended by a signal."""

    signal: int


@dataclass(frozen=True)
class ExitUnknown:
    """A process whose end nobody of ours could observe."""


Exit = Exited | Signalled | ExitUnknown


@dataclass(frozen=True)
class Oom:
    """What the kernel's out-of-memory killer did to a turn."""

    kills: int
    peak_bytes: int | None = None
    limit_bytes: int | None = None


@dataclass(frozen=True)
class Bounds:
    """What one turn may take, None where nothing bounds it: seconds from spawn to end, US dollars, rounds."""

    timeout_seconds: float | None = None
    max_budget_usd: float | None = None
    max_turns: int | None = None

    def or_else(self, others: Bounds) -> Bounds:
        """Return these, and the others where nothing is said here."""
        return Bounds(
            others.timeout_seconds if self.timeout_seconds is None else self.timeout_seconds,
            others.max_budget_usd if self.max_budget_usd is None else self.max_budget_usd,
            others.max_turns if self.max_turns is None else self.max_turns,
        )


NO_BOUNDS: Final = Bounds()


@dataclass(frozen=True)
class Terms:
    """How one turn is to run: within which bounds, and whether it takes messages while it runs."""

    bounds: Bounds = NO_BOUNDS
    steerable: bool = False


USUAL_TERMS: Final = Terms()


@dataclass(frozen=True)
class Parentage:
    """Who started a turn: by default the agent itself, whose depth is 0, else a turn of a subagent.

    `above` are the turns that this one descends from, the nearest first: those of ended ones too, which
    nobody else remembers after a restart.
    """

    name: str | None = None
    turn: str | None = None
    depth: int = 1
    above: tuple[str, ...] = ()


OF_THE_AGENT: Final = Parentage()


@dataclass(frozen=True)
class Verdict:
    """What `judge` found about an ended turn; fields that do not apply are None.

    `at_own_bound`: the turn had all the rounds or all the money that it was given.
    """

    kind: OutcomeKind
    cause: Cause | None = None
    signal: str | None = None
    oom: Oom | None = None
    error_class: ErrorClass | None = None
    error: str | None = None
    text: str | None = None
    warnings: tuple[str, ...] = ()
    limited_until: str | None = None
    cost_usd: float | None = None
    rounds: int | None = None
    at_own_bound: bool = False


@dataclass(frozen=True)
class Outcome:
    """A verdict together with the turn that it is about.

    Times are UTC in ISO 8601 with milliseconds; `verdict.text` may be cut, `text_length` is its full length.
    """

    name: str
    turn: str
    dir: str
    session_id: str | None
    model: str | None
    started_at: str
    ended_at: str
    duration_seconds: float
    text_length: int
    verdict: Verdict = field(repr=False)
    parentage: Parentage = OF_THE_AGENT

    @property
    def state(self) -> State:
        """The state of a subagent whose last turn ended like this."""
        return State.KILLED if self.verdict.kind.cut_off else State.IDLE


@dataclass(frozen=True)
class Undelivered:
    """A sink, by its id, that has not taken a loose end yet; one refused too often there stepped aside."""

    sink: str
    stepped_aside: bool = False


@dataclass(frozen=True)
class LooseEnd:
    """The notice that a turn has ended, kept until the parent closes it.

    `undelivered` is stored together with it, so that no crash can lose a delivery; `number` is its place in
    the order of storing, 0 where there are no sinks.
    """

    id: str
    title: str
    outcome: Outcome
    closed_at: str | None = None
    number: int = 0
    undelivered: tuple[Undelivered, ...] = ()


@dataclass(frozen=True)
class SentSignal:
    """A signal of ours to a turn: why, and how much the turn had written when it was sent."""

    signal: int
    cause: Cause
    stdout_bytes: int
