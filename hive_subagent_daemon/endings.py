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
    from hive_subagent_daemon.values import Outcome

_log = logging.getLogger(__name__)

CONCLUDE_AGAIN_SECONDS: Final = 0.5
STORE_RETRY_SECONDS: Final = (0.2, 1.0, 5.0, 15.0)


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


class Endings:
    """Finds out and stores the ends of turns, however long descriptors, threads or the disk are lacking.

    `unstored` says of each turn that waits what it waits for; it shows in `status`.
    """

    def __init__(self) -> None:
        """Begin with none that waits."""
        self.unstored: dict[str, str] = {}
        self._giving_up = anyio.Event()

    def give_up(self) -> None:
        """Try nothing again from now on: the records stay, and the next start settles their turns."""
        self._giving_up.set()

    async def concluded(self, turn: Turn, judged: Callable[[], Awaitable[Outcome]]) -> Outcome | None:
        """Judge a turn as soon as there is what that needs: descriptors, threads, memory. None: given up."""
        while not self._giving_up.is_set():
            try:
                return await judged()
            except OSError as error:
                told = f"how {turn.record.name} ended cannot be found out yet: {error}"
                self.unstored[turn.record.turn] = told
                _log.error("%s", told, extra=fields(turn))
            with anyio.move_on_after(CONCLUDE_AGAIN_SECONDS):
                await self._giving_up.wait()
        return None

    async def stored(self, turn: Turn, store: Callable[[], None]) -> bool:
        """Store as soon as the disk takes it. False: given up."""
        turn_id = turn.record.turn
        tries = 0
        while True:
            try:
                await in_thread(store)
            except OSError as error:
                self.unstored[turn_id] = f"the end of {turn.record.name} cannot be stored yet: {error}"
                _log.error("%s", self.unstored[turn_id], extra=fields(turn))
            else:
                self.unstored.pop(turn_id, None)
                return True
            with anyio.move_on_after(STORE_RETRY_SECONDS[min(tries, len(STORE_RETRY_SECONDS) - 1)]):
                await self._giving_up.wait()
                return False
            tries += 1


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
