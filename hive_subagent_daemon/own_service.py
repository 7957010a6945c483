"""The systemd service that the daemon itself is, and whether it is being stopped for good or restarted."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon import cgroups
from hive_subagent_daemon.dbus_link import BusError
from hive_subagent_daemon.oomd import SYSTEM_BUS
from hive_subagent_daemon.systemd_bus import SystemdBus

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = logging.getLogger(__name__)

_STOP: Final = "stop"
_ENDING: Final = (_STOP, "restart", "try-restart")


@dataclass(frozen=True)
class OwnService:
    """Our unit, and the sockets of the bus behind which its manager may be.

    `manager` is the unit of the user's manager, where that has our scopes but not us.
    """

    unit: str
    sockets: tuple[Path, ...]
    manager: str | None = None


def own_service(uid: int, environ: Mapping[str, str]) -> OwnService | None:
    """Return the service that this process is in, None when it is in none (or in a scope of a login)."""
    found = cgroups.of_process(os.getpid())
    if found is None or not found.name.endswith(".service"):
        return None
    manager = f"user@{uid}.service"
    if found.name == manager or manager not in found.parts:
        return OwnService(found.name, (SYSTEM_BUS,), manager if uid else None)
    places = dict.fromkeys((environ.get("XDG_RUNTIME_DIR") or "", f"/run/user/{uid}"))
    return OwnService(found.name, tuple(Path(place) / "bus" for place in places if place.startswith("/")))


async def is_stopped_for_good(service: OwnService | None) -> bool:
    """Tell whether systemd is stopping our unit; a restart, or what nobody can tell, is none.

    While a unit ends, its property `Job` leads to the job that ends it (measured on systemd 252 and 257). A
    shutdown of the machine is a stop too, and so is the end of the user's manager, also by its restart: the
    scopes end with it.
    """
    if service is None:
        return False
    for socket in service.sockets:
        bus = SystemdBus(socket)
        try:
            kind = await bus.job_of_unit(service.unit)
            scopes_end = kind != _STOP and await _ends(bus, service.manager)
        except BusError as error:
            _log.warning("systemd does not tell why %s ends: %s", service.unit, error)
        else:
            with_it = f", and {service.manager} with it" if scopes_end else ""
            _log.info("%s ends by a job of type %s%s", service.unit, kind or "none", with_it)
            return kind == _STOP or scopes_end
        finally:
            await bus.close()
    return False


async def _ends(bus: SystemdBus, manager: str | None) -> bool:
    """Tell whether the user's manager is to end or to be restarted; one that is not loaded is not."""
    if manager is None:
        return False
    try:
        return await bus.job_of_unit(manager) in _ENDING
    except BusError as error:
        _log.debug("%s has no job: %s", manager, error)
        return False
