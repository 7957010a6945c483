"""When an idle daemon may leave: after `idle_exit_seconds` without anything going on.

What goes on is a turn, a loose end that a sink has not taken, and a connection on which somebody is to be
answered: a call, a parent that waits (`wait`, `/notices`), a request that is arriving. Nothing is polled: the
clock is looked at no earlier than at the first moment at which it could have run out.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)

LEAST_SECONDS: Final = 0.01  # with less the event loop would look all the time and do nothing else


def earliest_exit(now: float, *, last_use: float, going_on: bool, seconds: float) -> float:
    """Return the earliest moment at which the daemon can have been idle for long enough; 0 seconds: never.

    What goes on now can end at once, and is not noticed to end: so it counts as used until now.
    """
    if not seconds:
        return math.inf
    return (now if going_on else last_use) + seconds


def ignored_idle_exit(seconds: float, *, comes_back: bool) -> list[str]:
    """Say that the daemon stays, where nobody would start it again."""
    if not seconds or comes_back:
        return []
    notice = (
        f"idle_exit_seconds = {seconds:g} is ignored: this daemon has opened its addresses itself, so nobody "
        "could start it again; install its socket unit (hive-subagent-daemon units), or set 0"
    )
    _log.warning("%s", notice)
    return [notice]


class Idling:
    """Since when nothing goes on. Use from the event loop only."""

    def __init__(
        self,
        seconds: float,
        *,
        comes_back: bool,
        has_work: Callable[[], bool],
        on_leave: Callable[[], None] = lambda: None,
    ) -> None:
        """Count from now on; without somebody who starts the daemon again (`comes_back`) it never leaves.

        `has_work` tells whether something goes on beside connections, `on_leave` is called before the exit.
        """
        self._comes_back: Final = comes_back
        self._has_work: Final = has_work
        self._on_leave: Final = on_leave
        self._seconds = _kept(seconds) if comes_back else 0.0
        self._last_use = anyio.current_time()
        self._changed = anyio.Event()

    def used(self) -> None:
        """Hear that something goes on, or went on until now."""
        self._last_use = anyio.current_time()

    def set_seconds(self, seconds: float) -> None:
        """Leave after this long; the time counts from now, since somebody is there who has set it."""
        self.used()
        if self._comes_back:
            self._seconds = _kept(seconds)
        else:
            ignored_idle_exit(seconds, comes_back=False)
        self._changed.set()
        self._changed = anyio.Event()

    @property
    def is_due(self) -> bool:
        """Whether nothing has been going on for long enough, as far as connections do not tell otherwise."""
        return self._earliest_exit() <= anyio.current_time()

    async def until_due(self) -> None:
        """Return when the daemon may leave, if nobody is to be answered."""
        while not self.is_due:
            changed = self._changed
            with anyio.CancelScope(deadline=self._earliest_exit()):
                await changed.wait()

    def leaves(self) -> None:
        """Say that the daemon leaves now."""
        _log.info("leaving after %g s with nothing to do: the next call starts a daemon again", self._seconds)
        self._on_leave()

    def _earliest_exit(self) -> float:
        return earliest_exit(
            anyio.current_time(),
            last_use=self._last_use,
            going_on=self._has_work(),
            seconds=self._seconds,
        )


def _kept(seconds: float) -> float:
    return max(seconds, LEAST_SECONDS) if seconds else 0.0
