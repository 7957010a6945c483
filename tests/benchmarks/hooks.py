"""What the hook of a parent costs when there is nothing to tell, and how soon it tells what there is."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tests.benchmarks.figures import Figure, median_ms
from tests.benchmarks.setting import daemon
from tests.support.hooks import SILENCE, WAKE, hook, waiting_hook
from tests.support.scripted_daemon import REPOSITORY

if TYPE_CHECKING:
    from tests.support.daemon_harness import Daemon

HOOKS = 20
WARM_UP = 2
WAKES = 10
LIMIT = 1.2
LIMIT_SECONDS = 0.2
WAKE_LIMIT_SECONDS = 0.5
# What any hook in Python needs that asks its daemon something.
BARE = """
import http.client, json, sys
json.load(sys.stdin)
connection = http.client.HTTPConnection("127.0.0.1", {port})
connection.request("GET", "/healthz")
json.load(connection.getresponse())
"""


def measure() -> list[Figure]:
    """Let both ask the same daemon in turn; then let turns end while a hook waits."""
    with daemon(environment={"STUB_SH_MODE": "stay"}) as running:
        ours, bare = [], []
        for _ in range(WARM_UP + HOOKS):
            ours.append(_silent_stop(running))
            bare.append(_bare_request(running))
        wakes = [_wake(running, number) for number in range(WAKES)]
    ours, bare = ours[WARM_UP:], bare[WARM_UP:]
    ratio = statistics.median(ours) / statistics.median(bare)
    how = f"medians of {HOOKS}: {median_ms(ours):.0f} ms against {median_ms(bare):.0f} ms"
    longest = f"the longest of {WAKES} took {max(wakes) * 1000:.0f} ms"
    idle = "a Stop with nothing running"
    wake = "from the end of a turn to a waiting hook's text"
    return [
        Figure(f"{idle}, against a bare request by http.client", ratio, LIMIT, "times", how),
        Figure(f"{idle}, the whole life of its hook", statistics.median(ours), LIMIT_SECONDS, "s", how),
        Figure(wake, statistics.median(wakes), WAKE_LIMIT_SECONDS, "s", longest),
    ]


def _silent_stop(running: Daemon) -> float:
    began = time.monotonic()
    assert hook(running.port).told() == SILENCE
    return time.monotonic() - began


def _bare_request(running: Daemon) -> float:
    began = time.monotonic()
    words = [sys.executable, "-c", BARE.format(port=running.port)]
    subprocess.run(words, input=b"{}", check=True, cwd=REPOSITORY, capture_output=True)
    return time.monotonic() - began


def _wake(running: Daemon, number: int) -> float:
    """End a turn from outside while a hook waits; return the seconds until the hook has told it."""
    name = f"wake-{number}"
    pid = running.start(name).content["pid"]
    with waiting_hook(running.port) as waiting:
        began = time.monotonic()
        os.kill(pid, signal.SIGTERM)
        told = waiting.told()
        seconds = time.monotonic() - began
    assert told.code == WAKE
    assert name in told.stderr
    return seconds
