"""Another user storms a real daemon from all sides, in the hope that it is once taken for somebody else."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import struct
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.stub.steps import success
from tests.support.daemon_harness import Setting
from tests.support.mcp_call import PROTOCOL_VERSION, meta
from tests.support.other_user import as_user, needs_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.stub.conftest import MakeDaemon

STRANGER_UID = 64_321
STORM_SECONDS = 3.0
STRANGERS = 4
LEAST_TRIES = 50
RESETS = struct.pack("ii", 1, 0)
OK = b"HTTP/1.1 200"
Address = tuple[socket.AddressFamily, tuple[str, int] | str]


def start_call(prompt_file: str) -> bytes:
    """Return the bytes of a `start` that any parent's uid would be let in with."""
    arguments = {"name": "stolen", "prompt_file": prompt_file}
    params = {"name": "start", "arguments": arguments, "_meta": meta()}
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
    return "\r\n".join([*head, "", ""]).encode() + body


def closes(connection: socket.socket, call: bytes) -> bytes:
    """Send and be gone at once."""
    connection.sendall(call)
    return b""


def resets(connection: socket.socket, call: bytes) -> bytes:
    """Send, and reset the connection."""
    connection.sendall(call)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETS)
    return b""


def closes_its_half(connection: socket.socket, call: bytes) -> bytes:
    """Send, say that no more comes, and read."""
    connection.sendall(call)
    connection.shutdown(socket.SHUT_WR)
    return connection.recv(64)


def sends_twice(connection: socket.socket, call: bytes) -> bytes:
    """Ask for what everybody may see first, and in the same breath for more."""
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + call)
    answered = b""
    while part := connection.recv(4096):
        answered += part
    return b"" if answered.count(OK) <= 1 else answered


def asks(connection: socket.socket, call: bytes) -> bytes:
    """Send, and read the beginning of the answer."""
    connection.sendall(call)
    return connection.recv(64)


def leaves_it_to_others(connection: socket.socket, call: bytes) -> bytes:
    """Connect, wait for others to use the port, send late."""
    time.sleep(0.01)
    connection.sendall(call)
    return b""


def storm(addresses: list[Address], call: bytes) -> bytes:
    """Try everything everywhere for a while; return how often, and every answer that is no refusal."""
    ways: tuple[Callable[[socket.socket, bytes], bytes], ...]
    ways = (closes, resets, closes_its_half, sends_twice, leaves_it_to_others, asks)
    until = time.monotonic() + STORM_SECONDS
    tries, let_in = 0, []
    for (family, address), way in itertools.cycle(itertools.product(addresses, ways)):
        if time.monotonic() > until:
            break
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as connection:
            connection.settimeout(5)
            connection.connect(address)
            tries += 1
            answered = way(connection, call)
            if answered and not answered.startswith((b"HTTP/1.1 403", b"HTTP/1.1 503")):
                let_in.append(answered.decode("latin-1"))
    return json.dumps({"tries": tries, "let_in": let_in[:5]}).encode()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Return a folder that every user can reach."""
    with tempfile.TemporaryDirectory(prefix="hs.", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@needs_root
def test_a_storm_of_another_user_starts_nothing_and_the_parent_works_on(
    make_daemon: MakeDaemon, open_folder: Path
) -> None:
    """By IPv4, IPv6, IPv4 in IPv6 and a Unix socket that everybody may open; closed, reset, reused."""
    path = open_folder / "socket"
    daemon = make_daemon(Setting(top={"listen": ["localhost:0", f"unix:{path}"]})).boot()
    path.chmod(0o666)
    recipe = open_folder / "recipe.md"
    recipe.write_text("steal\n")
    addresses: list[Address] = [
        (socket.AF_INET, ("127.0.0.1", daemon.port)),
        (socket.AF_INET6, ("::1", daemon.port)),
        (socket.AF_INET6, ("::ffff:127.0.0.1", daemon.port)),
        (socket.AF_UNIX, str(path)),
    ]
    attack = partial(storm, addresses, start_call(str(recipe)))
    with contextlib.ExitStack() as strangers:
        storming = [strangers.enter_context(as_user(attack, STRANGER_UID)) for _ in range(STRANGERS)]
        until = time.monotonic() + STORM_SECONDS
        own = 0
        while time.monotonic() < until:
            assert daemon.play(f"own-{own}", success())["outcome"] == "completed"
            own += 1
        reports = [json.loads(one.result()) for one in storming]
    assert [report["let_in"] for report in reports] == [[]] * STRANGERS
    assert all(report["tries"] > LEAST_TRIES for report in reports), reports
    names = {one["name"] for one in daemon.ok("status").content["subagents"]}
    assert names == {f"own-{number}" for number in range(own)}
    assert daemon.status_of("stolen")["state"] == "unknown"
    assert daemon.processes() == []


@needs_root
def test_the_call_of_the_storm_would_start_a_turn_if_its_uid_were_right(
    make_daemon: MakeDaemon, open_folder: Path
) -> None:
    """So it is the uid that keeps it out."""
    daemon = make_daemon().boot()
    recipe = open_folder / "recipe.md"
    recipe.write_text("steal\n")
    daemon.script("stolen", success())
    with socket.create_connection(("127.0.0.1", daemon.port), 10) as connection:
        assert asks(connection, start_call(str(recipe))).startswith(OK)
    assert daemon.loose_end("stolen")["outcome"] == "completed"
