"""The registry of what runs, and the end of every turn in it.

A name is free, claimed by a call that is spawning, or running. It becomes free again only when the loose end
of its turn is stored. The registry is in memory and the daemon's alone; what must survive is in `records`.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from hive_subagent_daemon import clock, kinship
from hive_subagent_daemon.endings import Endings, Keeper, all_ended, fields, until_ended
from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.launcher import Leftovers
from hive_subagent_daemon.steering import all_written, follow_input
from hive_subagent_daemon.threads import in_thread
from hive_subagent_daemon.turn_ends import loose_end_of, remembered, store_end
from hive_subagent_daemon.values import Cause, Exit, Outcome
from hive_subagent_daemon.walls import LastTurns

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from datetime import datetime

    from anyio.abc import TaskGroup

    from hive_subagent_daemon.config_values import Limits
    from hive_subagent_daemon.inbox import Inbox
    from hive_subagent_daemon.membership import TurnRoot
    from hive_subagent_daemon.records import Records, SubagentRecord
    from hive_subagent_daemon.turns import Turn

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
SPAWNING_SECONDS: Final = 2.0
STOP_SOFT_SECONDS: Final = 3.0
STOP_HARD_SECONDS: Final = 4.0
GONE_SECONDS: Final = 0.5  # a systemd that hangs must not hold up the news


class Registry:
    """All running turns and all remembered names. Use from the event loop only."""

    def __init__(
        self, limits: Limits, *, records: Records, inbox: Inbox, known: dict[str, SubagentRecord]
    ) -> None:
        """Begin with what is remembered and nothing running."""
        self.limits = limits
        self.running: dict[str, Turn] = {}
        self.known = known
        self.strayed: dict[str, str] = {}
        self.claude_version: str | None = None
        self.on_change: Callable[[], None] = lambda: None
        self.adopts = False
        self._records = records
        self._inbox = inbox
        self.ended = LastTurns(known)
        self._claimed: set[str] = set()
        self._forced: set[str] = set()
        self._started_by: dict[str, str] = {}
        self._unclaimed = anyio.Event()
        self._keep = Keeper(records).keep
        self._endings = Endings()
        self._stopping = False
        self._attending: TaskGroup | None = None
        self._some_running = anyio.Event()

    @contextmanager
    def claim(self, name: str) -> Iterator[None]:
        """Hold a name while its turn is being spawned; raises RefusedError when it is not free."""
        self._check_free(name)
        self._check_room()
        self._claimed.add(name)
        self._unclaimed = anyio.Event()
        try:
            yield
        finally:
            self._claimed.discard(name)
            if not self._claimed:
                self._unclaimed.set()
            self._forget_ended()
            self.on_change()  # a refusal can have told of trouble

    def _forget_ended(self) -> None:
        """Forget of ended turns whose they were; but not while one may be spawned that descends from them."""
        if not self._claimed:
            self._forced &= {turn.record.turn for turn in self.running.values()}
            self._started_by = kinship.still_needed(self.running.values(), self._started_by)

    @property
    def unstored(self) -> dict[str, str]:
        """What is said of turns that have ended and whose ends cannot be found out or stored yet."""
        return self._endings.unstored

    @property
    def busy(self) -> bool:
        """Whether a turn runs, or is being spawned by a call."""
        return bool(self.running or self._claimed)

    def _check_free(self, name: str) -> None:
        if self._stopping:
            message = "the daemon is stopping: try again when it is back."
            raise RefusedError(message)
        if (turn := self.running.get(name)) is not None:
            running = clock.lasting(time.monotonic() - turn.started)
            age = clock.lasting(turn.output.age_seconds())
            message = (
                f"name {name!r} is running for {running}, its last output is {age} old: "
                "wait for its loose end, interrupt it, or use another name."
            )
            raise RefusedError(message)
        if name in self._claimed:
            message = f"name {name!r} is being started by another call right now: use another name."
            raise RefusedError(message)

    def _check_room(self) -> None:
        if len(self.running) + len(self._claimed) >= self.limits.max_running:
            names = ", ".join(sorted({*self.running, *self._claimed}))
            message = (
                f"max_running is {self.limits.max_running} and that many are running ({names}): "
                "wait for a loose end, or interrupt one of them."
            )
            raise RefusedError(message)

    def attend(self, turn: Turn) -> None:
        """Take over a turn, spawned or adopted: it is followed to its end from now on.

        One that descends from a turn that was killed while it was spawned is killed too.
        """
        record = turn.record
        turn.keep = self._keep if self.adopts or turn.record.steerable else None
        self.running[record.name] = turn
        if record.parentage.turn is not None:
            self._started_by[record.turn] = record.parentage.turn
            self._started_by |= kinship.handed_down(record.parentage)
        self._start_soon(partial(self._follow, turn), f"turn {record.turn} of {record.name}")
        self._some_running.set()
        if turn.steering is not None:
            self._start_soon(partial(follow_input, turn, lambda: self.limits), f"input of {record.turn}")
        if not self._forced.isdisjoint(kinship.above(turn, self._started_by)):
            self._forced.add(record.turn)
            kill = partial(turn.kill, Cause.FORCED_INTERRUPT)
            self._start_soon(partial(until_ended, turn, kill), f"killing {record.turn}")
        if turn.adopted:
            self._start_soon(partial(until_ended, turn, turn.go_on), f"going on with {record.turn}")
        what = "goes on" if turn.adopted else "began"
        _log.info("turn %s of %s %s", record.turn, record.name, what, extra=fields(turn))
        self.on_change()

    def knows(self, name: str) -> bool:
        """Tell whether a subagent of this name runs or is remembered."""
        return name in self.running or name in self.known

    def parent_of(self, name: str) -> str | None:
        """Return the subagent that gave a name its running or last turn; None: the agent, or nobody."""
        if (turn := self.running.get(name)) is not None:
            return turn.record.parentage.name
        record = self.known.get(name)
        return record.last_turn.parentage.name if record else None

    def turn_with(self, turn_id: str) -> Turn | None:
        """Return a running turn by its id."""
        return next((turn for turn in self.running.values() if turn.record.turn == turn_id), None)

    def nested_in(self, turn_id: str) -> list[Turn]:
        """Return the running turns that a turn has started, and those that they have."""
        return kinship.nested_in(turn_id, self.running.values(), self._started_by)

    def tree(self) -> list[str]:
        """Return the names that run, each followed by those that it has started."""
        return kinship.as_tree({name: self.parent_of(name) for name in self.running})

    def is_forced(self, turn: Turn) -> bool:
        """Tell whether a turn is being killed by `force`."""
        return turn.record.turn in self._forced

    async def force(self, turn: Turn) -> Leftovers:
        """Kill a turn, then those that it has started; return what was killed of all of them.

        None of them starts anything from the beginning on, so that nothing is left that came meanwhile.
        """
        doomed = [turn, *self.nested_in(turn.record.turn)]
        self._forced |= {one.record.turn for one in doomed}
        for one in doomed:  # all of them before the first is killed: else those below it outlive our death
            with suppress(OSError):  # no descriptor is left for it: its killing tells
                await one.doom(Cause.FORCED_INTERRUPT)
        leftovers = Leftovers()
        trouble: OSError | None = None
        for one in doomed:
            try:
                leftovers += await one.kill(Cause.FORCED_INTERRUPT)
            except OSError as error:
                trouble = error  # the others are killed all the same
        if trouble is not None:
            raise trouble
        return leftovers

    def stalled(self) -> dict[str, float]:
        """Return which turns have been silent for too long, and for how many seconds, as of the last look."""
        return {name: turn.output.silent_seconds() for name, turn in self.running.items() if turn.silent}

    def roots(self) -> list[TurnRoot]:
        """Return by what the processes of every running turn are recognised."""
        return [turn.root for turn in self.running.values()]

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Follow turns until cancelled; `stop` comes first, or running turns are left alone."""
        async with anyio.create_task_group() as attending:
            self._attending = attending
            task_status.started()
            while True:
                if not self.running:
                    # Idle: nothing wakes up until a turn begins.
                    self._some_running = anyio.Event()
                    await self._some_running.wait()
                await anyio.sleep(LOOK_SECONDS)
                try:
                    await self._look()
                except OSError as error:  # no descriptor is left for it
                    _log.error("the running turns could not be looked at: %s", error)

    def _start_soon(self, function: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        if self._attending is None:
            message = "the registry does not run"
            raise RuntimeError(message)
        self._attending.start_soon(function, name=name)

    async def _look(self) -> None:
        """Follow every running turn a little, and end those that overstay their result."""
        turns = list(self.running.values())
        for turn in turns:
            turn.output.age_seconds()
        await in_thread(_look_at, turns)
        await in_thread(self._records.restore_ballast)
        for turn in turns:
            await self._note_outlived(turn)
            self._tell_strayed(turn)
            turn.notice_activity(stall_after_seconds=self.limits.stall_after_seconds)
            if turn.is_overdue():
                turn.timed_out = True
                _log.warning("turn %s has taken all its time", turn.record.turn, extra=fields(turn))
                self._start_soon(partial(until_ended, turn, turn.time_out), f"time-out of {turn.record.turn}")
            if turn.overstays(grace_seconds=self.limits.exit_grace_seconds):
                turn.stopped_after_result = True
                end = partial(until_ended, turn, turn.end_after_result)
                self._start_soon(end, f"ending {turn.record.turn}")

    async def _note_outlived(self, turn: Turn) -> None:
        """Store which kills for lack of memory claude has outlived: they are not to explain a later end."""
        outlived = turn.oom_kills.outlived
        if outlived == turn.record.oom_outlived or turn.exited.is_set():
            return
        turn.record = replace(turn.record, oom_outlived=outlived)
        await self._keep(turn)

    def _tell_strayed(self, turn: Turn) -> None:
        name = turn.record.name
        if turn.strayed and name not in self.strayed and self.running.get(name) is turn:
            self.strayed[name] = (
                f"{name} has left its scope {turn.child.scope}: its memory is not limited or measured there."
            )
            _log.warning("%s", self.strayed[name], extra=fields(turn))

    async def _follow(self, turn: Turn) -> None:
        """Wait for the end of a turn and store it; not to be cancelled in between."""
        exit_ = await turn.child.wait()
        turn.exited.set()
        if turn.steering is not None:
            turn.steering.close()
        ended_at = clock.now()
        with anyio.CancelScope(shield=True):
            outcome = await self._endings.concluded(turn, partial(self._judged, turn, exit_, ended_at))
            if outcome is not None:
                await self._store(turn, outcome)

    async def _judged(self, turn: Turn, exit_: Exit, ended_at: datetime) -> Outcome:
        nested = tuple(one.record.name for one in self.nested_in(turn.record.turn))
        return await turn.conclude(exit_, ended_at=ended_at, nested=nested)

    async def _store(self, turn: Turn, outcome: Outcome) -> None:
        """Store the loose end, however long the disk refuses; then free the name and show it."""
        record = turn.record
        outcome = self.ended.add(outcome)
        loose_end = loose_end_of(outcome)
        before = self.known.get(record.name)
        now = remembered(record, outcome, before)
        store = partial(store_end, self._records, self._inbox, loose_end, before=before, now=now)
        if not await self._endings.stored(turn, store):
            return  # the record of the turn stays: the next start settles it
        gone = anyio.Event()
        self._start_soon(partial(self._clear_away, turn, gone), f"clearing {record.turn} away")
        with anyio.move_on_after(GONE_SECONDS):
            await gone.wait()
        turn.output.retire()
        await in_thread(turn.output.close)
        self.known[record.name] = now
        del self.running[record.name]
        self._forget_ended()
        self.strayed.pop(record.name, None)
        self._inbox.show(loose_end)
        init = turn.output.seen.init
        self.claude_version = (init.version if init else None) or self.claude_version
        turn.outcome = outcome
        turn.ended.set()
        level = logging.WARNING if outcome.verdict.kind.cut_off else logging.INFO
        ended = fields(turn) | {"SUBAGENT_OUTCOME": outcome.verdict.kind.value}
        _log.log(level, "turn %s ended: %s", record.turn, loose_end.title, extra=ended)
        self.on_change()

    async def _clear_away(self, turn: Turn, gone: anyio.Event) -> None:
        """Leave nothing of a turn whose end is stored: its units, then its folder; not to be cancelled."""
        record = turn.record
        with anyio.CancelScope(shield=True):
            await turn.child.release()
            await self._endings.stored(turn, partial(self._records.end_turn, record.turn, record.name))
            gone.set()

    async def stop(self) -> None:
        """End every running turn, each with its loose end; within about twelve seconds."""
        await self._spawn_no_more()
        turns = list(self.running.values())
        with anyio.move_on_after(STOP_SOFT_SECONDS):
            async with anyio.create_task_group() as asking:
                for turn in turns:
                    ask = partial(turn.interrupt, Cause.DAEMON_STOPPED)
                    asking.start_soon(until_ended, turn, ask)
        if await all_ended(turns, within_seconds=STOP_SOFT_SECONDS):
            return
        with anyio.move_on_after(STOP_HARD_SECONDS):
            async with anyio.create_task_group() as killing:
                for turn in turns:
                    killing.start_soon(until_ended, turn, partial(turn.kill, Cause.DAEMON_STOPPED))
        if not await all_ended(turns, within_seconds=STOP_HARD_SECONDS):
            _log.error("some turns did not end in time; the next start will settle them")
        self._endings.give_up()

    async def leave(self) -> None:
        """Leave what runs to the next daemon; what has ended by now is stored, within about seven seconds."""
        await self._spawn_no_more()
        await all_written(self.running.values())
        ending = [turn for turn in self.running.values() if turn.exited.is_set()]
        if not await all_ended(ending, within_seconds=STOP_SOFT_SECONDS + STOP_HARD_SECONDS):
            _log.error("some turns that ended are not stored; the next start will settle them")
        self._endings.give_up()
        _log.info("turns that go on without a daemon: %d", len(self.running))

    async def _spawn_no_more(self) -> None:
        self._stopping = True
        if self._claimed:  # a turn that is being spawned now comes to run first
            with anyio.move_on_after(SPAWNING_SECONDS):
                await self._unclaimed.wait()

    async def forget_idle(self, *, days: int) -> int:
        """Forget names whose last turn ended longer ago than this; return how many."""
        limit = clock.now() - timedelta(days=days)
        old = [
            record
            for name, record in self.known.items()
            if name not in self.running
            and name not in self._claimed
            and clock.from_text(record.last_turn.ended_at) < limit
        ]
        for record in old:
            del self.known[record.name]
            await in_thread(self._records.forget, record)
        return len(old)


def _look_at(turns: list[Turn]) -> None:
    for turn in turns:
        turn.look()
