"""Couriers bring each loose end to each sink: at least once, in order for each sink, until it is taken.

What is not delivered stands in the loose end itself, stored with it, so a crash loses nothing; one that comes
between the sink's answer and the note of it lets the same loose end come again, under the same key. Each sink
has a courier of its own: a slow one holds up no other. With nothing to deliver, none of them wakes up.
"""

from __future__ import annotations

import json
import logging
import random
import time
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import anyio

from hive_subagent_daemon import clock, views
from hive_subagent_daemon.deliveries import ASIDE_SECONDS, Answer, Queue, Reply, Step, failed, pause_seconds
from hive_subagent_daemon.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hive_subagent_daemon.inbox import Inbox
    from hive_subagent_daemon.sink_values import Sink
    from hive_subagent_daemon.values import LooseEnd

_log = logging.getLogger(__name__)

SHOWN_IDS: Final = 3


class Carrier(Protocol):
    """The way to one sink."""

    async def carry(self, loose_end_id: str, body: bytes) -> Answer:
        """Try once to deliver, in bounded time, and return the sink's answer; cancelling leaves nothing."""


class Courier:
    """Delivers to one sink. Use from the event loop only."""

    def __init__(self, sink: Sink, carrier: Carrier, inbox: Inbox) -> None:
        """Begin with what this sink has not taken yet."""
        self.label = sink.label
        self.on_change: Callable[[], None] = lambda: None
        self.on_answer: Callable[[str, LooseEnd, Answer], None] = lambda _label, _loose_end, _answer: None
        self.queue = Queue(
            inbox.undelivered(sink.id, stepped_aside=False), inbox.undelivered(sink.id, stepped_aside=True)
        )
        self._id = sink.id
        self._carrier = carrier
        self._inbox = inbox
        self._chance = random.Random()
        self._news = anyio.Event()
        self._resting = anyio.Event()
        self._trouble: str | None = None
        self._trouble_since = 0.0
        self._refusal: str | None = None

    def add(self, loose_end_id: str) -> None:
        """Deliver one more."""
        self.queue.add(loose_end_id)
        self._wake_if_due()
        self._news.set()

    async def rests(self) -> None:
        """Return once there is nothing that could be delivered right now."""
        await self._resting.wait()

    @property
    def trouble(self) -> str | None:
        """Why the sink takes nothing at present."""
        if self._trouble is None or not self.queue.waiting:
            return None
        return f"sink {self.label} does not take loose ends: {self._trouble}"

    @property
    def failing_seconds(self) -> float:
        """For how long the sink has taken nothing although something waits for it; 0 when all is well."""
        return 0.0 if self.trouble is None else time.monotonic() - self._trouble_since

    def warnings(self) -> list[str]:
        """Say for a reader what is not delivered, why, and what becomes of it."""
        found = []
        if self.trouble is not None:
            count = _counted(len(self.queue.waiting))
            found.append(f"{self.trouble}; {count} not delivered, which is tried again by itself.")
        if aside := list(self.queue.aside):
            ids = ", ".join(aside[:SHOWN_IDS]) + (" and others" if len(aside) > SHOWN_IDS else "")
            why = f" ({self._refusal})" if self._refusal else ""
            found.append(
                f"sink {self.label} has refused {_counted(len(aside))} again and again{why}: {ids}; "
                f"tried again every {clock.lasting(ASIDE_SECONDS)}."
            )
        return found

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            loose_end_id = self.queue.next(time.monotonic())
            if loose_end_id is None:
                await self._rest()
            else:
                await self._deliver(loose_end_id)

    async def _rest(self) -> None:
        """Wait until the next attempt is due or there is something new."""
        self._news = anyio.Event()
        self._resting.set()
        with anyio.CancelScope(deadline=anyio.current_time() + self.queue.due_at() - time.monotonic()):
            await self._news.wait()
        self._wake_if_due()

    def _wake_if_due(self) -> None:
        # Only one that is set is replaced: somebody may be waiting for the other.
        if self._resting.is_set() and self.queue.next(time.monotonic()) is not None:
            self._resting = anyio.Event()

    async def _deliver(self, loose_end_id: str) -> None:
        try:
            loose_end = await in_thread(self._inbox.read, loose_end_id)
        except OSError as error:
            answer = failed(f"the loose end cannot be read: {error.strerror or error}")
            self._put_off(loose_end_id, answer)
            return
        if loose_end is None:
            _log.error("loose end %s is gone: sink %s does not get it", loose_end_id, self.label)
            self.queue.done(loose_end_id)
            self.on_change()
            return
        answer = await self._carrier.carry(loose_end_id, body_of(loose_end))
        self.on_answer(self.label, loose_end, answer)
        match self.queue.step(loose_end_id, answer):
            case Step.DONE:
                await self._note(loose_end_id, stepped_aside=False)
                self._taken(loose_end)
            case Step.STEPS_ASIDE:
                await self._note(loose_end_id, stepped_aside=True)
                self._steps_aside(loose_end, answer)
            case Step.AGAIN:
                self._put_off(loose_end_id, answer)

    async def _note(self, loose_end_id: str, *, stepped_aside: bool) -> None:
        """Note durably what came of it, however long the disk refuses: going on would repeat more later."""
        note = partial(self._inbox.note, loose_end_id, self._id, stepped_aside=stepped_aside)
        tries = 0
        while True:
            try:
                await in_thread(note)
            except OSError as error:
                tries += 1
                self._say_trouble(
                    f"the delivery of {loose_end_id} cannot be noted: {error.strerror or error}"
                )
                self._resting.set()
                await anyio.sleep(pause_seconds(tries, chance=self._chance.random()))
            else:
                return

    def _taken(self, loose_end: LooseEnd) -> None:
        self.queue.done(loose_end.id)
        _log.debug("sink %s has taken loose end %s", self.label, loose_end.id, extra=self._fields(loose_end))
        if self._trouble is not None:
            _log.info("sink %s takes loose ends again", self.label, extra={"SUBAGENT_SINK": self.label})
        self._trouble = None
        if not self.queue.aside:
            self._refusal = None
        self.on_change()

    def _steps_aside(self, loose_end: LooseEnd, answer: Answer) -> None:
        self.queue.step_aside(loose_end.id, now=time.monotonic(), chance=self._chance.random())
        self._trouble = None
        self._refusal = answer.reason
        _log.warning(
            "loose end %s steps aside: sink %s has refused it too often (%s)",
            loose_end.id,
            self.label,
            answer.reason,
            extra=self._fields(loose_end),
        )
        self.on_change()

    def _put_off(self, loose_end_id: str, answer: Answer) -> None:
        if loose_end_id in self.queue.aside:
            self._refusal = answer.reason
        else:
            self._say_trouble(answer.reason)
        if answer.reply is Reply.REFUSED:
            _log.debug("sink %s refuses %s: %s", self.label, loose_end_id, answer.reason)
        self.queue.again(loose_end_id, answer, now=time.monotonic(), chance=self._chance.random())
        self.on_change()

    def _say_trouble(self, reason: str) -> None:
        """Remember why nothing is taken, and log it once for as long as it is the same."""
        if reason != self._trouble:
            _log.warning(
                "sink %s does not take loose ends: %s; tried again by itself",
                self.label,
                reason,
                extra={"SUBAGENT_SINK": self.label},
            )
        if self.trouble is None:
            self._trouble_since = time.monotonic()
        self._trouble = reason
        self.on_change()

    def _fields(self, loose_end: LooseEnd) -> dict[str, str]:
        outcome = loose_end.outcome
        return {"SUBAGENT_NAME": outcome.name, "SUBAGENT_TURN": outcome.turn, "SUBAGENT_SINK": self.label}


class Couriers:
    """The couriers of all sinks. Use from the event loop only."""

    def __init__(self, couriers: Iterable[Courier]) -> None:
        """Take one courier for each sink, in the order of the configuration."""
        self._couriers = tuple(couriers)

    @property
    def all(self) -> tuple[Courier, ...]:
        """The courier of each sink."""
        return self._couriers

    def notify(self, on_change: Callable[[], None]) -> None:
        """Call this whenever something was delivered or could not be."""
        for courier in self._couriers:
            courier.on_change = on_change

    def add(self, loose_end_id: str) -> None:
        """Deliver a loose end that was just stored to every sink."""
        for courier in self._couriers:
            courier.add(loose_end_id)

    @property
    def undelivered(self) -> int:
        """How many loose ends at least one sink has not taken."""
        return len(
            {one for courier in self._couriers for one in (*courier.queue.waiting, *courier.queue.aside)}
        )

    def trouble(self) -> list[str]:
        """Say in one line each which sinks take nothing at present."""
        return [courier.trouble for courier in self._couriers if courier.trouble is not None]

    def warnings(self) -> list[str]:
        """Say what is not delivered, why, and what becomes of it."""
        return [warning for courier in self._couriers for warning in courier.warnings()]

    async def run(self) -> None:
        """Deliver until cancelled; what is under way then comes again after the next start."""
        async with anyio.create_task_group() as tasks:
            for courier in self._couriers:
                tasks.start_soon(courier.run, name=f"sink {courier.label}")

    async def rest(self, *, within_seconds: float) -> None:
        """Wait until nothing can be delivered right now, at the longest this long."""
        with anyio.move_on_after(within_seconds):
            for courier in self._couriers:
                await courier.rests()


def body_of(loose_end: LooseEnd) -> bytes:
    """Return a loose end as the JSON that sinks get, its text cut as in a notice."""
    shown = views.loose_end_json(loose_end, text_characters=views.NOTICE_TEXT_CHARACTERS)
    return json.dumps(shown, ensure_ascii=False).encode(errors="replace")


def _counted(number: int) -> str:
    return f"{number} loose end{'' if number == 1 else 's'}"
