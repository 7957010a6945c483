"""The FIFO that is the stdin of a steerable turn: only the daemon writes into it, claude opens it to read.

When it is closed, or the daemon dies, claude reads what is in it and ends after its round. A child that never
reads holds up nobody: what does not fit into the pipe waits in memory and is written when there is room.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio

from hive_subagent_daemon import stream_input
from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from hive_subagent_daemon.config_values import Limits
    from hive_subagent_daemon.stream_input import Message
    from hive_subagent_daemon.turns import Turn

PIPE_BYTES: Final = 1024 * 1024  # what an ordinary user may have (fs.pipe-max-size)
_USUAL_PIPE_BYTES: Final = 64 * 1024
_PIECE_BYTES: Final = 64 * 1024
HAND_OVER_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 0.1
ALL_WRITTEN_SECONDS: Final = 2.0


class Steering:
    """The writing end of one turn's stdin. Use from the event loop, `create` and the first message apart.

    `sent` are the ids of the messages that were handed over, but for the first one.
    """

    def __init__(self, path: Path) -> None:
        """Take the path of the FIFO; nothing is there yet."""
        self._path = path
        self._writer: int | None = None
        self._waiting: deque[memoryview] = deque()
        self._armed = False
        self._ends = False
        self._written = anyio.Event()
        self._broken = False
        self._first: tuple[str, ...] = ()
        self.sent: tuple[str, ...] = ()
        self.one_at_a_time = anyio.Lock()

    def create(self, first: Message) -> None:
        """Make the FIFO and write into it as much of the first message as it holds. Blocks.

        Opened for both ways until there is a reader: neither side waits for the other then.
        """
        os.mkfifo(self._path, 0o600)
        self._writer = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        if len(first.line) > _USUAL_PIPE_BYTES:  # what is in the pipe reaches claude even if the daemon dies
            with suppress(OSError):
                fcntl.fcntl(self._writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._first = (first.id,)
        self._waiting.append(memoryview(first.line))
        self._write()

    def attach(self) -> None:
        """Go on as a writer alone, now that the child reads, so that a child that has gone is noticed."""
        both_ways = self._writer
        if both_ways is None:
            return
        with suppress(OSError):  # no descriptor is left: then it stays as it is
            self._writer = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.close(both_ways)
        self._pump()

    @property
    def all_sent(self) -> tuple[str, ...]:
        """The ids of all messages, with the one that the turn began with."""
        return (*self._first, *self.sent)

    def has_unread(self, unread: tuple[str, ...]) -> None:
        """Hear what of `all_sent` is unread: that the first one was read is not told for ever."""
        self._first = tuple(one for one in self._first if one in unread)

    @property
    def is_open(self) -> bool:
        """Whether something can still be said."""
        return self._writer is not None and not self._ends

    @property
    def is_blocked(self) -> bool:
        """Whether claude has not taken all that was said into its pipe."""
        return bool(self._waiting)

    async def written(self) -> None:
        """Return when all that was said is in the pipe, or nobody will read it any more."""
        while self.is_blocked:
            await self._written.wait()

    async def hand_over(self, message: Message) -> bool:
        """Write a message; answer whether claude gets it.

        One of which nothing has found room in time is taken back. The rest of one that is in the pipe in part
        will follow.
        """
        piece = self.say(message.line)
        with anyio.move_on_after(HAND_OVER_SECONDS):
            await self.written()
        if any(waiting is piece for waiting in self._waiting):
            self._waiting = deque(waiting for waiting in self._waiting if waiting is not piece)
            self._pump()
            return False
        return not self._broken

    def say(self, lines: bytes) -> memoryview:
        """Write these lines, after those that wait already, as soon as there is room."""
        piece = memoryview(lines)
        self._waiting.append(piece)
        self._pump()
        return piece

    def finish(self) -> None:
        """End claude's input behind what was said."""
        self._ends = True
        self._pump()

    def close(self) -> None:
        """Close it, whatever still waits."""
        self._broken = self._broken or self.is_blocked
        self._ends = True
        self._waiting.clear()
        self._pump()

    def _pump(self) -> None:
        """Write what there is room for, and be called again when there is more; close at the end."""
        self._write()
        writer = self._writer
        if writer is not None and bool(self._waiting) is not self._armed:
            self._armed = bool(self._waiting)
            loop = asyncio.get_running_loop()
            loop.add_writer(writer, self._pump) if self._armed else loop.remove_writer(writer)
        if not self._waiting:
            self._written.set()
            self._written = anyio.Event()
            if writer is not None and self._ends:
                self._writer = None
                os.close(writer)

    def _write(self) -> None:
        while self._waiting and self._writer is not None:
            piece = self._waiting[0]
            try:
                count = os.write(self._writer, piece[:_PIECE_BYTES])
            except BlockingIOError:
                return
            except OSError:  # nobody reads any more
                self._broken = self._ends = True
                self._waiting.clear()
                return
            if count == len(piece):
                self._waiting.popleft()
            else:
                self._waiting[0] = piece[count:]


async def steer(turn: Turn, text: str) -> int:
    """Hand a message to a running turn; return how many claude has not read yet, with this one.

    Raises RefusedError; then claude gets nothing of it.
    """
    name = turn.record.name
    steering = turn.steering
    if steering is None:
        raise RefusedError(_not_steerable(turn))
    try:
        steering.one_at_a_time.acquire_nowait()
    except anyio.WouldBlock:
        message = f"another message is being handed to {name!r} right now: try again in a moment."
        raise RefusedError(message) from None
    try:
        with anyio.CancelScope(shield=True):  # a caller who has gone must not leave half of it undone
            await _hand_over(turn, steering, text)
    finally:
        steering.one_at_a_time.release()
    return len(turn.unread)


async def _hand_over(turn: Turn, steering: Steering, text: str) -> None:
    message = await in_thread(stream_input.message, text)
    await in_thread(turn.output.look)
    unread = turn.unread
    if (refusal := _refusal(turn, steering, unread)) is not None:
        raise RefusedError(refusal)
    steering.sent = (*unread, message.id)
    await turn.note()
    if turn.is_steerable and await steering.hand_over(message):
        return
    refusal = _refusal(turn, steering, unread) or _is_deaf(turn)
    steering.sent = unread
    await turn.note()
    raise RefusedError(refusal)


def _not_steerable(turn: Turn) -> str:
    name = turn.record.name
    if turn.record.steerable:
        return (
            f"{name!r} was started by a daemon that has ended, so messages cannot reach it any more: wait "
            "for its loose end or interrupt it, then continue."
        )
    return (
        f"the running turn of {name!r} is not steerable: interrupt it and continue with the message, or "
        "start with steerable true next time."
    )


def _refusal(turn: Turn, steering: Steering, unread: tuple[str, ...]) -> str | None:
    """Say why nothing can be handed over now."""
    name = turn.record.name
    if not turn.is_steerable:
        return f"the turn of {name!r} is ending: wait for its loose end, then continue with the message."
    if steering.is_blocked:
        return _is_deaf(turn)
    if len(unread) >= stream_input.MOST_UNREAD:
        return (
            f"{name!r} has not read the last {len(unread)} messages yet: wait until it has, status shows "
            "unread_messages, or interrupt it."
        )
    return None


def _is_deaf(turn: Turn) -> str:
    return (
        f"claude does not read what is said to {turn.record.name!r} at the moment, and the message was not "
        "sent: try again in a moment, or interrupt it and continue."
    )


async def follow_input(turn: Turn, limits: Callable[[], Limits]) -> None:
    """End the input of a steerable turn soon after its last result: claude waits for nothing else then."""
    seen_bytes = -1
    while turn.steering is not None and turn.steering.is_open and not turn.exited.is_set():
        written = turn.output.stdout_bytes
        if written != seen_bytes:
            await in_thread(turn.output.look)
            seen_bytes = written
            turn.notice_activity(stall_after_seconds=limits().stall_after_seconds)
        turn.end_input(grace_seconds=limits().exit_grace_seconds)
        with anyio.move_on_after(LOOK_SECONDS):
            await turn.exited.wait()


async def all_written(turns: Iterable[Turn]) -> None:
    """Wait for what was said to steerable turns to be in their pipes, for so long at most.

    A line that ends in its middle, because its writer ended, ends claude.
    """
    with anyio.move_on_after(ALL_WRITTEN_SECONDS):
        for turn in list(turns):
            if turn.steering is not None:
                await turn.steering.written()
