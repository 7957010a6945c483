"""Telling a parent that it runs into the same wall again: pure, from how the last turns ended.

A wall is what fails every turn alike, whatever it is about: the login, a limit, the credit, the API. Nothing
is refused for it: only a further turn can tell whether it still stands.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon import clock
from hive_subagent_daemon.values import ErrorClass, OutcomeKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from hive_subagent_daemon.values import Outcome

IN_A_ROW: Final = 2
NAMES_SHOWN: Final = 5
# Older ones say little: limits are of hours, and somebody may have mended the rest.
RECENT: Final = timedelta(hours=6)
ADVICE: Final = {
    ErrorClass.AUTH: "Start no more before claude's login or key is mended.",
    ErrorClass.LIMIT: "Start no more before the limit has passed.",
    ErrorClass.BUDGET: "Start no more before there is credit or budget again.",
    ErrorClass.API: "Start no more at once: try one, and others when it gets through.",
    ErrorClass.SETUP: "Start no more before what claude complains about at its start is mended.",
}


def wall(last_turns: Iterable[Outcome], *, now: datetime) -> str | None:
    """Say what the newest of the last turns of all names failed with alike; None when they did not.

    A turn that was killed or lost says nothing either way.
    """
    newest_first = sorted(last_turns, key=lambda outcome: outcome.ended_at, reverse=True)
    told = [outcome for outcome in newest_first if not outcome.verdict.kind.cut_off]
    if not told or told[0].verdict.error_class not in ADVICE:
        return None
    error_class = told[0].verdict.error_class
    alike = _leading(told, error_class)
    if len(alike) < IN_A_ROW or now - clock.from_text(alike[0].ended_at) > RECENT:
        return None
    names = ", ".join(outcome.name for outcome in alike[:NAMES_SHOWN])
    more = f" and {len(alike) - NAMES_SHOWN} more" if len(alike) > NAMES_SHOWN else ""
    until = next((o.verdict.limited_until for o in alike if o.verdict.limited_until), None)
    limited = f", limited until {until}" if until else ""
    return (
        f"The last turns of {len(alike)} subagents failed alike ({error_class}{limited}: {names}{more}), the "
        f"newest {clock.lasting((now - clock.from_text(alike[0].ended_at)).total_seconds())} ago. "
        f"{ADVICE[error_class]}"
    )


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
