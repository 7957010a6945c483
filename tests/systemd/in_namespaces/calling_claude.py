"""The scripted claude with processes that call the daemon from inside its turn, each in a way of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from tests.stub.claude_stub import Stub, write_whole
from tests.support.mcp_call import PROTOCOL_VERSION, meta
from tests.support.scripted_daemon import REPOSITORY
from tests.systemd.managers import CGROUPS, cgroup_of

Step = dict[str, Any]
LIMIT_SECONDS = 20.0
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def call_as(way: str, into: str, *, address: str | int) -> Step:
    """Call a port or a path in this way; the first line of the answer lands in `into`.

    `into.gone` appears when the process that connected has ended.
    """
    return {"do": "call_as", "way": way, "into": into, "address": address}


def start_request(name: str, prompt_file: str) -> bytes:
    """Return a whole request to start a subagent."""
    params = {"name": "start", "arguments": {"name": name, "prompt_file": prompt_file}, "_meta": meta()}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    head = [
        "POST /mcp HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"MCP-Protocol-Version: {PROTOCOL_VERSION}",
        "Mcp-Method: tools/call",
        "Mcp-Name: start",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def connected(address: str | int) -> socket.socket:
    """Connect to a path, or to a port of loopback."""
    family = socket.AF_INET if isinstance(address, int) else socket.AF_UNIX
    connection = socket.socket(family, socket.SOCK_STREAM)
    connection.settimeout(LIMIT_SECONDS)
    connection.connect(("127.0.0.1", address) if isinstance(address, int) else address)
    return connection


def bridged(address: str | int, request: bytes) -> str:
    """Send the body of a request through a bridge for stdio and return the line that it answers."""
    where = ["--url", f"http://127.0.0.1:{address}"] if isinstance(address, int) else ["--socket", address]
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from hive_subagent_daemon import bridge_main; "
    code += "bridge_main.main(sys.argv[1:])"
    with subprocess.Popen(
        [sys.executable, "-IS", "-c", code, str(REPOSITORY), *where],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as bridge:
        assert bridge.stdin is not None
        assert bridge.stdout is not None
        bridge.stdin.write(request.partition(b"\r\n\r\n")[2] + b"\n")
        bridge.stdin.flush()
        return bridge.stdout.readline().decode()


def answered(connection: socket.socket, request: bytes) -> str:
    """Send a request and return the first line of the answer."""
    try:
        connection.sendall(request)
        return connection.recv(65536).decode(errors="replace").partition("\r\n")[0] or "hung up"
    except OSError as error:
        return repr(error)


class CallingStub(Stub):
    """What the scripted claude does, and one step more."""

    def do_call_as(self, step: Step) -> None:
        """Let a child call in the way that the step names; go on when it has ended."""
        child = os.fork()
        if child == 0:
            self.be_caller(step)
        os.waitpid(child, 0)
        (self.scripts / f"{step['into']}.gone").touch()

    def be_caller(self, step: Step) -> NoReturn:
        """Call, and end."""
        request = start_request("evil", str(self.scripts.parent / "work" / "recipe.md"))
        if step["way"] == "cgroup-below":
            below = CGROUPS / cgroup_of(os.getpid()).lstrip("/") / "below"
            below.mkdir()
            (below / "cgroup.procs").write_text(str(os.getpid()))
        if step["way"] == "bridge":
            write_whole(self.scripts / step["into"], bridged(step["address"], request))
            os._exit(0)
        connection = connected(step["address"])
        if step["way"] == "heir-of-a-known":
            connection.sendall(HEALTH)
            while not connection.recv(65536).endswith(b"}"):  # then it has been accepted
                continue
        if step["way"] in ("heir", "heir-of-a-known"):
            self.leave_to_heir(connection, request, step["into"])
        elif step["way"] == "in-passing":
            connection.sendall(request)
        else:
            write_whole(self.scripts / step["into"], answered(connection, request))
        os._exit(0)

    def leave_to_heir(self, connection: socket.socket, request: bytes, into: str) -> None:
        """Let a child call over this connection once this process has ended."""
        own = os.getpid()
        if os.fork():
            return
        limit = time.monotonic() + LIMIT_SECONDS
        while os.getppid() == own and time.monotonic() < limit:
            time.sleep(0.002)
        write_whole(self.scripts / into, answered(connection, request))


def write_claude(path: Path) -> Path:
    """Write the program that plays claude, for every user."""
    lines = [
        f"#!{Path(sys.executable).resolve()} -IS",
        "import sys",
        f"sys.path.insert(0, {str(REPOSITORY)!r})",
        "from tests.stub import claude_stub",
        "from tests.systemd.in_namespaces.calling_claude import CallingStub",
        "claude_stub.Stub = CallingStub",
        "claude_stub.main()",
    ]
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o755)
    return path
