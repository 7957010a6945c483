"""The daemon under measurement, and the bare server beside it."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.daemon_harness import REPOSITORY, Daemon, Setting
from tests.support.mcp_call import PROTOCOL_VERSION, meta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

STUB = REPOSITORY / "tests" / "stub" / "claude_stub.sh"
WRITING_STUB = Path(__file__).with_name("writing_stub.py")
TMPFS = Path("/dev/shm")


@contextmanager
def daemon(*, environment: Mapping[str, str], max_running: int = 8, stub: Path = STUB) -> Iterator[Daemon]:
    """Run a daemon with its state on tmpfs and the stub as claude."""
    with tempfile.TemporaryDirectory(dir=TMPFS, prefix="hive-bench-") as folder:
        setting = Setting(limits={"max_running": max_running}, environment=environment)
        running = Daemon(Path(folder), stub, setting).boot()
        try:
            yield running
        finally:
            running.shut()


@contextmanager
def bare_server() -> Iterator[tuple[int, int]]:
    """Run the bare server; yields its pid and port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.bare_server"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield process.pid, port
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def kept_alive(port: int) -> Iterator[Callable[[str, dict[str, str]], float]]:
    """Yield a function that calls a tool over one connection, as MCP clients do, and returns the seconds."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def call(tool: str, arguments: dict[str, str]) -> float:
        """Call a tool once."""
        params = {"name": tool, "arguments": arguments, "_meta": meta()}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        headers |= {"MCP-Protocol-Version": PROTOCOL_VERSION, "Mcp-Method": "tools/call", "Mcp-Name": tool}
        began = time.monotonic()
        connection.request("POST", "/mcp", body, headers)
        response = connection.getresponse()
        content = response.read()
        assert response.status == http.HTTPStatus.OK, content
        return time.monotonic() - began

    try:
        yield call
    finally:
        connection.close()


def pid_of(running: Daemon) -> int:
    """Return the process id of the daemon."""
    assert running.process is not None
    return running.process.pid
