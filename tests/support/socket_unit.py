"""Be the systemd behind a listening socket: whoever connects while no daemon runs starts one."""

from __future__ import annotations

import os
import select
import signal
import threading
from typing import TYPE_CHECKING, Self

from typing_extensions import override

from tests.support.processes import eventually

if TYPE_CHECKING:
    import socket

    from tests.support.activation import ActivatedDaemon

END_SECONDS = 60.0


class SocketUnit(threading.Thread):
    """Starts a daemon at each connection that finds none; as a context manager, the last one is stopped."""

    def __init__(self, daemon: ActivatedDaemon, listening: socket.socket) -> None:
        """Watch the socket that the daemon gets."""
        super().__init__()
        self.codes: list[int] = []
        self.starts = 0
        self._called = threading.Event()
        self._daemon = daemon
        self._listening = listening
        self._ended = threading.Event()
        self._wake, self._waker = os.pipe()

    @override
    def run(self) -> None:
        """Wait for somebody at the socket, start a daemon, wait for its end."""
        while True:
            select.select([self._listening.fileno(), self._wake], [], [])
            if self._ended.is_set():
                return
            process = self._daemon.spawn()
            self.starts += 1
            self._called.set()
            self.codes.append(process.wait())

    def has_seen(self, ends: int) -> None:
        """Wait until so many daemons have ended, and none runs."""

        def gone() -> bool:
            return len(self.codes) == self.starts >= ends

        eventually(gone, within=END_SECONDS, what=f"the end of daemon {ends}")

    def is_gone(self, exits: int) -> None:
        """Wait until so many daemons have left by themselves, and none runs."""
        self.has_seen(exits)
        assert set(self.codes) == {0}

    def is_left_alone(self, seconds: float) -> bool:
        """Tell whether nobody calls for so long."""
        self._called.clear()
        return not self._called.wait(seconds)

    def __enter__(self) -> Self:
        """Begin to watch."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Start no more daemons, and stop the one that runs."""
        self._ended.set()
        os.write(self._waker, b"x")
        process = self._daemon.process
        if process is not None and process.returncode is None:
            process.send_signal(signal.SIGTERM)
        self.join(END_SECONDS)
        self._daemon.process = None
        os.close(self._wake)
        os.close(self._waker)
