"""What systemd-oomd has killed: it does so from user space, so the kernel's counters stay at zero.

Its signal org.freedesktop.oom1.Manager.Killed names the cgroup (org.freedesktop.oom1(5)). It runs for the
whole system only, so it speaks on the system bus whoever made the scope.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
from jeepney import MatchRule
from jeepney.bus_messages import message_bus

from hive_subagent_daemon import cgroups
from hive_subagent_daemon.dbus_link import BusError, DBusLink, open_link

if TYPE_CHECKING:
    import asyncio

    from jeepney import Message

_log = logging.getLogger(__name__)

SYSTEM_BUS: Final = Path("/run/dbus/system_bus_socket")
# The signal is sent right after the kill, and may reach us after the death of the process.
TELL_SECONDS: Final = 0.3
ASK_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 60.0
KEPT_SECONDS: Final = 60.0

_NAME: Final = "org.freedesktop.oom1"
_MEMBER: Final = {"type": "signal", "interface": f"{_NAME}.Manager", "member": "Killed"}
# On the wire the sender is a number; that it is systemd-oomd is for the bus to check.
_WANTED: Final = MatchRule(sender=_NAME, **_MEMBER)
_KILLED: Final = MatchRule(**_MEMBER)


class OomdWatch:
    """Listens on the system bus, where there is one; costs nothing as long as nothing is killed."""

    def __init__(self, socket: Path = SYSTEM_BUS) -> None:
        """Nothing is connected yet."""
        self._socket = socket
        self._link: DBusLink | None = None
        self._kills: dict[Path, float] = {}
        self._news = anyio.Event()

    async def run(self) -> None:
        """Listen until cancelled; without a system bus, look for one now and then."""
        while True:
            await self._listen()
            await anyio.sleep(RETRY_SECONDS)

    async def _listen(self) -> None:
        try:
            link = await open_link(self._socket, matches=[_WANTED])
        except BusError as error:
            _log.debug("systemd-oomd cannot be listened to: %s", error)
            return
        self._link = link
        try:
            with link.signals(_KILLED) as killed:
                async with anyio.create_task_group() as listening:
                    listening.start_soon(self._take, killed)
                    await link.lost.wait()
                    listening.cancel_scope.cancel()
        finally:
            self._link = None
            with anyio.CancelScope(shield=True):
                await link.close()

    async def _take(self, killed: asyncio.Queue[Message]) -> None:
        while True:
            cgroup, reason = (await killed.get()).body[:2]
            _log.warning("systemd-oomd killed %s (%s)", cgroup, reason)
            self._kills[cgroups.at(str(cgroup))] = time.monotonic()
            self._news.set()
            self._news = anyio.Event()

    async def killed(self, cgroup: Path) -> bool:
        """Tell whether systemd-oomd has just killed in this cgroup, or in one above or below it."""
        if self._told(cgroup):
            return True
        if not await self._is_there():
            return False
        with anyio.move_on_after(TELL_SECONDS):
            while not self._told(cgroup):
                await self._news.wait()
        return self._told(cgroup)

    def _told(self, cgroup: Path) -> bool:
        now = time.monotonic()
        self._kills = {path: at for path, at in self._kills.items() if now - at < KEPT_SECONDS}
        return any(cgroup.is_relative_to(path) or path.is_relative_to(cgroup) for path in self._kills)

    async def _is_there(self) -> bool:
        if self._link is None:
            return False
        try:
            [owned] = await self._link.call(message_bus.NameHasOwner(_NAME), within_seconds=ASK_SECONDS)
        except BusError:
            return False
        return bool(owned)
