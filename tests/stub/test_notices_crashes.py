"""Each parent is told of each ended turn exactly once, however often the daemon is killed meanwhile."""

from __future__ import annotations

import random
import re
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import override

from tests.stub.steps import held
from tests.support.daemon_harness import Setting
from tests.support.hooks import WAKE, hook
from tests.support.processes import eventually
from tests.support.sockets import free_port

if TYPE_CHECKING:
    from tests.stub.conftest import MakeDaemon
    from tests.support.daemon_harness import Daemon

SEED = 20260101
ROUNDS = 8
SESSIONS = ("one", "two", "three")
ID = re.compile(r"\(id ([0-9a-z_]{24})\)")


class Parent(threading.Thread):
    """A parent whose turns end at once: its hook runs again and again, and every wake is noted."""

    def __init__(self, port: int, session: str) -> None:
        """Begin with nothing told."""
        super().__init__(name=session)
        self.port = port
        self.session = session
        self.wakes: list[list[str]] = []
        self.done = threading.Event()

    @override
    def run(self) -> None:
        """Run hooks until told that it is done; a hook that wakes has told something."""
        while not self.done.is_set():
            told = hook(self.port, "Stop", self.session).told()
            if told.code == WAKE:
                self.wakes.append(ID.findall(told.stderr))
            else:
                self.done.wait(0.05)  # nothing to wait for, or no daemon: the next turn of the parent

    @property
    def told(self) -> list[str]:
        """Return every loose end that it was told of."""
        return [one for wake in list(self.wakes) for one in wake]


def open_ids(daemon: Daemon) -> list[str]:
    """Return the ids of all open loose ends."""
    found: list[dict[str, Any]] = daemon.ok("get_loose_ends", limit=100).content["loose_ends"]
    return [one["id"] for one in found]


@pytest.mark.timeout(180)
def test_over_kills_and_restarts_nothing_is_told_twice_or_never(make_daemon: MakeDaemon) -> None:
    port = free_port()
    daemon = make_daemon(Setting(top={"listen": [f"127.0.0.1:{port}"]})).boot()
    chance = random.Random(SEED)
    parents = [Parent(port, session) for session in SESSIONS]
    for parent in parents:
        parent.start()
    try:
        for number in range(ROUNDS):
            for name in ("a", "b"):
                daemon.start(name, held(f"go-{name}-{number}"))
            daemon.open_gate(f"go-a-{number}")
            time.sleep(chance.uniform(0, 0.6))  # the end, the gathering, the claim or the answer: any of them
            daemon.kill() if number % 2 else daemon.stop()
            daemon.boot()
        wanted = sorted(open_ids(daemon))
        eventually(lambda: all(sorted(parent.told) == wanted for parent in parents), within=30)
    finally:
        for parent in parents:
            parent.done.set()
        for parent in parents:
            parent.join()
    assert len(wanted) == 2 * ROUNDS
    for parent in parents:
        assert sorted(parent.told) == wanted
        assert all(parent.wakes), "a wake without a notice"
