"""What an earlier daemon left: each ended turn gets its one loose end; what lives is stopped or adopted."""

from __future__ import annotations

import logging
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from hive_subagent_daemon import archive, clock, procfs
from hive_subagent_daemon.adoption import adopted
from hive_subagent_daemon.evidence import Evidence, with_counters
from hive_subagent_daemon.gate import gate_complaint
from hive_subagent_daemon.launcher import Child, Launcher, Leftovers
from hive_subagent_daemon.membership import TurnRoot
from hive_subagent_daemon.output import Output, TurnFiles
from hive_subagent_daemon.records import SubagentRecord, TurnRecord
from hive_subagent_daemon.stream_input import still_unread
from hive_subagent_daemon.threads import in_thread
from hive_subagent_daemon.turn_ends import loose_end_of, outcome_of, remembered, store_end
from hive_subagent_daemon.values import Cause, ExitUnknown, LooseEnd, Outcome, SentSignal

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from hive_subagent_daemon.cgroups import OomCounters
    from hive_subagent_daemon.inbox import Inbox
    from hive_subagent_daemon.records import Records
    from hive_subagent_daemon.storage import Storage
    from hive_subagent_daemon.turns import Turn

_log = logging.getLogger(__name__)

STOP_SECONDS: Final = 3.0
NOT_RECORDED: Final = 0  # as pid: the record was lost, so nobody knows it


@dataclass(frozen=True)
class _Left:
    """A turn of an earlier daemon that has no loose end yet, what there is of it, and whether that lives."""

    record: TurnRecord
    folder: Path
    child: Child | None
    alive: bool


class Recovery:
    """Settles the turns on disk before the daemon serves."""

    def __init__(
        self,
        *,
        storage: Storage,
        records: Records,
        inbox: Inbox,
        launcher: Launcher,
        known: dict[str, SubagentRecord],
        looked_in: Callable[[str], str],
    ) -> None:
        """Take the parts that a turn's end needs; `known` is brought up to date.

        With `adopts` the turns that live go to `adopted` instead of being stopped.
        """
        self.adopts = False
        self.adopted: dict[str, Turn] = {}
        self._storage = storage
        self._records = records
        self._inbox = inbox
        self._launcher = launcher
        self._known = known
        self._looked_in = looked_in

    async def settle(self) -> int:
        """Give every turn on disk its loose end, or adopt it; return how many got one that had none."""
        left: list[_Left] = []
        for turn, name, record in await in_thread(self._records.turns):
            if turn in self._inbox:
                await self._finish_stored(turn, name, record)
            else:
                one = await self._find(turn, name, record)
                if not await self._adopt(one):
                    left.append(one)
        if left:
            # Before anything is stopped that could then not be reported.
            await in_thread(self._storage.check_writable)
        alive = [one for one in left if one.alive]
        sent = await self._ask_to_stop(alive)
        for one in left:
            await self._settle(one, sent.get(one.record.turn, []))
        wanted = {record.prompt_copy for record in self._known.values() if record.prompt_copy is not None}
        wanted |= {turn.record.prompt_copy for turn in self.adopted.values() if turn.record.prompt_copy}
        await in_thread(self._records.keep_prompts, wanted)
        return len(left)

    async def _adopt(self, one: _Left) -> bool:
        """Take over a turn that lives, where that is wanted; answer whether it was."""
        record, child = one.record, one.child
        if not self.adopts or child is None or not one.alive or record.name in self.adopted:
            return False
        looked_in = self._looked_in(record.dir)
        turn = await adopted(record, child, folder=one.folder, records=self._records, looked_in=looked_in)
        if turn is None:
            return False
        self.adopted[record.name] = turn
        return True

    async def _finish_stored(self, turn: str, name: str, record: TurnRecord | None) -> None:
        """Do what follows the storing of a loose end, in case the daemon died in between."""
        loose_end = await in_thread(self._inbox.read, turn)
        before = self._known.get(name)
        if loose_end is not None and (before is None or before.last_turn.turn < turn):
            record = record or self._stand_in(turn, name)
            now = remembered(record, loose_end.outcome, before)
            await in_thread(self._records.remember, now)
            self._known[name] = now
        left = await self._find(turn, name, record)
        if left.child is not None:
            await left.child.empty()
        await self._clear_away(left)

    async def _clear_away(self, one: _Left) -> None:
        """Remove the last of a turn whose loose end is stored: its units, then its folder."""
        if one.child is not None:
            await one.child.release()
        await in_thread(self._records.end_turn, one.record.turn, one.record.name)

    async def _find(self, turn: str, name: str, record: TurnRecord | None) -> _Left:
        record = record or self._stand_in(turn, name)
        pid = record.pid or None if record.boot_id == procfs.boot_id() else None
        start = (record.pid_start or 0) if pid is not None else 0
        root = TurnRoot(turn, record.session_id, pid, start, record.scope, record.cgroup)
        child = await self._launcher.left_behind(root)
        alive = child is not None and await in_thread(child.populated)
        return _Left(record, self._records.turn_folder(turn, name), child, alive)

    def _stand_in(self, turn: str, name: str) -> TurnRecord:
        """Return what can still be told of a turn whose record is missing or damaged."""
        before = self._known.get(name)
        return TurnRecord(
            turn=turn,
            name=name,
            resumes=True,
            dir=before.dir if before else "",
            session_id=before.session_id if before else None,
            model=before.model if before else None,
            prompt_copy=before.prompt_copy if before else None,
            started_at=clock.as_text(clock.turn_time(turn)),
            boot_id="",
            pid=NOT_RECORDED,
            scope=self._launcher.scope_of(turn),
        )

    async def _ask_to_stop(self, alive: list[_Left]) -> dict[str, list[SentSignal]]:
        """Send SIGINT to all at once and wait a little; return what was sent to which turn."""
        sent: dict[str, list[SentSignal]] = {}
        for one in alive:
            written = _stdout_bytes(one)
            if one.child is not None and one.child.signal(signal.SIGINT):
                sent[one.record.turn] = [SentSignal(signal.SIGINT, Cause.DAEMON_STOPPED, written)]
        with anyio.move_on_after(STOP_SECONDS):
            async with anyio.create_task_group() as waiting:
                for one in alive:
                    if one.child is not None:
                        waiting.start_soon(one.child.wait)
        return sent

    async def _settle(self, one: _Left, sent: list[SentSignal]) -> None:
        record = one.record
        leftovers = Leftovers()
        if one.child is not None:
            written = _stdout_bytes(one)
            stays = one.child.signal(0)
            leftovers = await one.child.empty()
            # Without a record nothing tells claude from its children: what lived was the turn.
            if stays or (record.pid == NOT_RECORDED and leftovers.killed):
                sent = [*sent, SentSignal(signal.SIGKILL, Cause.DAEMON_STOPPED, written)]
        counters = await one.child.oom(ended_by_kill=False) if one.child is not None else None
        outcome = await in_thread(self._judge, one, sent, leftovers, counters)
        if not outcome.verdict.kind.ran:
            await in_thread(archive.undo, record.archived, self._storage)
        before = self._known.get(record.name)
        now = remembered(record, outcome, before)
        loose_end: LooseEnd = loose_end_of(outcome)

        def store() -> None:
            store_end(self._records, self._inbox, loose_end, before=before, now=now)

        await in_thread(store)
        await self._clear_away(one)
        self._known[record.name] = now
        self._inbox.show(loose_end)
        _log.warning(
            "turn %s of an earlier daemon is settled: %s",
            record.turn,
            loose_end.title,
            extra={
                "SUBAGENT_NAME": record.name,
                "SUBAGENT_TURN": record.turn,
                "SUBAGENT_OUTCOME": outcome.verdict.kind.value,
            },
        )

    def _judge(
        self, one: _Left, sent: list[SentSignal], leftovers: Leftovers, counters: OomCounters | None
    ) -> Outcome:
        """Judge from the files that the turn left. Blocks."""
        record = one.record
        files = TurnFiles(one.folder)
        files.complete()
        output = Output(files, progress=self._records.progress(one.folder))
        output.finish()
        ended_at = clock.now() if one.alive else files.last_written()
        evidence = Evidence(
            exit=ExitUnknown(),
            seen=output.seen,
            stderr=output.stderr_tail(),
            ran=record.pid is not None and gate_complaint(files.stderr) is None,
            sent=(*record.sent, *sent),
            stopped_after_result=record.stopped_after_result,
            oom_before=record.oom_outlived,
            still_alive=leftovers.alive,
            expected_servers=record.mcp_servers,
            looked_in=self._looked_in(record.dir),
            unreadable=output.trouble,
            bounds=record.bounds,
            unread=len(still_unread(record.unread, output.seen)),
            steerable=record.steerable,
        )
        evidence = with_counters(evidence, counters, limit_bytes=record.memory_limit_bytes)
        output.retire()
        output.close()
        seconds = _lasted(record, ended_at, alive=one.alive)
        return outcome_of(record, evidence, ended_at=ended_at, duration_seconds=seconds)


def _lasted(record: TurnRecord, ended_at: datetime, *, alive: bool) -> float:
    """Return how long a turn took; the wall clock may have been set since it began, the monotonic one not."""
    told = (ended_at - clock.from_text(record.started_at)).total_seconds()
    if record.began is None or record.boot_id != procfs.boot_id():
        return told
    age = time.monotonic() - record.began
    return age if alive else min(told, age)


def _stdout_bytes(one: _Left) -> int:
    path = TurnFiles(one.folder).stdout
    return path.stat().st_size if path.exists() else 0
