"""The systemd manager behind one message bus (org.freedesktop.systemd1(5)): make a scope, stop a unit.

The connection is kept. One that breaks, because the bus or the user's manager was restarted, is noticed at
once and made anew; what is asked for in between fails with a BusError that says so.
"""

from __future__ import annotations

import logging
import time
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
from jeepney import DBusAddress, MatchRule, Properties, new_method_call

from hive_subagent_daemon.dbus_link import BusError, DBusLink, NoAnswerError, RefusedCallError, open_link

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from jeepney import Message

_log = logging.getLogger(__name__)

# A call of `start` answers within two seconds, whatever systemd does.
START_SECONDS: Final = 1.7
STOP_SECONDS: Final = 2.0
ASK_SECONDS: Final = 3.0
RECONNECT_SECONDS: Final = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
LASTING_SECONDS: Final = 10.0  # a connection that lived longer was not one of a row of failures

_NAME: Final = "org.freedesktop.systemd1"
_MANAGER: Final = DBusAddress("/org/freedesktop/systemd1", bus_name=_NAME, interface=f"{_NAME}.Manager")
_JOB_REMOVED: Final = MatchRule(
    type="signal", interface=f"{_NAME}.Manager", member="JobRemoved", path="/org/freedesktop/systemd1"
)
_NO_SUCH_UNIT: Final = f"{_NAME}.NoSuchUnit"
Property = tuple[str, tuple[str, Any]]


class SystemdBus:
    """The manager behind one bus socket. Use from the event loop only."""

    def __init__(self, socket: Path) -> None:
        """Use the bus whose socket this is; nothing is connected yet."""
        self.trouble: str | None = None
        self._socket = socket
        self._link: DBusLink | None = None
        self._linking = anyio.Lock()

    async def keep_connected(self) -> None:
        """Notice a connection that breaks and make a new one, until cancelled."""
        tries = 0
        while True:
            try:
                link = await self._connected()
            except BusError as error:
                if not tries:
                    _log.error("%s: trying again", error)
                tries += 1
                await anyio.sleep(_pause_seconds(tries))
                continue
            if tries:
                _log.info("connected to systemd at %s again", self._socket)
            began = time.monotonic()
            await link.lost.wait()
            _log.warning("the connection to systemd at %s is gone", self._socket)
            tries = 1 if time.monotonic() - began > LASTING_SECONDS else tries + 1
            await anyio.sleep(_pause_seconds(tries))

    async def version_and_cgroup(self) -> tuple[str, str]:
        """Return the version of systemd and the cgroup that it manages; BusError when it does not answer."""
        version = await self._property(_MANAGER, "Version")
        return version, await self._property(_MANAGER, "ControlGroup")

    async def start_scope(self, name: str, properties: Sequence[Property]) -> None:
        """Make a transient scope and return once systemd has put its processes in.

        The method itself returns too early; only the JobRemoved signal with the result `done` says that the
        processes are inside (measured on systemd 252 and 257). The signal can come before the answer.
        """
        arguments: tuple[Any, ...] = (name, "fail", list(properties), [])
        message = new_method_call(_MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))", arguments)
        await self._finish(message, within_seconds=START_SECONDS)

    async def stop_unit(self, name: str) -> None:
        """Stop a unit and return once it is gone; fine when it is not there."""
        message = new_method_call(_MANAGER, "StopUnit", "ss", (name, "replace"))
        try:
            await self._finish(message, within_seconds=STOP_SECONDS)
        except RefusedCallError as error:
            if error.name != _NO_SUCH_UNIT:
                raise

    async def cgroup_of_slice(self, name: str) -> str | None:
        """Return the cgroup of a slice, empty when it has none yet, None when there is no such unit."""
        try:
            [unit] = await self._call(new_method_call(_MANAGER, "GetUnit", "s", (name,)))
        except RefusedCallError as error:
            if error.name == _NO_SUCH_UNIT:
                return None
            raise
        address = DBusAddress(unit, bus_name=_NAME, interface=f"{_NAME}.Slice")
        with suppress(RefusedCallError):  # gone in between
            return await self._property(address, "ControlGroup")
        return None

    async def job_of_unit(self, name: str) -> str | None:
        """Return the type of the job that systemd has for a unit now, None when it has none."""
        [unit] = await self._call(new_method_call(_MANAGER, "GetUnit", "s", (name,)))
        address = DBusAddress(unit, bus_name=_NAME, interface=f"{_NAME}.Unit")
        [(_, (number, path))] = await self._call(Properties(address).get("Job"))
        if number == 0:
            return None
        return await self._property(DBusAddress(path, bus_name=_NAME, interface=f"{_NAME}.Job"), "JobType")

    async def close(self) -> None:
        """Close the connection."""
        if self._link is not None:
            await self._link.close()

    async def _property(self, address: DBusAddress, name: str) -> str:
        [(_, value)] = await self._call(Properties(address).get(name))
        return str(value)

    async def _call(self, message: Message) -> tuple[Any, ...]:
        link = await self._connected()
        return await link.call(message, within_seconds=ASK_SECONDS)

    async def _finish(self, message: Message, *, within_seconds: float) -> None:
        """Send a call that queues a job of systemd's, and return when that is done."""
        try:
            with anyio.fail_after(within_seconds):
                result = await self._job_result(message, within_seconds=within_seconds)
        except TimeoutError as error:
            text = f"systemd was not done within {within_seconds:g} s"
            raise NoAnswerError(text) from error
        if result != "done":
            text = f"systemd could not do it: {result} (its journal says why)"
            raise BusError(text)

    async def _job_result(self, message: Message, *, within_seconds: float) -> str:
        link = await self._connected()
        with link.signals(_JOB_REMOVED) as removed:
            [job] = await link.call(message, within_seconds=within_seconds)
            while (signal := (await removed.get()).body)[1] != job:
                continue
        return str(signal[3])

    async def _connected(self) -> DBusLink:
        async with self._linking:
            if self._link is not None and not self._link.lost.is_set():
                return self._link
            if self._link is not None:
                await self._link.close()
                self._link = None
            try:
                async with AsyncExitStack() as undo:
                    link = await open_link(self._socket, matches=[_JOB_REMOVED])
                    undo.push_async_callback(link.close)
                    # Without a subscriber systemd sends no signals.
                    await link.call(new_method_call(_MANAGER, "Subscribe"), within_seconds=ASK_SECONDS)
                    undo.pop_all()
            except BusError as error:
                self.trouble = f"no systemd manager answers: {error}"
                raise BusError(self.trouble) from error
            self.trouble = None
            self._link = link
            return link


def _pause_seconds(tries: int) -> float:
    """Return how long to wait after so many failures in a row, at least one."""
    return RECONNECT_SECONDS[min(tries, len(RECONNECT_SECONDS)) - 1]
