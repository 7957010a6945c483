"""systemd-oomd kills from user space: the kernel counts nothing, only its signal on the system bus tells."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from jeepney import DBusAddress, new_signal
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import open_dbus_connection

from tests.stub.steps import assistant, forever, init, reach
from tests.systemd.managers import SYSTEM, cgroup_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.systemd.service_harness import Service

NAME = "org.freedesktop.oom1"
POLICY = Path("/etc/dbus-1/system.d/stand-in-for-oomd.conf")
MAY_OWN = f"""<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><policy user="root"><allow own="{NAME}"/></policy></busconfig>
"""


@contextlib.contextmanager
def oomd() -> Iterator[Callable[[str], None]]:
    """Stand in for systemd-oomd; yields what announces a kill in a cgroup."""
    POLICY.write_text(MAY_OWN)
    SYSTEM.systemctl("reload", "dbus.service")
    bus = open_dbus_connection("SYSTEM")
    try:
        [owned] = bus.send_and_get_reply(message_bus.RequestName(NAME)).body
        assert owned == 1, "the name of systemd-oomd is taken"
        manager = DBusAddress("/org/freedesktop/oom1", bus_name=NAME, interface=f"{NAME}.Manager")
        yield lambda cgroup: bus.send(new_signal(manager, "Killed", "ss", (cgroup, "memory-pressure")))
    finally:
        bus.close()
        POLICY.unlink()
        SYSTEM.systemctl("reload", "dbus.service")


def killed_in_a_turn(service: Service, name: str) -> str:
    """Start a turn and kill its claude from outside; return the cgroup in which it was."""
    service.script(name, [init(), assistant("so far", stop_reason=None), reach(f"{name}.up"), forever()])
    pid = service.start(name).content["pid"]
    service.reached(f"{name}.up")
    cgroup = cgroup_of(pid)
    os.kill(pid, signal.SIGKILL)
    return cgroup


def test_a_kill_that_systemd_oomd_announces_is_one_for_lack_of_memory(service: Service) -> None:
    with oomd() as announce:
        announce(killed_in_a_turn(service, "x"))
        end = service.loose_end("x")
        assert (end["outcome"], end["signal"], end["cause"]) == ("killed", "SIGKILL", "oom")
        assert "systemd-oomd" in end["error"]
        announce("/somewhere.slice/else.scope")
        killed_in_a_turn(service, "y")
        assert service.loose_end("y")["cause"] == "unknown"


def test_the_signal_of_somebody_else_is_not_believed(service: Service) -> None:
    """Any program may send a signal of that name on the bus; only the owner of the name counts."""
    bus = open_dbus_connection("SYSTEM")
    try:
        stranger = DBusAddress("/org/freedesktop/oom1", interface=f"{NAME}.Manager")
        with oomd():
            cgroup = killed_in_a_turn(service, "x")
            bus.send(new_signal(stranger, "Killed", "ss", (cgroup, "memory-pressure")))
            assert service.loose_end("x")["cause"] == "unknown"
    finally:
        bus.close()
