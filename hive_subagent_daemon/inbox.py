"""The built-in inbox: every loose end until its parent has closed it, and for some days after."""

from __future__ import annotations

import itertools
import logging
import threading
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon import clock
from hive_subagent_daemon.names import any_name
from hive_subagent_daemon.values import Undelivered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hive_subagent_daemon.records import Records
    from hive_subagent_daemon.values import LooseEnd, Outcome

_log = logging.getLogger(__name__)

UNDELIVERED_DAYS: Final = 30  # longer than the others a closed one stays that a sink has not taken


@dataclass(frozen=True)
class _Entry:
    """What is kept in memory of one loose end; its texts stay on the disk."""

    name: str
    closed_at: str | None
    number: int = 0
    undelivered: tuple[Undelivered, ...] = ()


class Inbox:
    """The loose ends on disk with an index in memory. Methods that say so block; the rest is cheap."""

    def __init__(
        self, records: Records, loose_ends: Iterable[LooseEnd], *, sinks: Iterable[str] = ()
    ) -> None:
        """Index the loose ends that were read at start-up; new ones are to be delivered to these sinks."""
        self._records = records
        self._to_all = tuple(Undelivered(sink) for sink in sinks)
        self._entries = {
            end.id: _Entry(end.outcome.name, end.closed_at, end.number, end.undelivered) for end in loose_ends
        }
        self._numbers = itertools.count(
            max([entry.number for entry in self._entries.values()], default=0) + 1
        )
        # A file is read, changed and written by one thread at a time.
        self._changing = threading.Lock()
        self.on_show: Callable[[str], None] = lambda _loose_end_id: None
        self.on_end: Callable[[Outcome], None] = lambda _outcome: None

    @property
    def open_count(self) -> int:
        """How many are open."""
        return sum(entry.closed_at is None for entry in list(self._entries.values()))

    @property
    def newest(self) -> str | None:
        """The id of the newest turn that has a loose end."""
        return max(self._entries, default=None)

    def __contains__(self, loose_end_id: str) -> bool:
        """Tell whether there is a loose end with this id, open or closed."""
        return loose_end_id in self._entries

    def store(self, loose_end: LooseEnd) -> None:
        """Store a loose end durably, to be delivered to every sink; it is shown by `show`. Blocks."""
        if self._to_all:
            loose_end = replace(loose_end, number=next(self._numbers), undelivered=self._to_all)
        self._records.store_loose_end(loose_end)

    def show(self, loose_end: LooseEnd) -> None:
        """Let a stored loose end appear among the open ones."""
        entry = _Entry(loose_end.outcome.name, loose_end.closed_at, undelivered=self._to_all)
        if self._entries.setdefault(loose_end.id, entry) is entry:
            self.on_end(loose_end.outcome)
            self.on_show(loose_end.id)

    def select(
        self,
        *,
        name: str | None,
        ids: Iterable[str] | None,
        among: Callable[[str], bool] = any_name,
    ) -> list[str]:
        """Return the ids of open loose ends, oldest first; with `ids`, which of them exist, also closed.

        Only those of names that `among` is true of.
        """
        entries = dict(self._entries)  # a purge in another thread may go on meanwhile
        if ids is not None:
            chosen = [i for i in dict.fromkeys(ids) if i in entries]
        else:
            chosen = [i for i, entry in entries.items() if entry.closed_at is None]
        return sorted(i for i in chosen if name in (None, entries[i].name) and among(entries[i].name))

    def unsettled(self, *, name: str | None = None) -> list[str]:
        """Return the ids of those that are open or not delivered everywhere, newest first."""
        found = [
            i
            for i, entry in list(self._entries.items())
            if (entry.closed_at is None or entry.undelivered) and name in (None, entry.name)
        ]
        return sorted(found, reverse=True)

    def read(self, loose_end_id: str) -> LooseEnd | None:
        """Return one loose end; None when its file is gone or damaged. Blocks; raises OSError."""
        loose_end = self._records.read_loose_end(loose_end_id)
        if loose_end is None:
            self._entries.pop(loose_end_id, None)
        return loose_end

    def close(self, loose_end_id: str) -> bool:
        """Close one durably; answer whether it exists. Closing twice is fine. Blocks."""
        with self._changing:
            entry = self._entries.get(loose_end_id)
            if entry is None:
                return False
            if entry.closed_at is not None:
                return True
            loose_end = self.read(loose_end_id)
            if loose_end is None:
                return False
            closed = replace(loose_end, closed_at=clock.as_text(clock.now()))
            self._records.store_loose_end(closed)
            self._entries[loose_end_id] = replace(entry, closed_at=closed.closed_at)
            return True

    def purge(self, *, closed_days: int) -> int:
        """Remove those that have been closed for longer than this; return how many. Blocks.

        One that a sink has not taken yet stays for UNDELIVERED_DAYS more.
        """
        limit = clock.now() - timedelta(days=closed_days)
        last_limit = limit - timedelta(days=UNDELIVERED_DAYS)
        old = [
            loose_end_id
            for loose_end_id, entry in list(self._entries.items())
            if entry.closed_at is not None
            and clock.from_text(entry.closed_at) < (last_limit if entry.undelivered else limit)
        ]
        for loose_end_id in old:
            with self._changing:
                self._records.remove_loose_end(loose_end_id)
                entry = self._entries.pop(loose_end_id, None)
            if entry is not None and entry.undelivered:
                _log.warning("loose end %s was removed, closed long ago and never delivered", loose_end_id)
        return len(old)

    # Sinks

    def undelivered(self, sink: str, *, stepped_aside: bool) -> list[str]:
        """Return the ids of those that a sink has not taken, in the order in which they were stored."""
        wanted = Undelivered(sink, stepped_aside=stepped_aside)
        found = [(entry.number, i) for i, entry in list(self._entries.items()) if wanted in entry.undelivered]
        return [loose_end_id for _, loose_end_id in sorted(found)]

    def note(self, loose_end_id: str, sink: str, *, stepped_aside: bool) -> None:
        """Note durably that a sink has taken one, or that it stepped aside there. Blocks; raises OSError."""
        self._change_undelivered(
            loose_end_id,
            lambda one: (
                one if one.sink != sink else replace(one, stepped_aside=True) if stepped_aside else None
            ),
        )

    def forget_other_sinks(self) -> int:
        """Forget durably what waits for sinks that there are no more; return how many. Blocks."""
        known = {one.sink for one in self._to_all}
        others = [
            loose_end_id
            for loose_end_id, entry in self._entries.items()
            if any(one.sink not in known for one in entry.undelivered)
        ]
        for loose_end_id in others:
            self._change_undelivered(loose_end_id, lambda one: one if one.sink in known else None)
        return len(others)

    def _change_undelivered(
        self, loose_end_id: str, change: Callable[[Undelivered], Undelivered | None]
    ) -> None:
        with self._changing:
            loose_end = self.read(loose_end_id) if loose_end_id in self._entries else None
            if loose_end is None:
                return
            changed = [change(one) for one in loose_end.undelivered]
            undelivered = tuple(one for one in changed if one is not None)
            if undelivered != loose_end.undelivered:
                self._records.store_loose_end(replace(loose_end, undelivered=undelivered))
            self._entries[loose_end_id] = replace(self._entries[loose_end_id], undelivered=undelivered)
