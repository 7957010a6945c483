"""What a person waits for: `hive-subagent status` beside a Python that does the same exchange and no more."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tests.benchmarks.figures import Figure, median_ms
from tests.benchmarks.setting import daemon
from tests.support.daemon_harness import REPOSITORY
from tests.support.mcp_call import call_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROUNDS = 25
RUNNING = 8
LIMIT = 3.0
# The same request on the wire; what the command adds is a command line, a check and a table.
BARE = """
import http.client, json, sys
meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "bare", "version": "1"}}
call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "status", "arguments": {}, "_meta": meta}}
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
connection.request("POST", "/mcp", json.dumps(call), {
    "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "status"})
answer = json.loads(connection.getresponse().read())
print(answer["result"]["content"][0]["text"])
"""


def measure() -> list[Figure]:
    """Compare both in turn, the command in a pipe and in a terminal, with some subagents to show."""
    with daemon(environment={"STUB_SH_MODE": "stay"}) as running:
        for number in range(RUNNING):
            running.start(f"busy-{number}")
        call_tool(running.port, "status", {})
        url = f"http://127.0.0.1:{running.port}/mcp"
        bare = [sys.executable, "-c", BARE, str(running.port)]
        ours = [sys.executable, "-m", "hive_subagent_daemon.client_main", "status", "--url", url]
        bares, pipes, terminals = _in_turn(
            lambda: _seconds(bare), lambda: _seconds(ours), lambda: _seconds_in_terminal(ours)
        )
        return [
            _figure("in a pipe", pipes, bares),
            _figure("in a terminal", terminals, bares),
        ]


def _figure(where: str, ours: float, bare: float) -> Figure:
    what = f"`hive-subagent status` {where}, against a bare Python with the same exchange"
    return Figure(what, ours / bare, LIMIT, "times", f"{ours:.0f} ms against {bare:.0f} ms")


def _in_turn(*measured: Callable[[], float]) -> list[float]:
    """Return the median of each in milliseconds; they alternate, so that all see the same machine."""
    for each in measured:
        each()  # compiles what is imported
    seconds = [[each() for each in measured] for _ in range(ROUNDS)]
    return [median_ms(column) for column in zip(*seconds, strict=True)]


def _seconds(words: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(words, check=True, capture_output=True, cwd=REPOSITORY, timeout=60)
    return time.perf_counter() - began


def _seconds_in_terminal(words: Sequence[str]) -> float:
    ours, theirs = pty.openpty()
    try:
        environment = dict(os.environ) | {"TERM": "xterm-256color"}
        began = time.perf_counter()
        subprocess.run(words, check=True, stdout=theirs, cwd=REPOSITORY, timeout=60, env=environment)
        return time.perf_counter() - began
    finally:
        os.close(ours)
        os.close(theirs)
