"""Callers of a daemon that comes and goes: each call on a connection of its own, and none may be lost."""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import threading
import time
from typing import TYPE_CHECKING

from typing_extensions import override

from tests.support.mcp_call import HttpError, call_tool
from tests.support.processes import eventually

if TYPE_CHECKING:
    from pathlib import Path


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        """Call the daemon that listens at this path."""
        super().__init__("localhost", timeout=20)
        self.path = path

    @override
    def connect(self) -> None:
        """Connect."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(str(self.path))


def health(connection: http.client.HTTPConnection) -> float:
    """Ask for the health on an open connection and return how long that took."""
    began = time.monotonic()
    connection.request("GET", "/healthz")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b'{"status": "ok"}')
    return time.monotonic() - began


class Waiting(threading.Thread):
    """One call of a tool that may have to wait for a daemon."""

    def __init__(self, port: int) -> None:
        """Call this port."""
        super().__init__()
        self.port = port
        self.answer = ""
        self.start()

    @override
    def run(self) -> None:
        """Call."""
        try:
            self.answer = call_tool(self.port, "status", {}).text
        except (OSError, http.client.HTTPException, HttpError) as error:
            self.answer = repr(error)


def queued(listening: socket.socket) -> int:
    """Return how many connections wait to be accepted: `tcpi_unacked` of a listening socket."""
    return int.from_bytes(listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)[24:28], "little")


class Caller(threading.Thread):
    """Calls again and again, each time on a new connection, and counts what is not an answer."""

    def __init__(self, port: int, *, tool: bool, pause_seconds: float = 0.0) -> None:
        """Call a tool, or ask for the health, with pauses of any length up to this one."""
        super().__init__()
        self.port = port
        self.tool = tool
        self.pause_seconds = pause_seconds
        self.finish = threading.Event()
        self.answers = 0
        self.stopping_answers = 0
        self.longest_seconds = 0.0
        self.losses: list[str] = []
        self.start()

    @override
    def run(self) -> None:
        """Call until told to finish."""
        chance = random.Random(self.pause_seconds)
        while not self.finish.wait(chance.uniform(0, self.pause_seconds)):
            began = time.monotonic()
            try:
                self.call()
                self.answers += 1
            except HttpError as error:
                self.stopping_answers += "the daemon is stopping" in error.body
                self.losses += [] if "the daemon is stopping" in error.body else [repr(error)]
            except (OSError, http.client.HTTPException, AssertionError, ValueError) as error:
                self.losses.append(repr(error))
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)

    def call(self) -> None:
        """Make one call."""
        if self.tool:
            assert not call_tool(self.port, "status", {}).is_error
        else:
            with contextlib.closing(
                http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            ) as connection:
                health(connection)


def await_answers(callers: list[Caller], number: int, *, within: float = 20.0) -> None:
    """Wait until every caller has an answer more, and all together so many more."""
    before = [caller.answers for caller in callers]

    def enough() -> bool:
        now = [caller.answers for caller in callers]
        return all(map(int.__gt__, now, before)) and sum(now) >= sum(before) + number

    eventually(lambda: enough() or any(caller.losses for caller in callers), within=within, what="answers")


def finish(callers: list[Caller]) -> None:
    """Let every caller end behind the call that it makes."""
    for caller in callers:
        caller.finish.set()
    for caller in callers:
        caller.join(60)
