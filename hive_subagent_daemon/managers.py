"""Which systemd manager makes the scopes of turns, and what to do when there is none.

Root asks the system manager, everybody else the own user's manager; never a polkit rule, which would be as
good as root (measured on systemd 252).
"""

from __future__ import annotations

import logging
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from hive_subagent_daemon import cgroups
from hive_subagent_daemon.config_values import UNLIMITED, ScopeChoice
from hive_subagent_daemon.dbus_link import BusError
from hive_subagent_daemon.errors import StartUpError
from hive_subagent_daemon.oomd import SYSTEM_BUS, OomdWatch
from hive_subagent_daemon.process_group import ProcessGroup
from hive_subagent_daemon.scopes import Place, ScopeLauncher
from hive_subagent_daemon.systemd_bus import SystemdBus
from hive_subagent_daemon.unit_names import default_slice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hive_subagent_daemon.children import Children
    from hive_subagent_daemon.config_values import Config, Scopes
    from hive_subagent_daemon.launcher import Launcher
    from hive_subagent_daemon.slices_to_stop import SlicesToStop

_log = logging.getLogger(__name__)

# How long a user manager that is still coming up is waited for.
COMING_UP_SECONDS: Final = 10.0
OLDEST_SYSTEMD: Final = 252
_PAUSE_SECONDS: Final = 0.1
_RUN_USER: Final = Path("/run/user")
_LINGER: Final = Path("/var/lib/systemd/linger")


@dataclass(frozen=True)
class User:
    """Who runs the daemon."""

    uid: int
    name: str


@dataclass(frozen=True)
class Manager:
    """A systemd manager that could be asked: its name, what its scopes are called, the sockets of its bus."""

    name: str
    description: str
    sockets: tuple[Path, ...]


class NoManagerError(Exception):
    """There is no manager to be used; the message says why and what to do."""


def manager_for(choice: ScopeChoice, user: User, environ: Mapping[str, str]) -> Manager:
    """Return the manager to ask; NoManagerError when this user must not ask that one."""
    if choice is ScopeChoice.SYSTEM or (choice is ScopeChoice.AUTO and user.uid == 0):
        if user.uid != 0:
            message = (
                "only root may ask the system manager for scopes (a polkit rule for it would be as good as "
                'root): use scopes.manager = "user" and enable lingering for this user'
            )
            raise NoManagerError(message)
        return Manager("the system manager", "system scope", (SYSTEM_BUS,))
    places = (environ.get("XDG_RUNTIME_DIR") or "", str(_RUN_USER / str(user.uid)))
    sockets = dict.fromkeys(Path(place) / "bus" for place in places if place.startswith("/"))
    return Manager("the user's own manager", "user scope", tuple(sockets))


async def choose_launcher(
    config: Config,
    children: Children,
    *,
    user: User,
    environ: Mapping[str, str],
    instance: str,
    to_stop: SlicesToStop,
) -> tuple[Launcher, list[str]]:
    """Return what spawns turns, and what to warn of in `status`.

    StartUpError when a manager was asked for by name and there is none.
    """
    choice = config.scopes.manager
    if choice is ScopeChoice.OFF:
        _log.info("turns run as process groups (scopes are off)")
        return ProcessGroup(children, to_stop), []
    try:
        manager = manager_for(choice, user, environ)
        bus, notices = await _connected(manager, config.scopes, user=user)
    except NoManagerError as error:
        if choice is not ScopeChoice.AUTO:
            message = f'scopes.manager = "{choice}": {error}'
            raise StartUpError(message) from error
        notice = f"turns run as process groups: {error}. So there are no memory limits and no OOM reports"
        _log.warning("%s", notice)
        return ProcessGroup(children, to_stop), [notice]
    launcher = ScopeLauncher(
        children,
        bus,
        scopes=config.scopes,
        place=Place(config.scopes.slice or default_slice(config.agent), instance, _own_unit(manager, user)),
        to_stop=to_stop,
        oomd=OomdWatch(),
        description=manager.description,
    )
    return launcher, notices


async def try_manager(scopes: Scopes, *, user: User, environ: Mapping[str, str]) -> tuple[Manager, list[str]]:
    """Return the manager that would make scopes for this user, and which limits it cannot enforce.

    NoManagerError, with what to do, when there is none.
    """
    manager = manager_for(scopes.manager, user, environ)
    bus, notices = await _connected(manager, scopes, user=user)
    await bus.close()
    return manager, notices


def _own_unit(manager: Manager, user: User) -> str | None:
    """Return the service that we are, if the manager of our scopes runs it.

    A system service with `User=` is in another manager than the scopes of its turns.
    """
    cgroup = cgroups.of_process(os.getpid())
    if cgroup is None or not cgroup.name.endswith(".service"):
        return None
    below_user = f"user@{user.uid}.service" in cgroup.parent.parts
    return cgroup.name if below_user is (manager.description == "user scope") else None


async def _connected(manager: Manager, scopes: Scopes, *, user: User) -> tuple[SystemdBus, list[str]]:
    """Connect, waiting for a manager that is still coming up; return also what will have no effect."""
    if not cgroups.is_unified():
        message = f"cgroup v2 is not mounted at {cgroups.ROOT} (boot with systemd.unified_cgroup_hierarchy=1)"
        raise NoManagerError(message)
    patience = COMING_UP_SECONDS if _is_expected(manager, scopes, user) else 0.0
    deadline = time.monotonic() + patience
    tries = 0
    while True:
        tries += 1
        if tries == 2:
            _log.info("%s does not answer yet: waiting up to %.0f s for it", manager.name, patience)
        reasons = []
        for socket in manager.sockets:
            bus = SystemdBus(socket)
            try:
                version, cgroup = await bus.version_and_cgroup()
                _check_version(version)
            except BusError as error:
                reasons.append(str(error.__cause__ or error))
                await bus.close()
            except NoManagerError:
                await bus.close()
                raise
            else:
                _log.info("turns run in scopes of %s (systemd %s at %s)", manager.name, version, socket)
                return bus, _without_effect(scopes, cgroups.controllers(cgroups.at(cgroup)))
        if time.monotonic() > deadline:
            raise NoManagerError(_why_none(manager, user, reasons))
        await anyio.sleep(_PAUSE_SECONDS)


def _check_version(version: str) -> None:
    number = re.match(r"[0-9]+", version)
    if number is not None and int(number[0]) < OLDEST_SYSTEMD:
        message = f"systemd {version} is too old: scopes with OOMPolicy= need {OLDEST_SYSTEMD} or newer"
        raise NoManagerError(message)


def _is_expected(manager: Manager, scopes: Scopes, user: User) -> bool:
    """Tell whether a manager that does not answer yet is likely to come."""
    if scopes.manager is not ScopeChoice.AUTO:
        return True
    if manager.sockets == (SYSTEM_BUS,):
        return _is_there(Path("/run/systemd/system"))
    return _is_there(_LINGER / user.name) or any(_is_there(path.parent) for path in manager.sockets)


def _is_there(path: Path) -> bool:
    """Tell whether a path exists; one that may not be looked at is not there for us."""
    try:
        path.lstat()
    except OSError:
        return False
    return True


def _why_none(manager: Manager, user: User, reasons: list[str]) -> str:
    """Say why no manager answers, and what to do."""
    if manager.sockets == (SYSTEM_BUS,):
        return f"the system manager does not answer: {reasons[-1]}; is systemd running, and dbus?"
    name, uid = user.name, user.uid
    for socket in manager.sockets:
        place = socket.parent
        if _is_there(socket):
            return (
                f"the manager of user {name} does not answer: {reasons[-1]}; see systemctl status user@{uid}"
            )
        if _is_there(place / "systemd"):
            return f"the manager of user {name} has no message bus at {socket}: install dbus-user-session"
        if _is_there(place):
            return f"user {name} has {place} but no manager there: systemctl start user@{uid}"
    return (
        f"user {name} has no running manager ({manager.sockets[-1].parent} is not there): run `loginctl "
        f"enable-linger {name}`, and let no ProtectHome= in the unit hide {_RUN_USER}; "
        "a directory elsewhere goes into XDG_RUNTIME_DIR"
    )


def _without_effect(scopes: Scopes, controllers: frozenset[str]) -> list[str]:
    """Return what systemd would accept and the kernel not enforce: a limit without its controller."""
    notices = []
    if "memory" not in controllers:
        limits = {"memory_max": scopes.memory_max, "memory_high": scopes.memory_high}
        limits["memory_swap_max"] = scopes.memory_swap_max
        named = [f"scopes.{name}" for name, value in limits.items() if value not in (None, UNLIMITED)]
        effect = f"{', '.join(named)} will have no effect and " if named else ""
        notices.append(
            f"this systemd manager has no memory controller: {effect}OOM kills cannot be told from others"
        )
    if scopes.tasks_max is not None and "pids" not in controllers:
        notices.append("this systemd manager has no pids controller: scopes.tasks_max will have no effect")
    if scopes.cpu_weight is not None and "cpu" not in controllers:
        notices.append("this systemd manager has no cpu controller: scopes.cpu_weight will have no effect")
    for notice in notices:
        _log.warning("%s", notice)
    return notices
