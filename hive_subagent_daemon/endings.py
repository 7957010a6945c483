"""Ending turns: noted first, again where the system lacks what it needs, until all of several have ended."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio

from hive_subagent_daemon.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hive_subagent_daemon.records import Records
    from hive_subagent_daemon.turns import Turn

_log = logging.getLogger(__name__)

CONCLUDE_AGAIN_SECONDS: Final = 0.5


class Keeper:
    """Keeps the records of running turns up to date."""

    def __init__(self, records: Records) -> None:
        """Store them there."""
        self._records = records
        self._one_at_a_time = anyio.Lock()

    async def keep(self, turn: Turn) -> None:
        """Store the record of a turn as it is now; a disk that refuses holds up nothing."""
        try:
            async with self._one_at_a_time:  # the newest is stored last
                await in_thread(self._records.update_turn, turn.record)
        except OSError as error:
            _log.warning("the record of turn %s was not brought up to date: %s", turn.record.turn, error)


async def until_ended(turn: Turn, end: Callable[[], Awaitable[object]]) -> None:
    """End a turn; where the system lacks the descriptors or threads for it, again until claude has gone."""
    while not turn.exited.is_set():
        try:
            await end()
        except OSError as error:
            _log.error("turn %s cannot be ended yet: %s", turn.record.turn, error, extra=fields(turn))
        else:
            return
        with anyio.move_on_after(CONCLUDE_AGAIN_SECONDS):
            await turn.exited.wait()


async def all_ended(turns: list[Turn], *, within_seconds: float) -> bool:
    """Wait for the ends of all, for so long at most; tell whether they have come."""
    with anyio.move_on_after(within_seconds):
        for turn in turns:
            await turn.ended.wait()
    return all(turn.ended.is_set() for turn in turns)


def fields(turn: Turn) -> dict[str, str]:
    """Return the journal's fields for a turn; never its prompt, text or environment."""
    return {"SUBAGENT_NAME": turn.record.name, "SUBAGENT_TURN": turn.record.turn}
