"""What a crowd of idle connections costs the others: the time of a call with and without it, alternating."""

from __future__ import annotations

import socket
import statistics
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.benchmarks.figures import Figure, median_ms
from tests.benchmarks.setting import daemon, kept_alive

if TYPE_CHECKING:
    from collections.abc import Callable

IDLE = 500
ROUNDS = 5
CALLS = 200
LIMIT = 2.0
# Silent from the beginning, in the middle of a header, in the middle of a body, between two requests.
BEGINNINGS = (
    b"",
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
)


def measure() -> list[Figure]:
    """Compare the p90 of `status` with 500 idle connections of four kinds and without."""
    alone: list[float] = []
    crowded: list[float] = []
    with daemon(environment={}) as running, kept_alive(running.port) as call:
        _p90(call)
        for _ in range(ROUNDS):
            alone.append(_p90(call))
            with ExitStack() as crowd:
                for number in range(IDLE):
                    idle = crowd.enter_context(socket.create_connection(("127.0.0.1", running.port), 10))
                    idle.sendall(BEGINNINGS[number % len(BEGINNINGS)])
                call("status", {})  # all of them have been accepted before it is answered
                crowded.append(_p90(call))
    ratio = statistics.median(crowded) / statistics.median(alone)
    how = (
        f"p90 of {CALLS} calls, median of {ROUNDS} rounds: {median_ms(crowded):.2f} ms against "
        f"{median_ms(alone):.2f} ms"
    )
    return [
        Figure(f"a call beside {IDLE} idle connections, against one without them", ratio, LIMIT, "times", how)
    ]


def _p90(call: Callable[[str, dict[str, str]], float]) -> float:
    return statistics.quantiles((call("status", {}) for _ in range(CALLS)), n=10)[-1]
