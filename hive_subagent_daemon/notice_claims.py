"""Which notices have been shown to which parent session, durably: a claim is on disk before its answer goes.

A file for each session that has been shown something that is still open; so they are as few as the sessions
and as long as the list of open loose ends.
"""

from __future__ import annotations

import errno
import logging
import threading
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from pydantic import TypeAdapter

from hive_subagent_daemon import clock
from hive_subagent_daemon.notices import Shown, claimed, is_id, still_needed, withdrawn
from hive_subagent_daemon.regular_files import NotRegularError, read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from hive_subagent_daemon.notices import Question
    from hive_subagent_daemon.storage import Storage

_log = logging.getLogger(__name__)

MOST_SESSIONS: Final = 1000
CLAIM_BYTES: Final = 16 * 1024 * 1024
_NO_FILE: Final = (errno.ENOENT, errno.ELOOP, errno.ENXIO)


@dataclass(frozen=True)
class Claim:
    """What one session has been shown, and when it was last answered."""

    session: str
    shown: Shown
    used_at: str


_FORMAT: Final = TypeAdapter(Claim)


class Claims:
    """The claims on disk with a copy in memory. Methods that say so block and raise OSError."""

    def __init__(self, storage: Storage, opened: Callable[[], Collection[str]]) -> None:
        """Read the claims of the state directory; `opened` tells which loose ends are open. Blocks."""
        self._storage: Final = storage
        self._opened: Final = opened
        self._folder: Final = storage.root / "notices"
        # A file is changed by one thread at a time, and so is the number of files.
        self._changing: Final = threading.Lock()
        self._claims: Final[dict[str, Claim]] = {}
        for path in sorted(self._folder.iterdir()):
            if (claim := self._read(path)) is not None:
                self._claims[claim.session] = claim

    def shown_to(self, session: str) -> Shown:
        """Return what a session has been shown."""
        claim = self._claims.get(session)
        return Shown() if claim is None else claim.shown

    def claim(self, question: Question, due: Collection[str]) -> None:
        """Note durably that the session is shown these; once this returns, they may be. Blocks."""
        with self._changing:
            if question.session not in self._claims and len(self._claims) >= MOST_SESSIONS:
                self._drop(min(self._claims.values(), key=lambda one: one.used_at))
            shown = claimed(question, due, self.shown_to(question.session), self._opened())
            self._keep(Claim(question.session, shown, clock.as_text(clock.now())))

    def withdraw(self, session: str, ids: Collection[str]) -> None:
        """Undo a claim whose answer did not reach the session. Blocks."""
        with self._changing:
            if (claim := self._claims.get(session)) is not None:
                self._keep(replace(claim, shown=withdrawn(claim.shown, ids)))

    def tidy(self, *, idle_days: int) -> None:
        """Forget what is not open any more, and sessions that were shown nothing for so long. Blocks."""
        limit = clock.now() - timedelta(days=idle_days)
        for claim in list(self._claims.values()):
            with self._changing:
                if self._claims.get(claim.session) is not claim:
                    continue  # it was answered just now
                needed = still_needed(claim.shown, self._opened())
                if clock.from_text(claim.used_at) < limit:
                    self._drop(claim)
                elif needed != claim.shown:
                    self._keep(replace(claim, shown=needed))

    def _keep(self, claim: Claim) -> None:
        if not claim.shown.ids:
            self._drop(claim)
            return
        self._storage.write(self._path(claim.session), _FORMAT.dump_json(claim) + b"\n")
        self._claims[claim.session] = claim

    def _drop(self, claim: Claim) -> None:
        if claim.session in self._claims:
            self._storage.remove(self._path(claim.session))
            del self._claims[claim.session]

    def _path(self, session: str) -> Path:
        return self._folder / f"{session}.json"

    def _read(self, path: Path) -> Claim | None:
        """Return a claim; None for half a file, and for one that is damaged and set aside now."""
        if path.name.endswith(".partial"):
            self._storage.remove(path)  # left by a crash in the middle of a write
            return None
        try:
            claim = _FORMAT.validate_json(read_regular(path, CLAIM_BYTES))
            if not is_id(claim.session) or self._path(claim.session) != path:
                message = "it belongs elsewhere"
                raise ValueError(message)
            if clock.from_text(claim.used_at).tzinfo is None:
                message = f"{claim.used_at!r} has no time zone"
                raise ValueError(message)
        except ValueError as error:
            self._set_aside(path, error)
        except OSError as error:
            if not isinstance(error, NotRegularError) and error.errno not in _NO_FILE:
                raise
            self._set_aside(path, error)
        else:
            return claim
        return None

    def _set_aside(self, path: Path, why: Exception) -> None:
        try:
            place = f"it was set aside as {self._storage.set_aside(path)}"
        except OSError as error:
            place = f"it could not be set aside: {error}"
        _log.error("%s does not tell what a session was shown (%s); %s", path, why, place)
