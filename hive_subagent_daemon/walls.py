"""Telling a parent that it runs into the same wall again: pure, from how the last turns ended.

A wall is what fails every turn alike, whatever it is about: the login, a limit, the credit, the API. Nothing
is refused for it: only a further turn can tell whether it still stands.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon import clock
from hive_subagent_daemon.values import ErrorClass, OutcomeKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from hive_subagent_daemon.records import SubagentRecord
    from hive_subagent_daemon.values import Outcome

IN_A_ROW: Final = 2
NAMES_SHOWN: Final = 5
RECENT_TURNS: Final = 50
# Older ones say little: limits are of hours, and somebody may have mended the rest.
RECENT: Final = timedelta(hours=6)
ADVICE: Final = {
    ErrorClass.AUTH: "Start no more before claude's login or key is mended.",
    ErrorClass.LIMIT: "Start no more before the limit has passed.",
    ErrorClass.BUDGET: "Start no more before there is credit or budget again.",
    ErrorClass.API: "Start no more at once: try one, and others when it gets through.",
    ErrorClass.SETUP: "Start no more before what claude complains about at its start is mended.",
}


class LastTurns:
    """How the last turns ended: the last one of each name, and further ones of the same name."""

    def __init__(self, known: Mapping[str, SubagentRecord]) -> None:
        """Look at what is remembered of each name, now and later."""
        self._known: Final = known
        self._recent: Final[deque[Outcome]] = deque(maxlen=RECENT_TURNS)

    def all(self) -> list[Outcome]:
        """Return them, each once."""
        turns = (*(record.last_turn for record in self._known.values()), *self._recent)
        return list({outcome.turn: outcome for outcome in turns}.values())

    def add(self, outcome: Outcome) -> Outcome:
        """Add one that has just ended; return it, with a warning for its parent where it met a wall again."""
        told = at_the_end(outcome, self.all())
        verdict = replace(outcome.verdict, warnings=(*outcome.verdict.warnings, *([told] if told else ())))
        self._recent.append(replace(outcome, verdict=replace(verdict, text=None)))
        return replace(outcome, verdict=verdict)


def wall(last_turns: Iterable[Outcome], *, now: datetime) -> str | None:
    """Say what the newest of the last turns failed with alike, whatever their names; None when they did not.

    A turn that was killed or lost says nothing either way.
    """
    alike = _alike(last_turns)
    if len(alike) < IN_A_ROW or now - clock.from_text(alike[0].ended_at) > RECENT:
        return None
    newest = clock.lasting((now - clock.from_text(alike[0].ended_at)).total_seconds())
    return f"{_told(alike)}, the newest {newest} ago. {ADVICE[_class_of(alike[0])]}"


def at_the_end(outcome: Outcome, before: Iterable[Outcome]) -> str | None:
    """Say in the notice of a turn that it failed like the turns before it."""
    now = clock.from_text(outcome.ended_at)
    alike = _alike([*(one for one in before if now - clock.from_text(one.ended_at) < RECENT), outcome])
    if len(alike) < IN_A_ROW or outcome not in alike:
        return None
    return f"{_told(alike)}. {ADVICE[_class_of(outcome)]}"


def _alike(last_turns: Iterable[Outcome]) -> list[Outcome]:
    """Return the newest turns that met one and the same wall, newest first."""
    newest_first = sorted(last_turns, key=lambda outcome: outcome.ended_at, reverse=True)
    told = [outcome for outcome in newest_first if not outcome.verdict.kind.cut_off]
    return _leading(told, _class_of(told[0])) if told and _class_of(told[0]) in ADVICE else []


def _class_of(outcome: Outcome) -> ErrorClass:
    return outcome.verdict.error_class or ErrorClass.OTHER


def _told(alike: Sequence[Outcome]) -> str:
    """Say how many failed alike, with what, until when, and under which names."""
    names = list(dict.fromkeys(outcome.name for outcome in alike))
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    until = next((o.verdict.limited_until for o in alike if o.verdict.limited_until), None)
    limited = f", limited until {until}" if until else ""
    met = f"{_class_of(alike[0])}{limited}: {', '.join(names[:NAMES_SHOWN])}{more}"
    return f"The last {len(alike)} turns failed alike ({met})"


def _leading(told: Sequence[Outcome], error_class: ErrorClass) -> list[Outcome]:
    """Return the outcomes from the first on that failed with this class."""
    alike: list[Outcome] = []
    for outcome in told:
        verdict = outcome.verdict
        if verdict.kind is not OutcomeKind.FAILED or verdict.error_class is not error_class:
            break
        if verdict.at_own_bound:  # it got through, as far as it was allowed to
            break
        alike.append(outcome)
    return alike
