"""Undoing what was prepared for a turn that never came to run: as a whole, and again until it is done."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from hive_subagent_daemon import archive
from hive_subagent_daemon.errors import RefusedError

if TYPE_CHECKING:
    from hive_subagent_daemon.records import Records, TurnRecord
    from hive_subagent_daemon.storage import Storage

_log = logging.getLogger(__name__)


class Undoing:
    """Undoes refused spawns; what fails is tried again later, and before the next spawn.

    All methods block.
    """

    def __init__(self, *, records: Records, storage: Storage) -> None:
        """Nothing is left to undo; what an earlier daemon left is for `recovery`."""
        self._records = records
        self._storage = storage
        self._one_at_a_time = threading.Lock()
        self._left: dict[str, TurnRecord] = {}

    @property
    def left(self) -> bool:
        """Whether something is still to be undone."""
        return bool(self._left)

    def undo(self, record: TurnRecord) -> None:
        """Leave nothing of a turn that did not come to run, now or as soon as that is possible."""
        with self._one_at_a_time:
            if not self._undo(record):
                self._left[record.turn] = record

    def undo_rest(self) -> None:
        """Try again to undo what could not be undone."""
        with self._one_at_a_time:
            for record in [*self._left.values()]:
                if self._undo(record):
                    del self._left[record.turn]

    def check(self, name: str) -> None:
        """Undo the rest; raises RefusedError if there still is some of this name.

        A turn on top of it would mix up which session of the name is the archived one.
        """
        self.undo_rest()
        if any(record.name == name for record in [*self._left.values()]):
            message = (
                f"what an earlier, refused start of {name!r} had prepared cannot be undone yet, see the log: "
                f"let this user write to {self._storage.root} and to claude's folder, then try again."
            )
            raise RefusedError(message)

    def _undo(self, record: TurnRecord) -> bool:
        """Undo archive, prompt copy and record; answer whether all of it is done. The record goes last."""
        try:
            unrestored = archive.undo(record.archived, self._storage)
            if any(not os.path.lexists(one.rename.source) for one in unrestored):
                return False
            if not record.resumes and record.prompt_copy is not None:
                self._storage.remove(Path(record.prompt_copy))
            self._records.end_turn(record.turn, record.name)
        except OSError as error:
            _log.error("what was prepared for turn %s could not be undone yet: %s", record.turn, error)
            return False
        return True
