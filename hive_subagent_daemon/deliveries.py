"""What becomes of a loose end on its way to one sink: decided here, by values alone.

A sink takes a loose end, refuses that one (the fault is the notice's), or fails (the fault is the sink's).
Until one is taken it is tried again, in order and for ever; one that was refused five times steps aside, so
that it holds up no other, and is tried every ten minutes.
"""

from __future__ import annotations

import math
import signal
from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon.values import Exit, Exited, Signalled

if TYPE_CHECKING:
    from collections.abc import Iterable

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
ASIDE_SECONDS: Final = 600.0
JITTER: Final = 0.2
REFUSALS: Final = 5
REFUSED_EXIT: Final = 65  # EX_DATAERR of sysexits.h: the input is at fault
_NOT_THE_NOTICE: Final = (408, 425, 429)  # time-out, too early, too many: the same may be taken later


class Reply(Enum):
    """How a sink answered one attempt."""

    TAKEN = auto()
    REFUSED = auto()
    FAILED = auto()


@dataclass(frozen=True)
class Answer:
    """A sink's answer to one attempt; unless it was taken, with the reason in words for people."""

    reply: Reply
    reason: str = ""


TAKEN: Final = Answer(Reply.TAKEN)


def of_status(status: int) -> Answer:
    """Return what an HTTP status means: 2xx is taken; of the others only a 4xx blames the notice."""
    if 200 <= status < 300:
        return TAKEN
    if 300 <= status < 400:
        return failed(f"it answered with status {status}, and redirects are not followed: use the final URL")
    blames = 400 <= status < 500 and status not in _NOT_THE_NOTICE
    return Answer(Reply.REFUSED if blames else Reply.FAILED, f"it answered with status {status}")


def of_exit(exit_: Exit) -> Answer:
    """Return what the end of a program means: exit code 0 is taken, 65 (EX_DATAERR) blames the notice."""
    match exit_:
        case Exited(code=0):
            return TAKEN
        case Exited(code=code):
            return Answer(
                Reply.REFUSED if code == REFUSED_EXIT else Reply.FAILED, f"its exit code was {code}"
            )
        case Signalled(signal=number):
            known = number in list(signal.Signals)
            return failed(f"it was killed by {signal.Signals(number).name if known else f'signal {number}'}")
        case _:
            return failed("how it ended is not known")


def failed(reason: str) -> Answer:
    """Return the answer of a sink that could not take anything now."""
    return Answer(Reply.FAILED, reason)


def pause_seconds(tries: int, *, chance: float) -> float:
    """Return how long to wait after so many tries: doubling from 1 s to 60 s, a fifth more or less.

    `chance` is a random number from 0 to 1; without it all daemons of a host would knock at once.
    """
    doubled = FIRST_PAUSE_SECONDS * 2.0 ** min(tries - 1, 10)
    return _spread(min(doubled, LONGEST_PAUSE_SECONDS), chance)


def _spread(seconds: float, chance: float) -> float:
    return seconds * (1 - JITTER + 2 * JITTER * chance)


class Step(Enum):
    """What follows an attempt."""

    DONE = auto()
    STEPS_ASIDE = auto()
    AGAIN = auto()


class Queue:
    """What one sink has not taken yet: the waiting ones in order, and those that stepped aside.

    Times are those of a monotonic clock. An attempt is decided by `step`; once that is noted on the disk, one
    of `done`, `step_aside` and `again` makes it true.
    """

    def __init__(self, waiting: Iterable[str] = (), aside: Iterable[str] = ()) -> None:
        """Begin with everything due at once."""
        self.waiting = deque(waiting)
        self.aside = dict.fromkeys(aside, -math.inf)
        self.tries = 0
        self._refusals = 0
        self._due = -math.inf

    def __len__(self) -> int:
        """How many are not delivered."""
        return len(self.waiting) + len(self.aside)

    def add(self, loose_end_id: str) -> None:
        """Take one more, behind all others; one that is here already stays where it is."""
        if loose_end_id not in self.waiting and loose_end_id not in self.aside:
            self.waiting.append(loose_end_id)

    def due_at(self) -> float:
        """Return when the next attempt is due, infinity for never."""
        head = [self._due] if self.waiting else []
        return min([*head, *self.aside.values()], default=math.inf)

    def next(self, now: float) -> str | None:
        """Return which one to try now; one that stepped aside only when no other is due."""
        if self.waiting and self._due <= now:
            return self.waiting[0]
        due = [loose_end_id for loose_end_id, moment in self.aside.items() if moment <= now]
        return min(due, key=lambda one: self.aside[one], default=None)

    def step(self, loose_end_id: str, answer: Answer) -> Step:
        """Decide what follows from an answer."""
        if answer.reply is Reply.TAKEN:
            return Step.DONE
        if answer.reply is Reply.REFUSED and self._is_head(loose_end_id) and self._refusals + 1 >= REFUSALS:
            return Step.STEPS_ASIDE
        return Step.AGAIN

    def done(self, loose_end_id: str) -> None:
        """Forget one that was taken, or that there is no more."""
        if self._is_head(loose_end_id):
            self._next_head()
        self.aside.pop(loose_end_id, None)

    def step_aside(self, loose_end_id: str, *, now: float, chance: float) -> None:
        """Let the others pass."""
        self._next_head()
        self.aside[loose_end_id] = now + _spread(ASIDE_SECONDS, chance)

    def again(self, loose_end_id: str, answer: Answer, *, now: float, chance: float) -> None:
        """Put one off."""
        if self._is_head(loose_end_id):
            self.tries += 1
            self._refusals += answer.reply is Reply.REFUSED
            self._due = now + pause_seconds(self.tries, chance=chance)
        else:
            self.aside[loose_end_id] = now + _spread(ASIDE_SECONDS, chance)

    def _is_head(self, loose_end_id: str) -> bool:
        return bool(self.waiting) and self.waiting[0] == loose_end_id

    def _next_head(self) -> None:
        self.waiting.popleft()
        self.tries = self._refusals = 0
        self._due = -math.inf
