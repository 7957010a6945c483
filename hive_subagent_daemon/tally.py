"""What has happened since the daemon began, counted: plain numbers, which `metrics` tells.

They begin anew with each daemon, and each end of a turn is counted by the daemon that stored its loose end.
Labels come from closed sets and from the configuration, never from the names of subagents.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon import clock
from hive_subagent_daemon.deliveries import Answer, Reply
from hive_subagent_daemon.values import Cause, ErrorClass, LooseEnd, Outcome, OutcomeKind

if TYPE_CHECKING:
    from collections.abc import Iterable

START_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
TURN_SECONDS: Final = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0)
TURN_USD: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
DELAY_SECONDS: Final = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)


@dataclass(frozen=True, order=True)
class Ending:
    """How a turn ended, in the words of the contract; an empty word where there is none."""

    outcome: str
    cause: str = ""
    error_class: str = ""


@dataclass(frozen=True)
class Distribution:
    """Observations by size: how many were at most each bound (the last one is infinity), and their sum."""

    bounds: tuple[float, ...]
    at_most: tuple[int, ...]
    total: float


class Histogram:
    """Counts observations by size."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """Nothing has been observed."""
        self._bounds: Final = bounds
        self._counts: Final = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        """Count one more."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def so_far(self) -> Distribution:
        """Return what was observed until now."""
        return Distribution(self._bounds, tuple(accumulate(self._counts)), self._total)


@dataclass(frozen=True)
class SinkCounts:
    """What became of the attempts at one sink, by its answer, and how late what it took was."""

    attempts: dict[str, int]
    delays: Distribution


@dataclass(frozen=True)
class Counts:
    """Everything counted, as it is at one moment."""

    endings: dict[Ending, int]
    oom_kills: int
    starts: Distribution
    durations: Distribution
    costs: Distribution
    sinks: dict[str, SinkCounts]


class Tally:
    """Counts as it is told. Use from the event loop only."""

    def __init__(self, sinks: Iterable[str]) -> None:
        """Nothing has happened; `sinks` are all labels: a series that begins late hides its first event."""
        self._endings: Final[Counter[Ending]] = Counter(dict.fromkeys(_all_endings(), 0))
        self._oom_kills = 0
        self._starts: Final = Histogram(START_SECONDS)
        self._durations: Final = Histogram(TURN_SECONDS)
        self._costs: Final = Histogram(TURN_USD)
        self._attempts: Final = {sink: Counter(dict.fromkeys(Reply, 0)) for sink in sinks}
        self._delays: Final = {sink: Histogram(DELAY_SECONDS) for sink in self._attempts}

    def spawned(self, seconds: float) -> None:
        """Count a turn that runs, this long after it was asked for."""
        self._starts.observe(seconds)

    def ended(self, outcome: Outcome) -> None:
        """Count a turn whose loose end is stored."""
        verdict = outcome.verdict
        self._endings[Ending(verdict.kind, verdict.cause or "", verdict.error_class or "")] += 1
        self._oom_kills += verdict.oom.kills if verdict.oom else 0
        if verdict.kind.ran:
            self._durations.observe(outcome.duration_seconds)
        if verdict.cost_usd is not None:
            self._costs.observe(verdict.cost_usd)

    def answered(self, sink: str, loose_end: LooseEnd, answer: Answer) -> None:
        """Count an attempt at a sink."""
        self._attempts[sink][answer.reply] += 1
        if answer.reply is Reply.TAKEN:
            late = (clock.now() - clock.from_text(loose_end.outcome.ended_at)).total_seconds()
            self._delays[sink].observe(max(0.0, late))  # the wall clock may have been set back

    def so_far(self) -> Counts:
        """Return what was counted until now."""
        sinks = {
            sink: SinkCounts(
                {reply.name.lower(): count for reply, count in attempts.items()}, self._delays[sink].so_far()
            )
            for sink, attempts in self._attempts.items()
        }
        return Counts(
            endings=dict(self._endings),
            oom_kills=self._oom_kills,
            starts=self._starts.so_far(),
            durations=self._durations.so_far(),
            costs=self._costs.so_far(),
            sinks=sinks,
        )


def _all_endings() -> list[Ending]:
    """Return every way in which turns end: what has not happened yet must be seen to be none."""
    return [
        Ending(OutcomeKind.COMPLETED),
        *(Ending(OutcomeKind.FAILED, error_class=error_class) for error_class in ErrorClass),
        *(Ending(OutcomeKind.KILLED, cause=cause) for cause in Cause),
        Ending(OutcomeKind.COULD_NOT_START),
        Ending(OutcomeKind.LOST, cause=Cause.UNKNOWN),
    ]
