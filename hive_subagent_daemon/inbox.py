"""The built-in inbox: every loose end until its parent has closed it, and for some days after."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from hive_subagent_daemon import clock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hive_subagent_daemon.records import Records
    from hive_subagent_daemon.values import LooseEnd


@dataclass(frozen=True)
class _Entry:
    """What is kept in memory of one loose end; its texts stay on the disk."""

    name: str
    closed_at: str | None


class Inbox:
    """The loose ends on disk with an index in memory. Methods that say so block; the rest is cheap."""

    def __init__(self, records: Records, loose_ends: Iterable[LooseEnd]) -> None:
        """Index the loose ends that were read at start-up."""
        self._records = records
        self._entries = {end.id: _Entry(end.outcome.name, end.closed_at) for end in loose_ends}

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
        """Store a loose end durably; it is shown once `show` is called. Blocks."""
        self._records.store_loose_end(loose_end)

    def show(self, loose_end: LooseEnd) -> None:
        """Let a stored loose end appear among the open ones."""
        self._entries.setdefault(loose_end.id, _Entry(loose_end.outcome.name, loose_end.closed_at))

    def select(self, *, name: str | None, ids: Iterable[str] | None) -> list[str]:
        """Return the ids of open loose ends, oldest first; with `ids`, which of them exist, also closed."""
        entries = dict(self._entries)  # a purge in another thread may go on meanwhile
        if ids is not None:
            chosen = [i for i in dict.fromkeys(ids) if i in entries]
        else:
            chosen = [i for i, entry in entries.items() if entry.closed_at is None]
        return sorted(i for i in chosen if name is None or entries[i].name == name)

    def read(self, loose_end_id: str) -> LooseEnd | None:
        """Return one loose end; None when its file is gone or damaged. Blocks; raises OSError."""
        loose_end = self._records.read_loose_end(loose_end_id)
        if loose_end is None:
            self._entries.pop(loose_end_id, None)
        return loose_end

    def close(self, loose_end_id: str) -> bool:
        """Close one durably; answer whether it exists. Closing twice is fine. Blocks."""
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
        """Remove those that have been closed for longer than this; return how many. Blocks."""
        limit = clock.now() - timedelta(days=closed_days)
        old = [
            loose_end_id
            for loose_end_id, entry in list(self._entries.items())
            if entry.closed_at is not None and clock.from_text(entry.closed_at) < limit
        ]
        for loose_end_id in old:
            self._records.remove_loose_end(loose_end_id)
            del self._entries[loose_end_id]
        return len(old)
