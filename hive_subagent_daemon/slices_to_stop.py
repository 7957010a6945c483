"""Slices of turns that systemd has not confirmed to be gone: stopped when it answers, or by a later daemon.

Each is a file in the state directory, written only when a stop has failed: nothing is forgotten because
systemd or its bus hung while a turn, or the daemon, came to its end.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio

from hive_subagent_daemon.dbus_link import BusError
from hive_subagent_daemon.threads import in_thread
from hive_subagent_daemon.unit_names import is_slice

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hive_subagent_daemon.storage import Storage

_log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 5.0
LAST_TRY_SECONDS: Final = 1.0


class SlicesToStop:
    """The names of slices that are to be stopped. Use from the event loop only."""

    def __init__(self, storage: Storage) -> None:
        """Begin with what an earlier daemon could not stop. Blocks."""
        self._storage = storage
        self._folder = storage.root / "slices"
        self._then: dict[str, Callable[[], Awaitable[object]] | None] = {}
        self._some = anyio.Event()
        for path in sorted(self._folder.iterdir()):
            if is_slice(path.name):
                self._then[path.name] = None
            else:
                storage.remove(path)  # half of a write
        if self._then:
            self._some.set()

    async def add(self, name: str, *, then: Callable[[], Awaitable[object]] | None = None) -> None:
        """Have a slice stopped; `then` is called when it is gone, unless the daemon ends before."""
        try:
            await in_thread(self._storage.write, self._folder / name, b"")
        except OSError as error:
            _log.error("that the slice %s is to be stopped cannot be stored: %s", name, error)
        self._then[name] = then
        self._some.set()

    async def run(self, stop_unit: Callable[[str], Awaitable[None]]) -> None:
        """Stop them by `stop_unit`, again and again while that raises a BusError; until cancelled."""
        try:
            while True:
                await self._some.wait()
                await self._try_all(stop_unit)
                if self._then:
                    await anyio.sleep(RETRY_SECONDS)
                else:
                    self._some = anyio.Event()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(LAST_TRY_SECONDS):
                await self._try_all(stop_unit)
            for name in sorted(self._then):
                _log.error("the slice %s could not be stopped: the next start tries again", name)

    async def _try_all(self, stop_unit: Callable[[str], Awaitable[None]]) -> None:
        for name in sorted(self._then):
            try:
                await stop_unit(name)
            except BusError as error:
                _log.debug("the slice %s is not stopped yet: %s", name, error)
                continue
            then = self._then.pop(name)
            if then is not None:
                await then()
            try:
                await in_thread(self._storage.remove, self._folder / name)
            except OSError as error:
                _log.warning("the note on the slice %s cannot be removed: %s", name, error)
