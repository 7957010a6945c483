"""What systemd is told about this service (sd_notify(3)): readiness, a line of status, the watchdog's pings.

Without `NOTIFY_SOCKET` all of it is silent, and nothing here ever raises: the daemon works without systemd,
and goes on when systemd does not listen.
"""

from __future__ import annotations

import logging
import os
import re
import time
from typing import Final

import anyio
import sdnotify

_log = logging.getLogger(__name__)

# The socket's queue is full only when systemd itself is stuck; the event loop must not be stuck with it.
SEND_LIMIT_SECONDS: Final = 0.5
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,18}")
_WATCHDOG: Final = ("WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """The connection to systemd's notification socket."""

    def __init__(self) -> None:
        """Connect, and take the variables for it out of our environment, so that no child gets them."""
        self._systemd: Final = _connected(os.environ.get("NOTIFY_SOCKET"))
        self._ping_seconds: Final = _ping_seconds(*map(os.environ.get, _WATCHDOG))
        self._status: str | None = None
        self.is_failing = False  # the last message was not taken
        for name in ("NOTIFY_SOCKET", *_WATCHDOG):
            os.environ.pop(name, None)

    def close(self) -> None:
        """Close the connection; nothing is sent afterwards."""
        if self._systemd is not None:
            self._systemd.socket.close()

    def ready(self) -> None:
        """Say that requests are answered."""
        self._send("READY=1")

    def stopping(self) -> None:
        """Say that the service is coming to its end."""
        self._send("STOPPING=1")

    def reloading(self) -> None:
        """Say that the configuration is being read again; `ready` must follow, whatever came of it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def status(self, text: str) -> None:
        """Have `systemctl status` show this line; sent only when it differs from the last one."""
        line = " ".join(text.split())
        if line != self._status and self._send(f"STATUS={line}"):
            self._status = line

    async def ping(self) -> None:
        """Ping the watchdog at once, then twice in each interval, for ever; return if there is no watchdog.

        It runs in the event loop, so that systemd notices when that does not turn any more.
        """
        if self._systemd is None or self._ping_seconds is None:
            return
        while True:
            self._send("WATCHDOG=1")
            await anyio.sleep(self._ping_seconds)

    def _send(self, message: str) -> bool:
        """Send a message; tell whether it can count as said."""
        if self._systemd is None:
            return True
        try:
            # sdnotify encodes as Latin-1, systemd reads UTF-8: the bytes of the one as letters of the other.
            self._systemd.notify(message.encode(errors="replace").decode("latin-1"))
        except OSError as error:
            if not self.is_failing:
                _log.warning("systemd's notification socket does not take messages: %s", error)
            self.is_failing = True
            return False
        self.is_failing = False
        return True


def status_line(*, running: int, loose_ends: int, trouble: str | None = None) -> str:
    """Return the line for `systemctl status`, such as `2 running, 5 loose ends`; trouble comes first."""
    counts = f"{running} running, {loose_ends} loose end{'' if loose_ends == 1 else 's'}"
    return f"{trouble}; {counts}" if trouble else counts


def _connected(address: str | None) -> sdnotify.SystemdNotifier | None:
    if not address:
        return None
    try:
        # `debug` lets errors through: they are logged here, instead of being swallowed there.
        systemd = sdnotify.SystemdNotifier(debug=True)
        systemd.socket.settimeout(SEND_LIMIT_SECONDS)
    except OSError as error:
        _log.warning("systemd's notification socket %s cannot be reached: %s", address, error)
        return None
    return systemd


def _ping_seconds(interval: str | None, pid: str | None) -> float | None:
    """Return the pause between two pings, half the interval; None: nobody waits for pings of this process."""
    if interval is None:
        return None
    for name, value in zip(_WATCHDOG, (interval, pid), strict=True):
        if value is not None and not _NUMBER.fullmatch(value):
            _log.warning("%s is %a, which is no number above 0: the watchdog gets no pings", name, value)
            return None
    if pid is not None and int(pid) != os.getpid():
        return None
    return int(interval) / 2 / 1_000_000
