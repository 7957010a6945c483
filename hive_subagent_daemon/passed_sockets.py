"""Socket activation (sd_listen_fds(3)): the listening sockets that a socket unit has passed to this process.

They outlive the daemon: who connects while it is down waits in the kernel until the next one accepts. Their
files, owners and modes are the socket unit's business, and so is their removal.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
from itertools import count, zip_longest
from typing import Final

from systemd import daemon as systemd_daemon

from hive_subagent_daemon.errors import StartUpError
from hive_subagent_daemon.listeners import Listener, Listeners, names_of, reach_fault

_log = logging.getLogger(__name__)

_VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")
_FIX: Final = (
    "in the socket unit write ListenStream=127.0.0.1:PORT, [::1]:PORT or /PATH, and nothing else that listens"
)


def passed_sockets(*, reachable: bool = False) -> Listeners | None:
    """Take over every socket that was passed to this process; None when there is none.

    With a token they may be `reachable` from other machines.

    Our environment tells of none afterwards, so call it before any thread and any child. StartUpError names
    the descriptor that is no good and the option of the socket unit.
    """
    announced = os.environ.get("LISTEN_FDS", "")
    names = os.environ.get("LISTEN_FDNAMES", "").split(":")
    try:
        descriptors: list[int] = systemd_daemon.listen_fds(unset_environment=True)
    except OSError as error:
        raise StartUpError(_not_there(announced, error)) from error
    finally:
        for variable in _VARIABLES:  # libsystemd cannot know that Python keeps a copy
            os.environ.pop(variable, None)
    if not descriptors:
        return None
    with contextlib.ExitStack() as undo:
        listeners: list[Listener] = []
        for descriptor, name in zip_longest(descriptors, names[: len(descriptors)], fillvalue=""):
            listeners.append(adopted(int(descriptor), str(name), reachable=reachable))
            undo.enter_context(listeners[-1].socket)
        undo.pop_all()
    _log.info("systemd passed in %d sockets: they decide the addresses, not `listen`", len(listeners))
    return Listeners(listeners, outlive_us=True)


def adopted(descriptor: int, name: str = "", *, reachable: bool = False) -> Listener:
    """Take over one listening stream socket; refused when others than programs of this user could reach it.

    `name` is what the socket unit calls it. `socket.socket(fileno=…)` detects the protocol, on which asyncio
    decides whether it sets TCP_NODELAY.
    """
    what = f"the passed descriptor {descriptor}{f' ({name})' if name else ''}"
    try:
        passed = socket.socket(fileno=descriptor)
    except OSError as error:
        message = f"{what} is no socket ({error.strerror}): {_FIX}."
        raise StartUpError(message) from error
    with contextlib.ExitStack() as undo:
        undo.enter_context(passed)
        if (fault := _fault(passed, reachable=reachable)) is not None:
            message = f"{what} {fault}: {_FIX}."
            raise StartUpError(message)
        passed.set_inheritable(False)
        undo.pop_all()
    return Listener(passed, names_of(passed))


def _fault(passed: socket.socket, *, reachable: bool) -> str | None:
    if passed.type != socket.SOCK_STREAM:
        return "is no stream socket"
    if not passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return "does not listen (a socket unit needs Accept=no)"
    if passed.family == socket.AF_UNIX and not os.fsdecode(passed.getsockname()).startswith("/"):
        return "is a Unix socket without a file"
    fault = reach_fault(passed, reachable=reachable)
    return None if fault is None else f"is no good, {fault}"


def _not_there(announced: str, error: OSError) -> str:
    """Say which of the announced descriptors is not there, or that the announcement itself is nonsense."""
    start = "start this daemon by its socket unit, or without LISTEN_FDS"
    if error.errno != errno.EBADF:
        return f"LISTEN_FDS is {announced!a}, which is no number of sockets ({error.strerror}): {start}."
    first: int = systemd_daemon.LISTEN_FDS_START
    closed = next(descriptor for descriptor in count(first) if not _is_open(descriptor))
    return f"the passed descriptor {closed} is closed, although LISTEN_FDS is {announced}: {start}."


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
