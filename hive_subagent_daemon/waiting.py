"""Waiting for the first of several turns to end: events only, nothing is looked at meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from hive_subagent_daemon.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hive_subagent_daemon.turns import Turn


class Waits:
    """All calls that wait for turns; at the daemon's stop they end before the turns do."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._closing: Final = anyio.Event()

    def close(self) -> None:
        """Let every waiting call be refused, now and later: the daemon stops."""
        self._closing.set()

    async def first_end(self, turns: Iterable[Turn], *, within_seconds: float) -> None:
        """Return when one of the turns has ended, or the time is over; raises RefusedError at a stop."""
        with anyio.move_on_after(within_seconds):
            async with anyio.create_task_group() as waiting:

                async def wait(event: anyio.Event) -> None:
                    await event.wait()
                    waiting.cancel_scope.cancel()

                for event in (self._closing, *(turn.ended for turn in turns)):
                    waiting.start_soon(wait, event)
        if self._closing.is_set():
            message = (
                "the daemon is stopping, so there is nothing more to wait for: when it is back, "
                "get_loose_ends tells what has ended."
            )
            raise RefusedError(message)
