"""The life of one turn, from its confirmed spawn to its stored loose end."""

from __future__ import annotations

import logging
import signal
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import anyio

from hive_subagent_daemon import stream_input
from hive_subagent_daemon.evidence import Evidence, with_counters
from hive_subagent_daemon.membership import TurnRoot
from hive_subagent_daemon.skim import STARTING, Activity
from hive_subagent_daemon.threads import in_thread
from hive_subagent_daemon.turn_ends import outcome_of
from hive_subagent_daemon.values import (
    Cause,
    Exit,
    ExitUnknown,
    Outcome,
    SentSignal,
    Signalled,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from hive_subagent_daemon.launcher import Child, Leftovers
    from hive_subagent_daemon.output import Output
    from hive_subagent_daemon.records import TurnRecord
    from hive_subagent_daemon.steering import Steering

_log = logging.getLogger(__name__)

BACKGROUND_GRACE_SECONDS: Final = 600.0
TERMINATE_SECONDS: Final = 1.0
TIME_OUT_SECONDS: Final = 10.0
REQUEST_SECONDS: Final = 1.5  # claude answers in 0.1 s; what waits is one that only starts, or one that hangs
SETTLED_SECONDS: Final = 2.0


@dataclass
class OomHistory:
    """How many kills for lack of memory claude has outlived, as told by looks at a living claude.

    A kill is counted before its victim is gone, so what one look finds is confirmed by the next.
    """

    found: int = 0
    outlived: int = 0

    def see(self, kills: int) -> None:
        """Take note of the count that was found before claude was seen to live."""
        self.outlived, self.found = self.found, kills


@dataclass
class Turn:
    """A running turn. Mutable: it gathers our own signals and in the end its outcome.

    `adopted` says that an earlier daemon has spawned it. `keep` stores the record, where a later daemon may
    adopt the turn: what we are about to do must not look like somebody else's doing then. `steering` is there
    while messages can reach a steerable turn, which those of an earlier daemon cannot any more.
    """

    record: TurnRecord
    child: Child
    output: Output
    looked_in: str
    started: float = field(default_factory=time.monotonic)
    activity: Activity | None = STARTING
    activity_since: float = field(default_factory=time.monotonic)
    sent: list[SentSignal] = field(default_factory=list)
    stopped_after_result: bool = False
    timed_out: bool = False
    silent: bool = False
    still_alive: tuple[str, ...] = ()
    strayed: bool = False
    memory_limit_bytes: int | None = None
    oom_kills: OomHistory = field(default_factory=OomHistory)
    adopted: bool = False
    keep: Callable[[Turn], Awaitable[None]] | None = None
    steering: Steering | None = None
    input_ended: float | None = None
    outcome: Outcome | None = None
    exited: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        """Begin with the limit that was read at the gate."""
        self.memory_limit_bytes = self.record.memory_limit_bytes

    @property
    def session_id(self) -> str | None:
        """claude's session, as we chose it or else as claude has told."""
        init = self.output.seen.init
        return self.record.session_id or (init.session_id if init else None)

    @property
    def root(self) -> TurnRoot:
        """By what its processes are recognised."""
        child = self.child
        return TurnRoot(
            self.record.turn, self.session_id, child.pid, child.start, child.scope, adopted=self.adopted
        )

    @property
    def has_result(self) -> bool:
        """Whether the last round has its result, as far as the output has been followed."""
        seen = self.output.seen
        return seen.result is not None and not seen.round_open

    @property
    def unread(self) -> tuple[str, ...]:
        """The messages that were handed over and that claude has not taken, as far as the output tells."""
        sent = self.record.unread if self.steering is None else self.steering.sent
        return stream_input.still_unread(sent, self.output.seen)

    @property
    def is_steerable(self) -> bool:
        """Whether a further message can be handed over now."""
        return self.steering is not None and self.steering.is_open and not self.sent

    async def interrupt(self, cause: Cause) -> bool:
        """Ask claude to stop and remember why; answer whether it was still there.

        One that listens is asked through its stdin first, which leaves a result and a marker in the session
        where SIGINT leaves nothing. That counts as the signal.
        """
        if self.is_steerable and self.child.signal(0):
            await self.note(SentSignal(signal.SIGINT, cause, self.output.stdout_bytes))
        if self.is_steerable and self.steering is not None and self.child.signal(0):
            self.sent.append(SentSignal(signal.SIGINT, cause, self.output.stdout_bytes))
            self.steering.say(stream_input.interrupt_request(self.unread))
            self.steering.finish()
            with anyio.move_on_after(REQUEST_SECONDS):
                await self.exited.wait()
                return True
        return await self.send(signal.SIGINT, cause)

    async def send(self, number: int, cause: Cause) -> bool:
        """Signal claude itself and remember why; answer whether it was still there.

        A signal to a process that has ended already ended nothing, so it is not evidence.
        """
        if not self.child.signal(0):
            return False
        await self.note(SentSignal(number, cause, self.output.stdout_bytes))
        sent = SentSignal(number, cause, self.output.stdout_bytes)  # anew: a result can have come meanwhile
        delivered = self.child.signal(number)
        if delivered:
            self.sent.append(sent)
        return delivered

    async def doom(self, cause: Cause) -> None:
        """Note that the turn is killed, once: should we die before it is, the next daemon does it."""
        doomed = any((sent.signal, sent.cause) == (signal.SIGKILL, cause) for sent in self.sent)
        if doomed or not self.child.signal(0):  # alive: it is this that ends it
            return
        sent = SentSignal(signal.SIGKILL, cause, self.output.stdout_bytes)
        self.sent.append(sent)
        await self.note(sent)

    async def kill(self, cause: Cause) -> Leftovers:
        """Kill everything of the turn; return when nothing is left, or at the limit with what is."""
        await self.doom(cause)
        leftovers = await self.child.empty()
        self.still_alive = leftovers.alive
        return leftovers

    async def note(self, *sent: SentSignal) -> None:
        """Store what we are about to do to the turn."""
        if self.keep is None:
            return
        self.record = replace(
            self.record,
            sent=(*self.record.sent, *sent),
            stopped_after_result=self.stopped_after_result,
            timed_out=self.timed_out,
            unread=self.unread,
        )
        await self.keep(self)

    async def go_on(self) -> None:
        """Do again what an earlier daemon had begun to do to the turn, or may just not have come to do."""
        kills = [sent.cause for sent in self.sent if sent.signal == signal.SIGKILL]
        if kills:
            await self.kill(kills[-1])
        elif self.timed_out:
            await self.time_out()
        elif self.stopped_after_result:
            await self.end_after_result()
        elif self.sent:
            self.child.signal(signal.SIGINT)

    def notice_activity(self, *, stall_after_seconds: float) -> None:
        """Take note of what claude is doing now and since when; called after each look at the output."""
        self.silent = self.output.silent_seconds() > stall_after_seconds
        now = self.output.seen.activity
        if now != self.activity:
            self.activity = now
            self.activity_since = time.monotonic() - self.output.age_seconds()

    def look(self) -> None:
        """Follow the output, and see that the processes still are where they were put. Blocks shortly."""
        self.output.look()
        kills = self.child.oom_kills()
        limit = self.child.memory_limit_bytes()
        if time.monotonic() - self.started > SETTLED_SECONDS and self.child.has_strayed():
            self.strayed = True
        if self.child.signal(0):  # else the scope may be gone, and its limit with it
            self.oom_kills.see(kills)
            self.memory_limit_bytes = limit

    async def end_after_result(self) -> None:
        """End a claude that stays although its result is out: ask first, then kill everything."""
        await self.note()
        self.child.signal(signal.SIGTERM)
        with anyio.move_on_after(TERMINATE_SECONDS):
            await self.exited.wait()
        await self.child.empty()

    def end_input(self, *, grace_seconds: float) -> None:
        """End what claude reads as soon as nothing more is to be said to it."""
        steering = self.steering
        if steering is None or not steering.is_open:
            return
        unread = stream_input.still_unread(steering.all_sent, self.output.seen)
        steering.has_unread(unread)
        waited = time.monotonic() - self.activity_since
        if stream_input.is_finished(
            self.output.seen, unread, waited_seconds=waited, grace_seconds=grace_seconds
        ):
            steering.finish()
            self.input_ended = time.monotonic()

    def overstays(self, *, grace_seconds: float) -> bool:
        """Tell whether claude has stayed for too long after its result."""
        if not self.has_result or self.stopped_after_result or self.is_steerable:
            return False
        if not self.child.signal(0):
            return False  # it has ended; one that is not our child may wait to be reaped for seconds
        grace = BACKGROUND_GRACE_SECONDS if self.output.seen.pending else grace_seconds
        chatters = time.monotonic() - self.activity_since > max(BACKGROUND_GRACE_SECONDS, grace_seconds)
        quiet = self.output.age_seconds()
        if self.input_ended is not None:
            quiet = min(quiet, time.monotonic() - self.input_ended)
        return chatters or quiet > grace

    def is_overdue(self) -> bool:
        """Tell whether the turn has taken all its time and has not been stopped for it yet."""
        limit = self.record.bounds.timeout_seconds
        return limit is not None and not self.timed_out and time.monotonic() - self.started > limit

    async def time_out(self) -> None:
        """End a turn whose time is over: interrupt claude, and kill everything if that does not end it."""
        await self.interrupt(Cause.TIMEOUT)
        with anyio.move_on_after(TIME_OUT_SECONDS):
            await self.exited.wait()
            return
        await self.kill(Cause.TIMEOUT)

    async def conclude(self, exit_: Exit, *, ended_at: datetime, nested: tuple[str, ...] = ()) -> Outcome:
        """Empty the turn, read the rest of its output, and judge; may be repeated after an error.

        `nested` are the subagents of its own that run on.
        """
        leftovers = await self.child.empty()
        await in_thread(self.output.finish)
        untold = isinstance(exit_, ExitUnknown) and not self.has_result
        killed = untold or exit_ == Signalled(signal.SIGKILL)
        by_us = any(sent.signal == signal.SIGKILL for sent in self.sent)
        counters = await self.child.oom(ended_by_kill=killed and not by_us)
        evidence = Evidence(
            exit=exit_,
            seen=self.output.seen,
            stderr=self.output.stderr_tail(),
            sent=tuple(self.sent),
            stopped_after_result=self.stopped_after_result,
            oom_before=self.oom_kills.outlived,
            strayed=self.strayed,
            killed_leftovers=leftovers.killed,
            killed_strays=leftovers.strays,
            still_alive=leftovers.alive,
            expected_servers=self.record.mcp_servers,
            looked_in=self.looked_in,
            unreadable=self.output.trouble,
            bounds=self.record.bounds,
            nested=nested,
            unread=len(self.unread),
            steerable=self.record.steerable,
        )
        evidence = with_counters(evidence, counters, limit_bytes=self.memory_limit_bytes)
        return outcome_of(
            self.record, evidence, ended_at=ended_at, duration_seconds=time.monotonic() - self.started
        )
