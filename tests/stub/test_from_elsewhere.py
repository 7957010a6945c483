"""Callers from another machine, played by another network namespace: only the token lets them in."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.stub.stub_call import TOKEN
from tests.support.daemon_harness import Setting
from tests.support.mcp_call import meta
from tests.support.other_user import NOBODY, needs_root
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stub.conftest import MakeDaemon

PORT = 7311
NEAR, FAR = "10.97.8.1", "10.97.8.2"
WITH_LOOPBACK = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
# Python's own modules are all that it needs, so that another user can run it too.
CALLER = """
import http.client, sys
host, port, token, name, body, *headers = sys.argv[1:]
connection = http.client.HTTPConnection(host, int(port), timeout=10)
sent = dict(header.split(": ", 1) for header in headers) | ({"Host": name} if name else {})
connection.request("POST", "/mcp", body, sent | ({"Authorization": "Bearer " + token} if token else {}))
response = connection.getresponse()
print(response.status, response.getheader("WWW-Authenticate"), response.read().decode())
"""
HEADERS = (
    "Content-Type: application/json",
    "Accept: application/json, text/event-stream",
    "MCP-Protocol-Version: 2026-07-28",
    "Mcp-Method: tools/call",
    "Mcp-Name: status",
)


def ran(*words: object) -> str:
    """Run a program and return what it printed."""
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def far_away(near: int) -> Iterator[int]:
    """Connect the network of a process with one of its own; yields a process in that one."""
    far = subprocess.Popen(["unshare", "--net", "sleep", "60"])
    network = Path(f"/proc/{far.pid}/ns/net")
    eventually(lambda: network.readlink() != Path("/proc/self/ns/net").readlink(), what="another network")
    link = [
        "ip",
        "link",
        "add",
        "near",
        "netns",
        near,
        "type",
        "veth",
        "peer",
        "name",
        "far",
        "netns",
        far.pid,
    ]
    try:
        words = [str(word) for word in link]
        if subprocess.run(words, capture_output=True, timeout=20, check=False).returncode != 0:
            pytest.skip("network namespaces cannot be connected here")
        for pid, device, address in ((near, "near", NEAR), (far.pid, "far", FAR)):
            ran("nsenter", f"--net=/proc/{pid}/ns/net", "ip", "addr", "add", f"{address}/24", "dev", device)
            ran("nsenter", f"--net=/proc/{pid}/ns/net", "ip", "link", "set", device, "up")
        yield far.pid
    finally:
        far.kill()
        far.wait()


def called(pid: int, *, token: str = "", host: str = "", uid: int = 0) -> str:
    """Call `status` from the network of a process and return the answer on one line."""
    params = {"name": "status", "arguments": {}, "_meta": meta()}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid else []
    program = [shutil.which("python3", path="/usr/bin:/bin") or sys.executable, "-c", CALLER]
    return ran(
        "nsenter", f"--net=/proc/{pid}/ns/net", *user, *program, NEAR, PORT, token, host, body, *HEADERS
    )  # fmt: skip


@pytest.fixture
def networks() -> None:
    """Skip where there can be no other network namespace."""
    alone = ("unshare", "--net", "ip", "link", "set", "lo", "up")
    if subprocess.run(alone, capture_output=True, timeout=20, check=False).returncode != 0:
        pytest.skip("needs the program ip, and the right to make network namespaces")


@needs_root
@pytest.mark.usefixtures("networks")
def test_another_machine_is_let_in_by_the_token_alone(make_daemon: MakeDaemon, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    setting = Setting(
        top={"listen": ["127.0.0.1:0", f"0.0.0.0:{PORT}"]},
        tables={"auth": {"token_file": str(file)}},
        prefix=WITH_LOOPBACK,
    )
    daemon = make_daemon(setting).boot()
    assert daemon.process is not None
    assert f"other machines can reach http://0.0.0.0:{PORT}/mcp: the token crosses" in daemon.log
    near = daemon.process.pid
    with far_away(near) as far:
        asked = called(far)
        assert asked.startswith(
            f"401 Bearer Refused: this connection comes from {FAR}, and it sent no token; "
        )
        assert called(far, token=f"{TOKEN}x").startswith("401 Bearer ")
        assert called(far, token=TOKEN).startswith('200 None {"jsonrpc"')
        assert called(far, token=TOKEN, host="evil.example").startswith("421 ")
        # From the same machine the uid counts, whatever the address.
        assert called(near).startswith("200 ")
        assert called(near, uid=NOBODY).startswith(
            "401 Bearer Refused: this connection belongs to uid 65534,"
        )
        assert called(near, uid=NOBODY, token=TOKEN).startswith("200 ")
