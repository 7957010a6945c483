"""The stdio bridge as a process: what a client writes to it, line by line, and what comes back."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.support.scripted_daemon import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

WAIT_SECONDS = 30.0


def bridge_words(port: int, *options: str) -> list[str]:
    """Return the command that bridges to a daemon on loopback."""
    url = f"http://127.0.0.1:{port}/mcp"
    return [sys.executable, "-m", "hive_subagent_daemon.client_main", "mcp", "--url", url, *options]


def bridge_environment(**more: str) -> dict[str, str]:
    """Return the environment of a bridge."""
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), **more}


class BridgeProcess:
    """A bridge and what it has said; every line that it writes has to be a message of JSON-RPC."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Read what it says in a thread of its own."""
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.stdin = process.stdin
        self._stdout = process.stdout
        self._said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._next_id = 0
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self._stdout:
            self._said.put(line)

    def say(self, line: bytes) -> None:
        """Write a line."""
        self.stdin.write(line + b"\n")
        self.stdin.flush()

    def notify(self, method: str, **params: object) -> None:
        """Send a notification."""
        self.say(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())

    def request(self, method: str, **params: object) -> int:
        """Send a request and return its id."""
        self._next_id += 1
        message = {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params}
        self.say(json.dumps(message).encode())
        return self._next_id

    def call(self, tool: str, **arguments: object) -> int:
        """Send a call of a tool and return its id."""
        return self.request("tools/call", name=tool, arguments=arguments)

    def heard(self, within: float = WAIT_SECONDS) -> dict[str, Any]:
        """Return the next message."""
        message: dict[str, Any] = json.loads(self._said.get(timeout=within))
        assert message["jsonrpc"] == "2.0"
        return message

    def result(self, tool: str, **arguments: object) -> dict[str, Any]:
        """Call a tool and return the result, which has to be the next message."""
        request_id = self.call(tool, **arguments)
        message = self.heard()
        assert message["id"] == request_id
        found: dict[str, Any] = message["result"]
        return found

    def nothing_more(self) -> bool:
        """Tell whether everything that was said has been heard; for a bridge that has ended."""
        self._reader.join(WAIT_SECONDS)
        return self._said.empty()

    def close(self) -> None:
        """Kill it if it still runs, and wait for its end."""
        self.process.kill()
        self.process.wait(WAIT_SECONDS)
        self._reader.join(WAIT_SECONDS)
        self.stdin.close()
        self._stdout.close()


@contextmanager
def bridge_to(
    port: int, *options: str, environment: Mapping[str, str] | None = None
) -> Iterator[BridgeProcess]:
    """Run a bridge to the daemon at this port; afterwards it has written nothing to stderr."""
    process = subprocess.Popen(
        bridge_words(port, *options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=bridge_environment(**(environment or {})),
    )
    assert process.stderr is not None
    bridge = BridgeProcess(process)
    with process.stderr as stderr:
        try:
            yield bridge
        finally:
            bridge.close()
        assert stderr.read() == b""
